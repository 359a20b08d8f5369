"""Which clients: after an alarm, a ranked table of suspects whose false-discovery rate holds.

What a server sees. At a synchronisation client k uploads theta_k as its own steps left it, before any averaging, and
then begins the next block from what mixing made of the uploads. Both are known to whoever does the mixing; in a network
without a server, each client's neighbours know them. The mean over clients is not enough: it forgets who moved.

Which rounds. Only rounds after the alarm are set against the baseline, the rounds before the estimated onset. Those in
between made the alarm ring, so chance favours clients that happened to push: using them inflates false discoveries.

What it cannot do. After a false alarm there is nobody to find, and about one run in eight still accuses somebody. A
client's noise that grows between baseline and test (its data changed, or the run moved far from a non-linear optimum)
looks like evidence. Attacks that preserve each client's mean, such as added noise, are not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc, chdtri, fdtrc, fdtri, ndtr, stdtr

from fedgauss import _checks
from fedgauss._linearization import Linearization, client_dof
from fedgauss._shown import Shown, html_table
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.client_rounds import Segment, first_seen, noise_inverses, segment
from fedgauss.detect.innovations import dof_needed

_AGREEMENT = 0.05  # level at which the other clients must move together for their direction to be used
_ASTRAY = 1e-4  # so small a chance is evidence even where the others moved elsewhere, which may have been chance
_GREW = 0.01  # level at which noise must have grown for the two stretches to have sizes of their own
_INEXACT = 0.1  # of a far way, how much a Hessian that is not exact there may add to an honest client's move
_FAR_AWAY = (
    "The model moved far after the onset: gradients changed by {:.1f} standard deviations of one. A tenth of that is "
    "held against nobody. Roll back, go on apart, and ask again, to see smaller moves."
)
_TINY = 1e-60  # instead of a variance of zero
_LEAST_WEIGHT = 0.02  # no client is ruled out before it is tested
# The alarm rang at a moment that favoured it, so the baseline lies a little off: honest p-values below .05 had chance
# .068 where half the attacks are seen (and .055 without an alarm). Discoveries are held to rate / 1.25 for it.
_MARGIN = 1.25


class Suspect(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    client : int
        Its number.
    statistic : float
        t along the others' common move, or sqrt(F) where they did not move together.
    p_value : float
        Of that statistic, were the client honest.
    q_value : float
        The smallest false-discovery rate at which the client would be called malicious.
    malicious : bool
        Whether q_value is within the rate asked for.
    """

    client: int
    statistic: float
    p_value: float
    q_value: float
    malicious: bool


@dataclass(frozen=True, repr=False)
class Attribution(Shown):
    """Clients, the most suspect first, and the rounds that the verdict rests on.

    Attributes
    ----------
    table : tuple of Suspect
        A row for each client.
    rate : float
        The false-discovery rate asked for.
    baseline_rounds, rounds_after : int
        Rounds before the onset, and rounds after the alarm.
    note : str
        Further remarks, such as that the model was dragged far away.
    """

    table: tuple[Suspect, ...]
    rate: float
    baseline_rounds: int
    rounds_after: int
    note: str = ""

    @property
    def malicious(self) -> tuple[int, ...]:
        """The clients called malicious, in order of their numbers."""
        return tuple(sorted(row.client for row in self.table if row.malicious))

    def __str__(self) -> str:
        lines = [self._summary(), f"{'client':>8}{'statistic':>12}{'p':>12}{'q':>12}"]
        for row in self.table:
            mark = "  *" if row.malicious else ""
            lines.append(f"{row.client:8d}{row.statistic:12.2f}{row.p_value:12.2g}{row.q_value:12.2g}{mark}")
        return "\n".join([*lines, self.note] if self.note else lines)

    def _summary(self) -> str:
        names = ", ".join(str(k) for k in self.malicious) or "none"
        return (
            f"malicious: {names} (false-discovery rate {self.rate:g}; {self.rounds_after} rounds after the alarm "
            f"against {self.baseline_rounds} before the onset)"
        )

    def _repr_html_(self) -> str:
        rows = [
            (str(row.client), f"{row.statistic:.2f}", f"{row.p_value:.2g}", f"{row.q_value:.2g}", "*" * row.malicious)
            for row in self.table
        ]
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return html_table(("client", "statistic", "p", "q", ""), rows, self._summary()) + note

    def to_frame(self) -> Any:
        """The table as a pandas frame."""
        try:
            import pandas  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise ImportError(
                "to_frame needs pandas: pip install 'fedgauss[frames]'. `table` has the rows too."
            ) from error
        return pandas.DataFrame(self.table, columns=Suspect._fields)


