"""Vectors whose entries have names: NumPy arrays to NumPy, and `fit.params["age"]` to a reader."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedgauss._types import ArrayLike


class Named(np.ndarray[Any, np.dtype[np.float64]]):
    """A vector of numbers, each of which has a name.

    It is an ndarray: `vector[0]`, `vector[1:]`, `X @ vector` and every function of NumPy work as ever, and what they
    return is an ordinary array. Functions that act entry by entry keep the names, so that
    ``np.exp(fit.params)["age"]`` is an odds ratio.

    Parameters
    ----------
    values : (d,) array_like
        The numbers; they are copied.
    names : sequence of str
        One for each.

    Examples
    --------
    >>> params = Named([-1.5, 0.25], ["const", "age"])
    >>> float(params["age"]), float(params[1])
    (0.25, 0.25)
    >>> params[["age", "const"]]
    array([ 0.25, -1.5 ])
    >>> params
    const   -1.5
    age     0.25
    """

    names: tuple[str, ...]

    def __new__(cls, values: ArrayLike, names: Sequence[str]) -> Named:
        """A copy of the values under these names."""
        array = np.array(values, dtype=float)
        if array.shape != (len(names),):
            raise ValueError(f"names must be as many as values; got {len(names)} for an array of shape {array.shape}.")
        vector = array.view(cls)
        vector.names = tuple(names)
        return vector

    def __array_finalize__(self, template: Any) -> None:
        self.names = ()  # of a copy, which may be sorted in place: only what is known to keep the order keeps names

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return np.asarray(self)[self._place(key)]
        if isinstance(key, list | tuple) and key and all(isinstance(each, str) for each in key):
            return np.asarray(self)[[self._place(each) for each in key]]
        return np.asarray(self)[key]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        given = [other.names for other in inputs if isinstance(other, Named)]
        if "out" in options:
            options["out"] = tuple(_plain(array) for array in options["out"])
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        by_entry = method == "__call__" and ufunc.signature is None and len(set(given)) == 1
        if by_entry and isinstance(result, np.ndarray) and result.shape == (len(given[0]),) and result.dtype == float:
            return Named(result, given[0])
        return result

    def __reduce__(self) -> Any:
        return (Named, (np.asarray(self), self.names)) if self.names else np.asarray(self).__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return Named(self, self.names) if self.names else np.array(self)

    def __repr__(self) -> str:
        if not self.names:
            return repr(np.asarray(self))
        values = [f"{value:.6g}" for value in self.tolist()]
        wide, high = max(map(len, self.names)), max(map(len, values))
        lines = [f"{name.ljust(wide)}   {value.rjust(high)}" for name, value in zip(self.names, values, strict=True)]
        return "\n".join(lines)

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(no_such_name(name, self.names))
        return self.names.index(name)


def no_such_name(name: Any, names: Sequence[str]) -> str:
    """What to say about a name that no parameter has: the nearest, or those there are."""
    lower = {each.lower(): each for each in names}
    near = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)
    if near:
        return f"no parameter is named {name!r}. Did you mean {lower[near[0]]!r}?"
    some = ", ".join(map(repr, names[:8])) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"no parameter is named {name!r}. There are {some or 'no names any more: this is a copy or a part'}."


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, Named) else value
