"""The grammar of a formula, read from left to right.

    formula      [target ~] [sign] part {(+ | -) part}
    part         0 | 1 | offset(expression) | product
    product      interaction {* interaction}              a*b is a + b + a:b
    interaction  group {: group}
    group        (product {(+ | -) product}) [** n] | factor [** n] | .
    factor       column | Q('column') | C(column[, Treatment(level)]) | log(...) | I(...) | scale(...) | ns(...)

(a + b)**2 is a + b + a:b; a**2 is the square of a, I(a ** 2).
"""

from collections.abc import Sequence
from typing import Any

from fedgauss.inference.formula.arithmetic import atom, expression, function_named, raised
from fedgauss.inference.formula.calls import CALLS
from fedgauss.inference.formula.reader import RULE, Reader, shortened
from fedgauss.inference.formula.terms import Expression, Factor, Formula, Levels, Term, column_of, same
from fedgauss.inference.tables import Frame

_MOST_TERMS = 500
_MOST_FACTORS = 4


def parse(formula: Any, frame: Frame, target: str, others: Sequence[str]) -> Formula:
    """Read a formula. Nothing in it is evaluated: anything but a column or one of the forms above is refused.

    Parameters
    ----------
    formula : str
        Such as "y ~ a + log(b) + C(c)"; the target and ~ may be left out.
    frame : Frame
        Its columns are the names that may occur.
    target : str
        What the left-hand side must be.
    others : sequence of str
        The columns that '.' stands for.

    Returns
    -------
    Formula

    Raises
    ------
    ValueError
        If the formula says anything else, or is too long, too deep or has too many terms.

    Examples
    --------
    >>> parse("y ~ a*b - 1", Frame({"y": [], "a": [], "b": []}), "y", ["a", "b"]).intercept
    False
    """
    if not isinstance(formula, str):
        raise ValueError(f"formula must be text such as 'y ~ a + b'; got {formula!r}.")
    reader = Reader(formula, frame)
    _left_hand_side(reader, target)
    read = _Terms(reader, others).all()
    numbers = {column_of(factor) for factor in (*read.factors, *read.offsets) if not isinstance(factor, Levels)}
    if both := sorted(numbers & read.as_levels):
        raise ValueError(
            f"a column is a number or has levels, not both; {both[0]!r} occurs inside C() and outside it in "
            f"{shortened(formula)!r}."
        )
    return read


def _left_hand_side(reader: Reader, target: str) -> None:
    """Read up to ~, if there is one."""
    signs = [token for token in reader.tokens if token.kind == "sign" and token.text == "~"]
    if not signs:
        return
    if len(signs) > 1:
        raise reader.refuse("'~' occurs more than once")
    left = reader.formula[: signs[0].start].strip()
    if reader.calls() and reader.next.text == "Q":
        found = reader.quoted_column()[0] if left != target else target
    else:
        found = left
    if found != target:
        raise ValueError(
            f"the left-hand side of the formula must be the target {target!r}; got {shortened(left)!r}. A target that "
            "is transformed has to be a column of the frame."
        )
    while not reader.accept("~"):
        if left != target:
            raise reader.refuse("something follows the target")
        reader.take()


