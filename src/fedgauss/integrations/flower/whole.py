"""A monitor of all parameters: what it is fed after a round, and what has to be said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from flwr.app import ArrayRecord

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import vector
from fedgauss.integrations.flower.rounds import Round, Upload

_ROUNDING = 1e-4  # of the clients' way in the round: arrays may be float32


class Whole:
    """Feeds a `Monitor` with Y, the strategy's arrays as one vector, and with what clients uploaded.

    FedAvg weights the average and the paper the gradient. A round of FedAvg is

        Y' = sum_k v_k theta_k = Y - sum_t eta_t sum_k v_k grad f_k(theta_k),    v_k = n_k / sum n,

    that of the paper has steps eta_t K w_k grad f_k and a plain mean. With w_k = v_k both move Y by the same sum, and
    differ only in where in the round gradients are taken, by O(eta): A = sum w_k H_k and V_K = sum w_k^2 Var(W^k) are
    the same to first order. What client k would have uploaded under the paper's recursion is, to the same order,
    Y + K w_k (theta_k - Y), and this is what the monitor is given for `suspects`.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor

    def request(self, server_round: int) -> ArrayRecord | None:
        """Nothing."""
        return None

    def judge(self, seen: Round) -> Verdict:
        """The verdict on a round; an invalid one leaves the monitor as it was."""
        monitor, lin = self.monitor, self.monitor.lin
        numbers = [upload.client for upload in seen.uploads]
        faults = [*seen.faults, *(f"There is no client {k}." for k in numbers if k >= lin.n_clients > 1)]
        if faults or not seen.sound:
            return refusal(monitor, lin.dim, " ".join(faults))
        assert seen.after is not None  # else it would not be sound
        before, y = (vector(arrays, seen.before) for arrays in (seen.before, seen.after))
        if len(y) != lin.dim:
            raise ValueError(
                f"the monitor must be for all {len(y)} parameters of the model; it is for {lin.dim}. "
                "Use ServerOnly(warm_up, coordinates(...)) for some of them?"
            )
        each = np.stack([vector(upload.arrays, seen.before) for upload in seen.uploads])
        alone = lin.n_clients == 1 and len(numbers) > 1  # lin stands for the average of all
        verdict = monitor.update(
            y,
            clients=None if alone else _as_in_the_paper(lin, before, numbers, each),
            participants=None if alone or len(numbers) == lin.n_clients else numbers,
        )
        return with_note(verdict, _not_a_mean(seen.uploads, each, before, y))


def refusal(monitor: Monitor, dim: int, note: str) -> Verdict:
    """The monitor's own verdict on an update that cannot be used, with the reason where one is known."""
    verdict = monitor.update(np.full(dim, np.nan))
    return replace(verdict, note=note) if note else verdict


def with_note(verdict: Verdict, note: str) -> Verdict:
    """The verdict with more words."""
    return replace(verdict, note=f"{verdict.note} {note}".strip()) if note else verdict


def _as_in_the_paper(lin: Linearization, before: FloatArray, numbers: list[int], each: FloatArray) -> FloatArray:
    """Y + K w_k (theta_k - Y), (K, d); NaN for clients that took no part."""
    table = np.full((lin.n_clients, lin.dim), np.nan)
    table[numbers] = before + lin.n_clients * lin.weights[numbers, None] * (each - before)
    return table


def _not_a_mean(uploads: tuple[Upload, ...], each: FloatArray, before: FloatArray, y: FloatArray) -> str:
    """What to say when the strategy did not average: a median or a server optimiser has another A and V."""
    examples = [upload.examples for upload in uploads]
    weights = np.array([1.0 if n is None else n for n in examples])
    if weights.sum() <= 0.0:
        return ""
    mean = weights @ each / weights.sum()
    scale = np.abs(each - before).max() + 1e-3 * np.abs(before).max()
    if np.abs(mean - y).max() <= _ROUNDING * scale:
        return ""
    return (
        "The strategy's arrays are not the mean of what clients sent, which A and V are for: alpha does not hold. "
        "Use ServerOnly."
    )
