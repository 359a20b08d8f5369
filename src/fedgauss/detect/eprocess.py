"""A mixture e-process: a bet against "nothing has changed" that may be stopped at any time, with no horizon."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.candidates import is_candidate

# Variances of the effect per coordinate, in units of the whitened noise at weight 1: effects from .1 to 2.5.
EFFECTS = (0.01, 0.05, 0.25, 1.25, 6.25)
_SPARE = 100.0  # weight over which the capital set aside for later changes first falls by a factor sqrt(2)
_RUNS = 256  # runs followed at once: few enough for the cache


_HUGE = 1e100  # its square must be a number


@dataclass(frozen=True)
class EVerdict:
    """What the e-process says after a round. `onset` is the round after which the change most likely began."""

    alarm: bool
    log_e: float
    alpha: float
    round: int
    onset: int

    @property
    def threshold(self) -> float:
        """log(1 / alpha)."""
        return float(-np.log(self.alpha))

    def __str__(self) -> str:
        sign, word = (">=", "alarm") if self.alarm else ("<", "no alarm")
        said = f"round {self.round}: {word}, log e-value {self.log_e:.3g} {sign} {self.threshold:.3g}"
        return f"{said}, change after round {self.onset}" if self.alarm else said


class EProcess:
    """Alarm when the e-value reaches 1/alpha: a false alarm ever has probability at most alpha.

    Parameters
    ----------
    dim : int
        d.
    alpha : float
        The chance of any false alarm, whatever the length of the run.
    effects : array_like
        Variances g of the change per coordinate over which the bet is averaged.

    Notes
    -----
    Input: whitened innovations x_1, x_2, ... in d dimensions with weights w_j, independent N(m, I / w_j) with any m
    while nothing changes. The alternative: from round s on, the mean is m + delta.

    The bet. Let W_t = w_1 + ... + w_t and let xbar_t be the weighted mean. The residuals

        r_j = (w_j W_{j-1} / W_j)^(1/2) (x_j - xbar_{j-1}),    j = 2, 3, ...

    are independent N(0, I) under the null whatever m is, and N(W_s b_j delta, I) for j > s under the alternative, with
    b_j^2 = 1/W_{j-1} - 1/W_j. Averaged over delta ~ N(0, g I), their likelihood ratio is

        E_{s,t} = (1 + g v)^(-d/2) exp(g |D|^2 / (2 (1 + g v))),    v = W_s (1 - W_s/W_t),    D = S_s - (W_s/W_t) S_t

    with S the sums of w_j x_j: the CUSUM of the innovations again.

    Why it is valid. A likelihood ratio against a simple null, here the law of (r_j), is a non-negative martingale with
    mean 1; so is its average over delta, over g and over s with fixed prior capital, where a candidate s holds its
    capital unstaked until round s. Merging two candidates moves capital from one to the other between rounds, which
    changes no total, so the total remains a martingale that starts at 1. By Ville's inequality it reaches 1/alpha
    with probability at most alpha, and E[e-value] <= 1 at every stopping time that looks at the residuals.

    Capital. What is set aside for changes after round s is (1 + W_s/100)^(-1/2), whatever the length of the run: the
    weights, in steps of SGD, must be settled before the data are seen. The candidate s gets what round s takes off it,
    in equal parts for each g. Every round of the last 12 is a candidate, then every 2nd to age 24, every 4th to age
    48, and so on (`candidates`): O(log t) of them, and an update costs O(d log t). When one falls out, the next older
    one inherits its capital.
    """

    def __init__(self, dim: int, alpha: float = 0.05, effects: ArrayLike = EFFECTS) -> None:
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05?")
        dim = _checks.whole("dim", dim)
        check_memory(f"sums in {dim:,} dimensions", 400 * dim, "Use fewer dimensions.")
        self._capital = _Capital(1, dim, effects)

    def update(self, x: ArrayLike, weight: float = 1.0) -> EVerdict:
        """Take in the next round.

        Parameters
        ----------
        x : (d,) array_like
            Its whitened innovation.
        weight : float
            Its weight w_j: the innovation has covariance I / w_j.

        Returns
        -------
        EVerdict
        """
        row = _checks.real_array("x", x, shape=(self._capital.dim,), fix="One innovation (d,) a round.")
        w = _checks.real("weight", weight, above=0.0, fix="A round that brings nothing is left out.")
        _require_plausible(row)
        log_e = float(self._capital.update(row[None], w)[0])
        alarm = not log_e < -np.log(self.alpha)  # what is not a number is no silence
        return EVerdict(alarm, log_e, self.alpha, self._capital.round, int(self._capital.onset()[0]))


def e_process_paths(
    innovations: ArrayLike, weights: ArrayLike | None = None, effects: ArrayLike = EFFECTS
) -> FloatArray:
    """The logarithm of the e-value after every round of several runs.

    Parameters
    ----------
    innovations : (R, n, d) array_like
        Whitened.
    weights : (n,) array_like, optional
        Of the rounds, the same in every run; one each by default.
    effects : array_like
        As in `EProcess`.

    Returns
    -------
    (R, n) array
    """
    x = _checks.real_array("innovations", innovations, shape=(None, None, None))
    n_runs, n_rounds, dim = x.shape
    w = np.ones(n_rounds) if weights is None else _checks.real_array("weights", weights, shape=(n_rounds,))
    if np.any(w <= 0):
        j = int(np.argmin(w))
        raise ValueError(f"weights must be positive; round {j + 1} has {w[j]:g}. Leave that round out?")
    _require_plausible(x)
    log_e = np.zeros((n_runs, n_rounds))
    for low in range(0, n_runs, _RUNS):
        some = x[low : low + _RUNS]
        capital = _Capital(len(some), dim, effects)
        for j in range(n_rounds):
            log_e[low : low + _RUNS, j] = capital.update(some[:, j], float(w[j]))
    return log_e


def _require_plausible(x: FloatArray) -> None:
    if x.size and np.abs(x).max() > _HUGE:
        raise ValueError(
            f"an innovation must be at most {_HUGE:.0e}; got {np.abs(x).max():.2g}. An update that gives it is a fault "
            "or an attack by itself: leave the round out."
        )


class _Capital:
    """The e-process of R runs at once. Candidates depend on the round alone, so runs share them."""

    def __init__(self, n_runs: int, dim: int, effects: ArrayLike) -> None:
        self.dim, self.round = dim, 0
        self._effects = _checks.real_array("effects", effects, shape=(None,), fix="Give variances such as [0.1, 1].")
        if not self._effects.size or np.any(self._effects <= 0):
            raise ValueError(f"effects must be positive variances; got {self._effects}. Use the default?")
        self._weight, self._sum = 0.0, np.zeros((n_runs, dim))
        self._earlier = 0.0  # W_{t-1}
        self._centre = np.zeros((n_runs, dim))
        self._places = np.zeros(0, np.int64)  # s
        self._weights = np.zeros(0)  # W_s
        self._sums = np.zeros((n_runs, 0, dim))  # S_s
        shape = (n_runs, 0, len(self._effects))
        self._log_ratio, self._log_stake = np.zeros(shape), np.zeros(shape)

    def update(self, x: FloatArray, w: float) -> FloatArray:
        """The logarithm of the e-value of each run (R,) after one more round."""
        if self.round:
            self._add_candidate()
        else:
            self._centre = x  # E_{s,t} does not change when every x moves by the same amount; rounding does
        self.round += 1
        self._earlier, self._weight = self._weight, self._weight + w
        self._sum = self._sum + w * (x - self._centre)
        share = self._weights / self._weight
        gap = ((self._sums - share[:, None] * self._sum[:, None]) ** 2).sum(axis=2)[:, :, None]
        spread = 1.0 + self._effects * (self._weights * (1.0 - share))[:, None]
        self._log_ratio = gap * (0.5 * self._effects / spread) - 0.5 * self.dim * np.log(spread)
        self._merge()
        return self._log_total()

    def onset(self) -> npt.NDArray[np.int64]:
        """The candidate with the most capital in each run; 0 before there is one."""
        if not len(self._places):
            return np.zeros(len(self._sum), np.int64)
        held = np.logaddexp.reduce(self._log_stake + self._log_ratio, axis=2)
        return self._places[held.argmax(axis=1)]

    def _log_total(self) -> FloatArray:
        """log of the reserve and what all candidates hold."""
        held = (self._log_stake + self._log_ratio).reshape(len(self._sum), -1)
        reserve = np.log(_reserve(self._earlier))
        top = held.max(axis=1, initial=reserve)
        return top + np.log(np.exp(held - top[:, None]).sum(axis=1) + np.exp(reserve - top))

    def _add_candidate(self) -> None:
        """The last round becomes a candidate, with its share of the reserve spread over the effects."""
        stake = np.log((_reserve(self._earlier) - _reserve(self._weight)) / len(self._effects))
        shape = (len(self._sum), 1, len(self._effects))
        self._places = np.append(self._places, self.round)
        self._weights = np.append(self._weights, self._weight)
        self._sums = np.concatenate([self._sums, self._sum[:, None]], axis=1)
        self._log_stake = np.concatenate([self._log_stake, np.full(shape, stake)], axis=1)

    def _merge(self) -> None:
        """A candidate too close to others for its age passes its capital on to the next older one, if there is one.

        What a candidate holds is stake times E_{s,t}: the heir's stake grows by the capital over its own E_{s,t}.
        """
        over = [i for i, s in enumerate(self._places) if not is_candidate(int(s), self.round)]
        for i in reversed(over):
            heir = i - 1 if i else i + 1
            passed = self._log_stake[:, i] + self._log_ratio[:, i] - self._log_ratio[:, heir]
            self._log_stake[:, heir] = np.logaddexp(self._log_stake[:, heir], passed)
            self._places, self._weights = np.delete(self._places, i), np.delete(self._weights, i)
            self._sums = np.delete(self._sums, i, axis=1)
            self._log_ratio = np.delete(self._log_ratio, i, axis=1)
            self._log_stake = np.delete(self._log_stake, i, axis=1)


def _reserve(weight: float) -> float:
    """The capital that is for changes after the round in which the weights have added up to this."""
    return float((1.0 + weight / _SPARE) ** -0.5)
