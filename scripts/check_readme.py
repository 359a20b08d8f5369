"""Check the README: its examples run and print what it says, and its figures are those that were recorded.

    .venv/flower/bin/python scripts/check_readme.py            # `make check` runs this
    .venv/flower/bin/python scripts/check_readme.py --write    # put what the examples print into the README

The example with Flower runs on a grid inside this process, with the clients of the README's picture.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, RECORDED = ROOT / "README.md", ROOT / "benchmarks" / "recorded"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_WORDS, PICTURE_WITHIN = 800, 60
sys.path.append(str(ROOT / "tests" / "integrations"))


def printed(program: str, names: dict[str, Any]) -> str:
    """What a program prints, with `names` already defined."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "README.md", "exec"), names)
    return said.getvalue()


def flower_server() -> dict[str, Any]:
    """What a Flower server has in hand: a grid of ten clients, three of which turn bad, and the first weights."""
    import flower_grid
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    from fedgauss.demo.digits_task import CLIENTS, DigitsTask
    from fedgauss.demo.healing import BAD, TURNED

    logging.getLogger("flwr").setLevel(logging.ERROR)
    task, app = DigitsTask(seed=0), ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        sent = message.content["arrays"]["network"].numpy()
        number = int(message.content["config"]["server-round"])
        name = CLIENTS[int(context.node_config["partition-id"])]
        move = task.moves(sent, number)[name]
        upload = sent - move if name in BAD and number >= TURNED else sent + move
        content = RecordDict({"arrays": ArrayRecord({"network": Array(upload)}), "metrics": _weight()})
        return Message(content, reply_to=message)

    return {
        "grid": flower_grid.InProcessGrid(app, len(CLIENTS)),
        "initial_arrays": ArrayRecord({"network": Array(task.start)}),
    }


def _weight() -> Any:
    from flwr.app import MetricRecord

    return MetricRecord({"num-examples": 200})


def write_patients() -> None:
    """The table that the second example reads, as in docs/index.md."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    hospital = rng.integers(0, 5, size=2000)
    age, dose = rng.normal(50, 10, 2000), rng.normal(size=2000)
    chance = 1 / (1 + np.exp(1.0 - 0.04 * (age - 50) - 0.8 * dose))
    readmitted = (rng.random(2000) < chance).astype(int)
    frame = pd.DataFrame({"hospital": hospital, "age": age, "dose": dose, "readmitted": readmitted})
    frame.to_csv("patients.csv", index=False)


def run_examples(text: str) -> list[tuple[str, str]]:
    """For each example what the README says that it prints, and what it printed."""
    found, before = [], Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            write_patients()
            for program, says in EXAMPLE.findall(text):
                found.append((says, printed(program, flower_server() if "flwr" in program else {})))
        finally:
            os.chdir(before)
    return found


def recorded(name: str) -> Any:
    """A file of benchmarks/recorded."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def figures() -> dict[str, str]:
    """What the README says, by the figure's name, as it follows from what was recorded."""
    studies, rivals = recorded("clients-2026-11-16"), recorded("client_rivals-2026-11-16")
    (robust,) = (row["accuracy"] for row in rivals["aggregators"] if row["attack"] == "sign flip, 4")
    (ours,) = (row for row in studies["loop"] if row["attack"] == "sign flip, 4")
    levels = studies["levels"]
    column = recorded("rival_table-2026-11-18")["columns"]["mu = 1, t_0 = 250"]
    delays = {name: row["figures"]["delay"]["mean"] for name, row in column.items()}
    benches = [recorded(name)["figures"] for name in ("bench-2026-11-16", "federate-2026-11-19")]
    bench = {row["quantity"]: row["value"] for parts in benches for part in parts.values() for row in part}
    many = "100,000 rows, 20 columns, 8 sites"
    return {
        "robust strategies": "median {:.3f}, trimmed mean {:.3f}, Krum {:.3f}, Bulyan {:.3f};".format(
            *(robust[name][0] for name in ("median", "trimmed mean", "Krum", "Bulyan"))
        ).replace(" 0.", " ."),
        "protected": f"{ours['fedgauss']:.3f}, as if they had been left out at once; all four named".lstrip("0"),
        "false alarms": f"{sum(row['false alarms'] for row in levels)} false alarms in "
        f"{sum(row['runs'] for row in levels):,} honest runs",
        "rivals": f"{delays['ADWIN, fitted']:.0f} (ADWIN), {delays['PageHinkley, fitted']:.0f} (Page-Hinkley), "
        f"{delays['Focus']:.0f} (Focus) | {delays['Monitor']:.0f}, with",
        "federated": f"in {bench[f'{many}: wall']:.1f} s and {bench[f'{many}: rounds']:.0f} rounds",
        "loop": f"{bench['loop over engine, minima']:.0f} times as fast on one core",
    } | ({} if ours["bad left out"] == 4.0 else {"named": "not all four are named"})


def main() -> None:
    """Print what is wrong, and fail if anything is."""
    text = README.read_text()
    examples = run_examples(text)
    if "--write" in sys.argv[1:]:
        for (says, prints), found in zip(examples, list(EXAMPLE.finditer(text)), strict=True):
            text = text.replace(found[0], found[0].replace(f"```text\n{says}```", f"```text\n{prints}```"))
        README.write_text(text)
        return
    wrong = [f"an example prints\n{prints}and the README says\n{says}" for says, prints in examples if says != prints]
    wrong += [f"{name}: benchmarks/recorded has “{says}”" for name, says in figures().items() if says not in text]
    words = text.split()
    if len(examples) != 3:
        wrong.append(f"there are {len(examples)} examples with what they print, not 3")
    wrong += [f"an example has {n} lines" for p, _ in EXAMPLE.findall(text) if (n := len(p.splitlines())) > 8]
    if len(words) > MOST_WORDS:
        wrong.append(f"it has {len(words)} words, more than {MOST_WORDS}")
    if "<picture>" not in words[:PICTURE_WITHIN]:
        wrong.append(f"the picture is not within the first {PICTURE_WITHIN} words")
    if wrong:
        sys.exit("README.md:\n" + "\n".join(wrong))
    print(
        f"README.md: {len(examples)} examples print what it says; {len(figures())} figures are as recorded; "
        f"{len(words)} words"
    )


if __name__ == "__main__":
    main()
