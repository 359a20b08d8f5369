"""Array aliases used in signatures."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
Int32Array: TypeAlias = npt.NDArray[np.int32]
AnyArray: TypeAlias = np.ndarray[Any, Any]
ArrayLike: TypeAlias = npt.ArrayLike

# A JAX array or tracer. Spelled Any so that modules which only pass one along need not import JAX.
JaxArray: TypeAlias = Any
