"""The Gaussian laws that local SGD is compared with: Sigma_n, tilde Sigma_n and Sigma/K (Section 2)."""

import numpy as np
from scipy import linalg

from fedgauss import _checks
from fedgauss._contraction import pulls_and_product
from fedgauss._linearization import Linearization
from fedgauss._rounds import participants
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.step_sizes import Steps, as_step_sizes


def step_matrices(lin: Linearization, steps: Steps, n_steps: int) -> FloatArray:
    """Q_s = eta_s sum_{j=s}^n A_s^j for s = 1..n, with A_s^t = prod_{j=s+1}^t (I - eta_j A).

    Q_s is what one unit of gradient noise at step s adds to n Ybar_n (proof of Theorem 2.1). It is near A^-1
    away from both ends of the run.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array of shape (n,)
        eta_t.
    n_steps : int
        n.

    Returns
    -------
    array of shape (n, d, d)
    """
    eta = _shared_eta(lin, steps, n_steps, "step_matrices")
    values, vectors = _eigen(lin)
    return np.einsum("ip,sp,jp->sij", vectors, step_factors(eta, values), vectors)


def average_covariance(lin: Linearization, steps: Steps, n_steps: int) -> FloatArray:
    """Sigma_n = n^-1 sum_s Q_s V_K Q_s', the covariance of sqrt(n) (Ybar_n - theta*) in Theorem 2.1.

    If clients have their own step sizes, the linearised mean is

        Y_t - theta* = (I - sum_k w_k eta_{t,k} H_k) (Y_{t-1} - theta*) + sum_k w_k eta_{t,k} W^k,

    a recursion whose factors do not commute, and Sigma_n = n^-1 sum_s B_s N_s B_s' with
    N_s = sum_k w_k^2 eta_{s,k}^2 Var(W^k) and B_s = I + B_{s+1} (I - sum_k w_k eta_{s+1,k} H_k), B_n = I.
    Equal columns give the formula above. This is the covariance only: clients that differ in both optimum and step size
    also move the centre, towards the minimiser of sum_k w_k eta_k F_k.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array of shape (n,) or (n, K)
        eta_t, or eta_{t,k} if clients differ.
    n_steps : int
        n.

    Returns
    -------
    array of shape (d, d)
    """
    eta = client_eta(steps, n_steps, lin.n_clients)
    if eta.ndim == 2:
        drift, noise = _client_recursion(lin, eta)
        total = np.zeros_like(drift[0])
        b = identity = np.eye(lin.dim)
        for s in range(len(eta) - 1, -1, -1):
            total += b @ noise[s] @ b.T
            b = identity + b @ drift[s]
        return _symmetric(total / len(eta))
    values, vectors = _eigen(lin)
    q = step_factors(eta, values)
    return _rotate_back(q.T @ q / len(eta), lin.noise_cov, vectors)


def last_covariance(lin: Linearization, steps: Steps, n_steps: int, beta: float | None = None) -> FloatArray:
    """tilde Sigma_n = n^beta sum_s Var(A_s^n sum_k eta_{s,k} w_k W^k), the covariance of n^(beta/2) (Y_n - theta*).

    Theorem 2.2. If clients have their own step sizes, this uses the recursion described at `average_covariance`.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array of shape (n,) or (n, K)
        eta_t, or eta_{t,k} if clients differ.
    n_steps : int
        n.
    beta : float, optional
        The decay of the step sizes, if they do not state it themselves.

    Returns
    -------
    array of shape (d, d)
    """
    schedule = as_step_sizes(steps)
    decay = schedule.beta if beta is None else beta
    if decay is None:
        raise ValueError(
            "last_covariance needs the decay beta of the step sizes, which these do not state. Pass beta=0.75?"
        )
    eta = client_eta(schedule, n_steps, lin.n_clients)
    rate = float(len(eta)) ** _checks.real("beta", decay)
    if eta.ndim == 2:
        drift, noise = _client_recursion(lin, eta)
        total = np.zeros_like(drift[0])
        for m, v in zip(drift, noise, strict=True):
            total = m @ total @ m.T + v
        return _symmetric(rate * total)
    values, vectors = _eigen(lin)
    q = echoes(eta, values)
    return _rotate_back(rate * (q.T @ q), lin.noise_cov, vectors)


