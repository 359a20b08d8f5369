"""The functions that suit an array: NumPy's and SciPy's or JAX's, so that one formula serves both."""

import sys
from types import ModuleType
from typing import Any

import numpy as np


def numpy_for(array: Any) -> ModuleType:
    """`numpy`, or `jax.numpy` for an array of JAX's."""
    return np if isinstance(array, np.ndarray | float) else sys.modules["jax.numpy"]


def special_for(array: Any) -> ModuleType:
    """`scipy.special`, or JAX's for an array of JAX's."""
    if isinstance(array, np.ndarray | float):
        from scipy import special

        return special
    from jax.scipy import special as of_jax

    return of_jax
