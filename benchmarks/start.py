"""How long a start takes: `import fedgauss` beside `import numpy`, and `fedgauss --help`."""

from __future__ import annotations

import subprocess
import sys

import common

REPEATS = 10

PROGRAMS = {
    "python": ["-c", "pass"],
    "numpy": ["-c", "import numpy"],
    "fedgauss": ["-c", "import fedgauss"],
    "advise": ["-c", "import fedgauss; fedgauss.advise(5000, 40)"],
    "help": ["-m", "fedgauss", "--help"],
}


def run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


def figures(say: common.Say) -> list[common.Figure]:
    say(f"{len(PROGRAMS)} programs, {REPEATS} times each")
    for arguments in PROGRAMS.values():
        run(arguments)  # the first compiles bytecode
    # In turns, so that all meet the same load; the quickest of each, because other work only ever adds.
    rounds = [{name: common.seconds(lambda a=a: run(a)) for name, a in PROGRAMS.items()} for _ in range(REPEATS)]
    best = {name: min(each[name] for each in rounds) for name in PROGRAMS}
    return [
        common.Figure("python alone", best["python"], "s"),
        common.Figure("import numpy", best["numpy"], "s"),
        common.Figure("import fedgauss", best["fedgauss"], "s"),
        common.Figure("import fedgauss / import numpy", best["fedgauss"] / best["numpy"], "times", "at most 1.5"),
        common.Figure("import fedgauss and advise", best["advise"], "s"),
        common.Figure("fedgauss --help", best["help"], "s", "at most 0.6"),
    ]
