"""Files that a user is given: tables, policies, images, stores of sweeps and reports."""

import gzip
import io
import json
import sqlite3
import struct
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from fedgauss.data.files import read_images, read_labels
from fedgauss.federated.policy import Policy, example_policy
from fedgauss.inference.tables import Frame, read_table
from fedgauss.paper.result import PAPER, VERDICTS, refuse_other_scale
from fedgauss.sweep.store import Store
from fuzz.damaged import archive_mutants, byte_mutants, fuzzed, json_mutants, refused_or, text_mutants

CSV = [
    b"a,b,c\n1,x,True\n2.5,y,\n-3e4,,False\n",
    b'\xef\xbb\xbfname,"in, come"\n"quoted ""twice""",1\n"two\nlines",NA\n',
    b"a;b\n1;2\n",
    b"x\n" + b"1\n" * 50,
]


@fuzzed(st.one_of(byte_mutants(*CSV), st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_a_table_is_read_or_refused(folder, content):
    (folder / "data.csv").write_bytes(content)
    table = refused_or(read_table, folder / "data.csv")
    if table is not None:
        frame = refused_or(Frame, table)
        for name in frame.names if frame is not None else ():
            refused_or(frame.column, name)


def _parquet():
    frame = pd.DataFrame({"a": np.arange(30.0), "b": ["x", "y", None] * 10, "c": pd.date_range("2020", periods=30)})
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


@fuzzed(byte_mutants(_parquet()), few=20, many=2000)
def test_a_parquet_file_is_read_or_refused(folder, content):
    (folder / "data.parquet").write_bytes(content)
    table = refused_or(read_table, folder / "data.parquet")
    if table is not None:
        frame = refused_or(Frame, table)
        for name in frame.names if frame is not None else ():
            refused_or(frame.column, name)


POLICY = example_policy()
OPEN = "\n".join(line.removeprefix("# ") for line in POLICY.splitlines()[1:])


@fuzzed(st.one_of(text_mutants(*POLICY.splitlines()), byte_mutants(POLICY.encode(), OPEN.encode())))
def test_a_policy_is_read_or_refused(folder, content):
    (folder / "policy.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    policy = refused_or(Policy.read, folder / "policy.toml")
    if policy is not None:
        assert isinstance(policy, Policy)
        assert str(policy)


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


IMAGES = struct.pack(">4B3I", 0, 0, 8, 3, 2, 3, 3) + bytes(range(18))
LABELS = struct.pack(">4BI", 0, 0, 8, 1, 5) + bytes(range(5))
PICTURES = [
    IMAGES,
    LABELS,
    gzip.compress(IMAGES, mtime=0),
    gzip.compress(LABELS, mtime=0),
    _npz(images=np.zeros((2, 3, 3), np.uint8), labels=np.zeros(2, np.uint8)),
]


@fuzzed(st.one_of(byte_mutants(*PICTURES), archive_mutants(PICTURES[-1])), few=80, many=10_000)
def test_images_are_read_or_refused(folder, content):
    (folder / "images").write_bytes(content)
    for read, axes in ((read_images, 3), (read_labels, 1)):
        found = refused_or(read, folder / "images")
        if found is not None:
            assert (found.dtype, found.ndim) == (np.uint8, axes)
            assert found.size <= len(content) * 1100  # as much as gzip can pack


@cache
def stored():
    """A store with a cell and a row, whose bytes can be damaged: in one file, without a journal beside it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        Store(path).close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("INSERT INTO cells VALUES ('k', 'e', '{}', '0', '{}', 1.0, 'now')")
        connection.execute("INSERT INTO rows VALUES ('k', 0, ?)", (json.dumps({"x": 1.0, "name": "a"}),))
        connection.commit()
        connection.close()
        return path.read_bytes()


def _use_store(path):
    with Store(path) as store:
        assert len(store) >= 0
        store.finished(["k"])
        return store.rows(dict)


@fuzzed(st.randoms(use_true_random=False), st.integers(1, 8), few=15, many=1500)
def test_a_store_is_opened_or_refused(folder, random, changes):
    """By byte, where the tables are: most of an SQLite file is empty."""
    data = bytearray(stored())
    used = [place for place, byte in enumerate(data) if byte]
    for _ in range(changes):
        data[random.choice(used)] = random.randrange(256)
    path = folder / "store.sqlite"
    path.write_bytes(data)
    rows = refused_or(_use_store, path)
    assert rows is None or all(isinstance(row, dict) for row in rows)
    for left in folder.glob("store.sqlite*"):
        left.unlink()


@fuzzed(json_mutants({"x": 1.0, "name": "a"}), few=15, many=1500)
def test_a_row_of_a_store_is_read_or_refused(folder, payload):
    path = folder / "rows.sqlite"
    path.write_bytes(stored())
    connection = sqlite3.connect(path)
    connection.execute("UPDATE rows SET payload = ?", (payload.decode("utf-8", "replace"),))
    connection.commit()
    connection.close()
    rows = refused_or(_use_store, path)
    assert rows is None or all(isinstance(row, dict) for row in rows)


@fuzzed(st.one_of(json_mutants({"scale": "paper", "results": {}}), st.just(b"[" * 20_000), st.binary()))
def test_a_report_that_cannot_be_read_is_none(folder, content):
    (folder / VERDICTS).write_bytes(content)
    refused_or(refuse_other_scale, folder, PAPER)
