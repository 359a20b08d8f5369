"""A rule for an evaluation metric: stop when more rounds promise too little.

It rests on one assumption about a learning curve f: a doubling of the rounds gains no more than the doubling before,
which makes f concave in log t. Power laws, logarithms and saturating curves past their bend are. From the slope s of f
in log t over the last doubling it follows that

    f(m t) - f(t) <= s log m,

and s is a regression slope, with an error of its own from the scatter of the metric between rounds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from fedgauss import _checks
from fedgauss._shown import ShownInSentences

_BLOCKS = 8  # that the last half of the rounds is cut into: their means are nearly independent when rounds are not
_FEWEST = 20  # rounds before the first look
_GROWTH = 1.25  # between looks: what a look sees is then a fifth new
_LOOKS = 5  # a share of 1 - level for each; looks overlap, and the total was measured (docs/stopping.md)


@dataclass(frozen=True, repr=False)
class Stop(ShownInSentences):
    """Why a run may stop.

    Attributes
    ----------
    round : int
        After which round.
    gain : float
        Estimated gain of `times` as many rounds.
    most : float
        Upper bound of that gain.
    reason : str
        The same in words.
    """

    round: int
    gain: float
    most: float
    reason: str

    def __str__(self) -> str:
        return self.reason


class Plateau:
    """Stops a run when more rounds would improve a metric by less than `min_gain`.

    Use it as `stop_when` of `fedgauss.integrations.flower.Monitored`, or call `update` after every evaluation.

    Parameters
    ----------
    metric : str
        Its name among a round's metrics.
    min_gain : float, optional
        The improvement that is worth the rounds, in units of the metric. By default, with `examples`, the metric's own
        standard error: the least that this many examples can tell from luck.
    goal : {"max", "min"}
        Whether a better metric is larger (accuracy) or smaller (loss).
    examples : int, optional
        How many examples the metric, a share such as accuracy, is measured on.
    times : float
        How many times the rounds so far a longer run would have: 2 asks about as many rounds again.
    level : float
        Confidence in the bound, for all looks at the metric together.

    Notes
    -----
    It assumes that each doubling of the rounds gains no more than the one before. A rate that drops late, or a network
    that begins to learn after a long plateau, breaks this, and no rule on the past can see it coming. Looks are taken
    after 20 evaluations and then whenever there are a quarter more. Rounds without the metric are skipped.

    Examples
    --------
    >>> from fedgauss.stopping import Plateau
    >>> rule = Plateau("accuracy", min_gain=0.02)
    >>> curve = (0.9 - 0.8 / t for t in range(1, 200))
    >>> print(next(stop for stop in map(rule.update, curve) if stop))
    Round 50: as many rounds again would raise accuracy by at most 0.017 (estimate 0.015), less than 0.02.
    """

    def __init__(
        self,
        metric: str,
        min_gain: float | None = None,
        goal: Literal["max", "min"] = "max",
        examples: int | None = None,
        times: float = 2.0,
        level: float = 0.95,
    ) -> None:
        if min_gain is None and examples is None:
            raise ValueError(
                "Plateau needs min_gain, the improvement that is worth more rounds, or the number of examples behind "
                "an accuracy. Use Plateau('accuracy', examples=1000)?"
            )
        self.metric = metric
        self.min_gain = None if min_gain is None else _checks.real("min_gain", min_gain, above=0.0)
        self.goal = _checks.one_of("goal", goal, ["max", "min"])
        self.examples = None if examples is None else _checks.whole("examples", examples)
        self.times = _checks.real("times", times, above=1.0, fix="2 asks about as many rounds again.")
        self.level = _checks.level(level)
        self._missed = False  # whether a round without the metric was warned of
        self.reset()

    def reset(self) -> None:
        """Forget all rounds, as after going back to an earlier model."""
        self._values: list[float] = []
        self._next_look = _FEWEST

    def __call__(self, server_round: int, metrics: Mapping[str, Any]) -> Stop | None:
        """The answer after a round with these metrics; None to go on.

        Parameters
        ----------
        server_round : int
            The round's number.
        metrics : mapping
            The round's metrics by name.
        """
        value = metrics.get(self.metric)
        if value is not None:
            return self.update(value, server_round)
        if not self._values and not self._missed:
            self._missed = True
            warnings.warn(
                f"Plateau looks for the metric {self.metric!r}; round {server_round} has "
                f"{', '.join(map(repr, metrics)) or 'none'}. It goes on as soon as there is one, and never stops a run "
                "that has none. Return it from evaluate_fn?",
                _checks.FedgaussWarning,
                stacklevel=2,
            )
        return None

    def update(self, value: float, number: int | None = None) -> Stop | None:
        """The answer after one more evaluation; None to go on.

        Parameters
        ----------
        value : float
            The metric.
        number : int, optional
            The round's number; by default evaluations are counted.

        Raises
        ------
        ValueError
            If the metric is not a finite number, or not a share between 0 and 1 where `examples` is given.
        """
        new = _checks.real(self.metric, value)
        if self.examples is not None and not 0.0 <= new <= 1.0:
            raise ValueError(
                f"{self.metric} must be a share between 0 and 1 where the number of examples is given; got {new:g}. "
                "Use min_gain instead?"
            )
        self._values.append(new)
        if len(self._values) < self._next_look:
            return None
        self._next_look = math.ceil(_GROWTH * len(self._values))
        gain, most = self._gain()
        least = self._least()
        if most > least:
            return None
        at = len(self._values) if number is None else number
        return Stop(at, gain, most, f"Round {at}: {self._words(gain, most, least)}")

    def _gain(self) -> tuple[float, float]:
        """The gain of `times` as many rounds, and its upper bound."""
        n = len(self._values)
        values = np.array(self._values) * (1.0 if self.goal == "max" else -1.0)
        cuts = np.linspace(n // 2, n, _BLOCKS + 1).round().astype(int)[:-1]
        size = np.diff(np.append(cuts, n))
        y = np.add.reduceat(values, cuts) / size
        x = np.add.reduceat(np.log(np.arange(1.0, n + 1)), cuts) / size
        x, y = x - x.mean(), y - y.mean()
        slope = float(x @ y / (x @ x))
        error = math.sqrt(float(((y - slope * x) ** 2).sum() / (_BLOCKS - 2) / (x @ x)))
        quantile = float(stdtrit(_BLOCKS - 2, 1 - (1 - self.level) / _LOOKS))
        return slope * math.log(self.times), (slope + quantile * error) * math.log(self.times)

    def _least(self) -> float:
        """The gain that is worth more rounds."""
        if self.min_gain is not None:
            return self.min_gain
        assert self.examples is not None
        share = float(np.mean(self._values[len(self._values) // 2 :]))
        edge = 1 / (self.examples + 2)  # a perfect score has an error too
        share = min(max(share, edge), 1 - edge)
        return math.sqrt(share * (1 - share) / self.examples)

    def _words(self, gain: float, most: float, least: float) -> str:
        longer = "as many rounds again" if self.times == 2 else f"{self.times:g} times as many rounds"
        change = "raise" if self.goal == "max" else "lower"
        if most <= 0:
            return f"{longer} would not {change} {self.metric}, which no longer improves."
        own = "" if self.examples is None else f"its own standard error on {self.examples:,} examples, "
        why = f"less than {own if self.min_gain is None else ''}{least:.2g}"
        return f"{longer} would {change} {self.metric} by at most {most:.2g} (estimate {gain:.2g}), {why}."
