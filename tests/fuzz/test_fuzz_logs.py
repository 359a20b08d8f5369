"""Lines of logs, bodies of POSTs and logs as arrays."""

import io
import json

import numpy as np
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.integrations.live.lines import Line, line_from_json
from fedgauss.integrations.live.logs import ArrayLog, LineLog
from fedgauss.integrations.live.run import Run
from fuzz.damaged import archive_mutants, byte_mutants, fuzzed, json_mutants, refused_or

NAMES = ["a", "b", "c", "d"]
PARAMETERS = {
    "round": 1,
    "parameters": [0.1, -0.3],
    "step": 20,
    "participants": NAMES,
    "clients": {name: [0.1, -0.2] for name in NAMES},
    "all_clients": NAMES,
}
MOVES = {
    "round": 1,
    "moves": {name: [0.1 * k, 1.0, -0.5] for k, name in enumerate(NAMES)},
    "accuracy": 0.9,
    "left_out": [{"clients": ["e"], "back_to": 0}],
}
PRODUCTS = {
    "round": 1,
    "clients": NAMES,
    "products": [[1.0], [0.5, 1.0], [0.1, 0.2, 1.0], [0.0, 0.0, 0.0, 1.0]],
    "along_own": [0.5, None, -0.5, 0.0],
    "evenness": [1.0, 2.0, 3.0, 0.0],
    "loss": 2.5,
}
SETTINGS = {"monitor": {"alpha": 0.05, "horizon": 100, "rate": 0.05}}
LINES = [json.dumps(line).encode() for line in (PARAMETERS, MOVES, PRODUCTS, SETTINGS)]
lines = st.one_of(json_mutants(PARAMETERS, MOVES, PRODUCTS, SETTINGS), byte_mutants(*LINES))


@fuzzed(lines)
def test_a_line_is_read_or_refused(folder, line):
    assert isinstance(refused_or(line_from_json, line), Line | None)
    assert isinstance(refused_or(line_from_json, line), Line | None)


def _monitor():
    lin = fg.linearization([np.eye(2)] * 4, [np.eye(2)] * 4)
    return fg.Monitor(lin, fg.step_sizes.polynomial(0.3, 0.75), 20, start=np.zeros(2))


@fuzzed(st.lists(lines, min_size=1, max_size=6), few=20, many=1000)
def test_a_watched_run_takes_a_body_or_refuses_it_unchanged(folder, bodies):
    """Of several in a row, so that some meet a run that has begun."""
    for run in (Run(fg.ClientMonitor(horizon=50, seed=1)), Run(_monitor())):
        for body in bodies:
            before = run.monitor.round
            if refused_or(run.take_json, body) is None:
                assert run.monitor.round == before


@fuzzed(st.lists(st.one_of(lines, st.binary(max_size=40)), max_size=8), st.integers(0, 200))
def test_a_growing_log_of_lines_gives_rounds_or_refusals(folder, parts, cut):
    whole = b"\n".join(parts)
    path = folder / "run.jsonl"
    path.write_bytes(whole[:cut])
    log = LineLog(path, line_from_json)
    for _ in range(2):
        found = refused_or(lambda: list(log.poll()))
        assert found is None or all(isinstance(one, Line | ValueError) for one in found)
        with path.open("ab") as file:
            file.write(whole[cut:])


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


GOOD = {
    "round": np.arange(1, 4),
    "parameters": np.zeros((3, 2)),
    "step": np.arange(20, 80, 20),
    "participation": np.ones((3, 2), dtype=bool),
    "clients": np.zeros((3, 2, 2)),
    "names": np.array(["a", "b"]),
}
ODD = [
    np.zeros(0), np.zeros((3, 0)), np.array(1.0), np.array(["x"]), np.full((3, 2), np.nan), np.array([1 + 2j]),
    np.array([-1, 2, 3]), np.array([2**63], dtype=np.uint64), np.zeros(3, dtype="M8[s]"), np.zeros((3, 2, 2, 1)),
    np.array([b"x"]), np.zeros(3, dtype=[("x", "f8")]),
]  # fmt: skip
array_logs = st.one_of(
    byte_mutants(_npz(**GOOD), _npz(round=GOOD["round"], parameters=GOOD["parameters"])),
    archive_mutants(_npz(**GOOD)),
    st.dictionaries(st.sampled_from(list(GOOD)), st.sampled_from(ODD), min_size=1, max_size=2).map(
        lambda changed: _npz(**GOOD | changed)
    ),
)


@fuzzed(array_logs)
def test_a_log_of_arrays_gives_rounds_or_refusals(folder, content):
    path = folder / "run.npz"
    path.write_bytes(content)
    log = ArrayLog(path)
    for _ in range(25):  # until it is called broken, and not half written
        assert all(isinstance(one, Line | ValueError) for one in log.poll())
