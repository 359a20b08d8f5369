"""Counter-based random numbers: what is drawn depends on (seed, name, step, client, replicate) and nothing else.

Each number is a Threefry-2x32 hash (Salmon et al. 2011, the hash behind `jax.random`) of a counter. So chunk
size, device and length of run never change a result, and a longer run has every shorter one as its prefix.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss import _checks
from fedgauss._forked import refuse_in_forked_child
from fedgauss._types import ArrayLike, JaxArray

Key: TypeAlias = tuple[JaxArray, JaxArray]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def stage_key(seed: int, stage: str) -> tuple[np.uint32, np.uint32]:
    """The key of a named stage ("data", "start", ...) of a run with this seed: where a calculation by JAX begins."""
    refuse_in_forked_child()
    number = _checks.seed(seed)
    digest = hashlib.blake2b(f"{number}/{stage}".encode(), digest_size=8).digest()
    first, second = np.frombuffer(digest, dtype=np.uint32)
    return first, second


@jax.jit
def threefry(key: Key, high: JaxArray, low: JaxArray) -> Key:
    """Threefry-2x32 with 20 rounds: two random words for each 64-bit counter (high, low).

    Spelled out, rather than called from JAX, because XLA fuses it with the arithmetic that follows.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    a, b = high + schedule[0], low + schedule[1]
    for i in range(5):
        for rotation in _ROTATIONS[i % 2]:
            a = a + b
            b = a ^ ((b << np.uint32(rotation)) | (b >> np.uint32(32 - rotation)))
        a = a + schedule[(i + 1) % 3]
        b = b + schedule[(i + 2) % 3] + np.uint32(i + 1)
    return a, b


def stream_number(name: str) -> np.uint32:
    """The number that stands for the name of a stream."""
    return np.frombuffer(hashlib.blake2b(name.encode(), digest_size=4).digest(), dtype=np.uint32)[0]


