"""Moves of any size as short vectors that keep inner products, with signs that clients cannot know."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray

Single = npt.NDArray[np.float32]

_AT_ONCE = 2**16  # parameters, which a core's cache holds; a multiple of every width
_THREADS = 4  # of which a machine's memory has little use for more
_WORTH_A_THREAD = 2**22  # parameters: a few milliseconds
_WIDEST, _NARROWEST = 8192, 1024  # a cosine is off by 1/90, by 1/32
_TOGETHER = 2**20  # numbers in the sketches of a round: what products of all pairs cost is as much for each of them


class Sketches(NamedTuple):
    """P moves: as short vectors as long as the moves are, and what one look at all parameters gives."""

    short: Single  # (P, L)
    length: FloatArray  # |u_k|  (P,)
    total: FloatArray  # |u_k|_1  (P,)


def width_for(n_clients: int) -> int:
    """Of sketches where so many clients are compared: 8,192 up to 128 of them, 1,024 from 1,000 on."""
    width = _WIDEST
    while width > _NARROWEST and width * n_clients > _TOGETHER:
        width //= 2
    return width


class Sketch:
    """S x, with S (width, d): each parameter goes into one sum, with a random sign.

    E <S x, S y> = <x, y>, and a cosine is off by about width^-1/2; S x is made as long as x. Models with up to twice as
    many parameters are taken as they are. A client that knew the signs could hide a move in the null space of S, so
    they come from a secret seed.
    """

    def __init__(self, width: int, seed: int) -> None:
        self.width, self.seed = width, seed
        self._signs = np.empty(0, dtype=np.float32)

    def length(self, dim: int) -> int:
        """Of the sketch of a model with `dim` parameters."""
        return dim if dim <= 2 * self.width else self.width

    def __call__(self, moves: Sequence[FloatArray | Single]) -> Sketches:
        """Of moves with as many parameters each."""
        dim = len(moves[0]) if moves else 0
        with np.errstate(over="ignore", invalid="ignore"):  # lengths show what is not finite or too large
            if dim > 2 * self.width:
                return self._sums(moves, dim)
            short = np.array(moves, dtype=np.float32).reshape(len(moves), dim)
            length = np.sqrt(np.einsum("pd,pd->p", short, short, dtype=np.float64))
            return Sketches(short, length, np.abs(short).sum(axis=1, dtype=np.float64))

    def _sums(self, moves: Sequence[FloatArray | Single], dim: int) -> Sketches:
        if len(self._signs) != dim:
            drawn = np.random.default_rng(self.seed).integers(0, 2, size=dim, dtype=np.int8)
            self._signs = 2.0 * drawn.astype(np.float32) - 1.0
        n_parts = min(_THREADS, os.cpu_count() or 1, 1 + len(moves) * dim // _WORTH_A_THREAD)
        shares = [range(part, len(moves), n_parts) for part in range(n_parts)]
        found = Sketches(np.zeros((len(moves), self.width), np.float32), *np.zeros((2, len(moves))))
        if n_parts == 1:
            self._add_up(moves, shares[0], found)
        else:
            with ThreadPoolExecutor(n_parts) as pool:
                list(pool.map(lambda share: self._add_up(moves, share, found), shares))
        short, square, total = found
        length = np.sqrt(square)
        own = np.sqrt(np.einsum("pj,pj->p", short, short, dtype=np.float64))
        short *= np.divide(length, own, out=np.ones_like(own), where=own > 0).astype(np.float32)[:, None]
        return Sketches(short, length, total)

    def _add_up(self, moves: Sequence[FloatArray | Single], places: range, found: Sketches) -> None:
        """Sums, squares and absolute values of some moves; each move's are the same whoever else is there."""
        room = np.empty(max(_AT_ONCE, self.width), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has an errstate of its own
            for begin in range(0, len(self._signs), len(room)):
                signs = self._signs[begin : begin + len(room)]  # of all clients at once: they stay in the cache
                signed = room[: len(signs)]
                whole = len(signs) // self.width * self.width
                for place in places:
                    short = found.short[place]
                    np.multiply(moves[place][begin : begin + len(room)], signs, out=signed, casting="same_kind")
                    short += signed[:whole].reshape(-1, self.width).sum(axis=0)
                    short[: len(signs) - whole] += signed[whole:]
                    found.length[place] += np.einsum("j,j->", signed, signed)  # not dot(), whose BLAS wakes threads
                    np.abs(signed, out=signed)
                    found.total[place] += signed.sum()
