"""The table of an estimate, a row for each parameter: a frame, text, HTML, LaTeX; and a whole page of text or HTML."""

from __future__ import annotations

import textwrap
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedgauss._shown import html_table
from fedgauss._types import FloatArray

if TYPE_CHECKING:
    from fedgauss.inference.estimate import Estimate

_WIDTH = 78  # of a summary
COLUMN = 11  # characters of a number in text
_LARGEST_Z = 1e5  # that fits its column
_SMALLEST_P = 0.0005  # shown as < 0.001 where a table has three decimals
_ESCAPED = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "[": "{[}", "*": "{*}",  # either, first in a row, would belong to the end of the row above
}  # fmt: skip


class CoefficientTable(NamedTuple):
    """Columns of a table, (r,) each; `exp` if estimates and intervals are exponentials."""

    names: tuple[str, ...]
    estimate: FloatArray
    std_error: FloatArray
    z: FloatArray
    p: FloatArray
    low: FloatArray
    high: FloatArray
    level: float
    letter: str  # z, or t where that is the law
    exp: bool

    @classmethod
    def of(cls, estimate: Estimate, exp: bool = False) -> CoefficientTable:
        """The table of an estimate.

        With `exp`, b becomes exp(b) and so do the ends of its interval, and the standard error is exp(b) se(b), by the
        delta method; z and p are still about b = 0. Intercepts and shapes are left out then, unless there is nothing
        else: the exponential of one is an odds, a rate or an alpha, and no ratio.
        """
        shown = estimate.slopes() if exp else np.arange(len(estimate.names))
        value, error = np.asarray(estimate.params)[shown], np.asarray(estimate.std_errors)[shown]
        ends = estimate.conf_int()[shown]
        if exp:
            with np.errstate(over="ignore"):  # an infinite ratio is shown as one
                value, ends = np.exp(value), np.exp(ends)
                error = value * error
        z, p = np.asarray(estimate.z_values)[shown], np.asarray(estimate.p_values)[shown]
        names = tuple(estimate.names[i] for i in shown)
        letter = "t" if np.isfinite(estimate.dof) else "z"
        return cls(names, value, error, z, p, ends[:, 0], ends[:, 1], estimate.level, letter, exp)

    def frame(self) -> Any:
        """As a pandas DataFrame, the names its index."""
        columns = {key: getattr(self, key) for key in ("estimate", "std_error", "z", "p", "low", "high")}
        return pandas_frame(columns, list(self.names))

    def text(self, name_width: int) -> list[str]:
        """A line of heads, and one for each row."""
        lines = [" " * name_width + "".join(f"{head:>{COLUMN}}" for head in self._heads())]
        for name, value, error, z, p, low, high in self._rows():
            ends = number(low) + number(high)
            lines.append(
                f"{name.ljust(name_width)}{number(value)}{number(error)}{_z(z):>{COLUMN}}{p:{COLUMN}.3f}{ends}"
            )
        return lines

    def html(self) -> str:
        """As a table in HTML."""
        return html_table(["", *self._heads()], ([name, *map(str.strip, cells)] for name, cells in self._cells()))

    def latex(self) -> str:
        """As a tabular in LaTeX with the rules of booktabs."""
        low, high = self._tails()
        estimate = r"$\exp(b)$" if self.exp else "estimate"
        heads = [
            "", estimate, "std.\\ error", f"${self.letter}$", f"$P>|{self.letter}|$", f"[{low}", f"{high}]"
        ]  # fmt: skip
        lines = [r"\begin{tabular}{lrrrrrr}", r"\toprule", " & ".join(heads) + r" \\", r"\midrule"]
        for name, cells in self._cells():
            lines.append(" & ".join([latex_text(name), *(_latex_number(cell.strip()) for cell in cells)]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])

    def _heads(self) -> list[str]:
        low, high = self._tails()
        first = "exp(b)" if self.exp else "estimate"
        return [first, "std err", self.letter, f"P>|{self.letter}|", f"[{low}", f"{high}]"]

    def _tails(self) -> tuple[str, str]:
        return f"{(1.0 - self.level) / 2:.3g}", f"{(1.0 + self.level) / 2:.3g}"

    def _rows(self) -> Any:
        return zip(
            self.names, self.estimate, self.std_error, self.z, self.p, self.low, self.high, strict=True
        )  # fmt: skip

    def _cells(self) -> list[tuple[str, list[str]]]:
        """What HTML and LaTeX show, row by row."""
        return [
            (name, [number(value), number(error), _z(z), _p(p), number(low), number(high)])
            for name, value, error, z, p, low, high in self._rows()
        ]


def pandas_frame(columns: dict[str, Any], index: list[str] | None = None) -> Any:
    """Columns as a pandas DataFrame."""
    try:
        import pandas  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError("to_frame needs pandas: pip install 'fedgauss[frames]'.") from error
    return pandas.DataFrame(columns, index=index)


def number(value: float) -> str:
    """Four decimals, or as many digits where these would show nothing."""
    plain = value == 0.0 or 1e-2 <= abs(value) < 1e5
    return f"{value:{COLUMN}.4f}" if plain else f"{value:{COLUMN}.3e}"


def latex_text(text: str) -> str:
    """Text in which LaTeX sees no command."""
    return "".join(_ESCAPED.get(letter, letter if letter.isprintable() else " ") for letter in text)


def _latex_number(cell: str) -> str:
    """A number in math mode, where a minus is a minus."""
    if cell in ("inf", "-inf"):
        return f"${cell.replace('inf', chr(92) + 'infty')}$"
    digits, _, power = cell.partition("e")
    return f"${digits}\\times 10^{{{int(power)}}}$" if power else f"${cell}$"


def _z(z: float) -> str:
    """Three decimals, unless an error is all but zero, as where nothing is left to explain."""
    return f"{z:.3f}" if abs(z) < _LARGEST_Z else f"{z:.3e}"


def _p(p: float) -> str:
    return "< 0.001" if p < _SMALLEST_P else f"{p:.3f}"


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
