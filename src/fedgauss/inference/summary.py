"""An estimate as a page of text, in the manner of statsmodels, and as HTML for a notebook."""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING

from fedgauss.inference.coefficient_table import COLUMN, CoefficientTable

if TYPE_CHECKING:
    from fedgauss.inference.estimate import Estimate

_WIDTH = 78


def summary_text(estimate: Estimate) -> str:
    """Facts two a line, a row for each parameter, what sites say by themselves, tests and notes."""
    cells = [f"{name}: {value}".ljust(_WIDTH // 2 - 1) for name, value in estimate.shown_facts().items()]
    facts = ["  ".join(cells[i : i + 2]).rstrip() for i in range(0, len(cells), 2)]
    name_width = max(12, *(len(name) for name in estimate.names))
    width = max(_WIDTH, name_width + 6 * COLUMN)
    head, *rows = CoefficientTable.of(estimate).text(name_width)
    lines = ["Federated estimate".center(width).rstrip(), "=" * width, *facts, "=" * width, head, "-" * width, *rows]
    lines += ["=" * width, *estimate.site_lines(), *_tests(estimate)]
    for note in estimate.notes:
        lines += textwrap.wrap(note, _WIDTH)
    return "\n".join(lines)


def summary_html(estimate: Estimate) -> str:
    """The same as tables and paragraphs; every word is escaped."""
    cells = [
        f'<th scope="row">{escape(name)}</th><td>{escape(str(value))}</td>'
        for name, value in estimate.shown_facts().items()
    ]
    facts = "".join(f"<tr>{''.join(cells[i : i + 2])}</tr>" for i in range(0, len(cells), 2))
    pieces = [
        f"<table><caption>Federated estimate</caption><tbody>{facts}</tbody></table>",
        CoefficientTable.of(estimate).html(),
        estimate.site_html(),
        *(f"<p>{escape(line)}</p>" for line in (*_tests(estimate), *estimate.notes)),
    ]
    return f'<div class="fedgauss-estimate">{"".join(pieces)}</div>'


def _tests(estimate: Estimate) -> list[str]:
    """Whether clients are alike, and the largest bias, where these are known."""
    lines = []
    if estimate.heterogeneity is not None:
        lines.append(f"Heterogeneity test: {estimate.heterogeneity}")
    if estimate.bias is not None and estimate.predicted_coverage is not None:
        worst = int(abs(estimate.bias).argmax())
        lines.append(
            f"Largest bias: {estimate.bias[worst]:.2f} standard errors ({estimate.names[worst]}); its interval then "
            f"covers {estimate.predicted_coverage[worst]:.3f}"
        )
    return lines