@dataclass(frozen=True)
class Noise:
    """The randomness of one step, for every client and for replicates first, first + 1, ...

    Each named stream is independent of the others, so a problem asks for what it needs in any order.

    With `clients` (m, R) it is that of m clients alone, others in each replicate: whatever is drawn is (..., m, R), and
    each client draws what it would among all K.
    """

    key: Key
    first: JaxArray
    n_clients: int
    n_replicates: int
    of_run: Noise | None = None
    clients: JaxArray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of one draw for each: (K, R), or (m, R) for some clients alone."""
        return (self.n_clients, self.n_replicates) if self.clients is None else self.clients.shape

    def per_client(self, table: ArrayLike) -> JaxArray:
        """What a table (K, ...) says of those who draw: (..., K, 1), or (..., m, R) for some clients alone."""
        rows = jnp.asarray(table)
        return jnp.moveaxis(rows[:, None] if self.clients is None else rows[self.clients], (0, 1), (-2, -1))

    def at_step(self, t: JaxArray) -> Noise:
        """The noise of step t. It remembers the noise of the whole run, for what is drawn once, as `of_run`."""
        return replace(self, key=threefry(self.key, jnp.uint32(t), jnp.uint32(0)), of_run=self)

    def stream(self, name: str) -> Noise:
        """An independent copy of this noise, for a purpose with this name."""
        return self.numbered(stream_number(name))

    def numbered(self, number: np.uint32 | JaxArray) -> Noise:
        """`stream`, where the name is an argument of the program: see `stream_number`."""
        of_run = None if self.of_run is None else self.of_run.numbered(number)
        return replace(self, key=threefry(self.key, jnp.uint32(number), jnp.uint32(1)), of_run=of_run)

    def words(self, count: int) -> JaxArray:
        """Random 32-bit words, (count, K, R)."""
        return self._draw(count, lambda words: words)

    def uniform(self, count: int) -> JaxArray:
        """Uniform numbers strictly inside (0, 1), (count, K, R)."""
        return self._draw(count, _unit)

    def normal(self, count: int) -> JaxArray:
        """Standard normal numbers, (count, K, R), by inverting the normal distribution function."""
        return self._draw(count, lambda words: np.float32(np.sqrt(2.0)) * lax.erf_inv(2.0 * _unit(words) - 1.0))

    def poisson(self, mean: JaxArray) -> JaxArray:
        """Counts with these means, (K, R), by inverting the Poisson distribution function."""
        return _poisson_quantile(self.uniform(1)[0], mean)

    def _draw(self, count: int, transform: Callable[[JaxArray], JaxArray]) -> JaxArray:
        """Transformed words. Both ways give the same numbers; they differ in what the compiler makes of them."""
        total = count * self.n_clients
        shape = ((total + 1) // 2, self.n_replicates)
        drawn = jax.eval_shape(transform, jax.ShapeDtypeStruct((), jnp.uint32))
        written_down = jax.default_backend() == "cpu" and jnp.issubdtype(drawn.dtype, jnp.floating)
        if self.clients is not None:
            some = partial(self._words_of_some, count=count)
            return self._once(lambda key: transform(some(key))) if written_down else transform(some(self.key))

        def hashed(key: Key) -> Key:
            counter = lax.broadcasted_iota(jnp.uint32, shape, 0)
            replicate = lax.broadcasted_iota(jnp.uint32, shape, 1) + jnp.uint32(self.first)
            return threefry(key, counter, replicate)

        if written_down:
            # A hash gives two words. Written as two arrays it would be computed for each; as one complex array, once.
            pairs = self._once(lambda key: lax.complex(*(transform(half) for half in hashed(key))))
            draws = jnp.concatenate([jnp.real(pairs), jnp.imag(pairs)])
        else:
            # An accelerator hashes faster than it reads: let the draws fuse with what uses them.
            draws = jnp.concatenate([transform(half) for half in hashed(self.key)])
        return draws[:total].reshape(count, self.n_clients, self.n_replicates)

    def _once(self, draw: Callable[[Key], JaxArray]) -> JaxArray:
        """Draws, written down. Whatever reads them would otherwise compute them again, several times a step.

        A branch is a program of its own, which the compiler does not merge with those that read its result.
        """
        drawn, always = jax.eval_shape(draw, self.key), (self.key[0] | np.uint32(1)) != np.uint32(0)
        return lax.cond(always, draw, lambda key: jnp.zeros(drawn.shape, drawn.dtype), self.key)

    def _words_of_some(self, key: Key, count: int) -> JaxArray:
        """The words (count, m, R) that `clients` would draw among all: one of the two that each hash gives."""
        shape = (count, *self.shape)
        half = jnp.uint32((count * self.n_clients + 1) // 2)
        place = lax.broadcasted_iota(jnp.uint32, shape, 0) * jnp.uint32(self.n_clients) + jnp.uint32(self.clients)
        replicate = lax.broadcasted_iota(jnp.uint32, shape, 2) + jnp.uint32(self.first)
        words = threefry(key, jnp.where(place < half, place, place - half), replicate)
        return jnp.where(place < half, *words)

    def keys(self) -> JaxArray:
        """One `jax.random` key for each client and replicate, (K, R), for samplers that want one."""
        client = lax.broadcasted_iota(jnp.uint32, self.shape, 0) if self.clients is None else jnp.uint32(self.clients)
        replicate = lax.broadcasted_iota(jnp.uint32, self.shape, 1) + jnp.uint32(self.first)
        pair = jnp.stack(threefry(self.key, client, replicate), axis=-1)
        return jax.random.wrap_key_data(pair, impl="threefry2x32")


def _unit(words: JaxArray) -> JaxArray:
    """The 23 leading bits as the midpoint of one of 2^23 equal cells of (0, 1): never 0, never 1, exact in float32."""
    mantissa = (words >> np.uint32(9)) | np.uint32(0x3F800000)
    return lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1.0 - 2.0**-24)


def _poisson_quantile(u: JaxArray, mean: JaxArray) -> JaxArray:
    """The Poisson quantile at u, by summing the distribution up to it.

    exp(-mean) leaves float32 near mean 87, so above 64 the quantile is the second-order Cornish-Fisher one.
    """
    small = jnp.minimum(mean, 64.0)

    def unreached(count: JaxArray, mass: JaxArray, cdf: JaxArray) -> JaxArray:
        # Past the mean, stop where rounding no longer lets the sum grow: it may stay just below u for ever.
        following = mass * small / (count + 1.0)
        return (u > cdf) & ((cdf + following > cdf) | (count < small))

    def unfinished(state: tuple) -> JaxArray:
        return jnp.any(unreached(*state))

    def add_next(state: tuple) -> tuple:
        count, mass, cdf = state
        following = mass * small / (count + 1.0)
        more = unreached(count, mass, cdf)
        return (
            jnp.where(more, count + 1.0, count),
            jnp.where(more, following, mass),
            jnp.where(more, cdf + following, cdf),
        )

    first = jnp.exp(-small)
    exact = lax.while_loop(unfinished, add_next, (jnp.zeros_like(u), first, first))[0]
    z = np.sqrt(2.0).astype(np.float32) * lax.erf_inv(2.0 * u - 1.0)
    expanded = jnp.floor(mean + jnp.sqrt(mean) * z + (z**2 - 1.0) / 6.0 + 0.5)
    return jnp.where(mean > 64.0, jnp.maximum(expanded, 0.0), exact)
