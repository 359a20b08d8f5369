"""What may be done to the values of one column: the grammar inside log(), I(), scale() and the like.

    sum      product {(+ | -) product}
    product  power {(* | /) power}
    power    atom [** whole number]
    atom     number | column | Q('column') | function(column [+ 1]) | I(sum) | (sum)

One column and numbers, never two columns. Under a logarithm or a root there is a column, or a column and 1 or 0.5: if
any number could be added, the smallest value of a site could be found out by trying.
"""

import math
from collections.abc import Callable

from fedgauss.inference.formula.reader import LARGEST, Reader
from fedgauss.inference.formula.terms import Expression, Step

FUNCTIONS = ("log", "log2", "log10", "log1p", "sqrt")
_HIGHEST = 5  # power
_STEPS = 8
_UNDER_A_FUNCTION: tuple[tuple[Step, ...], ...] = ((), (("+", 1.0),), (("+", 0.5),))

Part = Expression | float  # with its text: a number is its own


def function_named(name: str) -> str | None:
    """The function that a formula calls log or np.log, or None."""
    plain = name.removeprefix("np.")
    return plain if plain in FUNCTIONS else None


def expression(reader: Reader) -> Expression:
    """A sum in which a column occurs."""
    part, text = _sum(reader)
    if isinstance(part, float):
        raise reader.refuse(f"{text!r} has no column")
    return part._replace(name=text)


def _sum(reader: Reader) -> tuple[Part, str]:
    return _chain(reader, _product, "+", "-")


def _product(reader: Reader) -> tuple[Part, str]:
    return _chain(reader, _power, "*", "/")


def _chain(reader: Reader, part: Callable[[Reader], tuple[Part, str]], *signs: str) -> tuple[Part, str]:
    """Parts joined by these signs, from left to right."""
    left, text = part(reader)
    while sign := reader.accept(*signs):
        right, more = part(reader)
        left, text = _joined(reader, left, sign, right), f"{text} {sign} {more}"
    return left, text


def _power(reader: Reader) -> tuple[Part, str]:
    part, text = atom(reader)
    if not reader.accept("**"):
        return part, text
    if isinstance(part, float):
        raise reader.refuse(f"{text!r} has no column")
    power = reader.number()
    return raised(reader, part, power.text), f"{text} ** {power.text}"


def raised(reader: Reader, part: Expression, power: str) -> Expression:
    """A column to a whole power."""
    number = float(power)
    degree = number * math.prod(by for sign, by in part.steps if sign == "**")
    if not 2 <= number <= degree <= _HIGHEST or number != math.floor(number):
        raise reader.refuse(f"powers are whole numbers from 2 to {_HIGHEST}; '** {power}' is not")
    return _with_step(reader, part, ("**", number))


def atom(reader: Reader) -> tuple[Part, str]:
    """A number, a column, or something in brackets."""
    if reader.next.kind == "number":
        token = reader.number()
        number = float(token.text)
        if 0.0 < number < 1.0 / LARGEST:
            raise reader.refuse(f"numbers are at least {1.0 / LARGEST:g}; {token.text!r} is not")
        return number, token.text
    if reader.accept("("):
        with reader.deeper():
            part, text = _sum(reader)
            reader.expect(")")
        return part, f"({text})"
    if reader.calls():
        name = reader.next.text
        if name == "Q":
            column, text = reader.quoted_column()
            return Expression(column, (), column), text
        reader.take()
        reader.expect("(")
        with reader.deeper():
            if name == "I":
                part, text = _sum(reader)
            elif function := function_named(name):
                part, text = _call(reader, name, function)
            else:
                raise reader.unknown(name)
            reader.expect(")")
        return part, f"{name}({text})"
    column = reader.column()
    return Expression(column, (), column), column


def _call(reader: Reader, name: str, function: str) -> tuple[Expression, str]:
    """The argument of a function, with its step."""
    part, text = _sum(reader)
    allowed = _UNDER_A_FUNCTION[:1] if function == "log1p" else _UNDER_A_FUNCTION
    if isinstance(part, float) or part.steps not in allowed:
        more = "" if function == "log1p" else ", or a column + 1 or + 0.5"
        raise reader.refuse(f"under {name}() there is a column{more}; {text!r} is something else")
    return _with_step(reader, part, (function, 0.0)), text


def _joined(reader: Reader, left: Part, sign: str, right: Part) -> Expression:
    """A column and a number, in either order; two columns make no factor."""
    if isinstance(left, Expression) and isinstance(right, float):
        if right == 0.0 and sign in "*/":
            raise reader.refuse(f"'{sign} 0' leaves nothing of a column")
        return _with_step(reader, left, (sign, right))
    if isinstance(left, float) and isinstance(right, Expression):
        if sign in "+*" and not (sign == "*" and left == 0.0):
            return _with_step(reader, right, (sign, left))
        if sign == "-":
            return _with_step(reader, _with_step(reader, right, ("*", -1.0)), ("+", left))
        raise reader.refuse("a number may not be divided by a column, nor a column multiplied by 0")
    if isinstance(left, float):
        raise reader.refuse("two numbers are one: write their sum or product")
    raise reader.refuse("inside brackets there is one column: a:b is the product of two")


def _with_step(reader: Reader, part: Expression, step: Step) -> Expression:
    if len(part.steps) >= _STEPS:
        raise reader.refuse(f"at most {_STEPS} things are done to a column")
    return part._replace(steps=(*part.steps, step))
