"""How many files of the package a fit goes through, and how often it goes from one to another: what a reader does."""

import json
import subprocess
import sys

FILES, SWITCHES = 20, 400
SCRIPT = """
import collections, json, pathlib, sys
import numpy as np
import fedgauss as fg

root = str(pathlib.Path(fg.__file__).parent)
rng = np.random.default_rng(0)
rows = {"hospital": rng.integers(0, 4, 600), "age": rng.normal(size=600), "dose": rng.normal(size=600)}
rows["died"] = (rng.random(600) < 1 / (1 + np.exp(-rows["age"]))).astype(int)
fg.fit(rows, "died", client="hospital", family="binomial")  # what is loaded once
walked = []

def note(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root) and walked[-1:] != [name]:
        walked.append(name)

sys.setprofile(note)
fg.fit(rows, "died", client="hospital", family="binomial")
sys.setprofile(None)
print(json.dumps([len(set(walked)), len(walked) - 1]))
"""


def test_a_reader_can_follow_a_fit_of_600_rows() -> None:
    """A logistic fit of four hospitals. A helper in a file of its own, called at every step, would be found."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    files, switches = json.loads(ran.stdout)
    assert files <= FILES
    assert switches <= SWITCHES
