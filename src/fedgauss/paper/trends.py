r"""Whether a distance moves along an axis, which way, and how that is said.

On each curve, and for each draw of the clients, a line is fitted by least squares to the points (t_i, v_i), where
t = log x, or t = rho for the second eigenvalue. With a_i the weights that give its slope times t_last - t_first,

    change = sum_i a_i v_i,    its Monte-Carlo error^2 = sum_i a_i^2 e_i^2.

Within one draw curves share their random numbers, so the change is averaged over curves and its error is too, as if
they shared their noise. Draws are independent: over them the change is averaged, with the error of `error_of_mean`. A
change of more than two errors is a trend; a smaller one is "not detected", which is not to say that there is none.
What else a direction may be:

    differs      some curves rise and others fall, each by more than two errors: their mean would say nothing
    at floor     not detected, and no value is above 1.5 noise floors: these runs cannot tell
    one draw     K changes along the axis, so each point has clients of its own, and they were drawn once: a movement
                 may be the draw, and no direction is claimed

"Falls, then rises" takes more than a line: on the mean curve, the first and the last value must lie above the lowest,
which is neither, by more than two errors of the difference. It takes three abscissae to be examined at all. What a
run does not show is "not detected", never absent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from fedgauss._types import FloatArray
from fedgauss.paper.judging import Measurement, Panel, Points, error_of_mean, symbol
from fedgauss.paper.readings import OPTIMUM, READINGS, SHORT, ZERO
from fedgauss.report.text import Table, listed, number, sentence, signed, span, with_error

Direction = Literal["falls", "rises", "falls, then rises", "differs", "not detected", "at floor", "one draw"]

Values = Sequence[float] | FloatArray
Trends = dict[str | None, "Trend"]  # by reading; None: of the printed numbers

_NOUNS = {"falls": "fall", "rises": "rise", "falls, then rises": "fall and later rise"}
_LEVEL = 0.99  # of intervals for slopes
_FLOORS = 1.5  # noise floors, below which a distance is hardly told from zero


@dataclass(frozen=True)
class Trend:
    """How a panel moves from left to right, on average over its curves and over draws of the clients.

    x, means  the abscissae that all curves have, and the mean value at each
    by_curve  where curves differ, the direction of each that moves by more than two errors
    """

    direction: Direction
    change: float
    error: float
    x: tuple[float, ...]
    means: tuple[float, ...]
    by_curve: tuple[tuple[str, Direction], ...] = ()

    def examines(self, panel: Panel) -> bool:
        """Whether there are enough abscissae for what the panel claims."""
        return panel.expected != "falls, then rises" or len(self.x) > 2


@dataclass(frozen=True)
class _Curve:
    """Values and Monte-Carlo errors by abscissa and draw."""

    series: str
    x: FloatArray
    values: FloatArray
    errors: FloatArray
    floor: float | None

    @property
    def at_floor(self) -> bool:
        """Whether no value is above 1.5 noise floors."""
        return self.floor is not None and bool(np.all(self.values.mean(axis=1) <= _FLOORS * self.floor))


def trends(panel: Panel, points: Points) -> Trends:
    """The trend of the printed numbers (None) and under each reading, where there are enough points."""
    found = {reading: trend(panel, points, reading) for reading in (None, *READINGS)}
    return {reading: one for reading, one in found.items() if one is not None}


def trend(panel: Panel, points: Points, reading: str | None) -> Trend | None:
    """The trend of our values under a reading, or of the printed numbers (None); None if there are too few points.

    Printed numbers come without errors, so that only their change has a meaning.
    """
    curves = [curve for curve in _curves(points, reading) if len(curve.x) > 1]
    if not curves:
        return None
    fits = [_fitted_changes(panel, curve) for curve in curves]
    change, error = _over_draws(*np.mean(fits, axis=0))
    x = sorted(set.intersection(*(set(curve.x) for curve in curves)))
    if len(x) < 2:
        return None
    tables = []
    for curve in curves:
        places = np.searchsorted(curve.x, x)
        tables.append((curve.values[places], curve.errors[places]))
    levels, noises = np.mean(tables, axis=0)  # by abscissa and draw
    by_curve = tuple((curve.series, _moved(*_over_draws(*fit))) for curve, fit in zip(curves, fits, strict=True))
    clear = tuple((series, moved) for series, moved in by_curve if moved != "not detected")
    direction: Direction = _moved(change, error)
    if panel.new_clients and levels.shape[1] == 1:
        direction = "one draw"
    elif panel.expected == "falls, then rises" and _turns(levels, noises):
        direction = "falls, then rises"
    elif len({moved for _, moved in clear}) > 1:
        direction = "differs"
    elif direction == "not detected" and all(curve.at_floor for curve in curves):
        direction = "at floor"
    means = tuple(levels.mean(axis=1).tolist())
    return Trend(direction, change, error, tuple(x), means, clear if direction == "differs" else ())


def exponent(points: Points, reading: str | None) -> tuple[float, float]:
    """b in v ~ x^b, fitted on logarithmic scales and averaged over curves and draws, and its error."""
    curves = _curves(points, reading)
    fits = [_slopes(log_weights(curve.x), np.log(curve.values), curve.errors / curve.values) for curve in curves]
    return _over_draws(*np.mean(fits, axis=0))


def _curves(points: Points, reading: str | None) -> list[_Curve]:
    """Each curve, sorted by abscissa, with as many draws as all points have; a draw is known by its place."""
    found: dict[str, list[tuple[float, Measurement]]] = {}
    for point in points:
        if reading is not None and reading in point.ours:
            found.setdefault(point.series, []).append((point.x, point.ours[reading]))
        elif reading is None and point.printed is not None:
            found.setdefault(point.series, []).append((point.x, Measurement((point.printed,), (0.0,), runs=0)))
    curves = []
    draws = min((estimate.draws for pairs in found.values() for _, estimate in pairs), default=0)
    for series, pairs in found.items():
        x, ours = zip(*sorted(pairs, key=lambda pair: pair[0]), strict=True)
        values = np.array([estimate.values[:draws] for estimate in ours])
        errors = np.array([estimate.errors[:draws] for estimate in ours])
        floors = [estimate.floor for estimate in ours if estimate.floor is not None]
        curves.append(_Curve(series, np.array(x, dtype=float), values, errors, max(floors, default=None)))
    return curves


def _fitted_changes(panel: Panel, curve: _Curve) -> FloatArray:
    """The change in each draw, and its Monte-Carlo error, as two rows."""
    t = curve.x if panel.across == "rho" else np.log(curve.x)
    return _slopes(_slope_weights(t) * (t[-1] - t[0]), curve.values, curve.errors)


def _slopes(weights: FloatArray, values: FloatArray, errors: FloatArray) -> FloatArray:
    """The sum in each draw that the weights make of the values, and its Monte-Carlo error, as two rows."""
    return np.array([weights @ values, np.linalg.norm(weights[:, None] * errors, axis=0)])


def _over_draws(values: FloatArray, errors: FloatArray) -> tuple[float, float]:
    return float(np.mean(values)), error_of_mean(values, errors)


def _moved(change: float, error: float) -> Direction:
    if abs(change) <= 2.0 * error:
        return "not detected"
    return "rises" if change > 0 else "falls"


def _turns(levels: FloatArray, noises: FloatArray) -> bool:
    """Whether both ends of the mean curve lie clearly above its lowest point."""
    low = int(np.argmin(levels.mean(axis=1)))
    if not 0 < low < len(levels) - 1:
        return False
    above = [(levels[end] - levels[low], np.hypot(noises[end], noises[low])) for end in (0, -1)]
    return all(difference.mean() > 2.0 * error_of_mean(difference, noise) for difference, noise in above)


def _slope_weights(t: FloatArray) -> FloatArray:
    """a with slope = a'v: a_i = (t_i - mean t) / sum (t - mean t)^2."""
    centred = t - t.mean()
    weights: FloatArray = centred / np.sum(centred**2)
    return weights


