"""What `Monitored` asks of whatever watches, and the simplest that does: a monitor of all parameters."""

from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.client_rounds import as_weighted_steps
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.innovations import Innovations
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.updates import fault
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.records import PARTITION, Request, Views, log
from fedgauss.integrations.flower.rounds import TrainingRound

_ROUNDING = 1e-4  # of the clients' way in the round: arrays may be float32
_FAR = 100.0  # times the median upload's distance from what was sent
_FEWEST = 4  # uploads of which a median says what is usual
_SHARES = 0.01  # by which a client's share of the examples may differ from its weight, as a part of it


V = TypeVar("V", bound=Verdict)


class Watcher(Protocol):
    """What `Monitored` asks in every round; `monitor` is None until there is one."""

    @property
    def monitor(self) -> Monitor | ClientMonitor | None:
        """The monitor behind it."""

    def request(self, server_round: int) -> Request:
        """What clients are asked for in this round, beside training; `PARTITION` of those who have not said yet."""

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """What is wrong with uploads, by client, before the strategy sees them; changes nothing."""

    def judge_uploads(self, seen: TrainingRound) -> Verdict | None:
        """The verdict on uploads alone, before the strategy sees them; None from those who `judge` a round."""

    def judge(self, seen: TrainingRound, after: Views) -> Verdict | None:
        """The verdict on a round and the strategy's arrays after it; None while warming up."""

    def refuse(self, server_round: int, last: int, note: str) -> Verdict:
        """The verdict on a round that could not be used, as the note says; `last` is the last good one."""


class MonitorFeed:
    """Feeds a `Monitor` with Y, the strategy's arrays as one vector, and with what clients uploaded.

    FedAvg weights the average and the paper the gradient. A round of FedAvg is

        Y' = sum_k v_k theta_k = Y - sum_t eta_t sum_k v_k grad f_k(theta_k),    v_k = n_k / sum n,

    that of the paper has steps eta_t K w_k grad f_k and a plain mean. With w_k = v_k both move Y by the same sum, and
    differ only in where in the round gradients are taken, by O(eta): A = sum w_k H_k and V_K = sum w_k^2 Var(W^k) are
    the same to first order. For `suspects` the monitor is given what client k would have uploaded under the paper's
    recursion, with the innovation that its own steps show (`as_weighted_steps`).

    A round that does not begin where the last one ended, after a rollback or by something outside that changes arrays,
    is no part of the monitor's recursion: the monitor is reset to where it begins.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def request(self, server_round: int) -> Request:
        """Which client is which."""
        return {PARTITION: 1.0}

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """Clients that do not exist, and uploads that the monitor would not take."""
        lin = self.monitor.lin
        if len(seen.origin) != lin.dim:
            raise ValueError(
                f"the monitor must be for all {len(seen.origin)} parameters of the model; it is for {lin.dim}. "
                "Use ServerOnly(warm_up, coordinates(...)) for some of them?"
            )
        if strangers := [k for k in seen.clients if k >= lin.n_clients > 1]:
            return {k: f"There is no client {k}: the monitor is for 0, ..., {lin.n_clients - 1}." for k in strangers}
        return implausible(
            self.monitor.innovations, seen, seen.each if _alone(lin, seen) else _scaled(lin, seen), seen.origin
        )

    def judge_uploads(self, seen: TrainingRound) -> None:
        """None: the monitor judges what the strategy makes of them."""

    def refuse(self, server_round: int, last: int, note: str) -> Verdict:
        """The monitor's own, which is not changed by it."""
        return refusal_of(self.monitor, note)

    def judge(self, seen: TrainingRound, after: Views) -> Verdict:
        """The verdict on a round."""
        lin = self.monitor.lin
        anew = self._place(seen)
        y = seen.vector(after)
        alone = _alone(lin, seen)
        verdict = self.monitor.update(
            y,
            clients=None if alone else _as_in_the_paper(self.monitor, seen),
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


def implausible(parts: Innovations, seen: TrainingRound, rows: FloatArray, last: FloatArray) -> dict[int, str]:
    """What the monitor's own rule says of the client whose row is furthest from `last`."""
    worst = int(np.argmax(parts.distances(rows, last)))
    words = fault(parts, last, rows[worst], None, None, None)
    return {seen.clients[worst]: f"Client {seen.clients[worst]}: {words}"} if words else {}


def far_off(seen: TrainingRound) -> dict[int, str]:
    """Uploads that nobody who knows nothing of the noise would take, either: far further than the median upload."""
    with np.errstate(over="ignore"):  # infinite is far
        way = np.sqrt([np.einsum("j,j->", move, move) for move in seen.moves])  # norm() would wake up BLAS's threads
    usual = float(np.median(way))
    if len(way) < _FEWEST or not usual > 0.0:
        return {}
    return {
        client: f"Client {client} moved {far / usual:.3g} times as far as the median client; {_FAR:g} is the most."
        for client, far in zip(seen.clients, way, strict=True)
        if far > _FAR * usual
    }


def refusal_of(monitor: Monitor, note: str) -> Verdict:
    """What a monitor says of an update that is none."""
    return replace(monitor.update(np.full(monitor.lin.dim, np.nan)), note=note)


def with_note(verdict: V, note: str) -> V:
    """The verdict with more words."""
    return replace(verdict, note=f"{verdict.note} {note}".strip()) if note else verdict


def _alone(lin: Linearization, seen: TrainingRound) -> bool:
    """Whether lin stands for the average of all."""
    return lin.n_clients == 1 and len(seen.uploads) > 1


def _scaled(lin: Linearization, seen: TrainingRound) -> FloatArray:
    """Y + K w_k (theta_k - Y), a row for each upload: near enough to say what is plausible."""
    return seen.origin + lin.n_clients * lin.weights[seen.clients, None] * (seen.each - seen.origin)


def _as_in_the_paper(monitor: Monitor, seen: TrainingRound) -> FloatArray:
    """What clients would have uploaded with steps eta_t K w_k, (K, d); NaN for those that took no part."""
    lin, step = monitor.lin, monitor.step
    table = np.full((lin.n_clients, lin.dim), np.nan)
    table[seen.clients] = seen.each
    began = np.broadcast_to(seen.origin, table.shape)
    return as_weighted_steps(began, table, lin, monitor.steps, step, step + monitor.sync_every)


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
