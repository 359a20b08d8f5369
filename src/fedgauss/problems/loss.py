"""Any differentiable loss, by automatic differentiation."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._random import Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import Problem, pytree


@pytree
class LossProblem(Problem):
    """f_k(theta, xi) = loss(theta, xi) with xi = sample(key, clients[k])."""

    serves_some = True

    clients: Any
    weights: FloatArray
    loss: Callable[[JaxArray, Any], JaxArray] = field(metadata={"static": True})
    draw: Callable[[JaxArray, Any], Any] = field(metadata={"static": True})
    n_params: int = field(metadata={"static": True})

    @property
    def dim(self) -> int:
        """d."""
        return self.n_params

    def sample(self, noise: Noise, t: JaxArray) -> Any:
        """One observation for each client and replicate: leaves (K, R, ...)."""
        keys = noise.stream("user").keys()
        if noise.clients is None:
            return jax.vmap(jax.vmap(self.draw, in_axes=(0, None)))(keys, self.clients)
        own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[noise.clients], self.clients)
        return jax.vmap(jax.vmap(self.draw))(keys, own)

    def shared(self, data: Any, n_replicates: int) -> Any:
        """Repeated along the replicates, over which `gradient` maps."""
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (leaf.shape[0], n_replicates, *leaf.shape[2:])), data)

    def gradient(self, theta: JaxArray, data: Any) -> JaxArray:
        """The derivative of the loss, client by client and replicate by replicate."""
        over_replicates = jax.vmap(jax.grad(self.loss), in_axes=(1, 0), out_axes=1)
        return jax.vmap(over_replicates, in_axes=(1, 0), out_axes=1)(theta, data)


def from_loss(
    loss: Callable[[JaxArray, Any], JaxArray],
    sample: Callable[[JaxArray, Any], Any],
    *,
    dim: int,
    clients: Any,
    weights: ArrayLike | None = None,
) -> LossProblem:
    """A problem from two functions written for one client and one observation.

    Parameters
    ----------
    loss : callable
        loss(theta, xi) is the scalar loss at theta (d,), written with jax.numpy.
    sample : callable
        sample(key, client) draws one observation xi (any arrays) with `jax.random` from `key`.
    dim : int
        d.
    clients : int or arrays
        The number of clients (`client` is then 0, 1, ...), or arrays whose first axis is the client (`client` is then
        that client's slice). Arrays can change without recompiling.
    weights : (K,) array_like, optional
        w_k, equal by default.

    Returns
    -------
    LossProblem

    Examples
    --------
    >>> def loss(theta, xi):
    ...     return jnp.sum((theta - xi) ** 2) / 2
    >>> def sample(key, centre):
    ...     return centre + jax.random.normal(key, (2,))
    >>> problem = fg.problems.from_loss(loss, sample, dim=2, clients=np.zeros((5, 2)))
    """
    dim = _checks.whole("dim", dim)
    if isinstance(clients, int | np.integer):
        count = _checks.whole("clients", clients)
        check_memory(f"{count:,} clients in {dim:,} dimensions", 8 * count * (dim + 2), "Use fewer clients?")
        clients = np.arange(count)
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(clients)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"clients must be a number or arrays with one first axis, the client; got lengths {sizes}.")
    (n_clients,) = sizes.pop()
    problem = LossProblem(clients, _checks.client_weights(weights, n_clients), loss, sample, dim)
    _check_loss(problem)
    return problem


def _check_loss(problem: LossProblem) -> None:
    """Trace both functions once on shapes alone, so that a mistake shows here and not inside the engine."""
    one_client = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], problem.clients)
    observation = jax.eval_shape(problem.draw, jax.random.key(0), one_client)
    value = jax.eval_shape(problem.loss, jax.ShapeDtypeStruct((problem.dim,), jnp.float32), observation)
    if getattr(value, "shape", None) != ():
        raise ValueError(
            f"loss must return one number for one observation; got shape {getattr(value, 'shape', value)}. "
            "Sum or average over the axes of the observation."
        )
