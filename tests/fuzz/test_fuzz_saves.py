"""Saved monitors: damaged by byte, by array, or in what their header says.

One that loads is used: it judges rounds, or refuses them in words, and can be saved again.
"""

import copy
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.detect.storage import format_of
from fuzz.damaged import archive_mutants, byte_mutants, fuzzed, nasty, refused_or

SEEDS = np.random.SeedSequence(0).spawn(2)


@cache
def saved():
    """A monitor of parameters and one of clients, each with an alarm: their files."""
    rng = np.random.default_rng(SEEDS[0])
    lin = fg.linearization([np.eye(2)] * 4, [np.eye(2)] * 4)
    parameters = fg.Monitor(lin, fg.step_sizes.polynomial(0.3, 0.75), 20, start=np.zeros(2))
    for number in range(1, 41):
        uploads = 0.05 * rng.normal(size=(4, 2)) + (number > 30)
        parameters.update(uploads.mean(axis=0), clients=uploads)
    clients, own = fg.ClientMonitor(horizon=100, seed=1), rng.normal(size=(5, 8))
    for number in range(1, 26):
        moves = own + 0.3 * rng.normal(size=own.shape)
        moves[0] *= -1 if number > 20 else 1
        clients.update({f"client {k}": move for k, move in enumerate(moves)})
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for monitor in (parameters, clients):
            monitor.save(Path(folder) / "monitor.npz")
            files.append((Path(folder) / "monitor.npz").read_bytes())
    return files


def arrays_in(file):
    with np.load(io.BytesIO(file)) as held:
        return {name: held[name] for name in held.files}


class Damaged(NamedTuple):
    """A file, and what was changed: thousands of bytes tell nobody anything."""

    content: bytes
    words: str

    def __repr__(self):
        return self.words


def npz(arrays, words):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return Damaged(file.getvalue(), words)


@st.composite
def other_arrays(draw):
    """One or two arrays of another shape, type or value; one too few or too many."""
    arrays, words = arrays_in(saved()[draw(st.integers(0, 1))]), ""
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(arrays)))
        held = arrays[name]
        action = draw(st.sampled_from(["value", "value", "shape", "type", "drop", "add", "swap"]))
        words += f"{action} {name} "
        if action == "value" and held.size and held.dtype.kind in "fiu" and name != "header":
            changed = np.array(held)
            value = draw(st.sampled_from([np.nan, np.inf, -1.0, 0.0, 1e300, 2**40]))
            if held.dtype.kind != "f":
                value = int(np.clip(np.nan_to_num(value), 0, 100))
            with np.errstate(over="ignore"):
                changed.flat[draw(st.integers(0, held.size - 1))] = np.asarray(value).astype(held.dtype)
            arrays[name] = changed
        elif action == "shape":
            arrays[name] = draw(st.sampled_from([held.ravel()[:1], held[None], held.ravel(), np.zeros(0, held.dtype)]))
        elif action == "type":
            arrays[name] = draw(st.sampled_from([held.astype("U8"), np.zeros(held.shape), np.ones(held.shape, bool)]))
        elif action == "drop":
            del arrays[name]
        elif action == "add":
            arrays[draw(st.text("abc.", min_size=1, max_size=6))] = np.zeros(2)
        else:
            arrays[name] = arrays[draw(st.sampled_from(sorted(arrays)))]
    return npz(arrays, words)


@st.composite
def other_words(draw):
    """Something else in the header."""
    arrays = arrays_in(saved()[draw(st.integers(0, 1))])
    words = json.loads(arrays["header"].tobytes())
    name = draw(st.sampled_from(sorted(words)))
    inside = words[name]
    if isinstance(inside, dict) and inside and draw(st.booleans()):
        inside[draw(st.sampled_from(sorted(inside)))] = copy.deepcopy(draw(nasty))
    else:
        words[name] = copy.deepcopy(draw(nasty))
    text = json.dumps(words).encode("utf-8", "surrogatepass")
    return npz(arrays | {"header": np.frombuffer(text, dtype=np.uint8)}, f"header {name}")


@st.composite
def other_bytes(draw):
    return Damaged(draw(st.one_of(byte_mutants(*saved()), archive_mutants(*saved()))), "bytes")


def use(path, kind):
    """Load it, and go on for some rounds."""
    monitor = kind.load(path)
    rng = np.random.default_rng(1)
    refused_or(repr, monitor)
    for _ in range(3):
        if kind is fg.Monitor:
            uploads = 0.05 * rng.normal(size=(monitor.lin.n_clients, monitor.lin.dim))
            verdict = refused_or(lambda sent=uploads: monitor.update(sent.mean(axis=0), clients=sent))
        else:
            moves = {f"client {k}": rng.normal(size=8) for k in range(5)}
            verdict = refused_or(lambda sent=moves: monitor.update(sent))
        assert verdict is None or verdict.alarm or not np.isnan(verdict.statistic)  # NaN is never silence
        assert verdict is None or str(verdict)
    if monitor.alarm is not None:
        refused_or(monitor.suspects)
    monitor.save(path)
    return monitor


@fuzzed(st.one_of(other_arrays(), other_words(), other_bytes()), few=30, many=3000)
def test_a_saved_monitor_goes_on_or_is_refused(folder, damaged):
    path = folder / "monitor.npz"
    for kind in (fg.Monitor, fg.ClientMonitor):
        path.write_bytes(damaged.content)
        with np.errstate(over="ignore", invalid="ignore"):  # as where an optimum is 1e300: then there is an alarm
            refused_or(use, path, kind)
        refused_or(format_of, path)
