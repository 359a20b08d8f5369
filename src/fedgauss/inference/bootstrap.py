"""The multiplier bootstrap: B chains beside the run, on the same data, each with its own random multipliers."""

from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._random import Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.simulate import simulate
from fedgauss.inference.client_steps import Preconditioned
from fedgauss.inference.passes import LastClients, Pass
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, WrappedProblem, pytree

SPREAD = 0.5  # multipliers are 1 - SPREAD or 1 + SPREAD: bounded, of mean 1 and variance SPREAD^2


@pytree
class Chains(WrappedProblem):
    """Replicate 0 is the run; the others are chains theta^b <- theta^b - eta_t u_b g(theta^b, xi_t) on its data.

    Each chain has its own iterate in its gradient, so that it forgets its past as the run does. (With the gradient at
    the run's iterate, as printed, multipliers only add up, and intervals are tens of times too wide.) Data are drawn
    once for all chains.
    """

    run: np.uint32  # which replicate of `problem` this is
    at_the_run: bool = field(default=False, metadata={"static": True})

    @property
    def plain_steps(self) -> bool:  # type: ignore[override]
        """As the problem's are."""
        return self.problem.plain_steps

    def sample(self, noise: Noise, t: JaxArray) -> tuple[Any, JaxArray]:
        """The run's data, and a multiplier for each client and chain, (K, R)."""
        one = _of_replicate(noise, self.run)
        bits = noise.stream("multipliers").numbered(self.run).words(1)[0] & np.uint32(1)
        signs = 2.0 * bits.astype(jnp.float32) - 1.0
        chain = jax.lax.broadcasted_iota(jnp.uint32, signs.shape, 1) + jnp.uint32(noise.first)
        return self.problem.sample(one, t), jnp.where(chain == 0, 1.0, 1.0 + SPREAD * signs)

    def gradient(self, theta: JaxArray, data: tuple[Any, JaxArray]) -> JaxArray:
        """u_b g at each chain's own iterate."""
        xi, multiplier = data
        place = theta[..., :1] if self.at_the_run else theta
        return multiplier * self.problem.gradient(place, self.problem.shared(xi, place.shape[-1]))


def _of_replicate(noise: Noise, run: JaxArray) -> Noise:
    """The noise that one replicate would see, as if it were alone."""
    of_run = None if noise.of_run is None else _of_replicate(noise.of_run, run)
    return replace(noise, first=run, n_replicates=1, of_run=of_run)


def bootstrap_deviations(
    problem: Problem,
    network: Network | ArrayLike | None,
    one_pass: Pass,
    sync_every: int,
    chains: int,
    seed: int = 0,
    run: int = 0,
    last: bool = False,
    at_the_run: bool = False,
    progress: bool | None = None,
) -> FloatArray:
    """theta^b - theta of B chains, over the multipliers' spread: draws from the error's law; (B, d).

    The run is replicate `run` of `one_pass`, with its matrices P; of the averages, or of the last iterates.
    """
    plan, m = one_pass.schedule, one_pass.schedule.burn_in

    def stepping(matrix: FloatArray, guard: Any) -> Chains:
        shaped = problem
        if one_pass.preconditioned:
            shaped = Preconditioned(problem, matrix, plan.eta, guard)
        return Chains(shaped, np.uint32(run), at_the_run)

    options: Any = {"sync_every": sync_every, "replicates": chains + 1, "seed": seed, "progress": progress}
    begun: Any = one_pass.start
    if m:
        watch = [LastClients()]
        first = stepping(one_pass.first[run], "damped")
        begun = simulate(first, network, plan.eta[:m], m, start=begun, observe=watch, **options).last_clients
    later = stepping(one_pass.second[run], "capped")
    runs = simulate(later, network, plan.eta, len(plan.eta), after=m, start=begun, **options)
    values = np.asarray(runs.last if last else runs.average, dtype=float)
    return (values[1:] - values[0]) / SPREAD
