"""Mutated saves of both monitors: refused in words, or a monitor that works.

The rule. `load` raises nothing but a ValueError. A monitor that it returns is one that rounds may have led to: its next
rounds are judged, or refused by a ValueError or an invalid update that leaves the state as it was; no statistic is NaN;
`suspects` answers or raises a ValueError; saved and loaded again it has the same state, to the bit. Where bytes of the
file were changed, what loads is the monitor that was saved. Memory does not grow by more than 50 MB.
"""

import contextlib
import json
import math

import numpy as np
import pytest

import fedgauss as fg
from memory_used import highest_memory

HOW_MANY = pytest.mark.parametrize("how_many", [100, pytest.param(10_000, marks=pytest.mark.study)])
NUMBERS = [0, -1, 1, 0.5, 10**6, 10**18, 10**30, 1e308, -1e308, 1e-300, math.nan, math.inf, -math.inf]
WORDS = [*NUMBERS, None, True, False, "", "x", "\x1b[31m", [], {}, [[]], [1], {"kind": "listed"}, ["mean"], [3, 7, []]]
K, DIM = 6, 3


def of_model(folder):
    """Monitors in several states, each in a file, with the rounds that come next."""
    rng = np.random.default_rng(1)
    lin = fg.linearization([np.eye(DIM)] * K, [np.eye(DIM)] * K, optimum=np.zeros(DIM), gradients=np.zeros((K, DIM)))
    kinds = {
        "quiet": (fg.step_sizes.constant(0.05), 10, 2_000, 30, 0.0),
        "alarm": (fg.step_sizes.warm_start(0.05, 400, 0.05, 0.75), 20, None, 60, 0.6),
        "listed": (np.full(2_000, 0.05), 5, None, 9, 0.0),
        "new": (fg.step_sizes.polynomial(0.3, 0.75), 20, 60, 0, 0.0),
    }
    for name, (steps, tau, horizon, rounds, shift) in kinds.items():
        monitor = fg.Monitor(lin, steps, tau, horizon=horizon, start=np.zeros(DIM))
        y, given = np.zeros(DIM), []
        for number in range(rounds + 4):
            clients = y + 0.05 * rng.normal(size=(K, DIM))
            clients[0] += shift * (number > 40)
            y = clients.mean(axis=0)
            given.append({"y": y, "clients": clients})
        for each in given[:rounds]:
            monitor.update(**each)
        if name == "quiet":
            monitor.reweight(np.arange(1.0, K + 1) / 21)
        assert (monitor.alarm is not None) == (name == "alarm")
        monitor.save(folder / name)
        yield folder / name, given[rounds:]


def of_clients(folder):
    """Client monitors in several states, each in a file, with the rounds that come next."""
    rng = np.random.default_rng(2)
    own = rng.normal(size=(8, 20))
    for name, rounds in {"quiet": 30, "alarm": 33, "left out": 36, "new": 0, "begun": 5}.items():
        monitor, given = fg.ClientMonitor(horizon=200, seed=3), []
        for number in range(rounds + 4):
            moves = own + 0.5 * rng.normal(size=(8, 20))
            moves[7] *= -1.0 if number > 30 else 1.0
            given.append({"moves": {f"client {k}": move for k, move in enumerate(moves)}})
        for each in given[:rounds]:
            monitor.update(**each)
        assert (monitor.alarm is not None) == (name in ("alarm", "left out"))
        if name == "left out":
            monitor.exclude()
        monitor.save(folder / name)
        yield folder / name, given[rounds:]


def state(monitor):
    words, arrays = monitor.state()
    return json.dumps(words, default=str), {name: array.tobytes() for name, array in arrays.items()}


def with_other_bytes(rng, path):
    content = bytearray(path.read_bytes())
    at = int(rng.integers(len(content)))
    kind = rng.integers(5)
    if kind == 0:
        del content[at:]
    elif kind == 1:
        content[at : at + 200] = bytes(200)
    elif kind == 2:
        content[at:at] = content[at : at + 300]
    else:
        for place in rng.integers(len(content), size=kind - 2):
            content[place] ^= int(rng.integers(1, 256))
    return bytes(content)


