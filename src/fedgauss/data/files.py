"""Image and label files: IDX, the format of MNIST, gzipped or not, and npz. Nothing in them is ever executed.

A file is trusted only as far as it can be checked: sizes are read before memory is allocated, a file must end where
its header says, and archives may not hold pickles.
"""

import gzip
import math
import os
import struct
import zipfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

_LARGEST = 2**31  # bytes of one array; the 60,000 images of MNIST have 47 million

Bytes = npt.NDArray[np.uint8]


def read_images(path: str | os.PathLike[str]) -> Bytes:
    """Read images from an IDX file (.gz or not), or from the array `images` of an npz file.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    array of uint8 of shape (N, rows, columns)
    """
    return _read(path, "images", 3)


def read_labels(path: str | os.PathLike[str]) -> Bytes:
    """Read labels from an IDX file (.gz or not), or from the array `labels` of an npz file.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    array of uint8 of shape (N,)
    """
    return _read(path, "labels", 1)


def _read(path: str | os.PathLike[str], name: str, n_axes: int) -> Bytes:
    label = f"the file {os.fspath(path)!r}"
    with open(path, "rb") as file:
        start = file.read(4)
        file.seek(0)
        try:
            if start == b"PK\x03\x04":
                return _read_npz(label, file, name, n_axes)
            if start[:2] == b"\x1f\x8b":
                with gzip.open(file, "rb") as unpacked:
                    return _read_idx(label, unpacked, name, n_axes)
            return _read_idx(label, file, name, n_axes)
        except ValueError:
            raise
        except Exception as error:  # a damaged archive may break anything in the libraries that read it
            raise ValueError(f"{label} is cut off or damaged ({error}). Download it again?") from error


def _read_idx(label: str, file: IO[bytes] | gzip.GzipFile, name: str, n_axes: int) -> Bytes:
    """Two zero bytes, a type (8 for bytes), the number of axes, their lengths as big-endian 32-bit words, then data."""
    head = file.read(4 + 4 * n_axes)
    wanted = bytes([0, 0, 8, n_axes])
    if head[:4] != wanted:
        raise ValueError(
            f"{label} must hold {name}: an IDX file of bytes with {n_axes} axes, which begins {wanted.hex()}, "
            f"or an npz file; it begins {head[:4].hex() or 'with nothing'}. Are images and labels swapped?"
        )
    if len(head) < 4 + 4 * n_axes:
        raise ValueError(f"{label} is cut off inside its header, after {len(head)} bytes. Download it again?")
    return _read_array(label, file, struct.unpack(f">{n_axes}I", head[4:]))


def _read_npz(label: str, file: IO[bytes], name: str, n_axes: int) -> Bytes:
    with zipfile.ZipFile(file) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise ValueError(f"{label} must hold an array named {name!r}; it holds {archive.namelist()}.")
        with archive.open(f"{name}.npy") as member:
            shape, dtype = _npy_header(label, member)
            if dtype != np.uint8 or len(shape) != n_axes:
                raise ValueError(
                    f"{name} in {label} must be bytes, uint8, with {n_axes} axes; got {dtype} {shape}. "
                    "Save labels and pixels as uint8."
                )
            return _read_array(label, member, shape)


def _npy_header(label: str, member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(member)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(member)
    except ValueError as error:
        raise ValueError(f"{label} holds no readable NumPy array: {error}. Save it with np.savez.") from error
    if by_columns and len(shape) > 1:
        raise ValueError(f"{label} must hold arrays in C order. Save np.ascontiguousarray(array).")
    return shape, dtype


def _read_array(label: str, file: IO[bytes] | gzip.GzipFile, shape: tuple[int, ...]) -> Bytes:
    """The rest of a file, which must be as long as its header says."""
    size = math.prod(shape)
    if min(shape) < 0 or not 0 < size <= _LARGEST:
        raise ValueError(f"{label} must hold 1 to {_LARGEST} bytes of data; its header says {shape}.")
    data = file.read(size + 1)
    if len(data) != size:
        held = f"only {len(data)}" if len(data) < size else "more"
        raise ValueError(f"{label} must hold {size} bytes after its header; it holds {held}. Is it damaged?")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)
