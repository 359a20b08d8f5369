"""Docstrings of this package are plain text with NumPy-style sections; the reference wants Markdown.

Sentences stay sentences, lines like `name   what it is` become a list of definitions, and indented text, which is
equations and code, becomes a block. Sections (Parameters, ...) are left to mkdocstrings, escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Literal

import griffe

Kind = Literal["prose", "item", "block", "blank"]

_ITEM = re.compile(r"(\S.{0,40}?) {2,}(\S.*)")
_SECTION = re.compile(r"^(?=[A-Z]\w+\n-{3,}$)", re.MULTILINE)
_MARKS = re.compile(r"([*_\[\]#])")


class PlainDocstrings(griffe.Extension):
    """Turns every docstring into Markdown that says the same."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by Griffe for each thing that may have a docstring."""
        if obj.docstring is not None and not obj.is_alias:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The docstring as Markdown, and its sections."""
    plain, *sections = _SECTION.split(text)
    return "\n\n".join([_plain(plain), *map(_section, sections)])


def _section(text: str) -> str:
    """A section with its descriptions, which are indented, escaped."""
    if text.startswith("Examples"):
        return text
    return "\n".join(_escaped(line) if line.startswith(" ") else line for line in text.splitlines())


def _plain(text: str) -> str:
    parts = []
    for kind, lines in groupby(_lines(text), key=lambda pair: pair[0]):
        own = [line for _, line in lines]
        if kind == "prose":
            parts.append("\n".join(map(_escaped, own)))
        elif kind == "block":
            parts.append("\n".join(["```text", *own, "```"]))
        elif kind == "item":
            parts += map(_definition, own)
    return "\n\n".join(parts)


def _lines(text: str) -> Iterator[tuple[Kind, str]]:
    """Each line with its kind; lines that go on with an item are joined to it."""
    item, column = "", 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if item and line and indent >= min(column, 4):
            item += " " + line.strip()
            continue
        if item:
            yield "item", item
            item = ""
        found = _ITEM.fullmatch(line)
        if found and not indent:
            item, column = line, found.start(2)
        elif not line.strip():
            yield "blank", ""
        else:
            yield ("block", line[4:]) if indent >= 4 else ("prose", line)
    if item:
        yield "item", item


def _definition(item: str) -> str:
    found = _ITEM.fullmatch(item)
    assert found is not None
    return f"`{found[1]}`\n:   {_escaped(found[2])}"


def _escaped(text: str) -> str:
    """Without marks that Markdown would act on, but for code in backticks."""
    return "`".join(
        part if i % 2 else _MARKS.sub(r"\\\1", part).replace("<", "&lt;") for i, part in enumerate(text.split("`"))
    )
