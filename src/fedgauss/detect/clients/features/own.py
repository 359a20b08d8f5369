"""The angle to the client's own past."""

import math

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import Angle, Beside, Moves, Sent, angle

KEPT = 0.9  # of a client's average direction, from round to round
_ROUNDING = 1e-3  # of float32 sums of thousands
_TINY = 1e-37  # where float32 products vanish


class Own(Angle):
    """atanh cos(u_k, e_k), with e_k the unit vector of the client's average direction where u_k is not 0.

    What a client did not send, as under top-k compression, is missing and no zero.
    """

    name = "own direction"
    field = "along_own"  # <u_k, e_k>
    rule = "along_own must be parts of the clients' moves; one is longer than the move."

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return angle(moves.fields[self.field] / beside.size)

    def measured(self, sent: Sent) -> FloatArray:
        """What travels, (P,)."""
        there = sent.past if sent.short.all() else sent.past * (sent.short != 0)
        length = np.sqrt(np.einsum("pj,pj->p", there, there).astype(np.float64))
        along = np.einsum("pj,pj->p", sent.short, there).astype(np.float64)
        # Who sends nothing of what it ever sent has no part along its past, and no way out of being judged.
        nothing = np.where(sent.past.any(axis=1), 0.0, np.nan)
        return np.divide(along, length, out=nothing, where=length > 0)

    def scaled(self, numbers: FloatArray, scales: FloatArray, before: FloatArray) -> FloatArray:
        """As long, and with n opposite rounds behind it less opposed to its past: by 2 (.9)^n - 1."""
        turned = np.where(scales < 0, 2.0 * KEPT**before - 1.0, 1.0)
        return np.asarray(numbers * scales * turned)

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these can be right, (P,)."""
        return np.asarray(np.isnan(numbers) | (np.abs(numbers) <= (1 + _ROUNDING) * size + math.sqrt(_TINY)))
