"""A fit as files: the numbers as JSON, and a figure of the coefficients with their intervals."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedgauss._types import FloatArray
from fedgauss.inference.fit import Fit
from fedgauss.report.output import png, styled, svg, titled_figure, write_whole
from fedgauss.report.page import LIGHT

_WIDTH, _ROW = 6.4, 0.27  # inches
_LONGEST_NAME = 34
_CONSTANTS = ("const", "Intercept")


def write_fit(found: Fit, folder: Path) -> list[Path]:
    """fit.json, coefficients.png and coefficients.svg."""
    figure = coefficient_figure(found)
    numbers = json.dumps(fit_numbers(found), indent=1, ensure_ascii=False, allow_nan=False)
    files = {"fit.json": (numbers + "\n").encode(), "coefficients.png": png(figure), "coefficients.svg": svg(figure)}
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def fit_numbers(found: Fit) -> dict[str, Any]:
    """All that a fit says, as plain numbers and text."""
    test = found.heterogeneity
    return {
        "names": list(found.names),
        "params": _plain(found.params),
        "std_errors": _plain(found.std_errors),
        "z": _plain(found.z_values),
        "p": _plain(found.p_values),
        "level": found.level,
        "intervals": _plain(found.conf_int()),
        "cov": _plain(found.cov),
        "scales": _plain(found.scales),
        "method": found.method,
        "facts": found.facts,
        "notes": list(found.notes),
        "bias_in_std_errors": None if found.bias is None else _plain(found.bias),
        "predicted_coverage": None if found.predicted_coverage is None else _plain(found.predicted_coverage),
        "clients_alike": None if test is None else test._asdict(),
    }


@styled
def coefficient_figure(found: Fit) -> Figure:
    """Each coefficient with its interval, for one standard deviation of its covariate: then they can be compared.

    Intercepts are left out, unless there is nothing else. Those whose interval holds zero are pale.
    """
    slopes = [i for i, name in enumerate(found.names) if name.rpartition(": ")[2] not in _CONSTANTS]
    shown = np.array(slopes or range(len(found.names)))
    scale = found.scales[shown]
    values, (low, high) = found.params[shown] * scale, found.conf_int()[shown].T * scale
    clear = (low > 0.0) | (high < 0.0)
    target = _short(found.facts.get("Target", "the target"))
    title = f"{target}: {clear.sum()} of {len(shown)} intervals exclude zero"
    figure = titled_figure(title, 1.3 + _ROW * len(shown), _WIDTH)
    axes = figure.subplots()
    axes.axvline(0.0, color=LIGHT["faint"], linewidth=1.0, zorder=0)
    for row, is_clear in enumerate(clear):
        colour = LIGHT["exact" if is_clear else "simulated"]
        axes.plot([low[row], high[row]], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(values[row], row, "o", color=colour, markersize=4.5)
    axes.set_yticks(np.arange(len(shown)), [_short(found.names[i]) for i in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    unit = "change for one standard deviation of the covariate" if slopes else "estimate"
    axes.set_xlabel(f"{unit}, with {100 * found.level:g} % intervals")
    return figure


def _short(name: str) -> str:
    """A name that fits, and in which matplotlib sees no formula."""
    cut = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return cut.replace("$", r"\$")


def _plain(values: FloatArray) -> Any:
    return np.asarray(values, dtype=float).tolist()
