"""How readings, coordinates and estimates are written, on the page and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.verdicts import CODED, OPTIMUM, ZERO, Estimate
from fedgauss.report.text import listed, number, with_error

SHORT = {ZERO: "from zero", OPTIMUM: "from the optimum", CODED: "as coded"}
SYMBOLS = {"K0": "K_0", "mu": "μ", "tau": "τ", "gamma": "γ", "rho": "ρ", "beta": "β"}


def symbol(name: str) -> str:
    """A coordinate as a formula; a word as it is."""
    return name if name == "approximation" else f"${SYMBOLS.get(name, name)}$"


def curve(panel: Panel, series: str) -> str:
    """The name of a curve."""
    return series if panel.by == "approximation" else f"{symbol(panel.by)} = {series}"


def heading(panel: Panel) -> str:
    """What tells a panel from the others of its result; "" for one that stands alone."""
    if panel.only is not None:
        return f"{symbol(panel.only[0])} = {panel.only[1]}"
    return {"figure4_left": "left panel", "figure4_right": "right panel"}.get(panel.part, "")


def over_draws(estimate: Estimate, digits: int = 3) -> str:
    """0.123 (0.004) for one draw of the clients; for several the mean and their range, 0.123 [0.10–0.15]."""
    if estimate.draws == 1:
        return with_error(estimate.mean, estimate.error, digits)
    return f"{number(estimate.mean, digits)} [{number(estimate.low, 2)}–{number(estimate.high, 2)}]"


def errors_shown(estimates: Sequence[Estimate]) -> str:
    """What stands beside the means that `over_draws` writes, for a caption."""
    several = [estimate for estimate in estimates if estimate.draws > 1]
    if not several:
        return "Monte-Carlo errors in brackets"
    count = listed([str(draws) for draws in sorted({estimate.draws for estimate in several})], "or")
    noise = number(max(estimate.noise for estimate in several))
    some = "; one draw with its Monte-Carlo error" if len(several) < len(estimates) else ""
    return f"means over {count} draws of the clients with their range, Monte-Carlo errors of means up to {noise}{some}"
