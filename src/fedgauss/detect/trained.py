"""What of a model is trained, and so judged: no counters, masks and running statistics, which batches move."""

import re

import numpy as np
import numpy.typing as npt

# As torch and Keras name the buffers of a normalisation, after the name of its layer.
_BUFFER = re.compile(r"(.*[./])?(running_mean|running_var|num_batches_tracked|moving_mean|moving_variance)(:\d+)?")


def is_trained(name: str, dtype: np.dtype[np.generic]) -> bool:
    """Whether an array of that name and type counts; where arrays have no names, the type alone tells."""
    return dtype.kind not in "iub" and _BUFFER.fullmatch(name) is None


def real_numbers(what: str, array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """An array as float32 where it is that, and else as float64; a ValueError where its type holds no move."""
    kind = array.dtype.kind
    if kind == "u":
        raise ValueError(
            f"{what} must not be of unsigned integers, in which differences wrap round; got {array.dtype}. "
            "Subtract floating-point numbers?"
        )
    if kind not in "fi" and array.dtype.name != "bfloat16":
        raise ValueError(f"{what} must consist of real numbers; got {array.dtype} values.")
    return array if array.dtype == np.float32 else array.astype(np.float64)
