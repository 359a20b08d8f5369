"""What clients and the server do besides a plain step: momentum, a pull to where the round began, server momentum."""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedgauss._lanes import client_mean
from fedgauss._types import JaxArray
from fedgauss.problems.base import pytree


class Memory(NamedTuple):
    """What is kept beside Theta_t; None for what nobody needs."""

    buffer: Any  # M_t, (d, K, R)
    start: Any  # where each client's round began, (d, K, R)
    server: Any  # where the server's round before that began, (d, 1, R)


@pytree
class LocalRules:
    """An `Optimiser` as the engine runs it."""

    momentum: float | None
    proximal: float | None
    server_momentum: float | None
    keep_momentum: bool = field(metadata={"static": True})

    def memory(self, theta: JaxArray) -> Memory:
        """Before the first step, at Theta_0."""
        return Memory(
            None if self.momentum is None else jnp.zeros_like(theta),
            None if self.proximal is None and self.server_momentum is None else theta,
            None if self.server_momentum is None else client_mean(theta)[:, None],
        )

    def direction(
        self, gradient: JaxArray, theta: JaxArray, memory: Memory, works: JaxArray | None
    ) -> tuple[JaxArray, Memory]:
        """What takes the gradient's place, M_t = mu M_{t-1} + gradient + lambda (theta - start); for those who work."""
        if self.proximal is not None:
            gradient = gradient + self.proximal * (theta - memory.start)
        if self.momentum is not None:
            gradient = self.momentum * memory.buffer + gradient
            memory = memory._replace(buffer=gradient if works is None else jnp.where(works, gradient, memory.buffer))
        return gradient, memory

    def pushed(self, mixed: JaxArray, memory: Memory) -> JaxArray:
        """What the server sends: the mean, and a share of how far it went in the round before."""
        if self.server_momentum is None:
            return mixed
        return mixed + self.server_momentum * (client_mean(memory.start)[:, None] - memory.server)

    def next_round(self, theta: JaxArray, memory: Memory, mixed: JaxArray) -> Memory:
        """The memory after a step, where `mixed` says whether clients mixed: a round then begins at theta."""
        buffer, start, server = memory
        if buffer is not None and not self.keep_momentum:
            buffer = jnp.where(mixed, 0.0, buffer)
        if server is not None:
            server = jnp.where(mixed, client_mean(start)[:, None], server)
        if start is not None:
            start = jnp.where(mixed, theta, start)
        return Memory(buffer, start, server)
