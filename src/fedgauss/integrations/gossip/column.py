"""One client's column of Theta: the steps that a peer makes by itself, and its mixing with others."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.base import Problem


class PeerColumn:
    """One client's column of Theta, (d, R): it makes steps by itself, and is mixed with those of others.

    Its random numbers are those that `simulate` gives this client.
    """

    def __init__(self, problem: Problem, client: int, eta: FloatArray, seed: int, theta: FloatArray) -> None:
        self.theta, self._problem, self._client = theta, problem, np.int32(client)
        self._eta, self._key, self._step = np.asarray(eta, np.float32), stage_key(seed, "data"), 0
        self.advance(0)  # compiles, so that nobody waits for it later

    def advance(self, step: int) -> None:
        """Make the steps up to this one."""
        if self.theta.size:
            start = np.asarray(self.theta, np.float32)  # the engine's precision
            bounds = np.int32(self._step), np.int32(step)
            moved = _local_steps(self._problem, self._key, self._client, start, self._eta, *bounds)
            self.theta = np.asarray(moved, dtype=float)
        self._step = step

    def mix(self, shares: Mapping[int, float], others: Mapping[int, FloatArray]) -> None:
        """theta_k <- (1 - sum_j c_kj) theta_k + sum_j c_kj theta_j."""
        self.theta = self.theta + sum(shares[j] * (theirs - self.theta) for j, theirs in others.items())


@jax.jit
def _local_steps(
    problem: Problem, key: Key, client: JaxArray, theta: JaxArray, eta: JaxArray, done: JaxArray, until: JaxArray
) -> JaxArray:
    """theta_t = theta_{t-1} - eta_t K w_k grad f_k(theta_{t-1}, xi_t) for t = done + 1, ..., until; theta is (d, R).

    Draws are a function of (seed, step, client, replicate). They are made for all clients, and this one's column is
    taken: a little work for nothing, and any problem will do.
    """
    dim, replicates = theta.shape
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)

    def step(t: JaxArray, theta: JaxArray) -> JaxArray:
        data = problem.sample(noise.at_step(t), t)
        everywhere = jnp.broadcast_to(theta[:, None], (dim, problem.n_clients, replicates))
        scale = eta[t - 1] * problem.n_clients * jnp.asarray(problem.weights)
        return theta - scale[client] * problem.gradient(everywhere, data)[:, client]

    return lax.fori_loop(done + 1, until + 1, step, theta)
