"""Gaussian approximations of the whole path of local SGD: Aggr-GA, Client-GA and the functional CLT.

Theorems 3.1 and 3.2 say that on a rich enough probability space some copy of these processes stays close to the
path. That copy cannot be computed from the data. What is simulated here is the approximating law by itself, centred at
zero: local SGD on a Gaussian surrogate problem, by the same engine. Each comes twice: as runs, and as a `Setting` for
`simulate_together`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray
from fedgauss.engine.observers import Observer
from fedgauss.engine.runs import Runs
from fedgauss.engine.simulate import Setting, simulate_together
from fedgauss.networks import Network
from fedgauss.problems.combine import gaussian_surrogate
from fedgauss.step_sizes import Steps, constant
from fedgauss.theory.covariances import limit_covariance

__all__ = ["aggregated", "aggregated_setting", "brownian", "brownian_setting", "client", "client_setting"]

Observe = Sequence[str | Observer]


def aggregated_setting(lin: Linearization, steps: Steps, observe: Observe = ()) -> Setting:
    """Aggr-GA as a `Setting`: one client with Hessian A and gradient noise of covariance V_K.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array
        eta_t.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Setting
    """
    one = _one_client(lin.hessian, lin.noise_cov)
    return Setting(gaussian_surrogate(one, stream="aggregated"), None, steps, observe=observe)


def client_setting(
    lin: Linearization,
    network: Network | ArrayLike | None,
    steps: Steps,
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    observe: Observe = (),
) -> Setting:
    """Client-GA as a `Setting`: every client with its own gradient noise, on the network.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    network, steps, sync_every, sync_phase
        As in `simulate`.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Setting
    """
    surrogate = gaussian_surrogate(lin, stream="client")
    return Setting(surrogate, network, steps, sync_every, sync_phase, observe=observe)


def brownian_setting(lin: Linearization, observe: Observe = ()) -> Setting:
    """The functional CLT as a `Setting`: A = I and eta_t = 1, so that Y_t = (I - I) Y_{t-1} + Z_t forgets its past.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Setting
    """
    walk = _one_client(np.eye(lin.dim), limit_covariance(lin))
    return Setting(gaussian_surrogate(walk, stream="brownian"), None, constant(1.0), observe=observe)


def aggregated(
    lin: Linearization,
    steps: Steps,
    n_steps: int,
    *,
    replicates: int = 1,
    seed: int = 0,
    observe: Observe = (),
    keep: Literal["path"] | None = None,
) -> Runs:
    """Aggr-GA (Theorem 3.1): Y_t = (I - eta_t A) Y_{t-1} + eta_t Z_t with Z_t ~ N(0, V_K), from zero.

    The paper writes Z_t ~ N(0, K V_K) times K^-1/2, which is the same. Its Algorithm 2 draws N(0, V_K) and still
    multiplies by K^-1/2; that is too small by sqrt(K).

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array
        eta_t.
    n_steps, replicates, seed, keep
        As in `simulate`.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Runs
        Centred at zero.
    """
    return _run(aggregated_setting(lin, steps, observe), n_steps, replicates, seed, keep)


def client(
    lin: Linearization,
    network: Network | ArrayLike | None,
    steps: Steps,
    n_steps: int,
    *,
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1,
    seed: int = 0,
    observe: Observe = (),
    keep: Literal["path"] | None = None,
) -> Runs:
    """Client-GA (Theorem 3.2): Theta_t = ((I - eta_t A) Theta_{t-1} + eta_t K (w_1 Z^1, ..., w_K Z^K)) C_t, from zero.

    Z^k ~ N(0, Var(W^k)), drawn by client k alone. Mixing keeps the mean, so Y_t is exactly Aggr-GA driven by
    sum_k w_k Z^k, and both have the same law. What differs is who must know which covariance.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    network, steps, sync_every, sync_phase
        As in `simulate`.
    n_steps, replicates, seed, keep
        As in `simulate`.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Runs
        Centred at zero.
    """
    setting = client_setting(lin, network, steps, sync_every, sync_phase, observe)
    return _run(setting, n_steps, replicates, seed, keep)


def brownian(
    lin: Linearization,
    n_steps: int,
    *,
    replicates: int = 1,
    seed: int = 0,
    observe: Observe = (),
    keep: Literal["path"] | None = None,
) -> Runs:
    """The functional CLT: independent Y_t ~ N(0, Sigma/K), whose partial sums are Brownian motion at integer times.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    n_steps, replicates, seed, keep
        As in `simulate`.
    observe : sequence of str or Observer
        As in `simulate`.

    Returns
    -------
    Runs
        Centred at zero.
    """
    return _run(brownian_setting(lin, observe), n_steps, replicates, seed, keep)


def _run(setting: Setting, n_steps: int, replicates: int, seed: int, keep: Literal["path"] | None) -> Runs:
    (runs,) = simulate_together([setting.keeping(keep)], n_steps, replicates=replicates, seed=seed)
    return runs


def _one_client(hessian: ArrayLike, noise_cov: ArrayLike) -> Linearization:
    """All clients as one, with Hessian A and gradient noise of covariance V."""
    a, v = np.asarray(hessian, float), np.asarray(noise_cov, float)
    return Linearization(np.zeros(len(a)), a[None], v[None], np.ones(1))