# --- in words ---


def trend_sentence(panel: Panel, found: Trends) -> str:
    """How points move along the axis, and under which readings that is as claimed."""
    ours = _by_short_name(found)
    if panel.expected == "falls, then rises":
        ends = "; ".join(_ends(panel, reading, one) for reading, one in ours.items())
        measured = f"the first, the lowest and the last mean over curves are {ends}"
    else:
        changes = [f"{signed(one.change)} ({number(one.error)}) {reading}" for reading, one in ours.items()]
        measured = f"the fitted change is {listed(changes)}"
    name, some = panel.heading, next(iter(ours.values()))
    where = f"from {symbol(panel.across)} = {some.x[0]:g} to {some.x[-1]:g}"
    return sentence(f"{name + ': ' if name else ''}{where} {measured}. {sentence(claimed(panel, found))}")


def _by_short_name(found: Trends) -> dict[str, Trend]:
    return {SHORT[reading]: one for reading, one in found.items() if reading is not None}


def _ends(panel: Panel, reading: str, found: Trend) -> str:
    low = found.means.index(min(found.means))
    first, lowest, last = (number(found.means[place], 2) for place in (0, low, -1))
    return f"{first}, {lowest} (at {symbol(panel.across)} = {found.x[low]:g}) and {last} {reading}"


