"""Make src/fedgauss/detect/thresholds.json: quantiles of the monitor's statistics over Gaussian runs.

    PYTHONPATH=src python3 scripts/make_thresholds.py --paths 20000

For each dimension d and sync_every tau, so many paths of independent N(0, I / tau) innovations go through the very code
that watches real runs (`fedgauss.detect.watch`), and the largest statistic in each stretch of steps is kept. From
these come the quantiles of the maximum over horizons 100 to 4,000 and over the epochs (500, 1000], (1000, 2000] and
(2000, 4000].

Paths come in chunks of 500; chunk c of cell (d, tau) has the seed (SEED, d, tau, c) and nothing else decides it.
Finished chunks lie in --folder, so the script can be stopped at any time, goes on where it was, and a larger --paths
adds to what is there. --seconds stops it after a while, and --last makes the chunks from the last one down, beside
another process that goes up. The table is written from the chunks that every cell has, and names them.

Error: with R paths the quantile at tail p is that at p (1 +- 2 / sqrt(p R)), or near 2 / (h sqrt(p R)) in the threshold
h itself: 0.017 for the mean channel's .045 at R = 20,000. The number of paths is in the table.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from rich.progress import Progress

from fedgauss.detect.thresholds import TABLE_FORMAT, null_maxima
from fedgauss.detect.watch import DEFAULT_CHANNELS

SEED = 20261115
DIMS = (1, 2, 3, 5, 10, 20, 40)
TAUS = (1, 2, 5, 10, 20, 50)
HORIZONS = (100, 150, 200, 300, 400, 500, 700, 1000, 1400, 2000, 2800, 4000)
EPOCHS = ((500, 1000), (1000, 2000), (2000, 4000))
TAILS = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
CHUNK = 500
NAMES = [channel.name for channel in DEFAULT_CHANNELS if channel.tabulated]
TABLE = Path(__file__).parents[1] / "src" / "fedgauss" / "detect" / "thresholds.json"
STRETCHES = tuple(zip((0, *HORIZONS[:-1]), HORIZONS, strict=True))  # disjoint: every window is a union of them


def chunk_file(folder: Path, dim: int, tau: int, chunk: int) -> Path:
    """Where the maxima of one chunk are kept."""
    return folder / f"d{dim}-tau{tau}-{chunk:03d}.npy"


def make_chunk(folder: Path, dim: int, tau: int, chunk: int) -> None:
    """Simulate one chunk and keep it, (channels, stretches, 500)."""
    maxima = null_maxima(dim, tau, STRETCHES, CHUNK, seed=[SEED, dim, tau, chunk])
    unfinished = folder / f"unfinished-{os.getpid()}.npy"
    np.save(unfinished, np.stack([maxima[name] for name in NAMES]))
    unfinished.rename(chunk_file(folder, dim, tau, chunk))  # a chunk is there whole or not at all


def window_maxima(stretches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Maxima over each horizon, then over each epoch, from those over the stretches: (windows, R)."""

    def over(channel: np.ndarray) -> np.ndarray:
        horizons = np.maximum.accumulate(channel, axis=0)
        inside = [[a < last <= b for _, last in STRETCHES] for a, b in EPOCHS]
        return np.concatenate([horizons, [channel[np.array(rows)].max(axis=0) for rows in inside]])

    return {name: over(channel) for name, channel in stretches.items()}


def common_chunks(folder: Path) -> list[int]:
    """The numbers of the chunks that every cell has."""
    cells = [{int(file.stem[-3:]) for file in folder.glob(f"d{d}-tau{tau}-*.npy")} for d in DIMS for tau in TAUS]
    return sorted(set.intersection(*cells))


def write_table(folder: Path) -> str:
    """Quantiles of what every cell has, to three decimals."""
    chunks = common_chunks(folder)
    if not chunks:
        return "no table yet: no chunk is there for all d and tau"
    quantiles: dict[str, list] = {name: [] for name in NAMES}
    for dim in DIMS:
        rows: dict[str, list] = {name: [] for name in NAMES}
        for tau in TAUS:
            found = np.concatenate([np.load(chunk_file(folder, dim, tau, chunk)) for chunk in chunks], axis=2)
            maxima = window_maxima(dict(zip(NAMES, found, strict=True)))
            for name, channel in maxima.items():
                levels = np.quantile(channel, 1 - np.array(TAILS), axis=1).T
                rows[name].append([[round(float(h), 3) for h in window] for window in levels])
        for name, channel in rows.items():
            quantiles[name].append(channel)
    axes = {"dims": DIMS, "taus": TAUS, "horizons": HORIZONS, "epochs": EPOCHS, "tails": TAILS}
    paths = len(chunks) * CHUNK
    whole = {"format": TABLE_FORMAT, "seed": SEED, "chunks": chunks, "paths": paths, **axes, **quantiles}
    TABLE.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
    return f"{TABLE}: {TABLE.stat().st_size:,} bytes from {paths:,} paths a cell"


def main() -> None:
    """Simulate what is missing, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paths", type=int, default=20_000, help="Gaussian paths for each (d, tau)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long, to go on later")
    parser.add_argument("--folder", type=Path, default=Path("build/thresholds"), help="where finished chunks lie")
    parser.add_argument("--last", action="store_true", help="begin with the last chunk")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    # Whole rounds over the cells, so that stopping early leaves every cell with about as many paths.
    numbers = range(-(-options.paths // CHUNK))[:: -1 if options.last else 1]
    cells = [(c, d, tau) for c in numbers for d in DIMS for tau in TAUS]
    todo = [(d, tau, c) for c, d, tau in cells if not chunk_file(options.folder, d, tau, c).exists()]
    deadline = time.monotonic() + options.seconds
    with Progress() as progress:
        bar = progress.add_task("chunks", total=len(todo))
        for dim, tau, chunk in todo:
            if time.monotonic() > deadline:
                break
            make_chunk(options.folder, dim, tau, chunk)
            progress.advance(bar)
    print(write_table(options.folder))


if __name__ == "__main__":
    main()
