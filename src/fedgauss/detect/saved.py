"""Objects that can be stored and go on to the bit: their state is some of their attributes, as arrays by name."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


class Saved:
    """Base of what a monitor stores.

    Attributes
    ----------
    saved : tuple of str
        The attributes that change from round to round. Each is an int, a float, an array, or itself a `Saved`.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The saved attributes as arrays; those of a `Saved` attribute come with its name and a dot in front."""
        held: dict[str, npt.NDArray[Any]] = {}
        for name in self.saved:
            value = getattr(self, name)
            held |= prefixed(f"{name}.", value.state()) if isinstance(value, Saved) else {name: np.asarray(value)}
        return held

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        for name in self.saved:
            value = getattr(self, name)
            if isinstance(value, Saved):
                value.restore(part(arrays, f"{name}."))
            elif isinstance(value, np.ndarray):
                if np.ndim(arrays[name]) != value.ndim:
                    raise ValueError(f"{name} must have {value.ndim} axes")
                setattr(self, name, np.array(arrays[name], dtype=value.dtype))
            else:
                setattr(self, name, type(value)(arrays[name]))


def prefixed(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The arrays under longer names."""
    return {prefix + name: array for name, array in arrays.items()}


def part(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
