"""Ctrl-C between parts of the work, and not in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], None]]:
    """Note the first Ctrl-C, and give a function that raises KeyboardInterrupt once it was pressed.

    JAX may lose a KeyboardInterrupt, or crash, when one is raised inside its callbacks, its import or its
    compiler. So work calls the function between its parts; whoever presses Ctrl-C twice is obeyed at once.
    """
    pressed = False

    def on_signal(number: int, frame: Any) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only the main thread hears signals
        yield check
        return
    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, previous)
