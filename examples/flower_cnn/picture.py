"""Accuracy by round with and without protection: python picture.py protected.json unprotected.json picture.svg"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "flower_cnn", "font.family": "sans-serif"}  # the same file for the same runs

from matplotlib import pyplot as plt  # noqa: E402


def picture(protected: Path, unprotected: Path, output: Path) -> None:
    """Two runs that wrote down what happened with `output=`, side by side."""
    ours, theirs = (json.loads(path.read_text()) for path in (protected, unprotected))
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axes.plot(theirs["accuracy"], color="#c1121f", label="FedAvg")
    axes.plot(ours["accuracy"], color="#00695c", label="FedAvg inside Monitored")
    for alarm in ours["alarms"]:
        axes.axvline(alarm["round"], color="black", linestyle=":", linewidth=1)
        axes.annotate(
            f"alarm in round {alarm['round']}: back to round {alarm['back_to']},\n"
            f"clients left out: {len(alarm['partitions'])}",
            (alarm["round"], 0.12),
            xytext=(6, 0),
            textcoords="offset points",
        )
    axes.set(xlabel="round", ylabel="accuracy", xlim=(0, len(ours["accuracy"]) - 1), ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    figure.savefig(output, metadata={"Date": None})


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    picture(*map(Path, sys.argv[1:]))
