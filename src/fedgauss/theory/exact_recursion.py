"""The recursion of means and covariances behind `exact_moments`, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple, Protocol

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._rounds import Optimiser, need_rounds, participants, round_numbers, working
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.networks import Network, RandomNetwork, as_network
from fedgauss.step_sizes import Steps, sync_mask
from fedgauss.theory.covariances import client_eta


class LinearModel(Protocol):
    """What a model must provide: y = x' beta_k + e, x ~ N(0, H_k), Var(e) = sigma_k^2, weights w_k."""

    @property
    def coefficients(self) -> ArrayLike:
        """beta_k, (K, d)."""

    @property
    def noise_var(self) -> ArrayLike:
        """sigma_k^2, (K,)."""

    @property
    def design_cov(self) -> ArrayLike:
        """H_k, (K, d, d)."""

    @property
    def weights(self) -> ArrayLike:
        """w_k, (K,)."""


_NEEDED = ("coefficients", "noise_var", "design_cov", "weights")
_MOST_SETS = 2000  # sets of clients over which an expectation is taken


class Law(NamedTuple):
    """Means and covariances of z_t and of S_t = sum_{s <= t} Y_s.

    z_t has D numbers for each client: theta_t, and what it remembers besides (`Remembered`), d numbers each.
    """

    mean: FloatArray  # E z_t, (K, D)
    cov: FloatArray  # Cov(z_t), (KD, KD)
    mean_sum: FloatArray  # E S_t, (d,)
    cov_sum: FloatArray  # Cov(z_t, S_t), (KD, d)
    var_sum: FloatArray  # Cov(S_t), (d, d)


class Remembered:
    """An optimiser as linear maps: of theta, momentum M, the round's start b, and the server's start before that, w."""

    def __init__(self, optimiser: Optimiser | None, dim: int) -> None:
        rule = Optimiser() if optimiser is None else optimiser
        self.momentum, self.keeps = rule.momentum, rule.keep_momentum
        self.proximal, self.server = rule.proximal or 0.0, rule.server_momentum
        names = ["theta"]
        names += ["momentum"] if self.momentum is not None else []
        names += ["start"] if rule.proximal is not None or self.server is not None else []
        names += ["server"] if self.server is not None else []
        self.place = {name: slice(i * dim, (i + 1) * dim) for i, name in enumerate(names)}
        self.size, self.dim = len(names) * dim, dim

    def begun(self, theta: FloatArray) -> FloatArray:
        """What is remembered at the start, from the clients' theta: (K, d, X) gives (K, D, X)."""
        z = np.zeros((len(theta), self.size, theta.shape[2]))
        for name, place in self.place.items():
            if name != "momentum":
                z[:, place] = theta.mean(axis=0) if name == "server" else theta
        return z

    def step(self, hessians: FloatArray, scale: FloatArray, works: BoolArray) -> tuple[FloatArray, FloatArray]:
        """The map of a step, z <- F_k z + l_k (x) (noise - H_k beta_k): F (K, D, D), and l_k (K, D / d)."""
        k, d = len(hessians), self.dim
        drift = np.tile(np.eye(self.size), (k, 1, 1))
        load = np.zeros((k, len(self.place)))
        pull = np.zeros((k, d, self.size))  # what takes the gradient's place
        pull[:, :, self.place["theta"]] = hessians + self.proximal * np.eye(d)
        if "start" in self.place:
            pull[:, :, self.place["start"]] = -self.proximal * np.eye(d)
        if self.momentum is not None:
            pull[:, :, self.place["momentum"]] = self.momentum * np.eye(d)
            drift[:, self.place["momentum"]] = np.where(works[:, None, None], pull, drift[:, self.place["momentum"]])
            load[:, 1] = works
        scale = scale * works
        drift[:, self.place["theta"]] -= scale[:, None, None] * pull
        load[:, 0] = -scale
        return drift, load

    def next_round(self, z: FloatArray) -> FloatArray:
        """After theta was mixed, (K, D, X): the server pushes on, and a round begins."""
        z = z.copy()
        if self.server is not None:
            begun = z[:, self.place["start"]].mean(axis=0)
            z[:, self.place["theta"]] += self.server * (begun - z[:, self.place["server"]])
            z[:, self.place["server"]] = begun
        if "start" in self.place:
            z[:, self.place["start"]] = z[:, self.place["theta"]]
        if self.momentum is not None and not self.keeps:
            z[:, self.place["momentum"]] = 0.0
        return z