def step_factors(eta: FloatArray, values: FloatArray, burn_in: int = 0) -> FloatArray:
    """The eigenvalues of Q_s, (n, d): q_s = eta_s b_s, b_s = [s > m] + (1 - eta_{s+1} lambda) b_{s+1}, b_n = 1.

    One unit of noise at step s adds q_s to the sum of the iterates after the first m steps, `burn_in`. Read as
    b_s - (1 - eta_{s+1} lambda) b_{s+1} = [s > m] this is a triangular system with two diagonals, which LAPACK solves
    in compiled code.
    """
    n = len(eta)
    b = np.empty((n, len(values)))
    bands, counted = np.ones((2, n), order="F"), np.ones((n, 1))
    counted[:burn_in] = 0.0
    for i, value in enumerate(values):
        bands[0, 1:] = eta[1:] * value - 1.0
        b[:, i] = linalg.lapack.dtbtrs(bands, counted)[0][:, 0]
    return eta[:, None] * b


def echoes(eta: FloatArray, values: FloatArray) -> FloatArray:
    """The eigenvalues of eta_s A_s^n, (n, d): what one unit of noise at step s adds to the last iterate."""
    return pulls_and_product(eta, values)[0]


def limit_covariance(lin: Linearization) -> FloatArray:
    """Sigma/K = A^-1 V_K A^-T, the limit of Sigma_n as n grows (Theorem 2.3).

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.

    Returns
    -------
    array of shape (d, d)
    """
    a = _checks.covariance("hessian A", lin.hessian, definite=True)
    half = linalg.solve(a, lin.noise_cov, assume_a="pos")
    return _symmetric(linalg.solve(a, half.T, assume_a="pos"))


def participation_noise(lin: Linearization, participation: float, sync_every: int) -> FloatArray:
    """V when a server averages m of K clients a round: what V_K is when all take part.

        (K/m) V_K + tau (1/m - 1/K) sum_k u_k u_k' / (K - 1),    u_k = K w_k grad F_k(theta*)

    The first term is the noise of fewer gradients, the second that of who was drawn. It is zero for clients that share
    their optimum, and grows with tau because those drawn stay for a whole round. A^-1 V A^-1 is the limit of
    n Cov(Ybar_n). It is not in the paper, which supposes that everybody takes part.

    Parameters
    ----------
    lin : Linearization
        With `client_gradients`, as `linearize` has them.
    participation : float or int
        A share of clients, or their number, as in `simulate`.
    sync_every : int
        tau.

    Returns
    -------
    array of shape (d, d)
    """
    if lin.client_gradients is None:
        raise ValueError(
            "participation_noise needs the clients' gradients at the optimum, by which they differ; these were not "
            "given. Use linearize(problem), or linearization(..., gradients=...)."
        )
    k, m = lin.n_clients, participants(participation, lin.n_clients)
    tau = _checks.whole("sync_every", sync_every)
    u = k * lin.weights[:, None] * lin.client_gradients
    between = u.T @ u / max(k - 1, 1)
    return _symmetric(k / m * lin.noise_cov + tau * (1 / m - 1 / k) * between)


def total_variation_bound(cov1: ArrayLike, cov2: ArrayLike) -> float:
    """(3/2) |S_2^-1/2 S_1 S_2^-1/2 - I|_F, a bound on the total variation between N(0, S_1) and N(0, S_2).

    Proposition 9 (Devroye, Mehrabian and Reddad 2018). The value is not clipped: above 1 it says nothing about the two
    laws. The bound is not symmetric in its arguments.

    Parameters
    ----------
    cov1, cov2 : array of shape (d, d)
        The covariances S_1 and S_2; S_2 must be positive definite.

    Returns
    -------
    float
    """
    first = _checks.covariance("cov1", cov1)
    second = _checks.covariance("cov2", cov2, definite=True)
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"cov1 and cov2 must both be (d, d); got {first.shape} and {second.shape}.")
    # The eigenvalues of S_2^-1/2 S_1 S_2^-1/2 are those of the pencil (S_1, S_2).
    ratios = linalg.eigh(first, second, eigvals_only=True)
    return float(1.5 * np.sqrt(np.sum((ratios - 1.0) ** 2)))


