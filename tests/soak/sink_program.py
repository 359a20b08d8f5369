"""Sinks in a run of their own: `python -m soak.sink_program FILE URL`; each line on standard input is a round."""

from __future__ import annotations

import json
import sys
import warnings

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.sinks import Sinks, json_lines, webhook


def main(path: str, url: str) -> None:
    """Say when each round is told."""
    warnings.simplefilter("always")
    tell = Sinks([json_lines(path), webhook(url, timeout=1.0)])
    print("ready", flush=True)
    for line in sys.stdin:
        number, alarm = json.loads(line)
        tell(number, Verdict(alarm, 9.0 if alarm else 1.0, 5.0, "mean", number, 20 * number, 20, 0, 0.05))
        print(f"told {number}.", flush=True)
    tell.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