def with_other_array(rng, arrays):
    name = str(rng.choice([name for name in arrays if name != "header"]))
    array = arrays[name]
    kind = rng.integers(12)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[str(rng.choice(["x", "watch.x", "lin.x", "clients.x", f"{name}.{name}", f"{name}2"]))] = array
    elif kind == 2:
        arrays[name] = array[..., :-1] if array.ndim else array[None]
    elif kind == 3:
        arrays[name] = np.concatenate([array, array]) if array.ndim else array[None, None]
    elif kind == 4:
        arrays[name] = array.T[None] if rng.random() < 0.5 else array.reshape(-1)
    elif kind == 5:
        with np.errstate(invalid="ignore"):
            arrays[name] = array.astype(rng.choice(["f4", "i8", "u8", "?", "i4", "f8"]))
    elif kind == 6:
        arrays[name] = np.zeros(int(rng.choice([0, 1, 300_000])), dtype=array.dtype)
    elif kind == 7:
        arrays[name] = arrays[str(rng.choice([n for n in arrays if n != "header"]))]
    elif array.size:
        value = rng.choice(NUMBERS[:11] if rng.random() < 0.7 else NUMBERS[-3:])
        changed = array.astype("O")
        changed.flat[rng.integers(array.size) if rng.random() < 0.7 else slice(None)] = value
        try:
            arrays[name] = changed.astype(array.dtype)
        except (OverflowError, ValueError):
            arrays[name] = np.where(rng.random(array.shape) < 0.5, array, array.dtype.type(-7))
    return arrays


def with_other_words(rng, arrays):
    words = json.loads(arrays["header"].tobytes())

    def paths_of(value, path=()):
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return [path, *(found for key, part in inner for found in paths_of(part, (*path, key)))]

    paths = [path for path in paths_of(words) if path]
    *way, last = paths[rng.integers(len(paths))]
    place = words
    for key in way:
        place = place[key]
    if rng.random() < 0.15:
        place.pop(last)
    elif rng.random() < 0.3 and isinstance(place[last], int | float):
        place[last] += int(rng.choice([-1000, -1, 1, 1000]))
    else:
        place[last] = WORDS[rng.integers(len(WORDS))]
    return arrays | {"header": np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)}


def check_that_it_works(monitor, rounds, folder):
    kind = type(monitor)
    for each in rounds:
        before = state(monitor)
        try:
            verdict = monitor.update(**each)
        except ValueError:
            assert state(monitor) == before
            continue
        assert not math.isnan(verdict.statistic)
        if verdict.invalid:
            assert verdict.alarm
            assert state(monitor) == before
    with contextlib.suppress(ValueError):
        monitor.suspects()
    monitor.save(folder / "again")
    assert state(kind.load(folder / "again")) == state(monitor)


@HOW_MANY
@pytest.mark.parametrize(("kind", "saves"), [(fg.Monitor, of_model), (fg.ClientMonitor, of_clients)])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:divide by zero", "ignore:alpha holds")
def test_a_mutated_save_is_refused_or_works(kind, saves, how_many, tmp_path):
    rng = np.random.default_rng(16)
    files = list(saves(tmp_path))
    wholes = [state(kind.load(path)) for path, _ in files]
    for path, rounds in files:
        check_that_it_works(kind.load(path), rounds, tmp_path)
    before, counts = highest_memory(reset=True), {"refused": 0, "loaded": 0}
    for number in range(how_many):
        which = int(rng.integers(len(files)))
        path, rounds = files[which]
        mutant = tmp_path / "mutant"
        what = number % 3
        if what == 0:
            mutant.write_bytes(with_other_bytes(rng, path))
        else:
            with np.load(path) as file:
                arrays = dict(file)
            arrays = with_other_array(rng, arrays) if what == 1 else with_other_words(rng, arrays)
            with mutant.open("wb") as file:
                np.savez(file, **arrays)
        try:
            monitor = kind.load(mutant)
        except ValueError:
            counts["refused"] += 1
            continue
        counts["loaded"] += 1
        if what == 0:
            assert state(monitor) == wholes[which]
        check_that_it_works(monitor, rounds, tmp_path)
    grown = highest_memory() - before
    print(f"\n{how_many} saves of a {kind.__name__}: {counts}, {grown:.1f} MB more")
    assert counts["refused"] > 0.5 * how_many
    assert grown < 50
