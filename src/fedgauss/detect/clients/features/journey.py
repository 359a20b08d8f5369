"""The angle to where the run went before."""

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import Beside, Feature, Moves, Sent, angle
from fedgauss.detect.clients.sketch import Single

_ROUNDING = 1e-3  # of float32 sums of thousands


class _Along(Feature):
    """atanh cos(u_k, j), with j a direction that the run had in earlier rounds."""

    rule = "parts of moves along the run must not be longer than the move; one is."
    optional = True
    tolerance = 0.005  # clients' angles to one direction vary by as little as .03 once a run is long

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return angle(moves.fields[self.field] / beside.size)

    def scaled(self, numbers: FloatArray, scales: FloatArray, before: FloatArray) -> FloatArray:
        """As long; where the run went is left as it is."""
        return np.asarray(numbers * scales)

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these numbers can be right, (P,)."""
        return np.asarray(np.isnan(numbers) | (np.abs(numbers) <= (1 + _ROUNDING) * size))


class Journey(_Along):
    """With j the sum of the mean moves of all rounds before: the way from the start to the model that was sent.

    Or, where the model is given, with j the model itself, which is the way from zero and tells more: of sign flips
    .86 are below one in a hundred honest clients, and .57 without it (development, Dirichlet .5).

    Training goes on from where it is: honest moves of all clients have a part along it, which a flipped sign turns.
    """

    name = "journey"
    field = "along_journey"

    def measured(self, sent: Sent) -> FloatArray:
        """What travels, (P,); NaN before there is a way."""
        return _along(sent, sent.journey)


class Course(_Along):
    """With j the average mean move of the last rounds, each counting a tenth less than the next."""

    name = "course"
    field = "along_course"

    def measured(self, sent: Sent) -> FloatArray:
        """What travels, (P,); NaN before there is a round."""
        return _along(sent, sent.course)


def _along(sent: Sent, way: Single) -> FloatArray:
    length = float(np.sqrt(way @ way)) if way.size else 0.0
    return (sent.short @ way).astype(np.float64) / length if length > 0 else np.full(len(sent.short), np.nan)