class Recursion:
    """A model, a network and a schedule, checked and as arrays; and how the law of theta_t follows from them."""

    def __init__(
        self,
        model: LinearModel,
        network: Network | ArrayLike,
        steps: Steps,
        n_steps: int,
        sync_every: int | ArrayLike | None,
        sync_phase: int,
        participation: float | None = None,
        local_steps: ArrayLike | None = None,
        optimiser: Optimiser | None = None,
    ) -> None:
        n = _checks.whole("n_steps", n_steps)
        _check_linear(model)
        self.coefficients = _checks.real_array("model.coefficients", model.coefficients, shape=(None, None))
        k, d = self.coefficients.shape
        self.noise_var = _checks.real_array("model.noise_var", model.noise_var, shape=(k,))
        if np.any(self.noise_var < 0):
            raise ValueError(f"model.noise_var must not be negative; its smallest is {self.noise_var.min():g}.")
        self.design_cov = _checks.real_array("model.design_cov", model.design_cov, shape=(k, d, d))
        _checks.covariance("model.design_cov", self.design_cov)
        self.weights = _checks.client_weights(model.weights, k)
        check_memory(f"{n:,} steps of {k:,} clients", 24 * n * k, "Use fewer steps or clients.")
        self.scales = client_eta(steps, n, k).reshape(n, -1) * (k * self.weights)  # a_k = eta_{t,k} K w_k, (n, K)
        self.sync = sync_mask(sync_every, n, sync_phase)
        self.network = as_network(network, k)
        self.sets = [np.ones(k, dtype=bool)] if participation is None else self._sets(participation, k)
        self.working = np.ones((n, k), dtype=bool) if local_steps is None else working(local_steps, self.sync, k)
        if optimiser is not None:
            optimiser.check(self.network, self.sync)
        self.remembered = Remembered(optimiser, d)
        self.begins = np.diff(round_numbers(self.sync), prepend=-1) > 0  # whether step t is the first of a round
        weighted = self.weights[:, None, None] * self.design_cov
        # theta*_K = (sum_k w_k H_k)^-1 sum_k w_k H_k beta_k
        self.optimum = np.linalg.solve(weighted.sum(axis=0), np.einsum("kij,kj->i", weighted, self.coefficients))

    def _sets(self, participation: float, n_clients: int) -> list[BoolArray]:
        """All sets of clients that may take part in a round, which are equally likely."""
        need_rounds("participation", self.sync)
        m = participants(participation, n_clients)
        if comb(n_clients, m) > _MOST_SETS:
            raise ValueError(
                f"exact moments take an expectation over all sets of clients, {_MOST_SETS:,} at most; {m} of "
                f"{n_clients} clients form {comb(n_clients, m):,}. Use fewer clients, or simulate."
            )
        return [np.isin(np.arange(n_clients), chosen) for chosen in combinations(range(n_clients), m)]

    def laws(self, start_mean: ArrayLike, start_cov: ArrayLike | None) -> Iterator[Law]:
        """The law after each step t = 1..n: given who takes part in the round, and pooled over them."""
        pooled = self._begun(start_mean, start_cov)
        given: list[Law] = []
        for t, (begins, synchronise) in enumerate(zip(self.begins, self.sync, strict=True)):
            if begins:
                given = [pooled] * len(self.sets)
            given = [self._stepped(law, t, here) for law, here in zip(given, self.sets, strict=True)]
            if synchronise:
                given = [self._mixed(law, here) for law, here in zip(given, self.sets, strict=True)]
            given = [self._summed(law) for law in given]
            pooled = _pooled(given)
            yield pooled

    def _begun(self, start_mean: ArrayLike, start_cov: ArrayLike | None) -> Law:
        k, d = self.coefficients.shape
        size = k * self.remembered.size
        what = f"the covariance of {k:,} clients in {d:,} dimensions"
        check_memory(what, 40 * len(self.sets) * size**2, "Use mean_recursion for the means alone, or fewer clients.")
        mean = self.remembered.begun(start_mean_of(start_mean, k, d)[:, :, None])[:, :, 0]
        half = self.remembered.begun(_start_cov(start_cov, k, d).reshape(k, d, k * d)).reshape(size, k * d)
        cov = self.remembered.begun(half.T.reshape(k, d, size)).reshape(size, size)
        return Law(mean, cov, np.zeros(d), np.zeros((size, d)), np.zeros((d, d)))

    def _stepped(self, law: Law, t: int, here: BoolArray) -> Law:
        """After the clients' own steps, with a_k = `scales[t]` for those who are here and work."""
        k, d = self.coefficients.shape
        diagonal = np.arange(k)
        offset = law.mean[:, :d] - self.coefficients
        blocks = law.cov.reshape(k, -1, k, law.mean.shape[1])[diagonal, :d, diagonal, :d]
        noise = self.gradient_cov(blocks + offset[:, :, None] * offset[:, None, :])
        drift, load = self.remembered.step(self.design_cov, self.scales[t], here & self.working[t])
        target = np.einsum("kij,kj->ki", self.design_cov, self.coefficients)  # the gradient is H theta less this
        mean = np.einsum("kij,kj->ki", drift, law.mean) - (load[:, :, None] * target[:, None]).reshape(k, -1)
        # P is symmetric, so multiplying from the left, transposing and doing it again gives T P T'.
        cov = _left(drift, _left(drift, law.cov).T)
        added = load[:, :, None, None, None] * load[:, None, None, :, None] * noise[:, None, :, None, :]
        size = law.mean.shape[1]
        cov.reshape(k, size, k, size)[diagonal, :, diagonal, :] += added.reshape(k, size, size)
        return law._replace(mean=mean, cov=cov, cov_sum=_left(drift, law.cov_sum))

    def _mixed(self, law: Law, here: BoolArray) -> Law:
        """After mixing among those present. C_t is independent of everything before it:

        Cov(C'theta) = (E C)' P (E C) + E[C' M C] - (E C)' M (E C),    M = P + mu mu'
        """
        network, d = self.network, self.remembered.dim
        mixing = network.matrix if here.all() else network.among(here)
        k, size = law.mean.shape

        def mixed(matrix: FloatArray) -> FloatArray:
            """(C' kron I) times the rows of theta; other rows stay."""
            rows = matrix.reshape(k, size, -1).copy()
            rows[:, :d] = (mixing.T @ rows[:, :d].reshape(k, -1)).reshape(k, d, -1)
            return rows.reshape(matrix.shape)

        def begun(matrix: FloatArray) -> FloatArray:
            return self.remembered.next_round(matrix.reshape(k, size, -1)).reshape(matrix.shape)

        cov = mixed(mixed(law.cov).T)
        if isinstance(network, RandomNetwork):
            theta = law.mean[:, :d]
            second = law.cov.reshape(k, size, k, size)[:, :d, :, :d] + theta[:, :, None, None] * theta
            spread = network.spread(second.transpose(1, 3, 0, 2), here)
            cov.reshape(k, size, k, size)[:, :d, :, :d] += spread.transpose(2, 0, 3, 1)
        return law._replace(mean=begun(mixed(law.mean)), cov=begun(begun(cov).T), cov_sum=begun(mixed(law.cov_sum)))

    def _summed(self, law: Law) -> Law:
        """S_t = S_{t-1} + Y_t."""
        (k, size), d = law.mean.shape, self.remembered.dim
        to_mean = np.tile(np.eye(size, d), (k, 1)) / k  # a matrix product is faster than a mean over an inner axis
        with_mean = law.cov @ to_mean  # Cov(z_t, Y_t)
        step_cov = to_mean.T @ law.cov_sum  # Cov(Y_t, S_{t-1})
        return law._replace(
            mean_sum=law.mean_sum + law.mean[:, :d].mean(axis=0),
            cov_sum=law.cov_sum + with_mean,
            var_sum=law.var_sum + step_cov + step_cov.T + to_mean.T @ with_mean,
        )

    def gradient_cov(self, second: FloatArray) -> FloatArray:
        """E Var(x (x' theta - y) | theta) = H M H + (tr(H M) + sigma^2) H, with M as in `exact_moments`."""
        hm = np.matmul(self.design_cov, second)
        level = np.trace(hm, axis1=1, axis2=2) + self.noise_var
        return np.matmul(hm, self.design_cov) + level[:, None, None] * self.design_cov


