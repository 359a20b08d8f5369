"""How results show themselves at a prompt and in a notebook."""

from collections.abc import Iterable, Sequence
from html import escape


class Shown:
    """A result with a good `__str__`: a notebook shows that, a prompt its first line, and neither dumps arrays.

    A dataclass writes a `__repr__` of its own unless it is made with repr=False.
    """

    def __repr__(self) -> str:
        return f"<{str(self).strip().partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return f"<pre style='white-space: pre-wrap'>{escape(str(self))}</pre>"


class ShownInSentences(Shown):
    """A result whose `__str__` is sentences: in a notebook a paragraph for each line, and no typewriter."""

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines() if line)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table in HTML, the first column its rows' names; every word is escaped."""
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in cells)}</tr>'
        for name, *cells in rows
    )
    return f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
