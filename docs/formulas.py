"""Formulas on pages, by the package's own means: no script, and nothing from elsewhere.

`$\\bar{Y}_n$` in a sentence is set as a formula. In a block of the kind `math` every line is a formula, with words
behind a bar, and an empty line makes a gap.
"""

from __future__ import annotations

import re
from typing import Any

from fedgauss.report.text import markup

_FENCED = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(`[^`\n]+`)|\$[^$\n]+\$")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs with the text of each page."""
    parts, end = [], 0
    for found in _FENCED.finditer(markdown):
        parts += [_sentences(markdown[end : found.start()]), _table(found[3]) if found[2] == "math" else found[0]]
        end = found.end()
    return "".join([*parts, _sentences(markdown[end:])])


def _sentences(text: str) -> str:
    return _INLINE.sub(lambda found: found[1] or _safe(markup(found[0])), text)


def _table(lines: str) -> str:
    rows = "".join(map(_row, lines.splitlines()))
    return f'<div class="equations"><table class="rows">{rows}</table></div>'


def _row(line: str) -> str:
    if not line.strip():
        return '<tr class="gap"><td></td></tr>'
    formula, _, words = line.partition("|")
    left = _safe(markup(f"${formula.strip()}$")) if formula.strip() else ""
    return f"<tr><td>{left}</td><td>{_safe(markup(words.strip()))}</td></tr>"


def _safe(html: str) -> str:
    """Without marks that Markdown would act on."""
    return html.replace("*", "&#42;").replace("_", "&#95;")