def _pooled(laws: Sequence[Law]) -> Law:
    """The law if each of several is equally likely: covariances within, and between their means."""
    if len(laws) == 1:
        return laws[0]
    mean, cov, mean_sum, cov_sum, var_sum = (np.mean(part, axis=0) for part in zip(*laws, strict=True))
    apart = np.stack([(law.mean - mean).ravel() for law in laws])
    apart_sum = np.stack([law.mean_sum - mean_sum for law in laws])
    n = len(laws)
    return Law(
        mean,
        cov + apart.T @ apart / n,
        mean_sum,
        cov_sum + apart.T @ apart_sum / n,
        var_sum + apart_sum.T @ apart_sum / n,
    )


def _check_linear(model: LinearModel) -> None:
    """Reject what is not a linear model: the recursions would return numbers all the same."""
    missing = ", ".join(name for name in _NEEDED if not hasattr(model, name))
    family = type(getattr(model, "family", None)).__name__  # the class would load JAX
    if missing:
        rule = f"be linear and have {', '.join(_NEEDED)}; {type(model).__name__} has no {missing}"
    elif family not in {"NoneType", "Linear"}:
        rule = f"have the squared loss, under which moments obey closed recursions; got {family}"
    else:
        return
    raise ValueError(f"model must {rule}. Use problems.linear or problems.random_effects, or simulate.")


