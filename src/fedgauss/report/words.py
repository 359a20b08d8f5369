"""How numbers and lists are written, on pages and in terminals."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: float, digits: int = 3) -> str:
    """With a real minus sign, and no minus zero."""
    text = f"{value:.{digits}f}"
    return (text[1:] if float(text) == 0.0 and text.startswith("-") else text).replace("-", "−")


def signed(value: float, digits: int = 3) -> str:
    """With a sign, whichever it is."""
    return number(value, digits) if value < 0 and float(f"{value:.{digits}f}") != 0.0 else f"+{number(value, digits)}"


def with_error(value: float, error: float, digits: int = 3) -> str:
    """0.123 (0.004)."""
    return f"{number(value, digits)} ({number(error, digits)})"


def listed(parts: Sequence[str], last: str = "and") -> str:
    """a, b and c."""
    return f" {last} ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def sentence(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]