class _Terms:
    """Reads the right-hand side."""

    def __init__(self, reader: Reader, others: Sequence[str]) -> None:
        self._reader = reader
        levels = _inside_levels(reader)
        self._others: list[Term] = [(Expression(name, (), name),) for name in others if name not in levels]
        self._intercept, self._offsets, self._dot = True, list[Expression](), False

    def all(self) -> Formula:
        terms = self._sum(top=True)
        if self._reader.next.kind != "end":
            shown = self._reader.next.text
            if shown == ")":
                raise ValueError(f"brackets and quotes in a formula must be closed; got {self._reader.formula!r}.")
            raise self._reader.refuse(f"a sign such as '+' is missing before {shown!r}")
        stood_for = tuple(column_of(factor) for (factor,) in self._others) if self._dot else ()
        return Formula(tuple(terms), self._intercept, tuple(self._offsets), regrouped=True, others=stood_for)

    def _sum(self, top: bool = False) -> list[Term]:
        terms: list[Term] = []
        sign = self._reader.accept("+", "-") or "+"
        while sign:
            found = [] if top and self._alone(sign) else self._product()
            terms = self._checked([*terms, *found]) if sign == "+" else self._without(terms, found)
            sign = self._reader.accept("+", "-")
        return terms

    def _alone(self, sign: str) -> bool:
        """Read 0, 1 or an offset, which are no terms."""
        reader, token = self._reader, self._reader.next
        if token.kind == "number" and token.text in ("0", "1"):
            reader.take()
            if reader.next.kind != "end" and reader.next.text not in ("+", "-"):
                raise reader.refuse(f"{token.text} is for the intercept and stands alone; here it does not")
            self._intercept = (token.text == "1") == (sign == "+")
            return True
        if not (reader.calls() and token.text == "offset"):
            return False
        if sign == "-":
            raise reader.refuse("an offset cannot be taken away")
        reader.take()
        reader.expect("(")
        with reader.deeper():
            self._offsets.append(expression(reader))
            reader.expect(")")
        return True

    def _product(self) -> list[Term]:
        terms = self._interaction()
        while self._reader.accept("*"):
            more = self._interaction()
            terms = self._checked([*terms, *more, *self._crossed(terms, more)])
        return terms

    def _interaction(self) -> list[Term]:
        terms = self._group()
        while self._reader.accept(":"):
            terms = self._checked(self._crossed(terms, self._group()))
        return terms

    def _group(self) -> list[Term]:
        reader = self._reader
        if reader.accept("("):
            with reader.deeper():
                terms = self._sum()
                reader.expect(")")
        elif reader.accept("."):
            terms, self._dot = self._checked(self._others), True
        else:
            terms = [(self._factor(),)]
        if not reader.accept("**"):
            return terms
        power = reader.number().text
        if len(terms) > 1:
            return self._all_products(terms, power)
        (factor,) = terms[0] if len(terms[0]) == 1 else (None,)
        if not isinstance(factor, Expression):
            raise reader.refuse(f"'** {power}' is for a column or a sum of terms")
        square = raised(reader, factor, power)
        inside = factor.name[2:-1] if factor.name.startswith("I(") else factor.name
        bracket = factor.steps and not function_named(factor.name.partition("(")[0])
        return [(square._replace(name=f"I(({inside}) ** {power})" if bracket else f"I({inside} ** {power})"),)]

    def _all_products(self, terms: list[Term], power: str) -> list[Term]:
        """Of up to so many different terms."""
        if power not in ("2", "3", "4"):
            raise self._reader.refuse(f"a sum may be to the power 2, 3 or 4; '** {power}' is not")
        found = terms
        for _ in range(int(power) - 1):
            found = self._checked([*found, *self._crossed(found, terms)])
        return found

    def _factor(self) -> Factor:
        reader = self._reader
        if not reader.calls():
            if reader.next.kind == "number":
                raise reader.refuse(f"{reader.next.text!r} is a number, which may stand inside I() only,")
            column = reader.column()
            return Expression(column, (), column)
        name = reader.next.text
        if name == "Q":
            column, _ = reader.quoted_column()
            return Expression(column, (), column)
        if name == "I" or function_named(name):
            return _one_call(reader)
        if name not in CALLS:
            raise reader.unknown(name)
        reader.take()
        reader.expect("(")
        with reader.deeper():
            factor = CALLS[name](reader, name)
            reader.expect(")")
        return factor

    def _crossed(self, left: Sequence[Term], right: Sequence[Term]) -> list[Term]:
        """All products; a factor that occurs twice in one counts once."""
        self._check_number(len(left) * len(right))
        return [tuple(dict.fromkeys([*one, *other])) for one in left for other in right]

    def _checked(self, terms: Sequence[Term]) -> list[Term]:
        """Each term once."""
        found: dict[frozenset[Factor], Term] = {}
        for term in terms:
            found.setdefault(frozenset(term), term)
        once = list(found.values())
        self._check_number(len(once))
        if any(len(term) > _MOST_FACTORS for term in once):
            raise self._reader.refuse(f"at most {_MOST_FACTORS} factors interact; here more do")
        return once

    def _check_number(self, terms: int) -> None:
        if terms > _MOST_TERMS:
            raise self._reader.refuse(f"a formula has at most {_MOST_TERMS} terms; here there would be {terms:,}")

    def _without(self, terms: list[Term], taken: Sequence[Term]) -> list[Term]:
        for gone in taken:
            if not any(same(term, gone) for term in terms):
                shown = ":".join(factor.name for factor in gone)
                raise ValueError(f"{RULE}; got '- {shown}', which is not among the terms before it.")
        return [term for term in terms if not any(same(term, gone) for gone in taken)]


def _one_call(reader: Reader) -> Expression:
    """I(...) or log(...), and nothing after its bracket."""
    part, text = atom(reader)
    if isinstance(part, float):
        raise reader.refuse(f"{text!r} has no column")
    return part._replace(name=text)


def _inside_levels(reader: Reader) -> set[str]:
    """Columns that the formula has inside C(): '.' does not stand for them."""
    tokens = reader.tokens
    places = [i for i, token in enumerate(tokens[:-2]) if token.text == "C" and tokens[i + 1].text == "("]
    quoted = {tokens[i + 4].inside for i in places if tokens[i + 2].text == "Q" and len(tokens) > i + 4}
    return {tokens[i + 2].text for i in places} | quoted
