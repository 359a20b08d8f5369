"""What a client adds up over its rows: gradients, their squares and Hessians, at a reference that all clients share."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.inference.client_sums import plain_step, second_derivative
from fedgauss.problems.base import pytree


class _Sums(NamedTuple):
    """Client by client."""

    gradients: JaxArray  # (d, K, R)
    squares: JaxArray  # (d, d, K, R)
    hessians: JaxArray  # (d, d, K, R)


@pytree
class RowSums(Observer):
    """Sums of g, g g' and H at a reference over all steps but the first `skip`: `row_gradients` (K, d), and so on."""

    keeps_time = False

    reference: FloatArray  # (d, R), one a replicate
    skip: np.int32

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty sums."""
        square = jnp.zeros((theta.shape[0], *theta.shape), theta.dtype)
        return _Sums(jnp.zeros_like(theta), square, square)

    def update(self, state: Any, step: Step) -> Any:
        """Add one step's terms."""
        return lax.cond(step.t > self.skip, lambda: self._added(state, step), lambda: state)

    def _added(self, sums: _Sums, step: Step) -> _Sums:
        problem, data = plain_step(step)
        # The last chunk of replicates may reach past the end, and repeats the last one there.
        index = jnp.uint32(step.noise.first) + jnp.arange(step.theta.shape[-1], dtype=jnp.uint32)
        own = jnp.take(jnp.asarray(self.reference, step.theta.dtype), index, axis=1, mode="clip")
        r = jnp.broadcast_to(own[:, None], step.theta.shape)
        g = problem.gradient(r, data)
        return _Sums(
            sums.gradients + g, sums.squares + g[:, None] * g[None], sums.hessians + second_derivative(problem, r, data)
        )

    def value(self, state: Any) -> dict[str, JaxArray]:
        """The sums by name, clients first."""
        return {f"row_{name}": jnp.moveaxis(value, -2, 0) for name, value in state._asdict().items()}
