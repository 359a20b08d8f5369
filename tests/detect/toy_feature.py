"""A feature of one's own: the part of a move's length that its largest coordinate has."""

import numpy as np

from fedgauss.detect.clients.features import Feature


class Peak(Feature):
    """log (max_j |u_kj| / |u_k|)."""

    name = "peak"
    field = "peak"
    rule = "peak must lie between 0 and 1; one does not."
    tolerance = 0.1
    share = 0.1

    def values(self, moves, beside):
        return np.log(np.maximum(moves.fields[self.field], 1e-9))

    def measured(self, sent):
        return np.array([np.abs(u).max() for u in sent.moves]) / np.maximum(sent.length, 1e-30)

    def allowed(self, numbers, size):
        return (numbers >= 0) & (numbers <= 1 + 1e-6)
