"""Programs that tests start as sites: one that answers, and may kill itself, talk first or take its time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fedgauss

# Tables, and how often an order is heard before the site kills itself; what it says first, and how long it thinks.
ANSWERS = """
import argparse, os, signal, sys, time
from fedgauss._files import append_private
from fedgauss.federated.site import Site
from fedgauss.federated.wire import lines_of, serve_lines
from fedgauss.inference.tables import read_table

parser = argparse.ArgumentParser()
parser.add_argument("table")
parser.add_argument("--log")
parser.add_argument("--die-at", default="")
parser.add_argument("--times", type=int, default=1)
parser.add_argument("--banner", default="")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--pid")
given = parser.parse_args()
if given.pid:
    open(given.pid, "w").write(str(os.getpid()))
print(given.banner, end="", flush=True)

def orders():
    heard = 0
    for line in lines_of(sys.stdin.buffer):
        heard += f'"order":"{given.die_at}"' in line
        if given.die_at and heard == given.times:
            print("the disk is full", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if '"order":"hear"' in line:
            time.sleep(given.pause)
        yield line

log = append_private(given.log) if given.log else None
site = Site(read_table(given.table), given.table)
serve_lines(site.answer, orders(), sys.stdout, log)
site.close()
"""


def site_program(folder: Path) -> Path:
    """The program as a file, for commands that are one line of text."""
    path = folder / "answers.py"
    path.write_text(ANSWERS, encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    """With this package on the path, and one thread each."""
    paths = [str(Path(fedgauss.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OPENBLAS_NUM_THREADS": "1"}


def python(program: Path, *options: object) -> list[str]:
    """A command."""
    return [sys.executable, str(program), *map(str, options)]
