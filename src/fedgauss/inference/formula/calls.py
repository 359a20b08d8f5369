"""The factors that are more than arithmetic on a column: C(), scale(), center() and ns()."""

from collections.abc import Callable
from itertools import pairwise

from fedgauss.inference.formula.arithmetic import expression
from fedgauss.inference.formula.reader import Reader
from fedgauss.inference.formula.terms import Factor, Levels, Pooled, Spline

_MOST_COLUMNS = 15  # of a spline


def _levels(reader: Reader, name: str) -> Levels:
    """C(column), C(column, Treatment), C(column, Treatment(level)) or C(column, Treatment(reference=level))."""
    if reader.calls() and reader.next.text == "Q":
        column, text = reader.quoted_column()
    else:
        column = text = reader.frame.check_name(_name(reader), "C() in the formula")
    if not reader.accept(","):
        return Levels(column, None, f"C({text})")
    if _name(reader) != "Treatment":
        raise reader.refuse("after the comma in C() there is Treatment('level')")
    if not reader.accept("("):
        return Levels(column, None, f"C({text}, Treatment)")
    if reader.accept(")"):
        return Levels(column, None, f"C({text}, Treatment())")
    key = ""
    if reader.next.text == "reference":
        reader.take()
        reader.expect("=")
        key = "reference="
    level, shown = _level(reader)
    reader.expect(")")
    return Levels(column, level, f"C({text}, Treatment({key}{shown}))")


def _name(reader: Reader) -> str:
    if reader.next.kind != "name":
        raise reader.refuse(f"{reader.next.text!r} stands where a column is missing")
    return reader.take().text


def _level(reader: Reader) -> tuple[str | float | bool, str]:
    token = reader.next
    if token.kind == "text":
        return reader.take().inside, token.text
    if token.kind == "name" and token.text in ("True", "False"):
        return reader.take().text == "True", token.text
    if token.kind == "number" or token.text == "-":
        return reader.signed_number()
    raise reader.refuse("Treatment() has one level: text in quotes, a number, True or False")


def _pooled(reader: Reader, name: str) -> Pooled:
    of = expression(reader)
    return Pooled(of, name != "center", f"{name}({of.name})")


def _spline(reader: Reader, name: str) -> Spline:
    """ns(column, df=4) or ns(column, knots=[30, 50], bounds=[20, 80])."""
    of = expression(reader)
    given: dict[str, tuple[float, ...]] = {}
    shown = [of.name]
    while reader.accept(","):
        key = "df"
        if reader.next.kind == "name":
            key = reader.take().text
            reader.expect("=")
        if key not in ("df", "knots", "bounds") or key in given:
            raise reader.refuse(f"ns() has a column, df= or knots=, and bounds=, once each; {key!r} is none of these")
        given[key], text = _numbers(reader)
        shown.append(f"{key}={text}")
    knots, bounds = given.get("knots"), given.get("bounds")
    if ("df" in given) == (knots is not None):
        raise reader.refuse("ns() needs df= or knots=, one of them")
    df = len(knots) + 1 if knots is not None else _degrees(reader, given["df"])
    if df > _MOST_COLUMNS:
        raise reader.refuse(f"a spline has at most {_MOST_COLUMNS} columns; here there would be {df}")
    if bounds is not None and len(bounds) != 2:
        raise reader.refuse("bounds= has two numbers")
    in_order = [*(bounds or ())[:1], *(knots or ()), *(bounds or ())[1:]]
    if any(one >= other for one, other in pairwise(in_order)):
        raise reader.refuse("knots rise and lie between the bounds; here they do not")
    return Spline(of, df, knots, None if bounds is None else (bounds[0], bounds[1]), f"ns({', '.join(shown)})")


def _degrees(reader: Reader, given: tuple[float, ...]) -> int:
    if len(given) != 1 or given[0] != int(given[0]) or given[0] < 1:
        raise reader.refuse("df= is a whole number from 1")
    return int(given[0])


def _numbers(reader: Reader) -> tuple[tuple[float, ...], str]:
    """A number, or several in brackets."""
    opened = reader.accept("[", "(")
    if not opened:
        number, text = reader.signed_number()
        return (number,), text
    closing = "]" if opened == "[" else ")"
    found = [reader.signed_number()]
    while reader.accept(","):
        if len(found) > _MOST_COLUMNS:
            raise reader.refuse(f"a spline has at most {_MOST_COLUMNS} columns")
        found.append(reader.signed_number())
    reader.expect(closing)
    return tuple(number for number, _ in found), f"{opened}{', '.join(text for _, text in found)}{closing}"


CALLS: dict[str, Callable[[Reader, str], Factor]] = {
    "C": _levels, "scale": _pooled, "standardize": _pooled, "center": _pooled, "ns": _spline,
}  # fmt: skip
