"""What fits into this machine's memory: what cannot is refused before anything is allocated."""

import math
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


@cache
def machine_memory() -> float:
    """Bytes of this machine, or fewer where a container may use fewer; infinite where nobody says."""
    sizes: list[float] = []
    with suppress(AttributeError, OSError, ValueError):  # not on Windows
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # there is none, or "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes, default=math.inf)


def check_memory(what: str, size: int, fix: str = "") -> None:
    """Refuse what takes `size` bytes if this machine has fewer.

    Parameters
    ----------
    what : str
        The subject of the sentence, with the number that is too large.
    size : int
        Bytes, roughly.
    fix : str
        What to do instead.
    """
    if size > (memory := machine_memory()):
        raise ValueError(
            f"{what} must fit into memory: about {size // 10**9:,} GB are needed, and this machine has "
            f"{memory / 1e9:,.1f} GB. {fix}".rstrip()
        )
