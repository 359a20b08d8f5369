"""Objects that can be stored and go on to the bit: their state is some of their attributes, as arrays by name."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

Arrays = Mapping[str, npt.NDArray[Any]]


class Saved:
    """Base of what a monitor stores.

    Attributes
    ----------
    saved : tuple of str
        The attributes that change from round to round. Each is an int, a float, an array, or itself a `Saved`.
    unfilled : tuple of str
        Those of them that may hold NaN, in place of what is not known yet.

    Notes
    -----
    A state that is restored must be of the kind that the object has: numbers of the same kind, finite, and arrays of
    the same shape. Only an axis that is empty in a fresh object may have grown.
    """

    saved: ClassVar[tuple[str, ...]] = ()
    unfilled: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """The saved attributes as arrays; those of a `Saved` attribute come with its name and a dot in front."""
        held: dict[str, npt.NDArray[Any]] = {}
        for name in self.saved:
            value = getattr(self, name)
            held |= prefixed(f"{name}.", value.state()) if isinstance(value, Saved) else {name: np.asarray(value)}
        return held

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned, on a fresh object; a ValueError where it does not fit."""
        for name in self.saved:
            value = getattr(self, name)
            if isinstance(value, Saved):
                value.restore(part(arrays, f"{name}."))
                continue
            if name not in arrays:
                raise ValueError(f"{name} is missing")
            array = _fitting(name, arrays[name], np.asarray(value), name in self.unfilled)
            setattr(self, name, array if isinstance(value, np.ndarray) else type(value)(array))

    def copied(self) -> Self:
        """Another one with a state of its own."""
        other = copy.copy(self)
        for name in self.saved:
            value = getattr(self, name)
            if isinstance(value, Saved):
                setattr(other, name, value.copied())
            elif isinstance(value, np.ndarray):
                setattr(other, name, value.copy())
        return other


def _fitting(name: str, given: npt.NDArray[Any], like: npt.NDArray[Any], may_be_nan: bool) -> npt.NDArray[Any]:
    """A copy of the array, if it is one that can take the place of another."""
    pairs = zip(given.shape, like.shape, strict=False)
    if given.dtype.kind != like.dtype.kind or given.ndim != like.ndim or any(m and n != m for n, m in pairs):
        shape = tuple(size or "any" for size in like.shape)
        raise ValueError(f"{name} must be {like.dtype} of shape {shape}; it is {given.dtype} of shape {given.shape}")
    array = np.array(given, dtype=like.dtype)
    if array.dtype.kind == "f" and not (~np.isinf(array) if may_be_nan else np.isfinite(array)).all():
        raise ValueError(f"{name} must be finite")
    return array


def prefixed(prefix: str, arrays: Arrays) -> dict[str, npt.NDArray[Any]]:
    """The arrays under longer names."""
    return {prefix + name: array for name, array in arrays.items()}


def part(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
