"""Draw the pictures of the documentation, each twice: docs/assets/NAME-light.svg and NAME-dark.svg.

    .venv/bin/python scripts/make_pictures.py                              # all but `watch_flower`
    .venv/bin/python scripts/make_pictures.py fit_federated                # one of them
    .venv/flower/bin/python scripts/make_pictures.py watch_flower          # this one needs Flower

A page shows both, and the theme hides the one that does not fit: ![...](NAME-light.svg#only-light) and
![...](NAME-dark.svg#only-dark). What a picture shows is computed here, by the Python of the page that it stands on, or
comes from benchmarks/recorded. The same data give the same files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import finding_pictures

from fedgauss._figures import DARK, LIGHT, styled, svg, titled_axes
from fedgauss.report.output import key, named_rows, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
ASSETS, RECORDED = ROOT / "docs" / "assets", ROOT / "benchmarks" / "recorded"
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def heals() -> Figure:
    """The README's: the first chapter of `fedgauss demo`."""
    from fedgauss.demo.healing import heal
    from fedgauss.demo.healing_figure import healed

    return healed(heal(seed=0)).figure


@styled
def protect_flower() -> Figure:
    """Accuracy by round of the tutorial's two runs, from benchmarks/recorded."""
    runs = _recorded("flower_cnn-2026-11-16.json")["runs"]["label flip"]
    ours, theirs = runs["protected"], runs["with protect=false"]
    (alarm,) = ours["alarms"]
    figure, axes = titled_axes("Two of ten clients flip their labels from round 21 on", 2.9)
    axes.plot(theirs["accuracy"], color=LIGHT["limit"], label="FedAvg")
    axes.plot(ours["accuracy"], color=LIGHT["finite"], label="FedAvg inside Monitored")
    axes.axvline(alarm["round"], color=LIGHT["muted"], linestyle=":", linewidth=1.0)
    words = f"alarm: back to round {alarm['back_to']},\nand on without the two"
    axes.annotate(words, (alarm["round"], 0.3), xytext=(6, 0), textcoords="offset points")
    axes.set(xlabel="round", ylabel="accuracy", xlim=(0, len(ours["accuracy"]) - 1), ylim=(0, 1))
    axes.legend(loc="lower right")
    return figure


@styled
def watch_flower() -> Figure:
    """Statistic and threshold by round in the very run of the tutorial, on a grid inside this process."""
    sys.path.append(str(ROOT / "tests" / "integrations"))
    from flower_grid import InProcessGrid

    with _in_an_empty_folder():
        names = _python_of("tutorials/watch_flower.md")
        Path("verdicts.jsonl").unlink(missing_ok=True)
        names["main"](InProcessGrid(names["client_app"], 10), None)
        verdicts = [json.loads(line) for line in Path("verdicts.jsonl").read_text().splitlines()]
    rounds, last = [verdict["round"] for verdict in verdicts], verdicts[-1]
    figure, axes = titled_axes("Two of ten clients poison their labels after round 30", 2.7)
    axes.axvspan(0, rounds[0] - 0.5, color=LIGHT["faint"], alpha=0.5, linewidth=0.0)
    axes.text(rounds[0] / 2, 2.6, "clients\nreport", ha="center", va="center", color=LIGHT["muted"])
    axes.plot(rounds, [verdict["threshold"] for verdict in verdicts], color=LIGHT["limit"], linestyle="--")
    axes.text(rounds[0], last["threshold"] + 0.1, "threshold, 1 % for the whole run", color=LIGHT["limit"])
    axes.plot(rounds, [verdict["statistic"] for verdict in verdicts], ".-", color=LIGHT["exact"])
    axes.plot(last["round"], last["statistic"], "o", color=LIGHT["limit"], markersize=7)
    axes.axvline(last["rollback"] + 0.5, color=LIGHT["muted"], linestyle=":", linewidth=1.0)
    words = f"go back to\nround {last['rollback']} "
    axes.text(last["rollback"] + 0.3, 0.15, words, ha="right", color=LIGHT["muted"])
    axes.annotate("alarm", (last["round"], last["statistic"]), xytext=(2, 6), textcoords="offset points", ha="right")
    axes.set(xlabel="round", ylabel="statistic", xlim=(0, last["round"] + 1), ylim=(0, 6.2))
    return figure


def fit_federated() -> Figure:
    """The forest plot of the tutorial's hospitals."""
    with _in_an_empty_folder():
        fit = _python_of("tutorials/fit_federated.md", blocks=1)["fit"]
    return fit.forest("dose")