def attribute(
    innovations: ArrayLike,
    onset: int,
    alarm: int,
    lin: Linearization,
    *,
    rate: float = 0.10,
    burn_in: int = 1,
) -> Attribution:
    """Who turned malicious, with a false-discovery rate of at most `rate`.

    Parameters
    ----------
    innovations : (J, K, d) array_like
        From `client_innovations`; NaN where a client took no part.
    onset : int
        Rounds before the estimated onset: rounds burn_in + 1, ..., onset are the baseline.
    alarm : int
        Rounds up to the alarm: rounds alarm + 1, ..., J are tested.
    lin : Linearization
        The clients' noise covariances, for their shapes.
    rate : float
        The false-discovery rate.
    burn_in : int
        Rounds left out at the beginning.

    Returns
    -------
    Attribution

    Notes
    -----
    D_k is the mean innovation after the alarm less that of the baseline. Its covariance Omega_k has the shape of
    Var(W^k) and a size estimated from the rounds. Let m be the other clients' common move, their D weighted by
    Omega^-1. Where m is too large for chance (level .05), a client that moved along with the others is suspect: a
    one-sided t-test of m' Omega_k^-1 D_k; so is one whose move, wherever it went, has chance below 1e-4. Where it is
    not, as when a single client attacks, any move is suspect: an F-test of D_k' Omega_k^-1 D_k. Choice and direction
    come from the other clients alone, and so do not bias the test of an honest one.

    Where most clients' noise grew, which an attacker does to everybody who drags the model far away, the rounds before
    and after have sizes of their own (Welch's test).

    Discoveries are those of Benjamini and Hochberg's procedure, with weights of mean one (Genovese, Roeder and
    Wasserman 2006) that spend the error where it buys power: a client's weight follows from its noise and from how far
    the others moved (Roeder and Wasserman 2009). Storey's estimate of the number of honest clients, in its form for
    finite samples, keeps the procedure from being twice as strict as asked when half of them are malicious.
    """
    rounds = np.asarray(innovations, dtype=np.float64)
    if rounds.ndim != 3 or rounds.shape[1:] != (lin.n_clients, lin.dim):
        raise ValueError(
            f"innovations must have shape (rounds, {lin.n_clients}, {lin.dim}); got {rounds.shape}. "
            "Use client_innovations(...)."
        )
    rate = _checks.probability("rate", rate, fix="It is a share of false discoveries, such as .10.")
    burn_in, alarm = _checks.whole("burn_in", burn_in, at_least=0), _checks.whole("alarm", alarm)
    onset = _checks.whole("onset", onset, at_least=burn_in + 2, fix="The baseline needs two rounds after burn_in.")
    if onset > alarm:
        raise ValueError(f"onset must not come after the alarm, round {alarm}; got {onset}. Both count rounds.")
    if alarm >= len(rounds):
        raise ValueError(
            f"attribution needs rounds after the alarm, round {alarm}; there are {len(rounds)} in all. Wait for more?"
        )
    stretches, reference = (rounds[burn_in:onset], rounds[alarm:]), np.full((lin.n_clients, lin.dim), np.nan)
    for rows in (*stretches[0], *stretches[1]):
        reference = first_seen(reference, rows)
    before, after = (segment(rows, reference, lin) for rows in stretches)
    return attribute_segments(before, after, lin, rate, onset - burn_in, len(rounds) - alarm)


def attribute_segments(
    before: Segment,
    after: Segment,
    lin: Linearization,
    rate: float,
    baseline_rounds: int,
    rounds_after: int,
    way: FloatArray | None = None,
) -> Attribution:
    """`attribute` from the sums of the baseline and of the rounds after the alarm.

    `way` (d,) is how far the model moved from the one to the other, where that is known.
    """
    moves = _allowing_for_estimates(_moves(before, after, lin), lin)
    distance = np.zeros(lin.n_clients) if way is None else _distances(way, lin)
    moves = _allowing_for_distance(moves, distance, lin)
    n_clients = lin.n_clients
    statistics, p_values, effects = np.zeros(n_clients), np.ones(n_clients), np.full(n_clients, np.nan)
    for k in np.flatnonzero(moves.dof > 0):
        statistics[k], p_values[k], effects[k] = _against_the_others(moves, int(k))
    if not (np.isfinite(statistics).all() and np.isfinite(p_values).all()):
        raise ValueError("suspects needs clients' numbers that can be squared; these are too large. Use reset().")
    adjusted = np.minimum(_MARGIN * q_values(p_values, power_weights(effects, rate)), 1.0)
    table = tuple(
        Suspect(int(k), float(statistics[k]), float(p_values[k]), float(adjusted[k]), bool(adjusted[k] <= rate))
        for k in np.lexsort((-statistics, adjusted))
    )
    note = _FAR_AWAY.format(np.median(distance)) if np.median(distance) > np.sqrt(lin.dim) else ""
    return Attribution(table, rate, baseline_rounds, rounds_after, note)


