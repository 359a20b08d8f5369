"""From text to tokens, names, numbers, quoted text and signs, and reading them one by one.

There are words for whatever is out of place.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fedgauss.inference.tables import Frame

RULE = (
    "a formula may have columns, C(column), Q('column'), '.', a:b, a*b, brackets, log(), sqrt(), I(), scale(), "
    "center(), ns(), offset(), +, and - 1 for no intercept"
)
# What R and patsy have, and is called otherwise here.
_INSTEAD = {
    "factor": "Use C(column).",
    "as.factor": "Use C(column).",
    "bs": "Use ns(column, df=4), a natural spline.",
    "poly": "Use powers: a + I(a**2).",
    "standardize": "Use scale(column).",
}
LARGEST = 1e12  # number
_DEEPEST = 10  # brackets within brackets
_LONGEST = 20_000  # characters of a formula
_TOKEN = re.compile(
    r"""
    (?P<number> \d+(?:\.\d*)?(?:[eE][+-]?\d+)? | \.\d+ )
    | (?P<name> [^\W\d]\w*(?:\.[^\W\d]\w*)* )
    | (?P<text> '[^']*' | "[^"]*" )
    | (?P<sign> \*\* | [-+*/:()\[\],=~.] )
    """,
    re.VERBOSE,
)
_NO_SIGNS = {
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
    if len(formula) > _LONGEST:
        raise ValueError(f"a formula may have at most {_LONGEST:,} characters; got {len(formula):,}.")
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
    fix = _NO_SIGNS.get(formula[place], "Is it part of a name? Use Q('...').")
    raise ValueError(f"a formula may not have {formula[place]!r} outside quotes; got {formula!r}. {fix}")


class Reader:
    """The tokens of a formula on the columns of a frame, and where reading has got to."""

    def __init__(self, formula: str, frame: Frame) -> None:
        self.formula, self.frame = formula, frame
        self._tokens: Sequence[Token] = tokens_of(formula, frame.names)
        self._place, self._depth = 0, 0

    @property
    def next(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._place]

    @property
    def tokens(self) -> Sequence[Token]:
        """All of them, read or not."""
        return self._tokens

    def take(self) -> Token:
        """The next token, which is then behind."""
        token = self.next
        if token.kind != "end":
            self._place += 1
        return token

    def accept(self, *signs: str) -> str:
        """The next token if it is one of these signs, else nothing."""
        return self.take().text if self.next.kind == "sign" and self.next.text in signs else ""

    def expect(self, sign: str) -> None:
        """Read this sign."""
        if self.accept(sign):
            return
        if self.next.kind == "end" and sign in ")]":
            raise ValueError(f"brackets and quotes in a formula must be closed; got {self.formula!r}.")
        raise self.refuse(f"{self._here()} stands where {sign!r} should be")

    def calls(self) -> bool:
        """Whether a name with a bracket after it comes next."""
        after = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        return self.next.kind == "name" and after.kind == "sign" and after.text == "("

    def number(self) -> Token:
        """Read a number."""
        if self.next.kind != "number":
            raise self.refuse(f"{self._here()} stands where a number should be")
        if float(self.next.text) > LARGEST:
            raise self.refuse(f"numbers are at most {LARGEST:g}; {self.next.text!r} is not")
        return self.take()

    def signed_number(self) -> tuple[float, str]:
        """Read a number that may be negative, with its text."""
        sign = self.accept("-")
        token = self.number()
        return float(sign + token.text), sign + token.text

    def column(self) -> str:
        """Read the name of a column."""
        if self.next.kind != "name":
            raise self.refuse(f"{self._here()} stands where a column is missing")
        return self.frame.check_name(self.take().text, "the formula")

    def quoted_column(self) -> tuple[str, str]:
        """Read Q('column'): the column, and the text."""
        self.take()
        self.expect("(")
        if self.next.kind != "text":
            raise self.refuse("Q() has the name of a column in quotes")
        quoted = self.take()
        self.expect(")")
        return self.frame.check_name(quoted.inside, "Q() in the formula"), f"Q({quoted.text})"

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """While inside a bracket."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.refuse(f"brackets may be {_DEEPEST} deep")
        yield
        self._depth -= 1

    def refuse(self, why: str) -> ValueError:
        """The error with the rule, the reason and the formula."""
        return ValueError(f"{RULE}; {why} in {shortened(self.formula)!r}.")

    def unknown(self, name: str) -> ValueError:
        """The error about a function that is none of ours."""
        fix = _INSTEAD.get(name, "Make it a column of the frame first.")
        return ValueError(f"{RULE}; got {name + '()'!r}. {fix}")

    def _here(self) -> str:
        return "the end" if self.next.kind == "end" else repr(self.next.text)


def shortened(text: str, most: int = 120) -> str:
    """Text that is not too long for a message."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most - 4]} ..."
