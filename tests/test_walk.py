"""How many files of the package a fit goes through, and how often it goes from one to another: what a reader does."""

import json
import subprocess
import sys

import numpy as np

FITTED = (20, 400)  # files, and switches between them
FEDERATED = 35  # files, where sites are other processes
WALK = """
import json, pathlib, sys, threading
import fedgauss as fg

root, walked = str(pathlib.Path(fg.__file__).parent), []

def imports(frame):
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root)):
        frame = frame.f_back
    return frame is not None

def note(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root) and walked[-1:] != [name] and not imports(frame):
        walked.append(name)

def walk(act):
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        print(json.dumps(walked), file=sys.stderr)
"""
FIT = """
import numpy as np

rng = np.random.default_rng(0)
rows = {"hospital": rng.integers(0, 4, 600), "age": rng.normal(size=600), "dose": rng.normal(size=600)}
rows["died"] = (rng.random(600) < 1 / (1 + np.exp(-rows["age"]))).astype(int)
fg.fit(rows, "died", client="hospital", family="binomial")  # what is loaded once
walk(lambda: fg.fit(rows, "died", client="hospital", family="binomial"))
"""
FEDERATE = """
from fedgauss.cli import app

walk(lambda: app(sys.argv[1:], prog_name="fedgauss"))
"""


def _files(script: str, *arguments: str, **options: object) -> list[str]:
    """The files that are gone through, in order, as often as they are come to."""
    command = [sys.executable, "-c", WALK + script, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, **options)  # type: ignore[call-overload]
    files: list[str] = json.loads(ran.stderr.splitlines()[-1])
    return files


def test_a_reader_can_follow_a_fit_of_600_rows() -> None:
    """A logistic fit of four hospitals. A helper in a file of its own, called at every step, would be found."""
    walked = _files(FIT)
    assert len(set(walked)) <= FITTED[0]
    assert len(walked) - 1 <= FITTED[1]


def test_a_reader_can_follow_a_fit_of_two_sites(tmp_path) -> None:
    """A masked logistic fit by the command, which carries the messages of two sites and prints the result."""
    rng = np.random.default_rng(0)
    sites = []
    for name in ("a", "b"):
        age, died = rng.normal(50.0, 10.0, 200), rng.integers(0, 2, 200)
        sex = rng.choice(["f", "m"], 200)
        lines = [f"{one:.2f},{two},{three}" for one, two, three in zip(age, sex, died, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,died", *lines]) + "\n")
        sites += ["--site", f"{name}={sys.executable} -m fedgauss site {name}.csv"]
    walked = _files(FEDERATE, "federate", "--masked", "--target", "died", "--family", "binomial", *sites, cwd=tmp_path)
    assert (tmp_path / "fit" / "fit.json").exists()
    assert len(set(walked)) <= FEDERATED
