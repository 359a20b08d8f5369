"""What a formula means: the terms of the tree that its text is read into.

    formula      [target ~] [sign] part {(+ | -) part}
    part         0 | 1 | offset(expression) | product
    product      interaction {* interaction}              a*b is a + b + a:b
    interaction  group {: group}
    group        (product {(+ | -) product}) [** n] | factor [** n] | .
    factor       column | Q('column') | C(column[, Treatment(level)]) | log(...) | I(...) | scale(...) | ns(...)

(a + b)**2 is a + b + a:b; a**2 is the square of a, I(a ** 2).
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fedgauss.inference.formula.factors import Factors, function_named
from fedgauss.inference.formula.reader import RULE, Node, Token, refusal, shortened, tokens_of, tree_of
from fedgauss.inference.formula.terms import Expression, Factor, Formula, Levels, Term, column_of, same
from fedgauss.inference.tables import Frame

_MOST_TERMS = 500
_MOST_FACTORS = 4
_KEPT = 64  # formulas: a run between sites reads one several times, on few kinds of columns


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
    return _parsed(formula, tuple(frame.names), target, tuple(others))


@lru_cache(_KEPT)
def _parsed(formula: str, names: tuple[str, ...], target: str, others: tuple[str, ...]) -> Formula:
    frame = Frame(dict.fromkeys(names))
    tree = tree_of(formula, _right_hand_side(formula, tokens_of(formula, names), target))
    read = _Terms(formula, frame, _without_levels(others, tree)).all(tree)
    numbers = {column_of(factor) for factor in (*read.factors, *read.offsets) if not isinstance(factor, Levels)}
    if both := sorted(numbers & read.as_levels):
        raise ValueError(
            f"a column is a number or has levels, not both; {both[0]!r} occurs inside C() and outside it in "
            f"{shortened(formula)!r}."
        )
    return read


def _right_hand_side(formula: str, tokens: Sequence[Token], target: str) -> Sequence[Token]:
    """The tokens after ~, before which there is the target alone; all, where there is no ~."""
    places = [i for i, token in enumerate(tokens) if token.kind == "sign" and token.text == "~"]
    if not places:
        return tokens
    if len(places) > 1:
        raise refusal(formula, "'~' occurs more than once")
    left = formula[: tokens[places[0]].start].strip()
    quoted = [token.text for token in tokens[: places[0]]] in (["Q", "(", f"{q}{target}{q}", ")"] for q in "'\"")
    if left != target and not quoted:
        raise ValueError(
            f"the left-hand side of the formula must be the target {target!r}; got {shortened(left)!r}. A target that "
            "is transformed has to be a column of the frame."
        )
    return tokens[places[0] + 1 :]


def _without_levels(others: Sequence[str], tree: Node) -> list[str]:
    """Columns that '.' stands for: not those that the formula has inside C()."""
    firsts = [node.parts[0][1] for node in tree.walk() if node.function == "C" and node.parts]
    levels = {first.parts[0][1].inside if first.function == "Q" and first.parts else first.text for first in firsts}
    return [name for name in others if name not in levels]


class _Terms:
    """Makes terms of the right-hand side."""

    def __init__(self, formula: str, frame: Frame, others: Sequence[str]) -> None:
        self._read = Factors(formula, frame)
        self._others: list[Term] = [(Expression(name, (), name),) for name in others]
        self._intercept, self._offsets, self._dot = True, list[Expression](), False

    def all(self, tree: Node) -> Formula:
        """The whole formula."""
        terms = self._sum(tree, top=True)
        stood_for = tuple(column_of(factor) for (factor,) in self._others) if self._dot else ()
        return Formula(tuple(terms), self._intercept, tuple(self._offsets), regrouped=True, others=stood_for)

    def _sum(self, node: Node, top: bool = False) -> list[Term]:
        terms: list[Term] = []
        for sign, part in node.parts if node.kind == "sum" else (("+", node),):
            found = [] if top and self._alone(sign, part) else self._terms(part)
            terms = self._without(terms, found) if sign == "-" else self._checked([*terms, *found])
        return terms

    def _alone(self, sign: str, node: Node) -> bool:
        """Take in 0, 1 or an offset, which are no terms."""
        first = node
        while first.kind in ("product", "interaction", "power"):
            first = first.parts[0][1]
        if first.kind == "number" and first.text in ("0", "1"):
            if first is not node:
                raise self._read.refuse(f"{first.text} is for the intercept and stands alone; here it does not")
            self._intercept = (node.text == "1") == (sign != "-")
            return True
        if node.function != "offset" or len(node.parts) != 1:
            return False
        if sign == "-":
            raise self._read.refuse("an offset cannot be taken away")
        self._offsets.append(self._read.expression(node.parts[0][1]))
        return True

    def _terms(self, node: Node) -> list[Term]:
        """The terms that a part of the formula stands for."""
        if node.kind == "product":
            terms = self._terms(node.parts[0][1])
            for sign, part in node.parts[1:]:
                if sign == "/":
                    raise self._read.refuse("a sign such as '+' is missing before '/'")
                more = self._terms(part)
                terms = self._checked([*terms, *more, *self._crossed(terms, more)])
            return terms
        if node.kind == "interaction":
            terms = self._terms(node.parts[0][1])
            for _, part in node.parts[1:]:
                terms = self._checked(self._crossed(terms, self._terms(part)))
            return terms
        if node.kind == "(" and len(node.parts) == 1:
            return self._sum(node.parts[0][1])
        if node.kind == ".":
            self._dot = True
            return self._checked(self._others)
        return self._power(node) if node.kind == "power" else [(self._read.factor(node),)]

    def _power(self, node: Node) -> list[Term]:
        terms, power = self._terms(node.parts[0][1]), node.parts[1][1].text
        if len(terms) > 1:
            return self._all_products(terms, power)
        (factor,) = terms[0] if terms and len(terms[0]) == 1 else (None,)
        if not isinstance(factor, Expression):
            raise self._read.refuse(f"'** {power}' is for a column or a sum of terms")
        square = self._read.raised(factor, power)
        inside = factor.name[2:-1] if factor.name.startswith("I(") else factor.name
        bracket = factor.steps and not function_named(factor.name.partition("(")[0])
        return [(square._replace(name=f"I(({inside}) ** {power})" if bracket else f"I({inside} ** {power})"),)]

    def _all_products(self, terms: list[Term], power: str) -> list[Term]:
        """Of up to so many different terms."""
        if power not in ("2", "3", "4"):
            raise self._read.refuse(f"a sum may be to the power 2, 3 or 4; '** {power}' is not")
        found = terms
        for _ in range(int(power) - 1):
            found = self._checked([*found, *self._crossed(found, terms)])
        return found

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
            raise self._read.refuse(f"at most {_MOST_FACTORS} factors interact; here more do")
        return once

    def _check_number(self, terms: int) -> None:
        if terms > _MOST_TERMS:
            raise self._read.refuse(f"a formula has at most {_MOST_TERMS} terms; here there would be {terms:,}")

    def _without(self, terms: list[Term], taken: Sequence[Term]) -> list[Term]:
        for gone in taken:
            if not any(same(term, gone) for term in terms):
                shown = ":".join(factor.name for factor in gone)
                raise ValueError(f"{RULE}; got '- {shown}', which is not among the terms before it.")
        return [term for term in terms if not any(same(term, gone) for gone in taken)]
