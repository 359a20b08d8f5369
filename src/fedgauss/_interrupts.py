"""Ctrl-C that waits for a good moment: between two parts of the work, and not in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType


class CtrlC:
    """Within this context Ctrl-C raises KeyboardInterrupt only inside `let_in()`, or else where the context ends.

    So it never falls between starting a process and listing it, between writing a row and counting it, or a second
    time while the first is being cleaned up after. Where Ctrl-C already does something else (a handler of the caller's,
    SIGINT ignored, another thread than the main one) it is left alone.
    """

    def __init__(self) -> None:
        self._pressed = self._welcome = self._ours = False

    def __enter__(self) -> CtrlC:
        self._ours = _has_default_handler()
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
            self._welcome = False  # what follows is clean-up
            raise KeyboardInterrupt


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Note the first Ctrl-C, and yield a function that raises KeyboardInterrupt once it has been pressed.

    JAX may lose a KeyboardInterrupt, or crash, when one is raised inside its callbacks, its import or its
    compiler. So work calls the function between its parts. A second Ctrl-C is obeyed at once. As with `CtrlC`, other
    handlers are left alone.
    """
    pressed = False

    def on_signal(*_: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if not _has_default_handler():
        yield check
        return
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_default_handler() -> bool:
    """Whether Ctrl-C raises KeyboardInterrupt here; only the main thread hears signals."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
