"""Families whose response is a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.base import Family, require

_MOST_CLASSES = 50


class ByClass(Family):
    """y is the number of a class; which of them have an output is up to the family."""

    by_class = True
    needs = "classes"

    def read(self, target: str, values: FloatArray, levels: Sequence[Any] | None) -> FloatArray:
        """The numbers of the classes, of which there are from 3 to 50."""
        if levels is not None and len(levels) > _MOST_CLASSES:
            raise ValueError(
                f"{self.name} needs classes, at most {_MOST_CLASSES}; {target!r} has {len(levels):,} values."
            )
        if levels is not None and len(levels) == 2:
            raise ValueError(f"{self.name} needs three classes or more; {target!r} has two. Use family='binomial'.")
        return values

    def check_response(self, response: FloatArray) -> None:
        """Classes are numbered from 0."""
        classes = np.arange(self.n_classes or 0)
        rule = f"{self.name} responses must be classes 0 to {len(classes) - 1}"
        require(np.isin(response, classes), response, rule, "Number the classes from 0, or set n_classes.")

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Each class against all others: if a plane can tell one from the rest, its coefficients have no bound."""
        return [np.where(response == label, 1.0, -1.0) for label in range(self.n_classes or 0)]
