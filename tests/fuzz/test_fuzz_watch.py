"""What a watch that is started again reads: the file of --save, the journal beside it, and --hessian."""

import io
import json

import numpy as np
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.saving import SaveFile
from fedgauss.integrations.live.starting_point import _hessian
from fuzz.damaged import byte_mutants, fuzzed, json_mutants, refused_or

RNG = np.random.default_rng(3)
MOVES = [
    json.dumps({"round": n, "moves": {f"c{k}": RNG.normal(size=3).round(3).tolist() for k in range(4)}}).encode()
    for n in range(1, 6)
]


def _resumed(path):
    """A watch that goes on from what is there, with one more round."""
    file = SaveFile(path, True)
    try:
        run = Run(fg.ClientMonitor(horizon=50, seed=1))
        run.take_up(file)
        refused_or(run.take_json, MOVES[-1])
        return run
    finally:
        file.close()


@fuzzed(st.data(), few=5, many=500)
def test_a_damaged_journal_is_taken_up_or_refused(folder, data):
    path, journal = folder / "watch.npz", folder / "watch.npz.journal"
    for left in folder.iterdir():
        left.unlink()
    file = SaveFile(path, True)
    run = Run(fg.ClientMonitor(horizon=50, seed=1))
    run.take_up(file)
    for line in MOVES[:4]:
        run.take_json(line)
    file.close()
    lines = journal.read_bytes().splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    good = lines[place]
    lines[place] = data.draw(
        st.one_of(byte_mutants(good), json_mutants(json.loads(good)).map(lambda line: line + b"\n"))
    )
    journal.write_bytes(b"".join(lines))
    found = refused_or(_resumed, path)
    assert found is None or found.monitor.round >= 0


def _npy(matrix, save=np.save):
    file = io.BytesIO()
    save(file, matrix)
    return file.getvalue()


@fuzzed(byte_mutants(_npy(np.eye(2)), _npy(np.eye(2), np.savez), _npy(np.array(["a"]))), many=1000)
def test_a_hessian_is_read_or_refused(folder, content):
    (folder / "A.npy").write_bytes(content)
    found = refused_or(_hessian, str(folder / "A.npy"))
    assert found is None or np.linalg.eigvalsh(found).min() > 0
