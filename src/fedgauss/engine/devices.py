"""The loop on several devices at once: each runs a share of the replicates.

What is drawn depends on the number of a replicate and on nothing else, so a share needs to know only where it begins,
and the numbers are those of one device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedgauss._random import Key
from fedgauss._types import JaxArray
from fedgauss.engine.loop import Algorithm, Carry, ResolvedStart, advance, begin

_FEWEST = 16  # replicates, below which a device would sit idle


@dataclass(frozen=True)
class Split:
    """Which axis of every leaf of a tree runs over replicates, if any; equal splits share a program."""

    structure: Any
    parts: tuple[PartitionSpec, ...]

    @classmethod
    def of(cls, made: Callable[[int], Any]) -> Split:
        """Of what `made` makes for so many replicates: axes that grow with their number."""
        few, many = (jax.tree.flatten(made(count)) for count in (16, 32))
        shapes = zip(few[0], many[0], strict=True)
        return cls(few[1], tuple(_part(np.shape(one), np.shape(other)) for one, other in shapes))

    @property
    def tree(self) -> Any:
        """The parts as a tree."""
        return jax.tree.unflatten(self.structure, self.parts)


def _part(few: tuple[int, ...], many: tuple[int, ...]) -> PartitionSpec:
    return PartitionSpec(*("replicates" if a != b else None for a, b in zip(few, many, strict=True)))


@dataclass(frozen=True)
class Devices:
    """A row of devices, and how the parts of a run are split over them."""

    mesh: Mesh
    algorithm: Split
    start: Split
    carry: Split

    def begin(
        self, algorithm: Algorithm, start: ResolvedStart, key: Key, first: np.uint32, count: int, n_steps: int
    ) -> Carry:
        """`loop.begin` for `count` replicates, which the devices share evenly."""
        return _begin(self, algorithm, start, key, first, count // self.mesh.size, n_steps)

    def advance(
        self, algorithm: Algorithm, carry: Carry, first: np.uint32, done: np.int32, until: np.int32
    ) -> tuple[Carry, JaxArray]:
        """`loop.advance` for the replicates of this state."""
        return _advance(self, algorithm, carry, first, done, until)

    def everywhere(self, tree: Any) -> Any:
        """A copy of these arrays on every device, so that no call moves them again."""
        return jax.device_put(tree, NamedSharding(self.mesh, PartitionSpec()))


def mesh_for(replicates: int) -> Mesh | None:
    """All local devices in a row; None if there is one, if one was chosen, or if there is too little to do for several.

    One is chosen by `jax.default_device`.
    """
    devices = jax.local_devices()
    chosen = jax.config.jax_default_device is not None  # type: ignore[attr-defined]
    if chosen or len(devices) == 1 or replicates < _FEWEST * len(devices):
        return None
    return Mesh(np.array(devices), ("replicates",))


@partial(jax.jit, static_argnames=("on", "count", "n_steps"))
def _begin(
    on: Devices, algorithm: Algorithm, start: ResolvedStart, key: Key, first: JaxArray, count: int, n_steps: int
) -> Carry:
    def share(algorithm: Algorithm, start: ResolvedStart) -> Carry:
        return begin(algorithm, start, key, _own_first(first, count), count, n_steps)

    return _mapped(on, share, (on.algorithm, on.start), on.carry.tree)(algorithm, start)


@partial(jax.jit, static_argnames="on")
def _advance(
    on: Devices, algorithm: Algorithm, carry: Carry, first: JaxArray, done: JaxArray, until: JaxArray
) -> tuple[Carry, JaxArray]:
    def share(algorithm: Algorithm, carry: Carry) -> tuple[Carry, JaxArray]:
        return advance(algorithm, carry, _own_first(first, carry.theta.shape[-1]), done, until)

    finite = PartitionSpec(None, "replicates")
    return _mapped(on, share, (on.algorithm, on.carry), (on.carry.tree, finite))(algorithm, carry)


def _own_first(first: JaxArray, count: int) -> JaxArray:
    """The first replicate of the device that runs this."""
    return first + lax.axis_index("replicates").astype(first.dtype) * count


def _mapped(on: Devices, share: Callable[..., Any], given: tuple[Split, ...], returned: Any) -> Callable[..., Any]:
    splits = tuple(split.tree for split in given)
    return jax.shard_map(share, mesh=on.mesh, in_specs=splits, out_specs=returned, check_vma=False)
