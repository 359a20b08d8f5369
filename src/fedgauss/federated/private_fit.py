"""A private fit: noisy moments, a start from them, and two steps of scoring whose sums are bounded for each row.

The first step finds where the score is nearly zero, and coordinates in which the information is n times the identity.
The second, which has two thirds of the budget, is what the estimate rests on: theta + d - A^-1 R with A the derivative
of its score, d = A^-1 score, and R what the expected score bends by over the step d, which is asked for last. With B
the variance of the score, and s, tau and r the standard deviations of the noise in the score, in A and in R,

    V = A^-1 (B + (s^2 + r^2) I + tau^2 / 2 (|d|^2 I + d d')) A^-1.

All parties compute each question from the totals before it, so nothing here depends on the order in which LAPACK adds,
or on the last bit of a logarithm.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks, families
from fedgauss._types import FloatArray
from fedgauss.families.rows import NoFiniteEstimate
from fedgauss.families.same_bits import Factor, dot, factor, solve, times
from fedgauss.federated.plan import Heard, Question, total_of
from fedgauss.federated.privacy import Cost, Privacy, Range, check_range
from fedgauss.federated.private_families import FAMILIES, clipped_normal, start
from fedgauss.federated.private_rows import COUNTS, EDGES, MOST_ROWS, STEPS, USUAL, bounds, share, triangle
from fedgauss.inference.estimate import Readout
from fedgauss.inference.fit_result import Fit

Ranges = Mapping[str, Range]
Program = Generator[Question, Heard, "PrivateFit"]

_SHARES = {  # of 1 / multiplier^2, by question and part: the best of about 50 variants over three families
    "moments": {"matrix": 0.02},
    "start": {"matrix": 0.03, "cross": 0.015},
    "bins": {"bins": 0.01},
    "first": {"matrix": 0.03, "shape": 0.02, "score": 0.11},
    "last": {"matrix": 0.1, "spread": 0.03, "score": 0.64, "residuals": 0.01},
    "curve": {"score": 0.03},
}
_UNUSED = {
    "gaussian": ("curve score",),
    "binomial": ("bins bins", "last residuals"),
    "poisson": ("last residuals",),
}
_MOST = 10.0  # how far a row's score may bend over the last step, over (length |d|)^2 length / (p spread)
_LENGTH = 0.6  # times (n mu^2 / p)^(1 / 8): about the best for three families and epsilon from .5 to 4
_COUNT = 3.0  # standard deviations: where counts of a row of this length are clipped, if a count of one is nearer
_FIRST = 0.5  # of that clip is the first step's: with less noise and less information, it comes closer
_BLUR = 0.05  # of the information: how much noise each of its elements may have
_HEAVY = (4.0, 12.0)  # the least and the most that a row may add to it, in squares of that length
_HEAVY_FIRST = 2.0  # and in the first step
_FEW = 0.95  # of counts, which are within the bound on counts from which the fit starts
_MEDIAN = 0.67449  # of |residuals| in standard deviations
_CLEAR = 4.0  # standard deviations of the noise by which events must exceed it
_STRAIN = 0.05  # the most that a score may be expected to bend, in its standard errors, by the noise of the first step
_BEND = (0.5, 1.0)  # standard errors by which it did: worth a note, and refused, where intervals cover .90
_WIDE = 2.0  # times as wide as without noise: worth a note


class PrivateFit(NamedTuple):
    """What a private program ends with."""

    fit: Fit
    cost: Cost  # what the ledger keeps
    width: FloatArray  # of each interval, over what it would be without noise
    bend: float  # of the score over the last step, in its standard errors


def shares_of(family: str) -> dict[str, float]:
    """How the budget is shared out over all parts of all questions of a family."""
    found = {f"{stage} {part}": size for stage, parts in _SHARES.items() for part, size in parts.items()}
    return {name: size for name, size in found.items() if name not in _UNUSED[family]}


def private_program(
    names: Sequence[str], target: str, family: str, ranges: Ranges, privacy: Privacy, n_sites: int, n_rows: int,
    level: float = 0.95, constant: str = "const",
) -> Program:  # fmt: skip
    """The questions of a private fit with an intercept, and at its end the fit.

    Parameters
    ----------
    names : sequence of str
        Of the covariates.
    target : str
        What the response is called.
    family : {"gaussian", "binomial", "poisson"}
    ranges : mapping
        (low, high) of each covariate, and of the response of a gaussian family. Values of covariates outside count as
        the nearer end.
    privacy : Privacy
        What the whole fit may cost.
    n_sites, n_rows : int
        Of all sites together; they are public.
    level : float
        Of intervals.
    constant : str
        What the intercept is called.

    Raises
    ------
    ValueError
        Where the noise of so small an epsilon would leave no estimate whose interval covers.
    """
    if family not in FAMILIES:
        raise ValueError(f"a private fit must be of family {', '.join(FAMILIES)}; got {family!r}. Leave privacy out?")
    _checks.whole("n_sites", n_sites, at_least=2, fix="One site alone has no other's noise to hide its rows")
    privacy.check_rows(_checks.whole("n_rows", n_rows, at_most=MOST_ROWS))
    wanted = [*names, target] if family == "gaussian" else names
    ends = [range_of(name, ranges) for name in wanted] + ([] if family == "gaussian" else [(0.0, 1.0)])
    return _Program((constant, *names), target, family, ends, privacy, n_sites, n_rows).run(_checks.level(level))


class _Totals(NamedTuple):
    """Parts of an answer in their units, and the standard deviation of the noise in each element."""

    values: dict[str, FloatArray]
    noise: dict[str, float]


class _Program:
    def __init__(
        self, names: tuple[str, ...], target: str, family: str, ends: list[tuple[float, float]], privacy: Privacy,
        n_sites: int, n_rows: int,
    ) -> None:  # fmt: skip
        self.names, self.target, self.family, self.ends = names, target, family, ends
        self.privacy, self.n_sites, self.n_rows = privacy, n_sites, n_rows
        self.multipliers = privacy.multipliers(shares_of(family))
        self.p = len(names)
        self.length = usual_length(self.p, n_rows, self.multipliers.values())

    def run(self, level: float) -> Program:
        if self.family == "poisson":
            self.ends[-1] = (0.0, (yield from self.highest_count()))
        moments = yield from self.ask("moments", "moments", {})
        root, whiten = self.coordinates(moments, np.eye(self.p))
        began = yield from self.ask("start", "start", {"whiten": whiten, "heaviest": self.length**2})
        theta, spread = self.begin(began, root, whiten)
        if self.family == "gaussian":
            spread = yield from self.scale(theta)
        self.check_curvature(spread)
        found, whiten = self.coordinates(began, whiten)
        scales = self.scales(_product(_upper(root).T, _upper(found).T))
        one = spread if self.family == "gaussian" else 1.0 / spread  # over what covariates will be multiplied by
        whiten = one * whiten
        first = yield from self.step(theta, whiten, spread, "first")
        step = solve(self.factor(first.values["matrix"]), first.values["score"])
        theta = theta + times(whiten, step)  # W' d
        whiten = sqrt(self.n_rows) * _whitened(self.factor(first.values["shape"]), whiten)
        last = yield from self.step(theta, whiten, spread, "last")
        root = self.factor(last.values["matrix"])
        step = solve(root, last.values["score"])
        bent = _Totals({"score": np.zeros(self.p)}, {"score": 0.0})  # a gaussian score is a straight line
        if self.family != "gaussian":
            bent = yield from self.curve(theta, whiten, spread, step)
        theta = theta + times(whiten, step - solve(root, bent.values["score"]))
        return self.finish(theta, whiten, step, last, bent, scales, level)

    def ask(self, kind: str, stage: str, content: dict[str, Any]) -> Generator[Question, Heard, _Totals]:
        """Totals come back in units of their parts."""
        found = bounds(kind, content, self.p)
        noise = {n: share(self.multipliers[f"{stage} {n}"], part.length, self.n_sites) for n, part in found.items()}
        asked = {**content, "ranges": list(self.ends), "noise": noise}
        total = total_of((yield Question(kind, asked, {name: (part.length,) for name, part in found.items()})))
        return _Totals(
            {name: total[name] * (part.bound / STEPS) for name, part in found.items()},
            {name: sqrt(self.n_sites * noise[name]) * part.bound / STEPS for name, part in found.items()},
        )

    def highest_count(self) -> Generator[Question, Heard, float]:
        """A count that few rows exceed."""
        bins = (yield from self.ask("counts", "bins", {})).values["bins"]
        place, _, _ = _quantile(bins, _FEW * self.n_rows)
        return max(float(COUNTS[min(place, len(COUNTS) - 1)]), 1.0)

    def coordinates(self, heard: _Totals, whiten: FloatArray) -> tuple[Factor, FloatArray]:
        """L' and L^-1 W, in whose coordinates the rows' moments are n times the identity, L L' having been so in W's.

        What is less than the norm of the noise cannot be told from it, so that is added.
        """
        root = _raised(
            _square(heard.values["matrix"], self.p) / self.n_rows,
            heard.noise["matrix"] * sqrt(2.0 * self.p) / self.n_rows,
        )
        return root, _whitened(root, whiten)

    def begin(self, heard: _Totals, root: Factor, whiten: FloatArray) -> tuple[FloatArray, float]:
        """A parameter to start from, by weighted least squares, and the standard deviation of a mean response."""
        matrix, cross = _square(heard.values["matrix"], self.p), heard.values["cross"]
        least = _raised(matrix, heard.noise["matrix"] * sqrt(2.0 * self.p))
        slopes = times(whiten, solve(least, cross))[1:]
        constant = whiten[0, 0] / matrix[0, 0]  # the first coordinate is the same for all rows
        means = constant * times(_upper(root), matrix[0])
        mean = float(constant * cross[0])
        if self.family != "gaussian":  # from half ranges to zeros and ones, or counts
            half = self.ends[-1][1] / 2.0
            slopes, mean = half * slopes, half * (mean + 1.0)
            self.check_events(mean / half / 2.0, heard.noise["cross"] / 2.0)
        slopes, middle, spread = start(self.family, slopes, mean)
        return np.array([middle - dot(slopes, means[1:]), *slopes]), spread

    def scale(self, theta: FloatArray) -> Generator[Question, Heard, float]:
        """The scale of residuals, from their median."""
        bins = (yield from self.ask("scale", "bins", {"theta": theta})).values["bins"]
        place, below, count = _quantile(bins, self.n_rows / 2.0)
        if not 0 < place < len(EDGES):
            raise ValueError(
                f"the range of {self.target!r} must suit its values; of {self.ends[-1]} most residuals are less than a "
                "thousandth, or more than all. Use a range in which nearly all values are?"
            )
        low, high = EDGES[place - 1 : place + 1]
        found = (low + (high - low) * (self.n_rows / 2.0 - below) / count) / _MEDIAN
        return round(found * 2**20) / 2**20  # edges may differ in a last bit

    def step(
        self, theta: FloatArray, whiten: FloatArray, spread: float, stage: str
    ) -> Generator[Question, Heard, _Totals]:
        """A score and what belongs to it."""
        heard = yield from self.ask("step", stage, self.content(theta, whiten, spread, stage))
        if "residuals" in heard.values:
            usual = clipped_normal(USUAL)
            inside, square = heard.values["residuals"] / self.n_rows
            heard.values["matrix"] *= inside / usual[0]
            heard.values["spread"] *= square * USUAL**2 / usual[1]
        return heard

    def curve(
        self, theta: FloatArray, whiten: FloatArray, spread: float, step: FloatArray
    ) -> Generator[Question, Heard, _Totals]:
        """What the score bends by over the last step."""
        content = self.content(theta, whiten, spread, "last")
        usual = self.length**3 * dot(step, step) / (self.p * spread)
        most = min(_MOST * usual, content["longest"] / 8.0)
        return (yield from self.ask("curve", "curve", {**content, "step": step, "most": most}))

    def content(self, theta: FloatArray, whiten: FloatArray, spread: float, stage: str) -> dict[str, Any]:
        """What a question about a score says."""
        square = self.length**2
        noise = self.multipliers[f"{stage} matrix"] * square / self.n_rows
        return {
            "theta": theta, "whiten": whiten, "family": self.family, "scale": spread, "last": stage == "last",
            "longest": self.length * self.clip(spread, stage),
            "heaviest": square * (min(max(_BLUR / noise, _HEAVY[0]), _HEAVY[1]) if stage == "last" else _HEAVY_FIRST),
        }  # fmt: skip

    def clip(self, spread: float, stage: str) -> float:
        """Where residuals of a row of usual length are clipped, or the reach from which it weighs less."""
        if self.family == "gaussian":
            usual = USUAL
        elif self.family == "binomial":  # 1 / sqrt(min(m, 1 - m)), where spread^2 = m (1 - m)
            usual = sqrt((1.0 + sqrt(max(0.0, 1.0 - 4.0 * spread**2))) / 2.0) / spread
        else:
            usual = max(_COUNT, 1.0 / spread)
        return usual if stage == "last" else _FIRST * usual

    def factor(self, values: FloatArray) -> Factor:
        """L' with L L' = A, if the noise leaves it positive."""
        try:
            return factor(_square(values, self.p))
        except NoFiniteEstimate as error:
            raise ValueError(self.too_much("the noise hides the information about some column")) from error

    def check_events(self, mean: float, noise: float) -> None:
        """Refuse rare events, which noise hides."""
        few = min(mean, 1.0 - mean) if self.family == "binomial" else mean
        if few * self.n_rows < _CLEAR * noise:
            raise ValueError(self.too_much(f"events must be at least {_CLEAR * noise:,.0f} in number"))

    def check_curvature(self, spread: float) -> None:
        """Refuse where the noise of the first step is so large that the second is no straight line."""
        if self.family == "gaussian":
            return
        noise = self.length * self.clip(spread, "first") * self.multipliers["first score"] / self.n_rows
        moved = self.p * noise**2 * self.n_sites / (self.n_sites - 1)
        # n |d|^2 skewness / 2 over sqrt(n), the skewness of a response being about 1 / spread.
        if sqrt(self.n_rows) * moved / spread / 2.0 > _STRAIN:
            raise ValueError(self.too_much("after the first step the score would be no straight line"))

    def too_much(self, why: str) -> str:
        """A refusal in words."""
        return (
            f"epsilon = {self.privacy.epsilon:g} asks for more noise than these rows can bear: {why}. Use a larger "
            "epsilon, more rows, fewer columns or tighter ranges."
        )

    def finish(
        self, theta: FloatArray, whiten: FloatArray, step: FloatArray, last: _Totals, bent: _Totals,
        scales: FloatArray, level: float,
    ) -> PrivateFit:  # fmt: skip
        """The estimate, its covariance, and what the noise cost."""
        d, eye, out = step, np.eye(self.p), whiten.T
        a, b = (_square(last.values[name], self.p) for name in ("matrix", "spread"))
        of_score = last.noise["score"] ** 2 + bent.noise["score"] ** 2
        noise = of_score * eye + last.noise["matrix"] ** 2 / 2.0 * (d @ d * eye + np.outer(d, d))
        readout, lever = self.readout(), out @ np.linalg.inv(a)
        cov, without = (readout.cov(lever @ inside @ lever.T) for inside in (b + noise, b))
        bend = float(np.linalg.norm(bent.values["score"])) / sqrt(self.n_rows + of_score)
        if not (np.diag(without) > 0.0).all() or bend > _BEND[1]:
            raise ValueError(self.too_much("the score bends too much, or its variance is hidden"))
        width = np.sqrt(np.diag(cov) / np.diag(without))
        widest = int(np.argmax(width))
        family = families.family(self.family)
        facts = {
            "Target": self.target, "Family": family.describe(), "Rows": f"{self.n_rows:,}",
            "Solver": "private scoring", "Errors": "model",
            "Privacy": f"epsilon {self.privacy.epsilon:g}, delta {self.privacy.delta:g}",
            "Widths": f"{np.median(width):.2f} times those without noise",
        }  # fmt: skip
        notes = [
            "Differential privacy: intervals count the noise, which makes them up to "
            f"{width[widest]:.2f} times as wide ({self.names[widest]}). Values outside of ranges counted as the ends."
        ]
        if width[widest] > _WIDE:
            notes.append("Most of the width is noise: a larger epsilon, or more rows, would tell more.")
        if bend > _BEND[0]:
            notes.append(
                "The noise took the first step so far that intervals may cover a little less than they say. A larger "
                "epsilon, or more rows, would mend it."
            )
        fit = Fit(
            readout.of(theta), cov, level, "private scoring", self.names, facts, tuple(notes),
            intercepts=(0,), scales=scales, family=family,
        )  # fmt: skip
        return PrivateFit(fit, tuple(self.multipliers.values()), width, bend)

    def readout(self) -> Readout:
        """From half ranges to the user's units."""
        middles, halves = (np.array([(high + sign * low) / 2.0 for low, high in self.ends]) for sign in (1.0, -1.0))
        matrix = np.diag(np.concatenate([[1.0], 1.0 / halves[:-1]]))
        matrix[0, 1:] = -middles[:-1] / halves[:-1]
        if self.family != "gaussian":
            return Readout(matrix, np.zeros(self.p))
        return Readout(halves[-1] * matrix, np.concatenate([middles[-1:], np.zeros(self.p - 1)]))

    def scales(self, root: FloatArray) -> FloatArray:
        """About the standard deviation of each covariate, and 1 for the intercept; L L' are moments in half ranges."""
        halves = np.array([(high - low) / 2.0 for low, high in self.ends[:-1]])
        variances = (root[1:, 1:] ** 2).sum(axis=1)  # without the constant's share
        return np.concatenate([[1.0], halves * np.sqrt(variances)])


