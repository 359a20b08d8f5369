"""What a watch that is started again reads: the file of --save, and --hessian."""

import io
import json
import sqlite3
from contextlib import closing

import numpy as np
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.saving import SaveFile
from fedgauss.integrations.live.starting_point import _hessian
from fuzz.damaged import byte_mutants, fuzzed, refused_or

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
def test_a_damaged_save_is_taken_up_or_refused(folder, data):
    """Bytes of the file, or of a line in it that is still a file of SQLite."""
    path = folder / "watch.db"
    for left in folder.iterdir():
        left.unlink()
    file = SaveFile(path, True)
    run = Run(fg.ClientMonitor(horizon=50, seed=1))
    run.take_up(file)
    for line in MOVES[:4]:
        run.take_json(line)
    file.close()
    if data.draw(st.booleans()):
        path.write_bytes(data.draw(byte_mutants(path.read_bytes())))
    else:
        what, of = data.draw(st.sampled_from([("words", "kept"), ("watcher", "kept"), ("line", "rounds")]))
        with closing(sqlite3.connect(path)) as changed, changed:
            (good,) = changed.execute(f"SELECT {what} FROM {of}").fetchone()
            spoilt = data.draw(byte_mutants(good if isinstance(good, bytes) else good.encode()))
            spoilt = spoilt.decode(errors="replace") if what == "words" else spoilt
            changed.execute(f"UPDATE {of} SET {what} = ?", (spoilt,))
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