def _distances(way: FloatArray, lin: Linearization) -> FloatArray:
    """|Var(W^k)^-1/2 H_k way|, what the way changed of each client's gradient, in standard deviations of one, (K,)."""
    changes = lin.client_hessians @ way
    return np.asarray(np.sqrt(np.einsum("ki,kij,kj->k", changes, noise_inverses(lin), changes)))


class _Moves(NamedTuple):
    """How far each client's mean innovation moved, with Omega_k, the covariance of that were the client honest."""

    gap: FloatArray  # D_k                                                  (K, d)
    precision: FloatArray  # Omega_k^-1; 0 where a client has too few rounds (K, d, d)
    dof: FloatArray  # degrees of freedom behind the size of Omega_k    (K,)


def _moves(before: Segment, after: Segment, lin: Linearization) -> _Moves:
    """Omega_k has the shape of Var(W^k), and the size that the rounds themselves show."""
    dim, inverses = lin.dim, noise_inverses(lin)
    usable = (before.seen >= 1) & (after.seen >= 1) & (before.seen + after.seen >= 4)
    counts = [np.where(usable, part.seen, 1.0) for part in (before, after)]
    means = [part.total / count[:, None] for part, count in zip((before, after), counts, strict=True)]
    # Sums of squares about the two means, which rounding must not make negative, with their degrees of freedom.
    within = np.maximum(
        [
            part.square - count * np.einsum("ki,kij,kj->k", mean, inverses, mean)
            for part, count, mean in zip((before, after), counts, means, strict=True)
        ],
        0.0,
    )
    freedom = dim * (np.array(counts) - 1.0)
    dof = np.where(usable, freedom.sum(axis=0), 0.0)
    size = within.sum(axis=0) / np.maximum(dof, 1.0) * (1.0 / counts[0] + 1.0 / counts[1])
    apart = usable & (freedom.min(axis=0) > 0)
    if _noise_grew(within[:, apart], freedom[:, apart]):
        parts = within[:, apart] / freedom[:, apart] / np.array(counts)[:, apart]
        size[apart] = parts.sum(axis=0)
        dof[apart] = size[apart] ** 2 / np.maximum((parts**2 / freedom[:, apart]).sum(axis=0), _TINY)
    gap = np.where(usable[:, None], means[1] - means[0], 0.0)
    if usable.any() and not apart.any():
        # One round after the alarm says nothing of its own noise. It is taken to be the median client's move.
        f = np.einsum("ki,kij,kj->k", gap, inverses, gap)[usable] / np.maximum(size[usable], _TINY) / dim
        size *= max(float(np.median(f / fdtri(dim, dof[usable], 0.5))), 1.0)
    precision = np.where(usable[:, None, None], inverses / np.maximum(size, _TINY)[:, None, None], 0.0)
    return _Moves(gap, precision, dof)


def _noise_grew(within: FloatArray, freedom: FloatArray) -> bool:
    """Whether most clients are noisier after the alarm than before the onset, from sums of squares (2, K).

    An attacker that drags the model far away makes everybody's gradients noisier there. One size for both stretches
    would then be too small for the few rounds after the alarm, and honest clients would seem to move; each stretch has
    a size of its own instead (Welch), which costs degrees of freedom, and so is not done without need. The median
    client decides, at level .01: one attacker alone that gets noisier does not change how the others are judged.
    """
    if not within.size:
        return False
    grown = fdtrc(freedom[1], freedom[0], within[1] / freedom[1] / np.maximum(within[0] / freedom[0], _TINY))
    half = (len(grown) + 1) // 2
    # The k-th smallest of K uniform p-values has a beta law.
    return bool(betainc(half, len(grown) - half + 1, np.sort(grown)[half - 1]) < _GREW)


