"""R_t, the CUSUM of Section 3.1 of the paper, exactly, by comparing S_t with few of the earlier sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike, FloatArray

BLOCK = 64  # sums in a block, and steps that `extend` bounds together
PART = 8  # sums in a part of a block
_PAIRS = 40_000  # blocks of steps times blocks of sums that are bounded at once: limits memory, not the result
_DENSE = 2**15  # numbers looked at together when blocks are searched: about what the cache holds
_SHORT = 1000  # steps up to which the naive loop over many paths is the faster one
_HUGE = 1e100  # beyond this a square of t S_s might overflow

IntArray = npt.NDArray[np.int64]


class CusumReading(NamedTuple):
    """R_t, and the smallest s that attains it, which estimates the last step before a change."""

    statistic: float
    onset: int


class Cusum:
    """R_t = max_{s <= t} |S_s - (s/t) S_t|, S_t = Y_1 + ... + Y_t, after every step, and the smallest s attaining it.

    Parameters
    ----------
    dim : int
        d, the length of each Y_t.
    norm : {"euclidean", "max"}

    Notes
    -----
    Along a straight line |S_s - s v| is convex in s, so it is largest at an end. On a block a..b of sums, with r the
    largest distance of S from its chord there,

        max_{a <= s <= b} |S_s - s v| <= max(|S_a - a v|, |S_b - b v|) + r

    in any norm and any dimension, whatever v is. At v = S_t/t the values at the ends also bound R_t from below, and
    together they rule out most blocks of 64 sums unsearched. `extend`, which takes many steps at once, first rules
    out blocks for 64 steps together (v then moves along a path, and the same argument holds for the chord of that),
    and last parts of 8 sums in the blocks that are left.

    Nothing is approximated: given the sums, the result is that of the naive loop to the last bit. Both compare
    |t S_s - s S_t|, which is exact for whole numbers, so that ties are true ties there. Sums are those of Y - Y_1,
    which leaves R_t as it is, and are compensated (Neumaier): R_t is right to within 16 eps max_s |S_s|, however
    long the run.

    Every S_s is kept, O(t d) numbers. A step takes t/64 bounds and a search of a few blocks; at worst, when all sums
    tie (a sequence that never changes), it takes t comparisons. Most of the time of `update` goes into calling NumPy;
    give `extend` as many steps as are at hand.
    """

    def __init__(self, dim: int, norm: str = "euclidean") -> None:
        self.dim = _checks.whole("dim", dim)
        check_memory(f"sums in {self.dim:,} dimensions", 16 * BLOCK * self.dim, "Use fewer dimensions.")
        self.norm = _checks.one_of("norm", norm, ["euclidean", "max"])
        self._n = 0
        self._centre = np.zeros(self.dim)
        self._total, self._lost = np.zeros(self.dim), np.zeros(self.dim)
        self._largest = 0.0  # of |S_s|: how much rounding may move a bound
        self._sums = np.zeros((self.dim, BLOCK))  # S_1, S_2, ... as columns; whole blocks are allocated
        self._edges = np.zeros((self.dim, 2))  # S_0 = 0, S_64, S_128, ...
        self._rises = np.full(1, np.inf)  # r of each full block; no bound for one that is still filling
        self._part_ends = np.zeros((self.dim, BLOCK // PART + 1, 1))  # S_s at the ends of the parts of each full block
        self._part_rises = np.full((BLOCK // PART, 1), np.inf)  # r of each part of each full block

    @property
    def n_steps(self) -> int:
        """t."""
        return self._n

    def update(self, y: ArrayLike) -> CusumReading:
        """Take in Y_t.

        Parameters
        ----------
        y : (d,) array_like

        Returns
        -------
        CusumReading
            R_t and its argmax.
        """
        self._append(self._checked("y", y, (self.dim,))[None])
        t, full = self._n, self._n // BLOCK
        total = self._sums[:, t - 1 : t]
        ends = self._length(self._edges[:, : full + 1] - np.arange(0.0, t + 1.0, BLOCK) * (total / t))
        upper = np.maximum(ends[:-1], ends[1:]) + self._rises[:full]
        blocks = np.flatnonzero(upper >= ends.max() - self._slack())
        if full * BLOCK < t:  # the block that is still filling has no chord yet
            blocks = np.append(blocks, full)
        s = (blocks[:, None] * BLOCK + np.arange(1, BLOCK + 1)).ravel()
        s = s[s <= t]
        gaps = self._measure(t * self._sums.take(s - 1, axis=1) - total * s)
        best = int(gaps.argmax())  # the first of several, so the smallest s
        return CusumReading(float(self._root(gaps[best])) / t, int(s[best]))

    def extend(self, rows: ArrayLike) -> tuple[FloatArray, IntArray]:
        """`update` for each of several rows, to the same bits and much faster.

        Parameters
        ----------
        rows : (m, d) array_like

        Returns
        -------
        statistic, onset : (m,) arrays
            R_t and its argmax.
        """
        path = self._checked("rows", rows, (None, self.dim))
        first = self._n + 1
        if not len(path):
            return np.zeros(0), np.zeros(0, np.int64)
        self._append(path)
        statistic, onset = np.zeros(len(path)), np.zeros(len(path), np.int64)
        begin, end = (first - 1) // BLOCK, (self._n - 1) // BLOCK + 1
        at_once = max(1, _PAIRS // end)
        for low in range(begin, end, at_once):
            t, gap, s = self._search(np.arange(low, min(low + at_once, end)), first)
            statistic[t - first], onset[t - first] = self._root(gap) / t, s
        return statistic, onset

    def _search(self, steps: IntArray, first: int) -> tuple[IntArray, FloatArray, IntArray]:
        """t, |t S_s - s S_t| in the measure, and s, for every step t >= first in the given blocks of steps."""
        t = steps[:, None] * BLOCK + np.arange(1, BLOCK + 1)
        wanted = (t >= first) & (t <= self._n)
        t = t.clip(first, self._n)
        mean = self._sums[:, t - 1] / t  # (d, blocks of steps, 64)
        n_blocks = int(steps[-1]) + 1
        edges, rises, place = self._edges[:, : n_blocks + 1], self._rises[:n_blocks], np.arange(n_blocks + 1.0) * BLOCK
        group, block = self._survivors(steps, mean, edges, rises, place)

        same = block == steps[group]  # a step's own block reaches beyond it: its right end is no value of s <= t
        moving = mean[:, group]
        left = self._length(edges[:, block, None] - place[block, None] * moving)
        right = self._length(edges[:, block + 1, None] - place[block + 1, None] * moving)
        reached = np.maximum(left, np.where(same[:, None], 0.0, right))
        floor = np.maximum.reduceat(reached, np.searchsorted(group, np.arange(len(steps))), axis=0) - self._slack()
        upper = np.maximum(left, right) + rises[block, None]
        pair, column = np.nonzero((upper >= floor[group]) & wanted[group])

        at = t[group[pair], column]
        order = np.argsort(at, kind="stable")  # by step, and by block within a step
        pair, column = pair[order], column[order]
        return _first_largest(*self._compare(at[order], block[pair], floor[group[pair], column]))

    def _survivors(
        self, steps: IntArray, mean: FloatArray, edges: FloatArray, rises: FloatArray, place: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Pairs (block of steps, block of sums) in which some R_t may be attained, in order."""
        begin, end = mean[:, :, :1], mean[:, :, -1:]
        chord = begin + np.linspace(0.0, 1.0, BLOCK) * (end - begin)
        bend = self._length(mean - chord).max(axis=1)
        before = self._length(edges[:, None] - place * begin)  # (blocks of steps, edges)
        after = self._length(edges[:, None] - place * end)
        corner = np.maximum(before, after)
        upper = np.maximum(corner[:, :-1], corner[:, 1:]) + rises + place[1:] * bend[:, None]

        past = np.arange(len(place)) <= steps[:, None]
        floor = np.zeros(mean.shape[1:])
        for value in (before, after):  # two good guesses of s bound every R_t of the block of steps from below
            guess = np.where(past, value, -1.0).argmax(axis=1)
            np.maximum(floor, self._length(edges[:, guess, None] - place[guess, None] * mean), out=floor)
        group, block = np.nonzero((upper >= floor.min(axis=1)[:, None] - self._slack()) & past[:, :-1])
        return group, block

    def _compare(self, t: IntArray, block: IntArray, floor: FloatArray) -> tuple[IntArray, FloatArray, IntArray]:
        """t, the largest |t S_s - s S_t| over s <= t in a part of the block, and its s, for parts that may matter."""
        pieces = []
        size = max(1, _DENSE // (PART * self.dim))
        for low in range(0, len(t), size):
            now = slice(low, low + size)
            pieces.append(self._compare_parts(*self._parts(t[now], block[now], floor[now])))
        time, gap, s = zip(*pieces, strict=True)
        return np.concatenate(time), np.concatenate(gap), np.concatenate(s)

    def _parts(self, t: IntArray, block: IntArray, floor: FloatArray) -> tuple[IntArray, IntArray]:
        """Pairs (t, part of a block) in which R_t >= floor may be attained, from pairs (t, block) in order."""
        # Pairs run along the last axis, here and below: loops over the long axis are the fast ones.
        place = np.arange(0.0, BLOCK + 1.0, PART)[:, None] + block * float(BLOCK)
        vectors = self._part_ends.take(block, axis=2)
        time = t.astype(float)
        vectors -= (self._sums.take(t - 1, axis=1) / time)[:, None] * place
        ends = self._length(vectors)
        best = np.where(place[-1] <= time, ends.max(axis=0) - self._slack(), floor)  # no sums after t count
        starts, lengths = _runs(t)
        best = np.maximum.reduceat(np.maximum(best, floor), starts)
        upper = np.maximum(ends[:-1], ends[1:])
        upper += self._part_rises.take(block, axis=1)
        may = (upper >= np.repeat(best, lengths)) & (place[:-1] < time)
        pair, part = np.nonzero(may.T)
        return t[pair], block[pair] * (BLOCK // PART) + part

    def _compare_parts(self, t: IntArray, part: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
        """t, the largest |t S_s - s S_t| over s <= t in the given part, and its s."""
        s = np.arange(1, PART + 1)[:, None] + part * PART
        gaps = self._sums.take(s - 1, axis=1)
        gaps *= t.astype(float)
        gaps -= self._sums.take(t - 1, axis=1)[:, None] * s.astype(float)
        value = np.where(s <= t, self._measure(gaps), -1.0)
        largest = value.max(axis=0)
        return t, largest, part * PART + (value == largest).argmax(axis=0) + 1

    def _append(self, rows: FloatArray) -> None:
        """Add rows to the sums, and chords for the blocks they complete."""
        if not self._n:
            self._centre = rows[0]
        sums, self._total, self._lost = compensated_sums(rows - self._centre, self._total, self._lost)
        old, self._n = self._n, self._n + len(rows)
        self._largest = max(self._largest, float(self._length(sums.T).max()))
        self._reserve()
        self._sums[:, old : self._n] = sums.T
        begin, end = old // BLOCK, self._n // BLOCK
        if begin < end:
            blocks = self._sums[:, begin * BLOCK : end * BLOCK].reshape(self.dim, -1, BLOCK)
            self._edges[:, begin + 1 : end + 1] = blocks[:, :, -1]
            self._rises[begin:end] = self._rise(self._edges[:, begin:end], blocks)
            parts = self._sums[:, begin * BLOCK : end * BLOCK].reshape(self.dim, -1, PART)
            before_parts = np.concatenate([self._edges[:, begin : begin + 1], parts[:, :-1, -1]], axis=1)
            self._part_rises[:, begin:end] = self._rise(before_parts, parts).reshape(-1, BLOCK // PART).T
            self._part_ends[:, 0, begin:end] = self._edges[:, begin:end]
            self._part_ends[:, 1:, begin:end] = blocks[:, :, PART - 1 :: PART].swapaxes(1, 2)

    def _reserve(self) -> None:
        """Room for t sums, twice as much whenever it runs out."""
        blocks = self._sums.shape[1] // BLOCK
        if self._n > blocks * BLOCK:
            more = max(blocks, -(-self._n // BLOCK) - blocks)
            self._sums = np.pad(self._sums, ((0, 0), (0, more * BLOCK)))
            self._edges = np.pad(self._edges, ((0, 0), (0, more)))
            self._rises = np.pad(self._rises, (0, more), constant_values=np.inf)
            self._part_ends = np.pad(self._part_ends, ((0, 0), (0, 0), (0, more)))
            self._part_rises = np.pad(self._part_rises, ((0, 0), (0, more)), constant_values=np.inf)

    def _rise(self, start: FloatArray, blocks: FloatArray) -> FloatArray:
        """r, the largest distance from the chord, of each block (d, blocks, length) that follows the sum `start`."""
        share = np.arange(1, blocks.shape[2] + 1) / blocks.shape[2]
        chord = start[:, :, None] + share * (blocks[:, :, -1:] - start[:, :, None])
        return self._length(blocks - chord).max(axis=1)

    def _slack(self) -> float:
        """More than rounding can move a bound: every term of one is at most 2 max |S_s| in size."""
        return float(np.finfo(float).eps) * (64 + self.dim) * self._largest

    def _measure(self, vectors: FloatArray) -> FloatArray:
        """The norm over the first axis, squared if Euclidean: enough to compare by. Added up coordinate by coordinate,
        so that the last bit does not depend on how many vectors there are."""
        if self.norm == "max":
            return np.abs(vectors).max(axis=0)
        total = vectors[0] * vectors[0]
        for coordinate in vectors[1:]:
            total += coordinate * coordinate
        return total

    def _root(self, measure: FloatArray) -> FloatArray:
        return measure if self.norm == "max" else np.sqrt(measure)

    def _length(self, vectors: FloatArray) -> FloatArray:
        return self._root(self._measure(vectors))

    def _checked(self, name: str, value: ArrayLike, shape: tuple[int | None, ...]) -> FloatArray:
        array = _checks.real_array(name, value, shape=shape, fix=f"This Cusum is for d = {self.dim}.")
        if array.size and np.abs(array).max() > _HUGE:
            raise ValueError(f"{name} must not exceed {_HUGE:g} in size; got {np.abs(array).max():.3g}. Rescale?")
        return array


def cusum_paths(paths: ArrayLike, norm: str = "euclidean") -> tuple[FloatArray, IntArray]:
    """R_t and its argmax for every step of several paths, to the same bits as `Cusum`.

    Parameters
    ----------
    paths : (R, n, d) array_like
    norm : {"euclidean", "max"}

    Returns
    -------
    statistic, onset : (R, n) arrays

    Notes
    -----
    Short paths are compared with all their sums, several at once, which is faster than ruling out blocks of each.
    """
    array = _checks.real_array("paths", paths, shape=(None, None, None))
    n_paths, n_steps, dim = array.shape
    statistic, onset = np.zeros((n_paths, n_steps)), np.zeros((n_paths, n_steps), np.int64)
    at_once = 1 if n_steps > _SHORT else max(1, _DENSE // max(1, n_steps * dim))
    for low in range(0, n_paths, at_once):
        now = slice(low, low + at_once)
        if n_steps > _SHORT:
            statistic[low], onset[low] = Cusum(dim, norm).extend(array[low])
        else:
            statistic[now], onset[now] = _all_compared(array[now], Cusum(dim, norm))
    return statistic, onset


def _all_compared(paths: FloatArray, rule: Cusum) -> tuple[FloatArray, IntArray]:
    """The naive loop over t, for several paths at once."""
    n_paths, n_steps, dim = paths.shape
    statistic, onset = np.zeros((n_paths, n_steps)), np.zeros((n_paths, n_steps), np.int64)
    if not n_steps:
        return statistic, onset
    terms = (paths - paths[:, :1]).transpose(1, 2, 0).reshape(n_steps, -1)
    sums, _, _ = compensated_sums(terms, np.zeros(terms.shape[1]), np.zeros(terms.shape[1]))
    sums = np.ascontiguousarray(sums.reshape(n_steps, dim, n_paths).transpose(1, 2, 0))  # (d, paths, n)
    s = np.arange(1.0, n_steps + 1.0)
    row = np.arange(n_paths)
    for t in range(1, n_steps + 1):
        gaps = rule._measure(t * sums[:, :, :t] - sums[:, :, t - 1 : t] * s[:t])
        best = gaps.argmax(axis=1)
        statistic[:, t - 1], onset[:, t - 1] = rule._root(gaps[row, best]) / t, best + 1
    return statistic, onset


def compensated_sums(
    terms: FloatArray, total: FloatArray, lost: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Neumaier's running sums down the first axis, from `total` and the rounding errors `lost` so far.

    Returns the sums and the two to go on from; a sum does not depend on how the terms are dealt out to calls.
    """
    chain = np.add.accumulate(np.concatenate([total[None], terms]))
    before, after = chain[:-1], chain[1:]
    errors = np.where(np.abs(before) >= np.abs(terms), (before - after) + terms, (terms - after) + before)
    errors = np.add.accumulate(np.concatenate([lost[None], errors]))[1:]
    return after + errors, after[-1], errors[-1]


def _runs(key: IntArray) -> tuple[IntArray, IntArray]:
    """Where each run of equal keys begins, and its length."""
    bounds = np.concatenate([[0], np.flatnonzero(key[1:] != key[:-1]) + 1, [len(key)]])
    return bounds[:-1], bounds[1:] - bounds[:-1]


def _first_largest(key: IntArray, value: FloatArray, s: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
    """For each run of equal keys: the key, the largest value, and the first s that has it."""
    starts, lengths = _runs(key)
    largest = np.maximum.reduceat(value, starts)
    hit = value == np.repeat(largest, lengths)
    return key[starts], largest, np.minimum.reduceat(np.where(hit, s, np.iinfo(np.int64).max), starts)