def claimed(panel: Panel, found: Trends) -> str:
    """The claimed fall with n is there from zero; it was not detected from the optimum; as coded the distance rises."""
    ours = _by_short_name(found)
    where = f" at {panel.heading}" if panel.only is not None else ""
    of = " of trimmed $Q$" if panel.by == "approximation" else ""
    claim = f"the claimed {_NOUNS[panel.expected]}{of} with {symbol(panel.across)}{where}"
    if not all(one.examines(panel) for one in ours.values()):
        return f"{claim} is not examined at this scale: that takes more than two values of {symbol(panel.across)}."
    clauses = _clauses(panel, ours)
    return f"{claim} {clauses[0]}{''.join(f'; it {clause}' for clause in clauses[1:])}."


def _clauses(panel: Panel, ours: dict[str, Trend]) -> list[str]:
    """Each goes on from "it"."""
    clauses = []
    if there := _readings(ours, panel.expected):
        clauses.append(f"is there {listed(there)}")
    if unseen := _readings(ours, "not detected"):
        clauses.append(f"was not detected {listed(unseen, 'or')}")
    if low := _readings(ours, "at floor"):
        clauses.append(f"was not detected {listed(low, 'or')}, so near the noise floor that these runs cannot tell")
    if once := _readings(ours, "one draw"):
        clauses.append(f"is left open {listed(once)} (one draw of the clients: no direction is claimed)")
    what = "it" if panel.by == "approximation" else "the distance"
    for reading, one in ours.items():
        if one.direction == "differs":
            clauses.append(f"differs with {symbol(panel.by)} {reading}: {what} {_by_curve(panel, one)}")
    against = {"falls", "rises"} - {panel.expected}
    for direction in sorted(against):
        if others := _readings(ours, direction):
            on_the_whole = " on the whole" if panel.expected == "falls, then rises" else ""
            clauses.append(f"was not detected {listed(others, 'or')}, where {what} {direction}{on_the_whole}")
    return clauses


def _by_curve(panel: Panel, found: Trend) -> str:
    """Falls for beta = 0.85 and rises for beta = 0.95."""
    by_direction: dict[str, list[str]] = {}
    for series, moved in found.by_curve:
        by_direction.setdefault(moved, []).append(panel.curve_name(series))
    return listed([f"{moved} for {listed(curves)}" for moved, curves in by_direction.items()])


def _readings(ours: dict[str, Trend], direction: str) -> list[str]:
    return [reading for reading, one in ours.items() if one.direction == direction]


