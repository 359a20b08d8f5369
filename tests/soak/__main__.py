"""`python -m soak`: the command behind `make soak`."""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from soak.processes import write_bytecode
from soak.report import record, stories, table
from soak.runner import Soak
from soak.scenarios import SCENARIOS

_GRACE = 300.0  # seconds that a fault may take to come to its end


def main() -> int:
    """Exit code 0 when everything held after every fault, else 1."""
    given = _arguments()
    chosen = [kind for kind in SCENARIOS if not given.only or kind.name in given.only]
    if importlib.util.find_spec("flwr") is None and any(kind.name == "flower" for kind in chosen):
        print("Flower is not installed here: its scenario is left out.")
        chosen = [kind for kind in chosen if kind.name != "flower"]
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="soak-")) if given.folder is None else given.folder
    print(f"Seed {seed}, folder {folder}; Ctrl-C ends.", flush=True)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; processes would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    write_bytecode()
    soak = Soak(chosen, folder, seed, given.seconds, given.faults)
    signal.signal(signal.SIGTERM, lambda *_: soak.stop.set())
    soak.start()
    try:
        _watch(soak, given.seconds)
    except KeyboardInterrupt:
        print("\nStopping after the faults that are under way; Ctrl-C again ends at once.", flush=True)
        soak.stop.set()
        with suppress(KeyboardInterrupt):
            soak.join(_GRACE)
    hung = soak.running
    soak.clear()
    seconds = time.monotonic() - soak.began
    print(f"\n{table(soak.outcomes)}")
    if told := stories(soak.outcomes):
        print(f"\n{told}")
    if hung:
        print(f"\nThese did not come to an end: {', '.join(hung)}.")
    only = "".join(f" ONLY={name}" for name in given.only or ())
    print(f"\n{seconds:.0f} s. Repeat with: make soak SECONDS={given.seconds:.0f} SEED={seed}{only}", flush=True)
    if given.json is not None:
        given.json.write_text(record(soak.outcomes, seed, seconds) + "\n")
    return 1 if told or hung else 0


def _watch(soak: Soak, seconds: float) -> None:
    """A line of progress until all scenarios are over; one that hangs long after the end is given up."""
    shown = sys.stderr.isatty()
    last = 0.0
    while soak.running and time.monotonic() - soak.began < seconds + _GRACE:
        time.sleep(0.2)
        now = time.monotonic() - soak.began
        if now - last >= (1.0 if shown else 60.0):
            last = now
            failed = sum(bool(outcome.story) for outcome in soak.outcomes)
            text = f"{now:6.0f} s: {len(soak.outcomes)} faults, {failed} not recovered"
            print(f"\r{text}" if shown else text, end="" if shown else "\n", file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long; faults that are under way are finished")
    parser.add_argument("--seed", type=int, help="repeats a schedule of faults")
    parser.add_argument("--faults", type=int, help="most faults of each scenario")
    parser.add_argument("--only", action="append", choices=[kind.name for kind in SCENARIOS], help="one scenario")
    parser.add_argument("--folder", type=Path, help="where logs are kept")
    parser.add_argument("--json", type=Path, help="where to write the table as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