def start_bias(lin: Linearization, steps: Steps, n_steps: int, start_mean: ArrayLike) -> FloatArray:
    """n^-1 sum_{t=1}^n prod_{j<=t} (I - eta_j A) (Y_0 - theta*): what the start leaves in Ybar_n.

    It is D_1 before scaling, with the sum from t = 1 (the printed Q_0/eta_0 counts t = 0 as well). For a
    linear gradient, equal weights and equal client Hessians it is all of E[Ybar_n - theta*]; otherwise
    clients drift apart, and `mean_recursion` gives the mean.

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array of shape (n,)
        eta_t.
    n_steps : int
        n.
    start_mean : array of shape (d,) or (K, d)
        Y_0, or the start of each client.

    Returns
    -------
    array of shape (d,)
    """
    eta = _shared_eta(lin, steps, n_steps, "start_bias")
    start = _checks.real_array("start_mean", start_mean)
    if start.shape == (lin.n_clients, lin.dim):
        start = start.mean(axis=0)
    elif start.shape != (lin.dim,):
        raise ValueError(f"start_mean must have shape ({lin.dim},) or ({lin.n_clients}, {lin.dim}); got {start.shape}.")
    values, vectors = _eigen(lin)
    share = np.cumprod(1.0 - eta[:, None] * values, axis=0).mean(axis=0)
    return vectors @ (share * (vectors.T @ (start - lin.optimum)))


def client_eta(steps: Steps, n_steps: int, n_clients: int) -> FloatArray:
    """eta_t, t = 1..n: (n,), or (n, K) if clients have their own."""
    eta = np.asarray(as_step_sizes(steps).eta(_checks.whole("n_steps", n_steps)), dtype=float)
    if eta.ndim == 2 and eta.shape[1] != n_clients:
        raise ValueError(f"step sizes must have one column for each of the {n_clients} clients; got {eta.shape[1]}.")
    return eta


def _shared_eta(lin: Linearization, steps: Steps, n_steps: int, caller: str) -> FloatArray:
    eta = client_eta(steps, n_steps, lin.n_clients)
    if eta.ndim == 2:
        raise ValueError(
            f"{caller} needs one step size for all clients; got {eta.shape[1]} columns. "
            "Use average_covariance, last_covariance or mean_recursion if clients have their own step sizes."
        )
    return eta


def _eigen(lin: Linearization) -> tuple[FloatArray, FloatArray]:
    """A in its eigenbasis, where every A_s^t is diagonal and the recursions are scalar."""
    values, vectors = np.linalg.eigh(_checks.covariance("hessian A", lin.hessian, definite=True))
    return values, vectors


def _rotate_back(factors: FloatArray, noise_cov: FloatArray, vectors: FloatArray) -> FloatArray:
    """sum_s D_s V D_s' from factors = sum_s d_s d_s', where D_s = diag(d_s) in the basis `vectors`."""
    return _symmetric(vectors @ (factors * (vectors.T @ noise_cov @ vectors)) @ vectors.T)


def _client_recursion(lin: Linearization, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Drift I - sum_k w_k eta_{t,k} H_k and noise sum_k w_k^2 eta_{t,k}^2 Var(W^k); (n, d, d) each."""
    weighted = eta * lin.weights
    drift = np.eye(lin.dim) - np.einsum("tk,kij->tij", weighted, lin.client_hessians)
    return drift, np.einsum("tk,kij->tij", weighted**2, lin.client_noise_cov)


def _symmetric(matrix: FloatArray) -> FloatArray:
    return (matrix + matrix.T) / 2
