"""When clients report nothing: the noise of a run from what its server saw of it."""

from __future__ import annotations

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike
from fedgauss.detect.innovations import innovations
from fedgauss.detect.whitening import dof_needed
from fedgauss.step_sizes import StepSizes


def server_only(
    hessian: ArrayLike, means: ArrayLike, steps: StepSizes | ArrayLike, sync_every: int, after: int = 0
) -> Linearization:
    """A linearisation for a monitor from what a server sees of J honest rounds.

    Parameters
    ----------
    hessian : (d, d) array_like
        A, which a server may know from data of its own. It must not be regressed on the averaged path: that makes most
        runs alarm.
    means : (J + 1, d) array_like
        Y before and after each of the rounds.
    steps : StepSizes or array_like
        eta_t.
    sync_every : int
        Steps between two rounds.
    after : int
        Steps made before the first of these rounds.

    Returns
    -------
    Linearization
        Of one client that stands for the average of all.

    Notes
    -----
    With E_j the innovation of round j (`Innovations`) and Omega_j = V / w_j, w_j its mean weight, near enough from the
    second round on, V is estimated by sum_j w_j (E_j - mean)(E_j - mean)' / (J - 1). Innovations are nearly Gaussian,
    so the estimate is a Wishart matrix with J - 1 degrees of freedom, and a monitor's thresholds are calibrated for it
    (Hotelling).
    """
    a = _checks.covariance("hessian", hessian, definite=True)
    dim = len(a)
    y = _checks.real_array("means", means, shape=(None, dim))
    tau = _checks.whole("sync_every", sync_every)
    first = _checks.whole("after", after, at_least=0)
    n_rounds = len(y) - 1
    needed = dof_needed(dim) + 1
    if n_rounds < needed:
        raise ValueError(
            f"means must hold at least {needed + 1} rows in {dim} dimensions, a start and {needed} rounds; got "
            f"{len(y)}. Wait for {needed - n_rounds} more rounds."
        )
    # Only A is used before V is known; any V will do.
    parts = innovations(Linearization(y[-1], a[None], np.eye(dim)[None], np.ones(1)), steps)
    blocks = [parts.block(first + j * tau, first + (j + 1) * tau) for j in range(n_rounds)]
    e = np.stack([parts.whiten(block, y[j], y[j + 1]) for j, block in enumerate(blocks)])
    weights = np.array([block.mean_weight for block in blocks])
    centred = (e - np.average(e, axis=0, weights=weights)) * np.sqrt(weights)[:, None]
    noise = centred.T @ centred / (n_rounds - 1)
    return Linearization(y[-1], a[None], noise[None], np.ones(1), dof=float(n_rounds - 1))
