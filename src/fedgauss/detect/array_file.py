"""Arrays by name in an .npz file, whose sizes are checked first: what is read is never larger than the file.

NumPy writes such files without compression. One that is compressed may hold a thousand times its own size, and a header
may promise an array that is not there: both are refused.
"""

import math
import os
import struct
import zipfile
from typing import IO, Any

import numpy as np
import numpy.typing as npt

LARGEST = 4_000_000_000  # bytes of a file; beyond 4 GiB the zip format is another one
_MOST_ARRAYS = 1_000
_LONGEST_DIRECTORY = 1_000_000  # bytes
_END = struct.Struct("<4s4H2LH")  # of the directory, the last thing in the file: its size is the sixth entry
_LARGE_FORMAT = b"PK\x06\x07"
_SUFFIX = ".npy"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class ArrayFile:
    """An open .npz file.

    Parameters
    ----------
    file : file
        Open for reading bytes, and longer than what is read.

    Attributes
    ----------
    sizes : dict of str to int
        Bytes of every array, by name.
    """

    def __init__(self, file: IO[bytes]) -> None:
        size = file.seek(0, os.SEEK_END)
        if size > LARGEST:
            raise ValueError(f"it has {size:,} bytes, and at most {LARGEST:,} are read")
        _check_directory(file, size)
        self._zip = zipfile.ZipFile(file)
        members = self._zip.infolist()
        self._members = {member.filename.removesuffix(_SUFFIX): member for member in members}
        self.sizes = {name: member.file_size for name, member in self._members.items()}
        if len(members) > _MOST_ARRAYS or len(self.sizes) != len(members):
            raise ValueError(f"it must hold at most {_MOST_ARRAYS:,} arrays, each under a name of its own")
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
                raise ValueError("its arrays must not be compressed")
        if sum(self.sizes.values()) > size:
            raise ValueError("its arrays must not be larger than the file")

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """An array of numbers or truths."""
        member = self._members[name]
        with self._zip.open(member) as file:
            shape, column_first, dtype = _HEADERS[np.lib.format.read_magic(file)](file)
            left = member.file_size - file.tell()
            fits = min(shape, default=0) >= 0 and math.prod(shape) * dtype.itemsize == left
            if dtype.kind not in "biuf" or not fits:
                raise ValueError(f"an array must have as many numbers as its shape says; {name[:60]!r} has not")
            array = np.frombuffer(file.read(), dtype=dtype).reshape(shape, order="F" if column_first else "C")
        return array.astype(dtype.newbyteorder("="), order="C")  # a copy that can be written to


def _check_directory(file: IO[bytes], size: int) -> None:
    """The directory is read whole before anything in it can be looked at."""
    file.seek(max(size - _END.size - 20, 0))
    end = file.read()
    if len(end) < _END.size or _LARGE_FORMAT in end[: -_END.size]:
        raise ValueError("it must be an .npz file")
    mark, *_, length, _, comment = _END.unpack(end[-_END.size :])
    if mark != b"PK\x05\x06" or comment or length > _LONGEST_DIRECTORY:
        raise ValueError("it must be an .npz file, and end with a short directory")
