"""How formulas, numbers and lists are written on pages and in terminals.

A formula stands between dollar signs: `$\\bar{Y}_n$` is a Y with a bar and a subscript n.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_FORMULA = re.compile(r"\$([^$]*)\$")
# In order: a barred letter, a subscript or superscript (a character or a group), a letter that is set in italics.
_TOKEN = re.compile(
    r"\\bar\{(?P<bar>[^{}]*)\}|(?P<mark>[_^])(?:\{(?P<group>[^{}]*)\}|(?P<one>[^\s{}]))"
    r"|(?P<entity>&[#\w]+;)|(?P<letter>[A-Za-zα-ω])"
)


def markup(text: str) -> str:
    """Text as HTML, with its formulas set in italics, subscripts and superscripts.

    Everything is escaped first, so no text, hostile or not, can add markup of its own.
    """
    return _FORMULA.sub(lambda found: f'<span class="math">{_set(found[1])}</span>', escape(text))


def plain(text: str) -> str:
    """Text without formula signs, for places that take no markup, such as a title."""
    return _FORMULA.sub(lambda found: re.sub(r"\\bar|[{}]", "", found[1]), text)


def number(value: float, digits: int = 3) -> str:
    """A rounded number, with a true minus sign and without a negative zero."""
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0.0 and text.startswith("-") else text).replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """A rounded number with its sign; zero has a plus."""
    text = number(value, digits)
    return text if text.startswith("−") else f"+{text}"


def with_error(value: float, error: float, digits: int = 3) -> str:
    """A number with its standard error in brackets, as 0.123 (0.004)."""
    return f"{number(value, digits)} ({number(error, digits)})"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """An enumeration, as in a, b and c."""
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def sentence(text: str) -> str:
    """Text with a capital first letter."""
    return text[:1].upper() + text[1:]


def _set(formula: str) -> str:
    """The inside of a formula as HTML."""
    return _TOKEN.sub(_set_one, formula)


def _set_one(token: re.Match[str]) -> str:
    """One token of a formula as HTML."""
    if token["bar"] is not None:
        return f'<span class="bar">{_set(token["bar"])}</span>'
    if token["mark"]:
        tag = "sub" if token["mark"] == "_" else "sup"
        return f"<{tag}>{_set(token['group'] or token['one'] or '')}</{tag}>"
    return token["entity"] or f"<i>{token['letter']}</i>"
