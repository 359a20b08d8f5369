"""One thread at a time: a lock that belongs to one object and does not go with its copies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class OwnLock:
    """A reentrant lock. A copy of it is another lock, so that objects that hold one can be copied and pickled."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[OwnLock], tuple[()]]:  # for copy and deepcopy, too
        return OwnLock, ()


class _HasLock(Protocol):
    _lock: OwnLock


P = ParamSpec("P")
Result = TypeVar("Result")
Holder = TypeVar("Holder", bound=_HasLock)


def locked(method: Callable[Concatenate[Holder, P], Result]) -> Callable[Concatenate[Holder, P], Result]:
    """A method that waits while another thread is in a locked method of the same object."""

    @wraps(method)
    def waiting(self: Any, *args: P.args, **kwargs: P.kwargs) -> Result:
        with self._lock:
            return method(self, *args, **kwargs)

    return waiting
