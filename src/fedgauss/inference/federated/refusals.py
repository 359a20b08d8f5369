"""Why a site does not follow an order, in words that may leave it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refused(ValueError):
    """Words without a value of a row. What any other error says stays at the site."""


@contextmanager
def in_words(before: str = "") -> Iterator[None]:
    """For checks whose messages name columns, levels and shapes, and no value of a row."""
    try:
        yield
    except ValueError as error:
        raise Refused(f"{before}{error}") from error
