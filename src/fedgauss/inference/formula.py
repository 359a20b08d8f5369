"""Formulas such as "y ~ a + b + C(c) - 1": columns joined by +, C() for columns whose values are levels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fedgauss.inference.frames import Frame

_RULE = "a formula may have columns, C(column), Q('column'), '.', +, and - 1 for no intercept"
_QUOTED = re.compile(r"""^Q\(\s*(["'])(.*)\1\s*\)$""")
_LEVELS = re.compile(r"^C\((.*)\)$")


class Term(NamedTuple):
    """A column on the right-hand side; `levels` if its values are levels even where they are numbers."""

    column: str
    levels: bool = False
    shown: str = ""

    @property
    def name(self) -> str:
        """As the formula has it."""
        return self.shown or self.column


class Formula(NamedTuple):
    """What a formula says."""

    terms: tuple[Term, ...]
    intercept: bool


def parse(formula: str, frame: Frame, target: str, others: Sequence[str]) -> Formula:
    """Read a formula. Nothing in it is evaluated: anything but a column or one of the few forms is refused.

    others   the columns that '.' stands for
    """
    if not isinstance(formula, str):
        raise ValueError(f"formula must be text such as 'y ~ a + b'; got {formula!r}.")
    if formula.count("(") != formula.count(")") or formula.count("'") % 2 or formula.count('"') % 2:
        raise ValueError(f"brackets and quotes in a formula must be closed; got {formula!r}.")
    left, tilde, right = formula.partition("~")
    if not tilde:
        left, right = target, formula
    if _unquoted(left.strip()) != target:
        raise ValueError(f"the left-hand side of the formula must be the target {target!r}; got {left.strip()!r}.")
    terms: list[Term] = []
    intercept = True
    for sign, text in _signed(right):
        if text in ("0", "1"):
            intercept = (text == "1") == (sign == "+")
        elif sign == "-":
            raise ValueError(f"{_RULE}; got '- {text}'. Leave the column out instead.")
        elif text == "." and "." not in frame.names:
            terms += [Term(name) for name in others if name not in [term.column for term in terms]]
        else:
            terms.append(_term(text, frame))
    repeated = sorted({term.name for term in terms if [other.name for other in terms].count(term.name) > 1})
    if repeated:
        raise ValueError(f"each column may occur in the formula once; {repeated[0]!r} occurs more often.")
    return Formula(tuple(terms), intercept)


def _signed(right: str) -> list[tuple[str, str]]:
    """Terms with their signs; signs inside brackets or quotes belong to names."""
    parts = re.findall(r"""([+-])?((?:\([^)]*\)|"[^"]*"|'[^']*'|[^+\-("'])+)""", right)
    signed = [(sign or "+", text.strip()) for sign, text in parts]
    if not signed or any(not text for _, text in signed) or re.search(r"[+-]\s*([+-]|$)", right.strip()):
        raise ValueError(f"{_RULE}; got {right.strip()!r}, where a column is missing.")
    return signed


def _term(text: str, frame: Frame) -> Term:
    if text in frame.names:
        return Term(text)
    if inside := _LEVELS.match(text):
        name = _unquoted(inside[1].strip())
        return Term(frame.check_name(name, "C() in the formula"), levels=True, shown=f"C({inside[1].strip()})")
    if _QUOTED.match(text):
        return Term(frame.check_name(_unquoted(text), "Q() in the formula"))
    if re.search(r"[*:^()/\[\]|]", text):
        raise ValueError(f"{_RULE}; got {text!r}. Make it a column of the frame first.")
    return Term(frame.check_name(text, "the formula"))


def _unquoted(text: str) -> str:
    inside = _QUOTED.match(text)
    return inside[2] if inside else text