def _allowing_for_estimates(moves: _Moves, lin: Linearization) -> _Moves:
    """Where Var(W^k) was estimated with f degrees of freedom: Hotelling's correction, (f - d + 1) / f."""
    behind = client_dof(lin)
    if np.isinf(behind).all():
        return moves
    needed = dof_needed(lin.dim)
    if behind.min() < needed:
        steps = 1 if lin.n_warmup is None else 1 + int(np.ceil((lin.n_warmup - 1) * needed / behind.min()))
        raise ValueError(
            f"suspects needs every client's covariance from at least {needed} degrees of freedom in {lin.dim} "
            f"dimensions; a warm-up of {lin.n_warmup} steps gives {behind.min():.0f}. Use {steps} steps or more."
        )
    left = behind - lin.dim + 1.0
    dof = np.minimum(moves.dof, np.where(moves.dof > 0, left, 0.0))
    return _Moves(moves.gap, moves.precision * (left / behind)[:, None, None], dof)


def _allowing_for_distance(moves: _Moves, distance: FloatArray, lin: Linearization) -> _Moves:
    """Moves, less what an honest client may show only because it was dragged far away.

    There its Hessian and its noise are not quite those of `lin`. A gradient that changed by less than its own standard
    deviation, sqrt(d), changes nothing; of what is beyond, a tenth is held against nobody.
    """
    allowed = _INEXACT * np.maximum(distance - np.sqrt(lin.dim), 0.0)
    size = np.sqrt(np.einsum("ki,kij,kj->k", moves.gap, noise_inverses(lin), moves.gap))
    left = np.maximum(1.0 - allowed / np.maximum(size, _TINY), 0.0)
    return moves._replace(gap=moves.gap * np.where(allowed > 0.0, left, 1.0)[:, None])


def _against_the_others(moves: _Moves, k: int) -> tuple[float, float, float]:
    """Statistic, p-value and foreseen effect of client k, in standard errors of its own move; NaN if none is."""
    dim, others = moves.gap.shape[1], np.arange(len(moves.gap)) != k
    gaps, precisions = moves.gap[others], moves.precision[others]
    pulls = np.einsum("kij,kj->i", precisions, gaps)
    common = np.linalg.pinv(precisions.sum(axis=0), hermitian=True) @ pulls
    precision, gap, dof = moves.precision[k], moves.gap[k], moves.dof[k]
    f = gap @ precision @ gap / dim
    if pulls @ common < chdtri(dim, _AGREEMENT):
        return float(np.sqrt(f)), float(fdtrc(dim, dof, f)), np.nan
    length = np.sqrt(common @ precision @ common)
    t = common @ precision @ gap / length
    along, anywhere = float(stdtr(dof, -t)), float(fdtrc(dim, dof, f))
    p_value = min(along, anywhere) if anywhere < _ASTRAY else along
    # Each other client's move as a multiple of the common one, with its precision. The sum of squares over the sum of
    # those that follow is the multiple of one attacker, however many there are.
    weight = np.einsum("i,kij,j->k", common, precisions, common)
    push = np.einsum("i,kij,kj->k", common, precisions, gaps)
    squares = (np.divide(push**2, weight, out=np.zeros_like(push), where=weight > 0) - (weight > 0)).sum()
    multiple = max(squares, 0.0) / np.maximum(push, 0.0).sum()
    return float(t), p_value, float(multiple * length)


def power_weights(effects: FloatArray, rate: float) -> FloatArray:
    """Roeder and Wasserman's weights sf(xi/2 + c/xi), with c such that their mean is one, for foreseen effects xi.

    A client of which nothing is foreseen (NaN) has weight one.
    """
    weights, foreseen = np.ones(len(effects)), np.isfinite(effects)
    if not foreseen.any():
        return weights
    xi = np.clip(effects[foreseen], 0.3, 12.0)

    def unscaled(c: float) -> FloatArray:
        return ndtr(-xi / 2 - c / xi) / rate

    c = brentq(lambda c: unscaled(c).mean() - 1.0, -500.0, 500.0)
    kept = np.maximum(unscaled(c), _LEAST_WEIGHT)
    weights[foreseen] = kept / kept.mean()
    return weights


def q_values(p_values: FloatArray, weights: FloatArray) -> FloatArray:
    """Adjusted p-values of Benjamini and Hochberg's procedure on p_k / weight_k.

    The share of honest clients is Storey's estimate (max weight + total weight of p_k > 1/2) / (K / 2), at most one.
    """
    count = len(p_values)
    honest = (weights.max() + weights @ (p_values > 0.5)) / (count / 2)
    scaled = p_values / weights
    order = np.argsort(scaled)
    adjusted = min(honest, 1.0) * scaled[order] * count / np.arange(1, count + 1)
    result = np.empty(count)
    result[order] = np.minimum(np.minimum.accumulate(adjusted[::-1])[::-1], 1.0)
    return result