def title_of(found: Sequence[tuple[Panel, Trends]], what: str = "the distance") -> str:
    """From zero the distance does one thing, from the optimum another."""
    clauses: list[str] = []
    for reading in (ZERO, OPTIMUM):
        moves = [(panel, one[reading].direction) for panel, one in found if reading in one]
        if moves:
            clauses.append(f"{SHORT[reading]} {'it' if clauses else what} {_moves(moves)}")
    return sentence("; ".join(clauses) or what)


def _moves(moves: Sequence[tuple[Panel, Direction]]) -> str:
    """Falls with n at r = 0.2 and rises with n at r = 0.6; or, in both panels, the same."""
    verbs = [_verb(direction, panel) for panel, direction in moves]
    if len(moves) == 1:
        return verbs[0]
    if len(set(verbs)) == 1:
        return f"{verbs[0]} in both panels"
    if len({panel.across for panel, _ in moves}) > 1:
        return listed(verbs)
    return listed([f"{verb} at {panel.heading}" for verb, (panel, _) in zip(verbs, moves, strict=True)])


def _verb(direction: Direction, panel: Panel) -> str:
    axis = symbol(panel.across)
    special: dict[Direction, str] = {
        "not detected": f"shows no trend in {axis} that is detected",
        "at floor": "stays near the noise floor",
        "differs": f"moves along {axis} in ways that differ with {symbol(panel.by)}",
        "one draw": f"has one draw of clients at each {axis}",
    }
    return special.get(direction, f"{direction} with {axis}")


def trend_table(panel: Panel, trends: Trends) -> Table:
    """A row for the printed numbers (None) and for each reading: both ends and the fitted change."""
    axis, name = symbol(panel.across), panel.heading
    some = next(iter(trends.values()))
    return Table(
        ("", f"{axis} = {some.x[0]:g}", f"{axis} = {some.x[-1]:g}", "change", "direction"),
        tuple(
            (
                "printed" if reading is None else SHORT[reading],
                number(found.means[0]),
                number(found.means[-1]),
                signed(found.change) + ("" if reading is None else f" ({number(found.error)})"),
                "" if reading is None else found.direction,
            )
            for reading, found in trends.items()
        ),
        f"Along {axis}{', ' + name if name else ''}: means over curves and draws at both ends, and the change of a "
        "fitted line with its error",
    )


# --- slopes on a logarithmic axis, with 99 % intervals ---


@dataclass(frozen=True)
class FittedSlope:
    """A slope, its standard error, and how many of these the 99 % interval reaches to either side."""

    value: float
    error: float
    reach: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.reach * self.error

    @property
    def high(self) -> float:
        """The upper end."""
        return self.value + self.reach * self.error

    def covers(self, value: float) -> bool:
        """Whether the interval holds a value."""
        return self.low <= value <= self.high

    def shown(self, digits: int = 3) -> str:
        """0.012 (0.003), with its standard error."""
        return with_error(self.value, self.error, digits)

    def interval(self, digits: int = 3) -> str:
        """−0.012 to 0.034."""
        return span((self.low, self.high), digits)


def known_error(value: float, error: float) -> FittedSlope:
    """A slope whose standard error is known, as a Monte-Carlo error is."""
    return FittedSlope(value, error, float(special.ndtri(0.5 + _LEVEL / 2)))


def fitted(x: Values, y: Values, errors: Values) -> FittedSlope:
    """The least-squares slope of y on log x; the errors of the y are independent."""
    weights = log_weights(x)
    return known_error(float(weights @ np.asarray(y)), float(np.linalg.norm(weights * np.asarray(errors))))


def slope(x: Values, y: Values) -> float:
    """The least-squares slope of y on log x."""
    return float(log_weights(x) @ np.asarray(y))


def over_draws(values: Values) -> FittedSlope:
    """The mean of independent slopes, with Student's interval."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / count**0.5
    return FittedSlope(float(np.mean(values)), error, float(special.stdtrit(count - 1, 0.5 + _LEVEL / 2)))


def log_weights(x: Values) -> FloatArray:
    """c with slope = c'y on log x."""
    return _slope_weights(np.log(x))
