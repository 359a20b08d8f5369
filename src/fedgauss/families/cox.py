"""Cox regression stratified by site, and within sites: times to an event, some of them censored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from fedgauss import _checks
from fedgauss._namespaces import numpy_for
from fedgauss._types import BoolArray, FloatArray, IntArray, JaxArray
from fedgauss.families.base import Family, register, require
from fedgauss.families.rows import Goodness, NoFiniteEstimate, Rows, Score, Sums


class _Events(NamedTuple):
    """The events of a site at one parameter, stratum by stratum.

    Within a stratum rows are sorted by time, and covariates are about their mean.
    """

    order: IntArray  # of the rows, (n,)
    x: FloatArray  # (n, p)
    died: BoolArray  # (n,)
    weights: FloatArray  # (n,)
    relative: FloatArray  # w_j exp(eta_j), up to a factor, (n,)
    log_likelihood: float
    of_time: IntArray  # of each event, the number of its time, (e,)
    upto: IntArray  # how many times of events each row has lived to see, and strata before it, (n,)
    ties: FloatArray  # how many events a time has, (g,)
    held: FloatArray  # f, (e,)
    hazard: FloatArray  # h = w / S0, (e,)
    means: FloatArray  # m = S1 / S0, (e, p)
    event_weights: FloatArray  # w, (e,)
    ends: tuple[int, ...]  # numbers of times, of g, at which a stratum ends and another begins

    def by_time(self, of_events: FloatArray) -> FloatArray:
        """Totals over the events of each time, (g, ...)."""
        firsts = np.flatnonzero(np.diff(self.of_time, prepend=-1))
        return np.add.reduceat(of_events, firsts, axis=0)

    def lived(self, by_time: FloatArray) -> FloatArray:
        """Totals over the times that each row has lived to see, (n, ...)."""
        nothing = np.zeros((1, *by_time.shape[1:]))
        totals = [(nothing, np.cumsum(part, axis=0)) for part in np.split(by_time, self.ends)]
        return np.concatenate([part for pair in totals for part in pair])[self.upto]

    def expected(self) -> FloatArray:
        """How many events each row was to have had by the end of its time, times its weight, (n,)."""
        all_of_it = self.lived(self.by_time(self.hazard))
        all_of_it[self.died] -= self.by_time(self.held * self.hazard)[self.of_time]
        return np.asarray(self.relative * all_of_it)


_JOINED = [name for name in _Events._fields if name not in ("log_likelihood", "of_time", "upto", "ends")]


@register
@dataclass(frozen=True)
class Cox(Family):
    """Proportional hazards exp(eta), with a baseline hazard for each site, or for each stratum of a site.

    Each event is compared with the rows of its stratum that were at risk at its time t; those of several strata never
    meet, so log-likelihoods, scores and informations add up over strata, and over sites. A site's partial
    log-likelihood is the sum over its events e of

        w_e (eta_e - log S0_e),   S0_e = sum_(at risk) w_j exp(eta_j) - f_e sum_(events at t) w_j exp(eta_j).

    `ties` says what to do with events at one time: f = 0 for "breslow", and f = 0, 1/d, ..., (d - 1)/d for the d events
    of "efron" (the default here and in R; statsmodels' is "breslow"), which then share the mean of their weights.
    The response is a time and, beside it, whether the event came then (1) or the row was censored (0), and perhaps the
    number of a stratum.
    """

    ties: Literal["efron", "breslow"] = "efron"

    name = "cox"
    aliases = ("coxph",)
    needs = "times that are not negative, with events 0 and 1 beside them"
    beside = "event"
    has_intercept = False
    by_row = False
    exact_only = "a row is compared with all rows of its site that are at risk"

    def __post_init__(self) -> None:
        _checks.one_of("ties", self.ties, ["efron", "breslow"])

    def describe(self) -> str:
        """With what is done about ties."""
        return f"{self.name} (by site, {self.ties.capitalize()} ties)"

    def mean(self, predictor: JaxArray) -> JaxArray:
        """The hazard relative to that of a row with predictor 0."""
        return numpy_for(predictor).exp(predictor)

    def residual(self, predictor: JaxArray, response: JaxArray) -> NoReturn:
        """There is none: a row's score depends on the other rows."""
        raise NotImplementedError("a row of a Cox regression has no residual of its own: use `row_scores`.")

    def rows(self, rows: Rows, beside: FloatArray | None) -> Rows:
        """Responses with a column for the event, and one for the stratum where rows have one."""
        if beside is None:
            raise ValueError("family 'cox' needs a column that says whether the event came: event='died'.")
        told = np.asarray(beside, dtype=float).reshape(len(rows.response), -1)
        require(np.isin(told[:, 0], (0.0, 1.0)), told[:, 0], "events must be 0 (censored) or 1", "Recode the column?")
        return rows._replace(response=np.column_stack([rows.response, told]))

    def score(self, rows: Rows, theta: FloatArray) -> Score:
        """The partial log-likelihood and its gradient."""
        at = self._events(rows, theta)
        return Score(at.log_likelihood, at.x.T @ (at.weights * at.died - at.expected()))

    def sums(self, rows: Rows, theta: FloatArray) -> Sums:
        """Information: the covariances of the covariates over the rows at risk, one for each event."""
        at = self._events(rows, theta)
        expected = at.expected()
        score = at.x.T @ (at.weights * at.died - expected)
        information = (at.x * expected[:, None]).T @ at.x - (at.means * at.event_weights[:, None]).T @ at.means
        return Sums(at.log_likelihood, score, information)

    def observed(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """The same: given who is at risk, nothing is left to expect."""
        return self.sums(rows, theta).information

    def row_scores(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """Score residuals: w_j times the derivative of the score in w_j (Lin and Wei 1989)."""
        at = self._events(rows, theta)
        away = -at.x * at.expected()[:, None] + at.relative[:, None] * self._drift(at)
        if len(at.of_time):
            mean = at.by_time(at.means) / at.ties[:, None]
            away[at.died] += at.weights[at.died, None] * (at.x[at.died] - mean[at.of_time])
        scores = np.empty_like(away)
        scores[at.order] = away
        return scores

    def behind(self, rows: Rows, kind: str, theta: FloatArray) -> dict[str, FloatArray]:
        """The martingale residual m of each row, and for the information how the mean covariates of events are told.

        The score is X'm. The information is X'u_j for each column, with u_j the events that a row was to have had,
        times how far its covariate is from the mean over the rows at risk then. Squared scores, of "final", are the
        inner products of the columns of `row_scores`. Of "goodness" the one number is no sum over rows.
        """
        if kind == "goodness":
            return {}
        at = self._events(rows, theta)
        expected = at.expected()
        columns = {"score 0": at.weights * at.died - expected}
        if kind in ("sums", "final"):
            apart = at.x * expected[:, None] - at.relative[:, None] * self._drift(at)
            columns |= {f"information 0 x{j}": column for j, column in enumerate(apart.T)}
        found = {}
        for name, column in columns.items():
            found[name] = np.empty_like(column)
            found[name][at.order] = column
        if kind == "final":
            found |= {f"squares 0 x{j}": column for j, column in enumerate(self.row_scores(rows, theta).T)}
        return found

    def goodness(self, rows: Rows, theta: FloatArray, dispersion: float) -> Goodness:
        """The deviance is minus twice the partial log-likelihood."""
        likelihood = self._events(rows, theta).log_likelihood
        return Goodness(likelihood + rows.constant, -2.0 * likelihood, 0.0)

    def steadied(self, theta: FloatArray, total: Sums) -> Sums:
        """Refuse rows among which there is nothing to compare."""
        if not np.any(total.information):
            raise NoFiniteEstimate(
                "no site has an event at a time when several of its rows are at risk, so there is nothing to compare. "
                "Use rows with events, or larger sites"
            )
        return total

    def check_response(self, response: FloatArray) -> None:
        """Times are not negative."""
        rule, fix = "times must not be negative", "Count them from when a row came under observation."
        require(response >= 0, response, rule, fix)

    def start_terms(self, response: FloatArray) -> FloatArray:
        """Nothing: scoring starts at zero."""
        return np.zeros((len(response), 1))

    def _drift(self, at: _Events) -> FloatArray:
        """Of each row the total over events, while it was at risk, of hazard times mean covariates, (n, p)."""
        if not len(at.of_time):
            return np.zeros_like(at.x)
        weighted = at.hazard[:, None] * at.means
        drift = at.lived(at.by_time(weighted))
        drift[at.died] -= at.by_time(at.held[:, None] * weighted)[at.of_time]
        return drift

    def _events(self, rows: Rows, theta: FloatArray) -> _Events:
        """Those of all strata, or of all rows where there are none."""
        eta = self._predictors(rows, theta)[0]
        if rows.response.shape[1] == 2:
            return self._stratum(rows, eta, np.arange(rows.n))
        strata = rows.response[:, 2]
        parts = [self._stratum(rows, eta, np.flatnonzero(strata == one)) for one in np.unique(strata)]
        return _joined(parts or [self._stratum(rows, eta, np.arange(0))])

    def _stratum(self, rows: Rows, eta: FloatArray, which: IntArray) -> _Events:
        """Sort these rows by time, and add up from the last to the first: n log n steps."""
        order = which[np.argsort(rows.response[which, 0], kind="stable")]
        time, died = rows.response[order, 0], rows.response[order, 1] > 0
        weights = np.broadcast_to(rows.weights, rows.n)[order]
        eta = eta[order]
        eta = eta - eta.max(initial=-np.inf)
        x = rows.x[order]
        x = x - np.average(x, axis=0, weights=weights) if len(x) else x  # a constant cancels, and so do fewer digits
        relative = weights * np.exp(eta)
        times, of_time = np.unique(time[died], return_inverse=True)
        upto = np.searchsorted(times, time, side="right")
        first = np.searchsorted(time, times)
        ties = np.bincount(of_time, minlength=len(times)).astype(float)
        place = np.arange(len(of_time)) - np.searchsorted(of_time, np.arange(len(times)))[of_time]
        held = place / ties[of_time] if self.ties == "efron" else np.zeros(len(of_time))
        event_weights = np.bincount(of_time, weights[died], len(times))[of_time] / ties[of_time]

        def left(values: FloatArray) -> FloatArray:
            """The total over rows at risk, less the share of an event that those tied with it have had."""
            at_risk = np.cumsum(values[::-1], axis=0)[::-1][first]
            if not held.any():
                return np.asarray(at_risk[of_time])
            tied = np.zeros_like(at_risk)
            np.add.at(tied, of_time, values[died])
            return np.asarray(at_risk[of_time] - held.reshape(-1, *[1] * (values.ndim - 1)) * tied[of_time])

        with np.errstate(divide="ignore", invalid="ignore"):  # of a step too far, which is taken back
            whole = left(relative)
            likelihood = float(np.sum(weights[died] * eta[died]) - np.sum(event_weights * np.log(whole)))
            hazard, means = event_weights / whole, left(relative[:, None] * x) / whole[:, None]
        return _Events(
            order, x, died, weights, relative, likelihood, of_time, upto, ties, held, hazard, means, event_weights, ()
        )


def _joined(strata: list[_Events]) -> _Events:
    """Strata one after the other, their times numbered on."""
    ends = np.cumsum([len(at.ties) for at in strata])
    before = ends - [len(at.ties) for at in strata]
    added = {name: np.concatenate([getattr(at, name) for at in strata]) for name in _JOINED}
    added["of_time"] = np.concatenate([at.of_time + first for at, first in zip(strata, before, strict=True)])
    starts = before + np.arange(len(strata))
    added["upto"] = np.concatenate([at.upto + first for at, first in zip(strata, starts, strict=True)])
    likelihood = sum(at.log_likelihood for at in strata)
    return _Events(log_likelihood=likelihood, ends=tuple(ends[:-1].tolist()), **added)
