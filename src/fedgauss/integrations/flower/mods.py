"""Client mods: what a client adds to its replies. The application's own train function stays as it is.

    app = ClientApp(mods=[report_moments(moments)])

A mod answers what the server asks for in a message, and only that; it takes the request out before the application sees
it. Every mod here is asked which partition the client has (`partition-id` of its node's configuration, where there is
one) until the client has replied once, so that the server counts clients as its operator does. Where an answer cannot
be computed the client trains all the same, and the server is sent the error's name and its first words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedgauss import _checks
from fedgauss._linearization import gradient_moments
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.trained import is_trained
from fedgauss.integrations.flower.records import PARTITION, answer, asked, log

Moments = Callable[[ArrayRecord, Context], tuple[ArrayLike, ArrayLike]]
Compute = Callable[[Mapping[str, FloatArray], Message, Context], dict[str, ArrayLike]]

_SINGLE = 1e-5  # of a Hessian's largest entry: what it may lack of symmetry


def report_partition() -> Mod:
    """A mod that tells the server which partition the client has, and nothing else."""
    return _answering(lambda request, message, context: {})


def report_moments(moments: Moments) -> Mod:
    """A mod that reports a client's Hessian and gradient covariance when the server (`Reported`) asks for them.

    Parameters
    ----------
    moments : callable
        `moments(arrays, context)` returns, at the parameters `arrays` and from the client's own data: the gradients
        (m, d) of m single steps of SGD, of mini-batches as large as those it trains with, and the Hessian (d, d) of its
        loss; with parameters in the order of the arrays that are trained (no integers, no running statistics), each
        flattened.

    Notes
    -----
    What leaves the client: its Hessian, the covariance, the mean and the kurtosis of these gradients, and m. They are
    second moments of its data. A client that reports too large a covariance makes the monitor less sensitive.
    """

    def compute(request: Mapping[str, FloatArray], message: Message, context: Context) -> dict[str, ArrayLike]:
        gradients, hessian = _computed(moments, message, context)
        covariance, kurtosis = gradient_moments(gradients)
        return {
            "hessian": hessian,
            "covariance": covariance,
            "kurtosis": kurtosis,
            "gradient": gradients.mean(axis=0),
            "n_warmup": len(gradients),
        }

    return _answering(compute, "moments")


def run_chains(moments: Moments, seed: int | None = None) -> Mod:
    """A mod that runs the client's part of Client-GA (Theorem 3.2), so that its gradient covariance stays with it.

    Parameters
    ----------
    moments : callable
        As in `report_moments`.
    seed : int, optional
        For tests; by default the operating system's, since whoever knows the draws knows the covariance.

    Notes
    -----
    When the server (`Chained`) sends A and the step sizes of a round, the client draws Z ~ N(0, Var(W^k)) with the
    covariance of its own gradients (`moments`, as in `report_moments`) and returns where B chains

        theta_t = (I - eta_t A) theta_{t-1} + eta_t Z_t,    theta_0 = 0

    end. The recursion is linear, so the server's sum over clients of w_k times these is the mean of (3.6).

    What leaves the client: its Hessian, and these B ends. Its covariance does not, but the server sees each client's
    ends before it adds them up, and B Gaussian vectors show their covariance with an error of sqrt(2 / B). Nothing is
    hidden from a server that looks. For that the ends must be added up under secure aggregation, which only shows the
    sum, and the sum is all that `Chained` uses.
    """
    rng = np.random.default_rng(seed)

    def compute(request: Mapping[str, FloatArray], message: Message, context: Context) -> dict[str, ArrayLike]:
        gradients, hessian = _computed(moments, message, context)
        if "eta" not in request:
            return {"hessian": hessian}
        a = request["hessian"].reshape(hessian.shape)
        covariance, _ = gradient_moments(gradients)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        ends = np.zeros((int(request["n_chains"][0]), len(a)))
        for rate in request["eta"]:
            ends += rate * (rng.standard_normal(ends.shape) @ root.T - ends @ a)
        return {"ends": ends}

    return _answering(compute, "hessian only", "eta")


def _computed(moments: Moments, message: Message, context: Context) -> tuple[FloatArray, FloatArray]:
    """What the user's function returns for a copy of what was sent, checked where its author sees the message."""
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"a message must have one ArrayRecord to compute moments at; it has {len(records)}.")
    arrays = ArrayRecord(dict(records[0].items()))
    trained = [array for name, array in arrays.items() if is_trained(name, np.dtype(array.dtype))]
    dim = sum(int(np.prod(array.shape)) for array in trained)
    gradients, hessian = moments(arrays, context)
    return (
        _checks.real_array("gradients", gradients, shape=(None, dim)),
        _rounded_off(_checks.real_array("hessian", hessian, shape=(dim, dim))),
    )


def _rounded_off(hessian: FloatArray) -> FloatArray:
    """A Hessian without what float32 leaves in it: a little asymmetry, and eigenvalues just below zero."""
    error = _SINGLE * float(np.abs(hessian).max(initial=0.0))
    if np.abs(hessian - hessian.T).max(initial=0.0) <= error:
        hessian = (hessian + hessian.T) / 2.0
        values, vectors = np.linalg.eigh(hessian)
        if -error <= values[0] < 0.0:
            hessian = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return _checks.covariance("hessian", hessian)


def _answering(compute: Compute, *wanted: str) -> Mod:
    """A mod that lets the application train, whatever happens here, and puts an answer beside its reply.

    It has its partition, and what is computed where a request holds something that is `wanted`.
    """

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        training = message.metadata.message_type.startswith("train") and message.has_content()
        if not training or (request := asked(message)) is None:
            return call_next(message, context)
        numbers: dict[str, ArrayLike] = {}
        reason = ""
        try:
            if PARTITION in request and "partition-id" in context.node_config:
                numbers[PARTITION] = float(context.node_config["partition-id"])
            if not request.keys().isdisjoint(wanted):
                numbers |= compute(request, message, context)
        except Exception as error:  # of the user's function, or of our checks of what it returned
            reason = f"{type(error).__name__}: {error}"
            log.warning("fedgauss: the server is not told what it asked for.", exc_info=error)
        reply = call_next(message, context)
        if reply.has_content() and (numbers or reason):
            answer(reply, numbers, reason)
        return reply

    return mod
