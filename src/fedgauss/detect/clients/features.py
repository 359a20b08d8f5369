"""What is looked at in a client's move: five numbers, compared with those of the other clients in the round."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray

N_FEATURES = 5
_NEARLY_ONE = 0.999  # cosines beyond it count as it
_NOTHING = 1e-150  # the size of a client in a round in which nobody moves: its square is a number, too
_LEAST_SIZE = 1e-6  # of the median size: a client that sends nothing has a size, too


class Moves(NamedTuple):
    """A round of R runs with P clients present, as inner products of what the clients changed."""

    who: npt.NDArray[np.int64]  # numbers of the clients present  (R, P)
    products: FloatArray  # <u_k, u_l>  (R, P, P)
    along_own: FloatArray  # <u_k, e_k> with e_k the unit vector of the client's own past; NaN without one  (R, P)
    evenness: FloatArray  # |u_k|_1 / |u_k|_2, large where a move is spread evenly over the parameters  (R, P)

    def of_run(self, run: int) -> Moves:
        """One run alone."""
        who, products, along_own, evenness = self
        one = slice(run, run + 1)
        return Moves(who[one], products[one], along_own[one], evenness[one])


class Features(NamedTuple):
    """What is compared."""

    rows: FloatArray  # less the clients' median; NaN where something is not known  (R, P, 5)
    size: FloatArray  # the median of log |u_k|, which all clients share  (R,)


def features(moves: Moves, kept: BoolArray) -> Features:
    """Typical and largest cosine to the others, size, cosine to the client's own past, and evenness.

    With u_k what client k changed and cos its inner products over lengths,

        atanh median_l cos(u_k, u_l),  atanh max_l cos(u_k, u_l),  log |u_k|,
        atanh cos(u_k, e_k),  log (|u_k|_1 / |u_k|_2),

    each less its median over the clients of the round. Lengths and angles of all clients change together as a model
    learns or its rate falls; what is left after the median moves little.

    Parameters
    ----------
    moves : Moves
        At least three clients must be kept.
    kept : (R, P) bool
        Clients that count. The others are compared with them, and are nobody's neighbour.
    """
    n_runs, present = moves.who.shape
    size = np.sqrt(np.maximum(np.diagonal(moves.products, axis1=1, axis2=2), 0.0))
    median_size = _median(size, kept)[:, None]
    size = np.maximum(size, np.maximum(_LEAST_SIZE * median_size, _NOTHING))
    cosines = np.clip(moves.products / (size[:, :, None] * size[:, None, :]), -1.0, 1.0)
    others = kept[:, None, :] & ~np.eye(present, dtype=np.bool_)
    ordered = np.sort(np.where(others, cosines, np.inf), axis=-1)
    count = others.sum(axis=-1)
    runs, clients = np.ogrid[:n_runs, :present]
    middle = 0.5 * (ordered[runs, clients, (count - 1) // 2] + ordered[runs, clients, count // 2])
    closest = ordered[runs, clients, count - 1]
    own = _atanh(moves.along_own / size)
    evenness = np.log(np.maximum(moves.evenness, _LEAST_SIZE))
    rows = np.stack([_atanh(middle), _atanh(closest), np.log(size), own, evenness], axis=-1)
    centre = np.stack([_median(rows[..., i], kept) for i in range(N_FEATURES)], axis=-1)
    return Features(rows - centre[:, None], centre[:, 2])


def _atanh(cosine: FloatArray) -> FloatArray:
    return np.arctanh(np.clip(cosine, -_NEARLY_ONE, _NEARLY_ONE))


def _median(values: FloatArray, kept: BoolArray) -> FloatArray:
    """Over the clients that are kept and have a number, (R,); NaN without any."""
    usable = kept & np.isfinite(values)
    ordered = np.sort(np.where(usable, values, np.inf), axis=-1)
    count = np.maximum(usable.sum(axis=-1), 1)
    runs = np.arange(len(values))
    middle = 0.5 * (ordered[runs, (count - 1) // 2] + ordered[runs, count // 2])
    return np.where(usable.any(axis=-1), middle, np.nan)


def evenness_of(move: FloatArray) -> float:
    """|u|_1 / |u|_2; 1 for no move at all."""
    size = math.sqrt(np.einsum("j,j->", move, move))  # not norm(), whose BLAS wakes threads, slow on a busy machine
    return float(np.abs(move).sum()) / size if size > 0 else 1.0
