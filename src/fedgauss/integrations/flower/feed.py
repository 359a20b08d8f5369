"""A monitor of all parameters: what it is fed after a round, and what has to be said of it."""

from dataclasses import replace
from typing import Protocol

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.innovations import Innovations
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.updates import fault
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.records import PARTITION, Request, Views, log, vector
from fedgauss.integrations.flower.rounds import TrainingRound

_ROUNDING = 1e-4  # of the clients' way in the round: arrays may be float32
_SHARES = 0.01  # by which a client's share of the examples may differ from its weight, as a part of it


class Watcher(Protocol):
    """What `Monitored` asks in every round; `monitor` is None until there is one."""

    sync_every: int
    alpha: float

    @property
    def monitor(self) -> Monitor | None:
        """The monitor behind it."""

    def request(self, server_round: int) -> Request:
        """What clients are asked for in this round, beside training; `PARTITION` of those who have not said yet."""

    def faults(self, seen: TrainingRound) -> tuple[str, ...]:
        """What is wrong with uploads, before the strategy sees them; changes nothing."""

    def judge(self, seen: TrainingRound, after: Views) -> Verdict | None:
        """The verdict on a round and the strategy's arrays after it; None while warming up."""


class MonitorFeed:
    """Feeds a `Monitor` with Y, the strategy's arrays as one vector, and with what clients uploaded.

    FedAvg weights the average and the paper the gradient. A round of FedAvg is

        Y' = sum_k v_k theta_k = Y - sum_t eta_t sum_k v_k grad f_k(theta_k),    v_k = n_k / sum n,

    that of the paper has steps eta_t K w_k grad f_k and a plain mean. With w_k = v_k both move Y by the same sum, and
    differ only in where in the round gradients are taken, by O(eta): A = sum w_k H_k and V_K = sum w_k^2 Var(W^k) are
    the same to first order. What client k would have uploaded under the paper's recursion is, to the same order,
    Y + K w_k (theta_k - Y), and this is what the monitor is given for `suspects`.

    A round that does not begin where the last one ended, after a rollback or by something outside that changes arrays,
    is no part of the monitor's recursion: the monitor is reset to where it begins.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.sync_every, self.alpha = monitor.sync_every, monitor.alpha

    def request(self, server_round: int) -> Request:
        """Which client is which."""
        return {PARTITION: 1.0}

    def faults(self, seen: TrainingRound) -> tuple[str, ...]:
        """Clients that do not exist, and uploads that the monitor would not take."""
        lin = self.monitor.lin
        if len(seen.origin) != lin.dim:
            raise ValueError(
                f"the monitor must be for all {len(seen.origin)} parameters of the model; it is for {lin.dim}. "
                "Use ServerOnly(warm_up, coordinates(...)) for some of them?"
            )
        if strangers := [k for k in seen.clients if k >= lin.n_clients > 1]:
            return tuple(f"There is no client {k}: the monitor is for 0, ..., {lin.n_clients - 1}." for k in strangers)
        return implausible(
            self.monitor.innovations, seen, seen.each if _alone(lin, seen) else _scaled(lin, seen), seen.origin
        )

    def judge(self, seen: TrainingRound, after: Views) -> Verdict:
        """The verdict on a round."""
        lin = self.monitor.lin
        anew = self._place(seen)
        y = vector(after, seen.before)
        alone = _alone(lin, seen)
        verdict = self.monitor.update(
            y,
            clients=None if alone else _as_in_the_paper(lin, seen),
            participants=None if alone or len(seen.uploads) == lin.n_clients else seen.clients,
        )
        return with_note(with_note(verdict, anew), _not_a_mean(seen, y) or ("" if alone else _other_weights(lin, seen)))

    def _place(self, seen: TrainingRound) -> str:
        """Tell the monitor where the round begins, if it does not know; words where it thought otherwise."""
        last = self.monitor.mean
        if last is not None and np.array_equal(last, seen.origin):
            return ""
        self.monitor.reset(y=seen.origin)
        if last is None:
            return ""
        words = "The round began elsewhere than the last one ended, so the watch begins anew with it."
        hint = "If a strategy around Monitored changes arrays, put it inside: Monitored(that(strategy), ...)."
        log.warning("fedgauss, round %d: %s %s", seen.number, words, hint)
        return words


def implausible(parts: Innovations, seen: TrainingRound, rows: FloatArray, last: FloatArray) -> tuple[str, ...]:
    """What the monitor's own rule says of the client whose row is furthest from `last`."""
    worst = int(np.argmax(parts.distances(rows, last)))
    words = fault(parts, last, rows[worst], None, None, None)
    return (f"Client {seen.clients[worst]}: {words}",) if words else ()


def with_note(verdict: Verdict, note: str) -> Verdict:
    """The verdict with more words."""
    return replace(verdict, note=f"{verdict.note} {note}".strip()) if note else verdict


def _alone(lin: Linearization, seen: TrainingRound) -> bool:
    """Whether lin stands for the average of all."""
    return lin.n_clients == 1 and len(seen.uploads) > 1


def _scaled(lin: Linearization, seen: TrainingRound) -> FloatArray:
    """Y + K w_k (theta_k - Y), a row for each upload."""
    return seen.origin + lin.n_clients * lin.weights[seen.clients, None] * (seen.each - seen.origin)


def _as_in_the_paper(lin: Linearization, seen: TrainingRound) -> FloatArray:
    """The same for all clients, (K, d); NaN for those that took no part."""
    table = np.full((lin.n_clients, lin.dim), np.nan)
    table[seen.clients] = _scaled(lin, seen)
    return table


def _not_a_mean(seen: TrainingRound, y: FloatArray) -> str:
    """What to say when the strategy did not average: a median or a server optimiser has another A and V."""
    mean = seen.examples @ seen.each / seen.examples.sum()
    scale = np.abs(seen.each - seen.origin).max() + 1e-3 * np.abs(seen.origin).max()
    if np.abs(mean - y).max() <= _ROUNDING * scale:
        return ""
    return (
        "The strategy's arrays are not the mean of what clients sent, which A and V are for: alpha does not hold. "
        "Use ServerOnly."
    )


def _other_weights(lin: Linearization, seen: TrainingRound) -> str:
    """What to say when the strategy's weights, the clients' shares of the examples, are not those of A and V."""
    weights = lin.weights[seen.clients]
    shares, weights = seen.examples / seen.examples.sum(), weights / weights.sum()
    gaps = np.abs(shares / weights - 1.0)
    if gaps.max() <= _SHARES:
        return ""
    k = int(np.argmax(gaps))
    return (
        f"The strategy weights clients otherwise than the monitor (client {seen.clients[k]} by {shares[k]:.3g}, not "
        f"{weights[k]:.3g}): alpha does not hold. Use linearization(..., weights=examples / examples.sum())."
    )
