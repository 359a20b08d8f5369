"""A progress bar in a notebook, by its own means: no widgets, and nothing left when it is done."""

from __future__ import annotations

import sys
import time
from html import escape

_PAUSE = 0.2  # seconds between two pictures of a bar


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook. Where IPython was never loaded it is not loaded for this."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None  # a terminal's IPython has none


class NotebookBar:
    """One output of a cell, drawn again and again and empty at the end."""

    def __init__(self, label: str) -> None:
        from IPython.display import display

        self._label = label
        self._drawn = 0.0
        self._output = display(self._picture(0.0, 1.0, ""), raw=True, display_id=True)

    def update(self, done: float, total: float, status: str) -> None:
        """Move the bar, a few times a second at most."""
        if time.monotonic() - self._drawn > _PAUSE:
            self._drawn = time.monotonic()
            self._output.update(self._picture(done, total, status), raw=True)

    def stop(self) -> None:
        """Take the bar away."""
        self._output.update({"text/plain": "", "text/html": ""}, raw=True)

    def _picture(self, done: float, total: float, status: str) -> dict[str, str]:
        words = f"{self._label} {status}".strip()
        bar = f'<progress value="{done:g}" max="{total:g}" style="width: 16em"></progress>'
        return {"text/plain": words, "text/html": f"<div>{escape(self._label)} {bar} {escape(status)}</div>"}
