"""How parameters are shown: vectors whose entries have names, tables (a frame, text, HTML, LaTeX), whole summaries."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedgauss._shown import html_table
from fedgauss._types import ArrayLike, FloatArray

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


class Named(np.ndarray[Any, np.dtype[np.float64]]):
    """A vector of numbers, each of which has a name.

    It is an ndarray: `vector[0]`, `vector[1:]`, `X @ vector` and every function of NumPy work as ever, and what they
    return is an ordinary array. Functions that act entry by entry keep the names, so that
    ``np.exp(fit.params)["age"]`` is an odds ratio.

    Parameters
    ----------
    values : (d,) array_like
        The numbers; they are copied.
    names : sequence of str
        One for each.

    Examples
    --------
    >>> params = Named([-1.5, 0.25], ["const", "age"])
    >>> float(params["age"]), float(params[1])
    (0.25, 0.25)
    >>> params[["age", "const"]]
    array([ 0.25, -1.5 ])
    >>> params
    const   -1.5
    age     0.25
    """

    names: tuple[str, ...]

    def __new__(cls, values: ArrayLike, names: Sequence[str]) -> Named:
        """A copy of the values under these names."""
        array = np.array(values, dtype=float)
        if array.shape != (len(names),):
            raise ValueError(f"names must be as many as values; got {len(names)} for an array of shape {array.shape}.")
        vector = array.view(cls)
        vector.names = tuple(names)
        return vector

    def __array_finalize__(self, template: Any) -> None:
        self.names = ()  # of a copy, which may be sorted in place: only what is known to keep the order keeps names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return np.asarray(self)[self._place(key)]
        if isinstance(key, list | tuple) and key and all(isinstance(each, str) for each in key):
            return np.asarray(self)[[self._place(each) for each in key]]
        return np.asarray(self)[key]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        given = [other.names for other in inputs if isinstance(other, Named)]
        if "out" in options:
            options["out"] = tuple(_plain(array) for array in options["out"])
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        by_entry = method == "__call__" and ufunc.signature is None and len(set(given)) == 1
        if by_entry and isinstance(result, np.ndarray) and result.shape == (len(given[0]),) and result.dtype == float:
            return Named(result, given[0])
        return result

    def __reduce__(self) -> Any:
        return (Named, (np.asarray(self), self.names)) if self.names else np.asarray(self).__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return Named(self, self.names) if self.names else np.array(self)

    def __repr__(self) -> str:
        if not self.names:
            return repr(np.asarray(self))
        values = [f"{value:.6g}" for value in self.tolist()]
        wide, high = max(map(len, self.names)), max(map(len, values))
        lines = [f"{name.ljust(wide)}   {value.rjust(high)}" for name, value in zip(self.names, values, strict=True)]
        return "\n".join(lines)

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(no_such_name(name, self.names))
        return self.names.index(name)


def no_such_name(name: Any, names: Sequence[str]) -> str:
    """What to say about a name that no parameter has: the nearest, or those there are."""
    lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)
    if near:
        return f"no parameter is named {name!r}. Did you mean {lower[near[0]]!r}?"
    some = ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"no parameter is named {name!r}. There are {some or 'no names any more: this is a copy or a part'}."


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Named) else value


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
