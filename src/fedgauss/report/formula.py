"""Text with formulas between dollar signs, as HTML: `$\\bar{Y}_n$` becomes a Y with a bar and a subscript n.

Everything is escaped first, so no text, hostile or not, can add markup of its own.
"""

from __future__ import annotations

import re
from html import escape

_FORMULA = re.compile(r"\$([^$]*)\$")
# In order: a barred letter, a subscript or superscript (a character or a group), a letter that is set in italics.
_TOKEN = re.compile(
    r"\\bar\{(?P<bar>[^{}]*)\}|(?P<mark>[_^])(?:\{(?P<group>[^{}]*)\}|(?P<one>[^\s{}]))"
    r"|(?P<entity>&[#\w]+;)|(?P<letter>[A-Za-zα-ω])"
)


def markup(text: str) -> str:
    """`text` escaped, with its formulas set in italics, subscripts and superscripts."""
    return _FORMULA.sub(lambda found: f'<span class="math">{_set(found[1])}</span>', escape(text))


def plain(text: str) -> str:
    """`text` without formula signs, for places that take no markup, such as a title."""
    return _FORMULA.sub(lambda found: re.sub(r"\\bar|[{}]", "", found[1]), text)


def _set(formula: str) -> str:
    return _TOKEN.sub(_one, formula)


def _one(token: re.Match[str]) -> str:
    if token["bar"] is not None:
        return f'<span class="bar">{_set(token["bar"])}</span>'
    if token["mark"]:
        tag = "sub" if token["mark"] == "_" else "sup"
        return f"<{tag}>{_set(token['group'] or token['one'] or '')}</{tag}>"
    return token["entity"] or f"<i>{token['letter']}</i>"