def _left(drift: FloatArray, matrix: FloatArray) -> FloatArray:
    """blockdiag(drift) @ matrix, with drift (K, d, d) and matrix (Kd, m)."""
    k, d, _ = drift.shape
    return np.matmul(drift, matrix.reshape(k, d, -1)).reshape(k * d, -1)


def start_mean_of(value: ArrayLike, n_clients: int, dim: int) -> FloatArray:
    """E Theta_0, (K, d)."""
    start = _checks.real_array("start_mean", value)
    if start.shape not in {(dim,), (n_clients, dim)}:
        raise ValueError(f"start_mean must have shape ({dim},) or ({n_clients}, {dim}); got {start.shape}.")
    return np.broadcast_to(start, (n_clients, dim)).copy()


def _start_cov(value: ArrayLike | None, n_clients: int, dim: int) -> FloatArray:
    """The covariance of the Kd starting values, (Kd, Kd)."""
    size = n_clients * dim
    if value is None:
        return np.zeros((size, size))
    start = _checks.real_array("start_cov", value)
    if start.shape == (dim, dim):
        return np.tile(_checks.covariance("start_cov", start), (n_clients, n_clients))
    if start.shape != (n_clients, dim, n_clients, dim):
        raise ValueError(
            f"start_cov must have shape ({dim}, {dim}) or ({n_clients}, {dim}, {n_clients}, {dim}); "
            f"got {start.shape}. Give None for a fixed start."
        )
    return _checks.covariance("start_cov", start.reshape(size, size))
