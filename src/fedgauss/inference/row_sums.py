"""What a client adds up over its rows so that the gradient of all of them is known wherever the run ends.

Near a reference r the gradient of a row is all but straight,

    g(theta) = g(r) + H(r) (theta - r) + second order,

so a sum of gradients G and a sum of Hessians H, both at r, give the gradient of all rows at theta; exactly so where the
loss is quadratic. The reference moves with the run (`next_reference`), and the sums move with it: G <- G + H (r' - r).
No row has to be read twice. What is of second order goes by how far from the last reference rows met earlier ones; that
spread is kept as well (`Solution`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.engine.mixing import Mixing
from fedgauss.inference.client_sums import next_reference, plain_step, second_derivative
from fedgauss.problems.base import pytree


class _Sums(NamedTuple):
    """Over the rows so far, client by client; (d, K, R) or (d, d, K, R)."""

    gradients: JaxArray  # of g at the reference that each row met
    squares: JaxArray  # of g g', the same
    hessians: JaxArray
    moved: JaxArray  # G: of gradients at the present reference
    behind: JaxArray  # of u = (the reference that a row met) - (the present one)
    spread: JaxArray  # of u u'

    def at(self, change: JaxArray, count: JaxArray) -> _Sums:
        """With the reference moved by `change`."""
        cross = self.behind[:, None] * change[None]
        return self._replace(
            moved=self.moved + _times(self.hessians, change),
            behind=self.behind - count * change,
            spread=self.spread - cross - jnp.swapaxes(cross, 0, 1) + count * change[:, None] * change[None],
        )


@pytree
class RowSums(Observer):
    """Sums of g, g g' and H at a reference over all steps but the first `skip`, moved along with the reference.

    The reference is at first where the problem says (`Preconditioned.row_reference`) or else where the client is. When
    a round begins it is mixed, and moves towards the parameters; `before` rounds came before this stage of the run.
    """

    keeps_time = False

    mixing: Mixing
    skip: np.int32
    before: np.int32
    sync_every: int = field(metadata={"static": True})

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty sums, and the first reference."""
        zero, square = jnp.zeros_like(theta), jnp.zeros((theta.shape[0], *theta.shape), theta.dtype)
        return _Sums(zero, square, square, zero, zero, square), jnp.int32(0), jnp.int32(0), theta

    def update(self, state: Any, step: Step) -> Any:
        """Move the reference if a round begins, and add one step's terms."""
        sums, count, rounds, r = state
        first = getattr(step.problem, "row_reference", None)
        if first is not None:
            r = jnp.where(rounds == 0, first, r)
        begins = (step.t - 1) % self.sync_every == 0
        rounds = rounds + begins

        def moved() -> tuple[_Sums, JaxArray]:
            mixed = self.mixing.mix(r, step.t - 1, step.noise)
            new = next_reference(mixed, step.before, self.before + rounds)
            return sums.at(new - r, count.astype(r.dtype)), new

        sums, r = lax.cond(begins, moved, lambda: (sums, r))
        reads = step.t > self.skip
        return lax.cond(reads, lambda: _added(sums, r, step), lambda: sums), count + reads, rounds, r

    def value(self, state: Any) -> dict[str, JaxArray]:
        """The sums by name, their `row_count` and the last `row_reference`, clients first."""
        sums, count, _, r = state
        named = {f"row_{name}": jnp.moveaxis(value, -2, 0) for name, value in sums._asdict().items()}
        return {**named, "row_count": jnp.broadcast_to(count, r.shape[-1:]), "row_reference": jnp.swapaxes(r, 0, 1)}


def _added(sums: _Sums, r: JaxArray, step: Step) -> _Sums:
    """With one step's terms; its reference is the present one, and adds nothing to the spread."""
    problem, data = plain_step(step)
    g = problem.gradient(r, data)
    return sums._replace(
        gradients=sums.gradients + g,
        squares=sums.squares + g[:, None] * g[None],
        hessians=sums.hessians + second_derivative(problem, r, data),
        moved=sums.moved + g,
    )


def _times(matrices: JaxArray, x: JaxArray) -> JaxArray:
    """(d, d, K, R) times (d, K, R)."""
    return lax.fori_loop(0, x.shape[0], lambda j, total: total + matrices[:, j] * x[j], jnp.zeros_like(x))


@dataclass(frozen=True)
class RowTotals:
    """The sums of `RowSums` for R replicates, in float64; symmetric where they should be."""

    count: int
    gradients: FloatArray  # (R, K, d)
    squares: FloatArray  # (R, K, d, d)
    hessians: FloatArray  # (R, K, d, d)
    moved: FloatArray  # G at the reference, (R, K, d)
    behind: FloatArray  # (R, K, d)
    spread: FloatArray  # (R, K, d, d)
    reference: FloatArray  # (R, K, d)

    @classmethod
    def of(cls, observed: dict[str, FloatArray]) -> RowTotals:
        """From what a stage of the run observed."""
        parts = {name: np.asarray(observed[f"row_{name}"], dtype=float) for name in _names(cls) if name != "count"}
        parts["hessians"] = (parts["hessians"] + np.swapaxes(parts["hessians"], -1, -2)) / 2
        return cls(int(observed["row_count"][0]), **parts)

    def at(self, place: FloatArray) -> RowTotals:
        """With the reference at `place` (R, K, d)."""
        change = place - self.reference
        cross = self.behind[..., :, None] * change[..., None, :]
        square = self.count * change[..., :, None] * change[..., None, :]
        return replace(
            self,
            moved=self.moved + np.einsum("rkij,rkj->rki", self.hessians, change),
            behind=self.behind - self.count * change,
            spread=self.spread - cross - np.swapaxes(cross, -1, -2) + square,
            reference=place,
        )

    def __add__(self, later: RowTotals) -> RowTotals:
        """Of this stage and a later one, at the later one's reference."""
        here = self.at(later.reference)
        summed = {name: getattr(here, name) + getattr(later, name) for name in _names(self) if name != "reference"}
        return RowTotals(**summed, reference=later.reference)


def _names(totals: Any) -> list[str]:
    return [each.name for each in fields(totals)]
