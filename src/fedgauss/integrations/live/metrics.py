"""A watch in numbers, in the text format of Prometheus, version 0.0.4."""

import math
import os
from collections.abc import Iterator, Mapping

from fedgauss.integrations.live.run import Run

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics(run: Run, refused: Mapping[str, int]) -> str:
    """The answer to a scrape; `refused` counts connections that were closed early, by reason."""
    lines = []
    for name, kind, help_, samples in _families(run, refused):
        lines += [f"# HELP {name} {help_}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{labels} {_number(value)}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def _families(run: Run, refused: Mapping[str, int]) -> Iterator[tuple[str, str, str, dict[str, float]]]:
    """Name, type, help, and samples by their labels."""
    with run.lock:
        health, alarmed, ratio = run.health(), run.alarm is not None, _ratio(run)
        raised, silence = run.pulse.alarms, run.pulse.silence(None)
    yield "fedgauss_watch_rounds_total", "counter", "Rounds taken.", {"": health.taken}
    yield "fedgauss_watch_refused_total", "counter", "Lines and POSTs refused.", {"": health.refused}
    yield "fedgauss_watch_alarms_total", "counter", "Alarms raised since the watcher began.", {"": raised}
    yield "fedgauss_watch_alarm", "gauge", "1 while an alarm is on.", {"": alarmed}
    yield "fedgauss_watch_watching", "gauge", "1 if an attack in the next round would be seen.", {"": health.watching}
    yield "fedgauss_watch_blind", "gauge", "1 if the state is NOT WATCHING.", {"": health.state == "not watching"}
    yield "fedgauss_watch_silence_seconds", "gauge", "Since the last round, or the watcher's start.", {"": silence}
    if ratio is not None:
        yield "fedgauss_watch_ratio", "gauge", "Statistic over threshold after the last round judged.", {"": ratio}
    by_reason = {f'{{reason="{reason}"}}': float(count) for reason, count in refused.items()}
    yield "fedgauss_watch_connections_refused_total", "counter", "Connections closed early, by reason.", by_reason
    if (memory := _resident()) is not None:
        yield "process_resident_memory_bytes", "gauge", "Memory of the watcher.", {"": memory}


def _number(value: float) -> str:
    """As the format spells it."""
    if math.isnan(value):
        return "NaN"
    return repr(float(value)) if math.isfinite(value) else "+Inf" if value > 0 else "-Inf"


def _ratio(run: Run) -> float | None:
    """Statistic over threshold, the largest of all channels; above 1 is an alarm."""
    readings = [] if run.verdict is None else (run.verdict.readings or [run.verdict])
    return max((reading.statistic / reading.threshold for reading in readings if reading.threshold), default=None)


def _resident() -> float | None:
    """Bytes; None where there is no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
