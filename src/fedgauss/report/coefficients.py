"""A fit as files: the numbers as JSON, and a figure of the coefficients with their intervals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedgauss._types import FloatArray
from fedgauss.inference.fit import Fit
from fedgauss.report.output import png, styled, svg, titled_axes, write_whole
from fedgauss.report.page import LIGHT

_WIDTH, _ROW = 6.4, 0.27  # inches
_LONGEST_NAME = 34


def write_fit(fit: Fit, folder: Path) -> list[Path]:
    """fit.json, coefficients.png and coefficients.svg."""
    figure = coefficient_figure(fit)
    numbers = json.dumps(fit_numbers(fit), indent=1, ensure_ascii=False, allow_nan=False)
    files = {"fit.json": (numbers + "\n").encode(), "coefficients.png": png(figure), "coefficients.svg": svg(figure)}
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def fit_numbers(fit: Fit) -> dict[str, Any]:
    """A fit as plain numbers and text."""
    test = fit.heterogeneity
    return {
        "names": list(fit.names),
        "params": _plain(fit.params),
        "std_errors": _plain(fit.std_errors),
        "z": _plain(fit.z_values),
        "p": _plain(fit.p_values),
        "level": fit.level,
        "intervals": _plain(fit.conf_int()),
        "cov": _plain(fit.cov),
        "scales": _plain(fit.scales),
        "method": fit.method,
        "facts": fit.facts,
        "notes": list(fit.notes),
        "bias_in_std_errors": None if fit.bias is None else _plain(fit.bias),
        "predicted_coverage": None if fit.predicted_coverage is None else _plain(fit.predicted_coverage),
        "clients_alike": None if test is None else test._asdict(),
    }


@styled
def coefficient_figure(fit: Fit) -> Figure:
    """Each coefficient with its interval, for one standard deviation of its covariate: these can be compared.

    Intercepts are left out, unless there is nothing else. Coefficients whose interval contains zero are pale.
    """
    slopes = [i for i in range(len(fit.names)) if i not in fit.intercepts]
    shown = np.array(slopes or range(len(fit.names)))
    scale = fit.scales[shown]
    values, (low, high) = fit.params[shown] * scale, fit.conf_int()[shown].T * scale
    clear = (low > 0.0) | (high < 0.0)
    target = _short(fit.facts.get("Target", "the target"))
    title = f"{target}: {clear.sum()} of {len(shown)} intervals exclude zero"
    figure, axes = titled_axes(title, 1.3 + _ROW * len(shown), _WIDTH)
    axes.axvline(0.0, color=LIGHT["faint"], linewidth=1.0, zorder=0)
    for row, is_clear in enumerate(clear):
        colour = LIGHT["exact" if is_clear else "simulated"]
        axes.plot([low[row], high[row]], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(values[row], row, "o", color=colour, markersize=4.5)
    axes.set_yticks(np.arange(len(shown)), [_short(fit.names[i]) for i in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    unit = "change for one standard deviation of the covariate" if slopes else "estimate"
    axes.set_xlabel(f"{unit}, with {100 * fit.level:g} % intervals")
    return figure


def _short(name: str) -> str:
    """A name that fits, and in which matplotlib sees no formula."""
    cut = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return cut.replace("$", r"\$")


def _plain(values: FloatArray) -> Any:
    return np.asarray(values, dtype=float).tolist()
