"""From text to tokens: names, numbers, quoted text and signs, each with its place in the formula."""

import re
from collections.abc import Sequence
from typing import NamedTuple

LONGEST = 20_000  # characters of a formula
_TOKEN = re.compile(
    r"""
    (?P<number> \d+(?:\.\d*)?(?:[eE][+-]?\d+)? | \.\d+ )
    | (?P<name> [^\W\d]\w*(?:\.[^\W\d]\w*)* )
    | (?P<text> '[^']*' | "[^"]*" )
    | (?P<sign> \*\* | [-+*/:()\[\],=~.] )
    """,
    re.VERBOSE,
)
_INSTEAD = {
    "^": "Powers are written with **, as in I(a**2).",
    "|": "There are no random effects; site_effects=True gives each site an intercept.",
}
_QUOTED_ONLY = re.compile(r"[-+~'\"]")  # in a name that has to be quoted


class Token(NamedTuple):
    """`kind` is name, number, text, sign or end."""

    kind: str
    text: str
    start: int

    @property
    def inside(self) -> str:
        """Of quoted text, without the quotes."""
        return self.text[1:-1]


def tokens_of(formula: str, columns: Sequence[str]) -> list[Token]:
    """The tokens of a formula. A column whose name is no word, such as "bmi (kg)", is one name where it stands so."""
    if len(formula) > LONGEST:
        raise ValueError(f"a formula may have at most {LONGEST:,} characters; got {len(formula):,}.")
    odd = frozenset(name for name in columns if _is_odd(name))
    lengths = sorted({len(name) for name in odd}, reverse=True)
    found: list[Token] = []
    place = 0
    while place < len(formula):
        if formula[place].isspace():
            place += 1
            continue
        token = _odd_name(formula, place, odd, lengths) or _plain(formula, place)
        found.append(token)
        place += len(token.text)
    return [*found, Token("end", "", len(formula))]


def _is_odd(name: str) -> bool:
    """Whether a column's name is no word, and can stand in a formula all the same."""
    token = _TOKEN.fullmatch(name)
    return bool(name) and name == name.strip() and not token and not _QUOTED_ONLY.search(name)


def _odd_name(formula: str, place: int, odd: frozenset[str], lengths: Sequence[int]) -> Token | None:
    """The longest of these names that stands here, unless a word goes on after it."""
    for length in lengths:
        name, after = formula[place : place + length], formula[place + length : place + length + 1]
        if name in odd and not (re.match(r"\w", after) and re.match(r"\w", name[-1])):
            return Token("name", name, place)
    return None


def _plain(formula: str, place: int) -> Token:
    found = _TOKEN.match(formula, place)
    if found and found.lastgroup:
        return Token(found.lastgroup, found[0], place)
    if formula[place] in "'\"":
        raise ValueError(f"brackets and quotes in a formula must be closed; got {formula!r}.")
    fix = _INSTEAD.get(formula[place], "Is it part of a name? Use Q('...').")
    raise ValueError(f"a formula may not have {formula[place]!r} outside quotes; got {formula!r}. {fix}")
