"""Ctrl-C that waits for a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class CtrlC:
    """Within this context Ctrl-C raises KeyboardInterrupt inside `let_in()`, or else where the context ends.

    So it never comes between a started process and the list it is kept in, between a written row and its count, or
    a second time while the first is tidied up after. Where Ctrl-C does something else already (a handler of the
    caller's, another thread than the main one) it is left as it is.
    """

    def __init__(self) -> None:
        self._pressed = self._welcome = self._ours = False

    def __enter__(self) -> CtrlC:
        in_main = threading.current_thread() is threading.main_thread()
        self._ours = in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed and error is None:
            raise KeyboardInterrupt

    @contextmanager
    def let_in(self) -> Iterator[None]:
        """A stretch of code that Ctrl-C may cut short."""
        self._welcome = True
        try:
            if self._pressed:
                raise KeyboardInterrupt
            yield
        finally:
            self._welcome = False

    def _press(self, *_: object) -> None:
        self._pressed = True
        if self._welcome:
            self._welcome = False  # what follows is tidying up
            raise KeyboardInterrupt
