"""Who takes part in a round."""

from __future__ import annotations

from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._random import Noise
from fedgauss._types import Int32Array, JaxArray
from fedgauss.problems.base import pytree


@pytree
class Presence:
    """m clients, chosen at random for every round and replicate: each set of m is equally likely.

    The draw belongs to the number of the round, so that it is the same at every step of it and in every run that has
    this round.
    """

    count: float  # m
    rounds: Int32Array  # the number of the round that step t belongs to, (N,)

    def at(self, noise: Noise, t: JaxArray) -> JaxArray:
        """Whether each client takes part in step t, (K, R); `noise` is that of the run."""
        words = noise.stream("participation").at_step(jnp.asarray(self.rounds)[t - 1]).words(1)[0]
        return among_smallest(words, self.count)


@pytree
class Seats:
    """Places for the m clients of a round: Theta has a column for each of them, and one stands for all who are absent.

    With a server every client begins a round at the same W_r, so that the others need no columns of their own.
    """

    rounds: Int32Array  # as in `Presence`
    count: int = field(metadata={"static": True})  # m

    def clients(self, noise: Noise, t: JaxArray) -> JaxArray:
        """Those whom `Presence` draws for step t, in increasing order, (m, R); `noise` is that of the run."""
        here = Presence(self.count, self.rounds).at(noise, t)
        return jax.vmap(lambda column: jnp.nonzero(column, size=self.count)[0], in_axes=1, out_axes=1)(here)

    def next_clients(self, clients: JaxArray, noise: Noise, t: JaxArray) -> JaxArray:
        """Those of step t, where `clients` are those of the step before: others if a round begins."""
        rounds = jnp.asarray(self.rounds)
        return lax.cond(rounds[t - 1] == rounds[t - 2], lambda: clients, lambda: self.clients(noise, t))


def among_smallest(words: JaxArray, count: JaxArray | float) -> JaxArray:
    """Which of K random words of 32 bits are the `count` smallest of each column, (K, R).

    The largest of them is found bit by bit: sorting the columns would take ten times as long as a step. The last bits
    of the words give way to the client's number, so that no two are equal.
    """
    n_clients = words.shape[0]
    spare = np.uint32(max(n_clients - 1, 1).bit_length())
    client = lax.broadcasted_iota(jnp.uint32, words.shape, 0)
    distinct = (words >> spare << spare) | client

    def with_bit(i: JaxArray, largest: JaxArray) -> JaxArray:
        trial = largest | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where((distinct < trial).sum(axis=0) < count, trial, largest)

    largest = lax.fori_loop(0, 32, with_bit, jnp.zeros(words.shape[1:], jnp.uint32))
    return distinct <= largest
