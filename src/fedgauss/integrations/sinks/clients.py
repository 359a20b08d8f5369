"""A run's clients as a log that `fedgauss watch` follows."""

import json
import math
import os

from fedgauss._files import append_private
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.lines import round_to_json, settings_to_json


class ClientLog:
    """A sink that appends a line of JSON a round, from which `fedgauss watch` judges it as the monitor did, to the bit.

    Parameters
    ----------
    path : str or path-like
        The file; it is added to, as after `ClientMonitor.load`. After `reset` begin another.
    monitor : ClientMonitor
        Whose rounds they are; for Flower that of `Clients`.

    Notes
    -----
    A line has inner products of what clients changed, two numbers a client, who was left out, and the round as the
    monitor counts: 1.7 kB with ten clients, 0.1 MB with a hundred, whatever the model. It tells lengths and angles of
    what clients changed, but not what; the sketch's secret seed is not in it.

    Examples
    --------
    ::

        log = client_log("run.jsonl", monitor)
        verdict = monitor.update(moves)
        log(verdict.round, verdict)
        log.add(accuracy=0.91)      # when it is known
    """

    def __init__(self, path: str | os.PathLike[str], monitor: ClientMonitor) -> None:
        if not isinstance(monitor, ClientMonitor):
            raise ValueError(f"monitor must be a ClientMonitor; got {type(monitor).__name__}.")
        self._monitor, self._last = monitor, monitor.round  # the last round that is in the log
        self._file = append_private(path)  # held open for the run
        self._write(settings_to_json(monitor))

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Write the round that the monitor judged last, or that an update was refused after it."""
        monitor = self._monitor
        if verdict.invalid:
            self._write(json.dumps({"round": monitor.round + 1, "refused": verdict.note[:1000]}))
        elif monitor.compared is None:
            raise ValueError("client_log needs a round; the monitor has judged none yet. Call update first.")
        else:
            before = tuple(out for out in monitor.exclusions if self._last <= out.round < monitor.round)
            self._write(round_to_json(monitor.round, monitor.compared, before))
            self._last = monitor.round

    def add(self, accuracy: float | None = None, loss: float | None = None) -> None:
        """What the page draws below the clients, for the last round; numbers that are not finite are left out.

        Parameters
        ----------
        accuracy, loss : float, optional
            Of the model after the round.
        """
        numbers = {"accuracy": accuracy, "loss": loss}
        known = {name: float(value) for name, value in numbers.items() if value is not None and math.isfinite(value)}
        if known:
            self._write(json.dumps({"round": self._monitor.round, **known}))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()
