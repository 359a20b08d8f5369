"""The factors of a term: a column, what may be done to its values (log(), I() and the like), C(), scale() and ns().

One column and numbers, never two columns. Under a logarithm or a root there is a column, or a column and 1 or 0.5: if
any number could be added, the smallest value of a site could be found out by trying.
"""

import math
from itertools import pairwise

from fedgauss.inference.formula.reader import LARGEST, RULE, Node, refusal
from fedgauss.inference.formula.terms import FUNCTIONS, Expression, Factor, Levels, Pooled, Spline, Step
from fedgauss.inference.tables import Frame

# What R and patsy have, and is called otherwise here.
_INSTEAD = {
    "factor": "Use C(column).",
    "as.factor": "Use C(column).",
    "bs": "Use ns(column, df=4), a natural spline.",
    "poly": "Use powers: a + I(a**2).",
    "standardize": "Use scale(column).",
}
_HIGHEST = 5  # power
_STEPS = 8
_UNDER_A_FUNCTION: tuple[tuple[Step, ...], ...] = ((), (("+", 1.0),), (("+", 0.5),))
_MOST_COLUMNS = 15  # of a spline

Part = Expression | float


class Factors:
    """Reads factors of a formula on the columns of a frame."""

    def __init__(self, formula: str, frame: Frame) -> None:
        self._formula, self._frame = formula, frame

    def refuse(self, why: str) -> ValueError:
        """The error with the rule, the reason and the formula."""
        return refusal(self._formula, why)

    def factor(self, node: Node) -> Factor:
        """A factor, by the name that its columns get."""
        if node.kind == "number":
            raise self.refuse(f"{node.text!r} is a number, which may stand inside I() only,")
        if node.function == "C":
            return self._levels(node)
        if node.function in ("scale", "standardize", "center"):
            return Pooled(self.expression(self._only(node)), node.function != "center", node.text)
        if node.function == "ns":
            return self._spline(node)
        if node.kind == "name" or node.function == "Q":
            column = self._column(node)
            return Expression(column, (), column)
        return self.expression(node)

    def expression(self, node: Node) -> Expression:
        """Arithmetic in which a column occurs."""
        part = self._value(node)
        if isinstance(part, float):
            raise self.refuse(f"{node.text!r} has no column")
        return part._replace(name=node.text)

    def raised(self, part: Expression, power: str) -> Expression:
        """A column to a whole power."""
        number = float(power)
        degree = number * math.prod(by for sign, by in part.steps if sign == "**")
        if not 2 <= number <= degree <= _HIGHEST or number != math.floor(number):
            raise self.refuse(f"powers are whole numbers from 2 to {_HIGHEST}; '** {power}' is not")
        return self._with_step(part, ("**", number))

    def _value(self, node: Node) -> Part:
        """A number, or a column and what is done to it."""
        if node.kind == "number":
            if 0.0 < float(node.text) < 1.0 / LARGEST:
                raise self.refuse(f"numbers are at least {1.0 / LARGEST:g}; {node.text!r} is not")
            return float(node.text)
        if node.kind in ("sum", "product") and not node.parts[0][0]:
            left = self._value(node.parts[0][1])
            for sign, part in node.parts[1:]:
                left = self._joined(left, sign, self._value(part))
            return left
        if node.kind == "power":
            (_, base), (_, power) = node.parts
            return self.raised(self.expression(base), power.text)
        if node.kind == "(" or node.function == "I":
            return self._value(self._only(node))
        if node.kind == "name" or node.function == "Q":
            column = self._column(node)
            return Expression(column, (), column)
        if node.kind == "call":
            return self._called(node)
        raise self.refuse(f"{node.text!r} stands where a column is missing")

    def _called(self, node: Node) -> Expression:
        """A function of a column."""
        name = node.function
        function = function_named(name)
        if function is None:
            fix = _INSTEAD.get(name, "Make it a column of the frame first.")
            raise ValueError(f"{RULE}; got {name + '()'!r}. {fix}")
        inside = self._only(node)
        part = self._value(inside)
        if isinstance(part, float) or part.steps not in _UNDER_A_FUNCTION[: 1 if function == "log1p" else None]:
            more = "" if function == "log1p" else ", or a column + 1 or + 0.5"
            raise self.refuse(f"under {name}() there is a column{more}; {inside.text!r} is something else")
        return self._with_step(part, (function, 0.0))

    def _joined(self, left: Part, sign: str, right: Part) -> Expression:
        """A column and a number, in either order; two columns make no factor."""
        if isinstance(left, Expression) and isinstance(right, float):
            if right == 0.0 and sign in "*/":
                raise self.refuse(f"'{sign} 0' leaves nothing of a column")
            return self._with_step(left, (sign, right))
        if isinstance(left, float) and isinstance(right, Expression):
            if sign in "+*" and not (sign == "*" and left == 0.0):
                return self._with_step(right, (sign, left))
            if sign == "-":
                return self._with_step(self._with_step(right, ("*", -1.0)), ("+", left))
            raise self.refuse("a number may not be divided by a column, nor a column multiplied by 0")
        if isinstance(left, float):
            raise self.refuse("two numbers are one: write their sum or product")
        raise self.refuse("inside brackets there is one column: a:b is the product of two")

    def _with_step(self, part: Expression, step: Step) -> Expression:
        if len(part.steps) >= _STEPS:
            raise self.refuse(f"at most {_STEPS} things are done to a column")
        return part._replace(steps=(*part.steps, step))

    def _only(self, node: Node) -> Node:
        """What stands alone in brackets."""
        if len(node.parts) != 1 or node.parts[0][0]:
            raise self.refuse(f"one thing stands in these brackets; {node.text!r} has something else")
        return node.parts[0][1]

    def _column(self, node: Node, where: str = "the formula") -> str:
        """The column of a name, or of Q('name')."""
        if node.function == "Q":
            if [part.kind for _, part in node.parts] != ["text"]:
                raise self.refuse("Q() has the name of a column in quotes")
            return self._frame.check_name(node.parts[0][1].inside, "Q() in the formula")
        if node.kind != "name":
            here = (
                "'(' stands where ')' should be" if node.function else f"{node.text!r} stands where a column is missing"
            )
            raise self.refuse(here)
        return self._frame.check_name(node.text, where)

    def _levels(self, node: Node) -> Levels:
        """C(column), C(column, Treatment), C(column, Treatment(level)) or C(column, Treatment(reference=level))."""
        (_, first), *more = node.parts or (("", node),)
        column = self._column(first, "C() in the formula")
        if not more:
            return Levels(column, None, node.text)
        (key, coding), *others = more
        if key or others or "Treatment" not in (coding.text, coding.function):
            raise self.refuse("after the comma in C() there is Treatment('level')")
        if not coding.parts:
            return Levels(column, None, node.text)
        (key, level), *others = coding.parts
        if others or key not in ("", "reference"):
            raise self.refuse("Treatment() has one level: text in quotes, a number, True or False")
        return Levels(column, self._level(level), node.text)

    def _level(self, node: Node) -> str | float | bool:
        if node.kind == "text":
            return node.inside
        if node.text in ("True", "False"):
            return node.text == "True"
        number = _signed(node)
        if number is None:
            raise self.refuse("Treatment() has one level: text in quotes, a number, True or False")
        return number

    def _spline(self, node: Node) -> Spline:
        """ns(column, df=4) or ns(column, knots=[30, 50], bounds=[20, 80])."""
        (_, first), *more = node.parts or (("", node),)
        of, given, shown = self.expression(first), dict[str, tuple[float, ...]](), [first.text]
        for key, part in more:
            name = key or "df"
            if name not in ("df", "knots", "bounds") or name in given:
                raise self.refuse(
                    f"ns() has a column, df= or knots=, and bounds=, once each; {name!r} is none of these"
                )
            given[name] = self._numbers(part)
            shown.append(f"{name}={part.text}")
        knots, bounds = given.get("knots"), given.get("bounds")
        if ("df" in given) == (knots is not None):
            raise self.refuse("ns() needs df= or knots=, one of them")
        df = given["df"][0] if knots is None else len(knots) + 1
        if df != int(df) or df < 1 or len(given.get("df", (df,))) != 1:
            raise self.refuse("df= is a whole number from 1")
        if df > _MOST_COLUMNS:
            raise self.refuse(f"a spline has at most {_MOST_COLUMNS} columns; here there would be {df:g}")
        if bounds is not None and len(bounds) != 2:
            raise self.refuse("bounds= has two numbers")
        in_order = [*(bounds or ())[:1], *(knots or ()), *(bounds or ())[1:]]
        if any(one >= other for one, other in pairwise(in_order)):
            raise self.refuse("knots rise and lie between the bounds; here they do not")
        ends = None if bounds is None else (bounds[0], bounds[1])
        return Spline(of, int(df), knots, ends, f"ns({', '.join(shown)})")

    def _numbers(self, node: Node) -> tuple[float, ...]:
        """A number, or several in brackets."""
        numbers = [_signed(part) for _, part in node.parts] if node.kind in "([" else [_signed(node)]
        found = tuple(number for number in numbers if number is not None)
        if len(found) < len(numbers):
            raise self.refuse(f"{node.text!r} stands where a number should be")
        return found


def function_named(name: str) -> str | None:
    """The function that a formula calls log or np.log, or None."""
    plain = name.removeprefix("np.")
    return plain if plain in FUNCTIONS else None


def _signed(node: Node) -> float | None:
    """A number that may be negative; None of anything else."""
    if node.kind == "sum" and len(node.parts) == 1 and node.parts[0][0] == "-":
        number = _signed(node.parts[0][1])
        return None if number is None else -number
    return float(node.text) if node.kind == "number" else None
