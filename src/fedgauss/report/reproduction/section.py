"""One result as a reader meets it, on the page and in the terminal. A result brings its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgauss.experiments.verdicts import Outcome
    from fedgauss.report.drawing import Drawing
    from fedgauss.report.table import Table


@dataclass(frozen=True)
class Section:
    """A result with its claim, its verdict and what shows them.

    name      of the result; figures are saved under the names of their drawings
    where     its place in the paper
    verdict   a word or two
    summary   one line, for the terminal and for the table at the top of the page
    findings  sentences for the page: what was measured
    why       sentences for the page: why that differs from the claim
    outcomes  how printed numbers and ours compare, for results of the paper that print any
    """

    name: str
    title: str
    where: str
    claim: str
    verdict: str
    summary: str
    findings: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...]
    why: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def role(self) -> str:
        """The colour of the palette that its verdict is written in."""
        if "not reproduced" in self.verdict:
            return "limit"
        if "left open" in self.verdict:
            return "muted"
        if "as coded" in self.verdict:
            return "exact"
        return "finite" if "reproduced" in self.verdict else "muted"
