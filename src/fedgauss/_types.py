"""Array aliases used in signatures."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
ArrayLike: TypeAlias = npt.ArrayLike

# A JAX array or tracer. Spelled Any so that modules which only pass one along need not import JAX.
JaxArray: TypeAlias = Any
