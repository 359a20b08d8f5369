"""How far a sweep is, and the two errors that end it early."""

from __future__ import annotations

from dataclasses import dataclass

from fedgauss.sweep.cell import Cell


@dataclass(frozen=True)
class Summary:
    """How far a sweep is: cells asked for, found in the store, and run; and the seconds that went by."""

    total: int
    found: int
    run: int
    seconds: float

    @property
    def left(self) -> int:
        """Cells that are neither found nor run."""
        return self.total - self.found - self.run

    def __str__(self) -> str:
        return (
            f"{self.found + self.run} of {self.total} cells finished, {self.run} of them in these {self.seconds:.1f} s"
        )


class SweepError(RuntimeError):
    """A cell failed, or the worker that ran it died. What finished before is in the store.

    cell      the cell, or None where workers did not start
    summary   how far the sweep came
    """

    def __init__(self, message: str, cell: Cell | None = None) -> None:
        super().__init__(message)
        self.cell = cell
        self.summary: Summary | None = None

    @classmethod
    def failed(cls, cell: Cell | None, reason: str, trace: str = "") -> SweepError:
        """The error for a cell that cannot be run, with the traceback of the worker that tried."""
        stop = "" if reason.endswith((".", "?")) else "."
        error = cls(f"{cell} failed with {reason}{stop} Finished cells are kept: mend this and run again.", cell)
        if trace:
            error.add_note(f"In the worker:\n{trace}")
        return error


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C. `summary` says how far the sweep came; the same call goes on from there."""

    def __init__(self, summary: Summary) -> None:
        super().__init__(str(summary))
        self.summary = summary


def in_words(error: Exception) -> str:
    """The kind of an error and its message, as one line of a traceback has them."""
    return f"{type(error).__name__}: {error}"