def comparison_robust() -> Figure:
    """Final accuracy under each attack: robust means, FedAvg and fedgauss."""
    means = {row["attack"]: row["accuracy"] for row in _recorded("client_rivals-2026-11-16.json")["aggregators"]}
    ours = {row["attack"]: row["fedgauss"] for row in _recorded("clients-2026-11-16.json")["loop"]}
    shown = {"honest, f = 2": "honest"} | {name: name for name in means if name in ours and not name.startswith("hon")}
    marks = {
        "FedAvg": ("simulated", "x"),
        "median": ("exact", "v"),
        "trimmed mean": ("exact", "^"),
        "MultiKrum": ("limit", "s"),
        "Krum": ("limit", "+"),
        "Bulyan": ("muted", "d"),
    }
    legend = [
        key(name, role, marker=mark, linestyle="", markerfacecolor="none") for name, (role, mark) in marks.items()
    ]
    legend.append(key("FedAvg with fedgauss", "finite", marker="o", linestyle=""))
    return _robust_rows(means, ours, shown, marks, legend)


@styled
def _robust_rows(means: dict, ours: dict, shown: dict, marks: dict, legend: list[Any]) -> Figure:
    """One row an attack."""
    title = "Accuracy after 80 rounds, by attack and number of bad clients"
    figure, panels = stacked(title, 1, legend, height=0.29 * len(shown), left=1.25, columns=3)
    axes = panels[0][0]
    for row, (name, own) in enumerate(reversed(shown.items())):
        for rule, (role, mark) in marks.items():
            axes.plot(means[name][rule][0], row, mark, color=LIGHT[role], markersize=5.5, markerfacecolor="none")
        axes.plot(ours[own], row, "o", color=LIGHT["finite"], markersize=6.5)
    named_rows(axes, list(shown.values()))
    axes.set(xlabel="accuracy", xlim=(0.1, 1.0))
    return figure


@styled
def comparison_detectors() -> Figure:
    """Mean delay over all runs at three sizes of shift, all detectors at one false-alarm rate."""
    columns = _recorded("rival_table-2026-11-18.json")["columns"]
    names = {"Monitor": "fedgauss", "Focus": "changepoint-online, Focus", "e-SR": "e-detector, SR", "ocd": "ocd"} | {
        f"{rule}, {how}": f"river, {rule}{', fitted' * (how == 'fitted')}"
        for rule in ("PageHinkley", "ADWIN")
        for how in ("fitted", "stock")
    }
    marks = {"2": ("finite", "^"), "1": ("exact", "o"), "0.5": ("limit", "s")}
    legend = [key(f"shift of {size}", role, marker=mark, linestyle="") for size, (role, mark) in marks.items()]
    title = "Steps from the attack to the alarm, at 5 % false alarms"
    figure, panels = stacked(title, 1, legend, height=0.29 * len(names), left=1.75)
    axes = panels[0][0]
    for row, name in enumerate(reversed(names)):
        for size, (role, mark) in marks.items():
            delay = columns[f"mu = {size}, t_0 = 250"][name]["figures"]["delay"]["mean"]
            axes.plot(delay, row, mark, color=LIGHT[role], markersize=6.0)
    named_rows(axes, list(names.values()))
    axes.set(xlabel="steps; 250 where there was no alarm", xlim=(0, 250))
    return figure


def reproduce() -> bytes:
    """Figure 1, left, as `fedgauss reproduce` draws it."""
    with _in_an_empty_folder() as folder:
        command = [sys.executable, "-m", "fedgauss", "reproduce", "figure1_left", "--scale", "quick"]
        subprocess.run([*command, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
        return (folder / "figure1_left.svg").read_bytes()


PICTURES = (
    heals,
    protect_flower,
    watch_flower,
    fit_federated,
    reproduce,
    comparison_robust,
    comparison_detectors,
    *finding_pictures.PICTURES,
)


def write(name: str, drawn: Figure | bytes) -> None:
    """The picture in both palettes, without a ground: that of the page shows."""
    if not isinstance(drawn, bytes):
        drawn = svg(drawn)
    text = drawn.decode()
    text = text[text.index("<svg") :]  # without the document type, which names an outside address
    text = re.sub(rf'(id="patch_1">\s*<path [^>]*?style="fill: ){LIGHT["paper"]}', r"\1none", text, count=1)
    (ASSETS / f"{name}-light.svg").write_text(text)
    for role, colour in LIGHT.items():
        text = text.replace(colour, DARK[role])
    (ASSETS / f"{name}-dark.svg").write_text(text)


def _recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / name).read_text())


def _python_of(page: str, blocks: int | None = None) -> dict[str, Any]:
    """What the first blocks of Python on a page define, or all of them."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in _PYTHON.findall((ROOT / "docs" / page).read_text())[:blocks]:
        exec(compile(block, page, "exec"), names)
    return names


@contextlib.contextmanager
def _in_an_empty_folder() -> Iterator[Path]:
    """Pages write files where they are run."""
    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


def main() -> None:
    """Draw what was named, or all that this environment can draw."""
    named = {picture.__name__: picture for picture in PICTURES}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(named)}")
    for name in parser.parse_args().names or [name for name in named if name != "watch_flower"]:
        if name not in named:
            parser.error(f"there is no picture {name!r}; there are {', '.join(named)}")
        write(name, named[name]())
        print(f"docs/assets/{name}-light.svg and -dark.svg")


if __name__ == "__main__":
    main()
