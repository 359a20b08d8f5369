"""The very data that the engine draws, for slow twins to run on."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._random import Noise, stage_key


def regression_data(problem, n_steps, replicates, seed):
    """x (n, K, d, R) and y (n, K, R) of every step, in float64."""
    noise = Noise(stage_key(seed, "data"), jnp.uint32(0), problem.n_clients, replicates)
    draw = jax.jit(lambda t: problem.sample(noise.at_step(t), t))
    rows = [draw(jnp.int32(t)) for t in range(1, n_steps + 1)]
    x = np.stack([np.asarray(x, float) for x, _ in rows])
    y = np.stack([np.asarray(y, float) for _, y in rows])
    return x.transpose(0, 2, 1, 3), y


def standardised_noise(problem, x, y):
    """(y - x'beta_k) / sigma_k, (n, K, R)."""
    fitted = np.einsum("nkdr,kd->nkr", x, problem.coefficients)
    return (y - fitted) / np.sqrt(problem.noise_var)[:, None]
