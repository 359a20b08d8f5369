"""A summary in the manner of statsmodels: what was run, the coefficients, and what to know before trusting them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgauss.inference.estimate import Estimate

_WIDTH = 78


def summary_text(estimate: Estimate) -> str:
    """Facts in two columns, a row for each parameter, tests, notes."""
    name_width = max(12, *(len(name) for name in estimate.names))
    width = max(_WIDTH, name_width + 66)
    lines = ["Federated estimate".center(width).rstrip(), "=" * width, *_facts(estimate.facts), "=" * width]
    low, high = (1.0 - estimate.level) / 2, (1.0 + estimate.level) / 2
    heads = ["estimate", "std err", "z", "P>|z|", f"[{low:.3g}", f"{high:.3g}]"]
    lines += [" " * name_width + "".join(f"{head:>11}" for head in heads), "-" * width]
    intervals = estimate.conf_int()
    for i, name in enumerate(estimate.names):
        numbers = (estimate.params[i], estimate.std_errors[i], estimate.z_values[i], estimate.p_values[i])
        cells = [_number(numbers[0]), _number(numbers[1]), f"{numbers[2]:11.3f}", f"{numbers[3]:11.3f}"]
        ends = [_number(end) for end in intervals[i]]
        lines.append(name.ljust(name_width) + "".join(cells + ends))
    lines.append("=" * width)
    if estimate.heterogeneity is not None:
        lines.append(f"Heterogeneity test: {estimate.heterogeneity}")
    if estimate.bias is not None and estimate.predicted_coverage is not None:
        worst = int(abs(estimate.bias).argmax())
        lines.append(
            f"Largest bias: {estimate.bias[worst]:.2f} standard errors ({estimate.names[worst]}); its interval then "
            f"covers {estimate.predicted_coverage[worst]:.3f}"
        )
    for note in estimate.notes:
        lines += textwrap.wrap(note, _WIDTH)
    return "\n".join(lines)


def _number(value: float) -> str:
    """Four decimals, or as many digits where these would show nothing."""
    return f"{value:11.4f}" if value == 0.0 or 1e-2 <= abs(value) < 1e5 else f"{value:11.3e}"


def _facts(facts: dict[str, str]) -> list[str]:
    """Two facts a line."""
    half = (_WIDTH - 2) // 2
    cells = [f"{name}: {value}" for name, value in facts.items()]
    pairs = [cells[i : i + 2] for i in range(0, len(cells), 2)]
    return ["  ".join(cell.ljust(half) for cell in pair).rstrip() for pair in pairs]
