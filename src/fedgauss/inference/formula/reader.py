"""From the text of a formula to tokens, and from these to a tree; nothing is known of its meaning here.

    sum          [sign] product {(+ | -) product}
    product      interaction {(* | /) interaction}
    interaction  power {: power}
    power        atom [** number]
    atom         number | text in quotes | . | name | name(arguments) | (sum) | [sum, ...]

There are words for whatever is out of place.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

RULE = (
    "a formula may have columns, C(column), Q('column'), '.', a:b, a*b, brackets, log(), sqrt(), I(), scale(), "
    "center(), ns(), offset(), +, and - 1 for no intercept"
)
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


class Node(NamedTuple):
    """A part of a formula; `text` is what it says, with spaces where they belong.

    `kind` is number, text, name, call, sum, product, interaction, power, or a sign: "." or an opening bracket. Before
    each of its `parts` stands a sign, or of an argument its name; empty where there is none.
    """

    kind: str
    text: str
    parts: tuple[tuple[str, "Node"], ...] = ()

    @property
    def function(self) -> str:
        """What is called."""
        return self.text.partition("(")[0] if self.kind == "call" else ""

    @property
    def inside(self) -> str:
        """Of text, without the quotes."""
        return self.text[1:-1]

    def walk(self) -> Iterator["Node"]:
        """This part, and all of which it is made."""
        yield self
        for _, part in self.parts:
            yield from part.walk()


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
        raise not_closed(formula)
    fix = _NO_SIGNS.get(formula[place], "Is it part of a name? Use Q('...').")
    raise ValueError(f"a formula may not have {formula[place]!r} outside quotes; got {formula!r}. {fix}")


def tree_of(formula: str, tokens: Sequence[Token]) -> Node:
    """What these tokens of a formula, up to its end, are put together to."""
    return _Reader(formula, tokens).all()


class _Reader:
    """Reads tokens from left to right."""

    def __init__(self, formula: str, tokens: Sequence[Token]) -> None:
        self._formula, self._tokens = formula, tokens
        self._place, self._depth = 0, 0

    def all(self) -> Node:
        """All of it."""
        found = self._sum()
        if self._next.kind == "end":
            return found
        if self._next.text == ")":
            raise not_closed(self._formula)
        raise refusal(self._formula, f"a sign such as '+' is missing before {self._next.text!r}")

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    def _accept(self, *signs: str) -> str:
        """The next token if it is one of these signs, else nothing."""
        here = self._next.kind == "sign" and self._next.text in signs
        self._place += here
        return self._tokens[self._place - 1].text if here else ""

    def _sum(self) -> Node:
        return self._chain("sum", self._product, "+", "-", before=self._accept("+", "-"))

    def _product(self) -> Node:
        return self._chain("product", self._interaction, "*", "/")

    def _interaction(self) -> Node:
        return self._chain("interaction", self._power, ":")

    def _chain(self, kind: str, read: Callable[[], Node], *signs: str, before: str = "") -> Node:
        """Parts joined by these signs; a part alone is itself."""
        parts = [(before, read())]
        while sign := self._accept(*signs):
            parts.append((sign, read()))
        if parts[1:] or before:
            text = before + parts[0][1].text + "".join(f" {sign} {part.text}" for sign, part in parts[1:])
            return Node(kind, text, tuple(parts))
        return parts[0][1]

    def _power(self) -> Node:
        part = self._atom()
        if not self._accept("**"):
            return part
        if self._next.kind != "number":
            raise refusal(self._formula, f"{self._here()} stands where a number should be")
        power = self._atom()
        return Node("power", f"{part.text} ** {power.text}", (("", part), ("**", power)))

    def _atom(self) -> Node:
        kind, text, _ = self._next
        if opened := self._accept("(", "["):
            parts = self._inside(")" if opened == "(" else "]")
            return Node(opened, f"{opened}{_listed(parts)}{')' if opened == '(' else ']'}", parts)
        if self._accept("."):
            return Node(".", ".")
        if kind not in ("number", "name", "text"):
            raise refusal(self._formula, f"{self._here()} stands where a column is missing")
        if kind == "number" and float(text) > LARGEST:
            raise refusal(self._formula, f"numbers are at most {LARGEST:g}; {text!r} is not")
        self._place += 1
        if kind != "name" or not self._accept("("):
            return Node(kind, text)
        parts = () if self._accept(")") else self._inside(")", named=True)
        return Node("call", f"{text}({_listed(parts)})", parts)

    def _inside(self, closing: str, named: bool = False) -> tuple[tuple[str, Node], ...]:
        """What stands in brackets, with commas between; arguments may be `named`."""
        parts = []
        with self._deeper():
            while True:
                after, key = self._tokens[min(self._place + 1, len(self._tokens) - 1)], ""
                if named and self._next.kind == "name" and after.text == "=":
                    key, self._place = self._next.text, self._place + 2
                parts.append((key, self._sum()))
                if not self._accept(","):
                    break
        if self._accept(closing):
            return tuple(parts)
        if self._next.kind == "end":
            raise not_closed(self._formula)
        raise refusal(self._formula, f"{self._here()} stands where {closing!r} should be")

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise refusal(self._formula, f"brackets may be {_DEEPEST} deep")
        yield
        self._depth -= 1

    def _here(self) -> str:
        return "the end" if self._next.kind == "end" else repr(self._next.text)


def _listed(parts: Sequence[tuple[str, Node]]) -> str:
    return ", ".join(f"{key}={part.text}" if key else part.text for key, part in parts)


def refusal(formula: str, why: str) -> ValueError:
    """The error with the rule, the reason and the formula."""
    return ValueError(f"{RULE}; {why} in {shortened(formula)!r}.")


def not_closed(formula: str) -> ValueError:
    """The error about a bracket or a quote."""
    return ValueError(f"brackets and quotes in a formula must be closed; got {formula!r}.")


def shortened(text: str, most: int = 120) -> str:
    """Text that is not too long for a message."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most - 4]} ..."
