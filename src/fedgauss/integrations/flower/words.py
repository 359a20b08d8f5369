"""Words that came from elsewhere, as they may stand in a log or a verdict."""

from __future__ import annotations


def plain(text: str, longest: int = 200) -> str:
    """Without control characters, and cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:longest])
    return shown if len(text) <= longest else f"{shown} ..."