def usual_length(p: int, n_rows: int, multipliers: Iterable[float]) -> float:
    """Of a row's z, which is about sqrt(p) on average: that from which its residual is clipped.

    The more noise there is, by n mu^2 / p, the more of the information may go, if so the noise is less. Roots are the
    same on all machines.
    """
    square = sum(1.0 / multiplier**2 for multiplier in multipliers)  # of mu, as of Gaussian differential privacy
    return _LENGTH * sqrt(p) * sqrt(sqrt(sqrt(n_rows * square / p)))


def range_of(name: str, ranges: Ranges) -> Range:
    """The range of a column, which there must be."""
    if name not in ranges:
        raise ValueError(
            f"privacy needs the range of {name!r}; the plan and the policies have none. Use --range {shlex.quote(name)}"
            f"=LOW:HIGH, or fg.Privacy(..., ranges={{{name!r}: (low, high)}})."
        )
    return check_range(name, ranges[name])


def cost_of(privacy: Privacy, family: str) -> Cost:
    """What a fit costs a table, whatever becomes of it."""
    return privacy.cost(shares_of(family))


def _quantile(bins: FloatArray, rank: float) -> tuple[int, float, float]:
    """The first bin up to which there are so many, how many are below it and in it; past the last if there is none."""
    below = 0.0
    for place, count in enumerate(bins):
        if below + count >= rank:
            return place, below, count
        below += count
    return len(bins), below, 0.0


def _raised(matrix: FloatArray, floor: float) -> Factor:
    """The factor of M + floor I; the floor is doubled until that is positive."""
    while True:
        try:
            return factor(matrix + floor * np.eye(len(matrix)))
        except NoFiniteEstimate:
            floor *= 2.0


def _square(values: FloatArray, p: int) -> FloatArray:
    """The symmetric matrix whose upper triangle this is, what is off its diagonal being times root two."""
    matrix = np.empty((p, p))
    for (i, j), value in zip(triangle(p), values, strict=True):
        matrix[i, j] = matrix[j, i] = value if i == j else value / sqrt(2.0)
    return matrix


def _upper(root: Factor) -> FloatArray:
    """L' with L L' = M."""
    return root.upper / root.scale


def _whitened(root: Factor, whiten: FloatArray) -> FloatArray:
    """L^-1 W = L' M^-1 W."""
    return _product(_upper(root), solve(root, whiten))


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.column_stack([times(left.T, column) for column in right.T])
