"""The store keeps what finished, and refuses what it cannot keep apart."""

import json
import math
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace as Row

import numpy as np
import pytest

import fedgauss
from fedgauss.sweep.cell import cell_json, cell_key
from fedgauss.sweep.store import Store, StoreError


@dataclass(frozen=True)
class Shape:
    name: str
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Other:
    name: str
    sizes: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Thing:
    number: float
    shape: Shape | Other | None = None
    seed: int = 3
    note: str = field(default="", compare=False)

    def run(self):
        return []


@dataclass(frozen=True)
class Loose:
    values: object

    def run(self):
        return []


def filled(path, numbers=(2, 1)):
    """A store with two rows for each number."""
    with Store(path) as store:
        for number in numbers:
            store.add(Thing(number), [Row(x=number, i=0), Row(x=number, i=1)], seconds=0.5)
    return path


def change_meta(path, name, value):
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE meta SET value = ? WHERE name = ?", (value, name))
    raw.close()


# --- keys ------------------------------------------------------------------------------------------------------------


def test_the_json_of_a_cell_is_canonical():
    assert cell_json(Thing(0.1, Shape("a"))) == (
        '{"class":"Thing","number":0.1,"seed":3,"shape":{"class":"Shape","name":"a","sizes":[1,2]}}'
    )


def test_the_key_is_the_same_in_every_process_and_version_of_python():
    assert cell_key(Thing(0.1, Shape("a"))) == "f7eb716fc52e59ff3f16715207363a6b"


def test_fields_classes_and_nothing_else_make_the_key():
    cells = [
        Thing(1),
        Thing(1.5),
        Thing(1, Shape("a")),
        Thing(1, Other("a")),
        Thing(1, Shape("a", (1,))),
        Thing(1, seed=4),
    ]
    assert len({cell_key(cell) for cell in cells}) == len(cells)
    assert cell_key(Thing(1, note="fast")) == cell_key(Thing(1))


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.int64(1), np.zeros(2), object])
def test_values_that_are_not_plain_are_named(value):
    with pytest.raises(ValueError, match=r"Loose\.values\[1\] must be a number, a string"):
        cell_key(Loose((0, value)))


def test_a_dataclass_that_can_change_is_refused():
    @dataclass
    class Soft:
        number: int = 1

    with pytest.raises(ValueError, match=r"Use @dataclass\(frozen=True\)"):
        cell_key(Loose(Soft()))


# --- rows ------------------------------------------------------------------------------------------------------------


def test_rows_come_back_exactly(tmp_path):
    rows = [{"a": 0.1 + 0.2, "b": 2**70, "c": "√n", "d": None, "e": math.inf, "f": -0.0}]
    with Store(tmp_path / "new" / "s.sqlite") as store:
        store.add(Thing(1), [Row(**row) for row in rows], seconds=1.0)
        assert [repr(row) for row in store.rows(dict)] == [repr(row) for row in rows]
        store.add(Thing(2), [Row(a=np.float32(0.5), b=np.int64(3))], seconds=1.0)
        assert store.rows(dict, [cell_key(Thing(2))]) == [{"a": 0.5, "b": 3}]


def test_the_order_of_rows_is_not_that_of_arrival(tmp_path):
    with Store(filled(tmp_path / "a", [3, 1, 2])) as a, Store(filled(tmp_path / "b", [2, 3, 1])) as b:
        assert a.rows(dict) == b.rows(dict)
        keys = [cell_key(Thing(number)) for number in (2, 9, 1, 2)]
        assert [row["x"] for row in a.rows(dict, keys)] == [2, 2, 1, 1]
        assert a.finished(keys) == {keys[0], keys[2]}
        assert len(a.rows(dict, experiment="Thing")) == 6
        assert a.rows(dict, keys, experiment="another") == []


def test_what_is_kept_beside_the_rows(tmp_path):
    path = filled(tmp_path / "s", [1])
    raw = sqlite3.connect(path)
    key, experiment, spec, seed, versions, seconds, finished_at = raw.execute("SELECT * FROM cells").fetchone()
    raw.close()
    assert (key, experiment, spec, seed, seconds) == (cell_key(Thing(1)), "Thing", cell_json(Thing(1)), "3", 0.5)
    assert set(json.loads(versions)) == {"fedgauss", "jax", "numpy", "python"}
    assert finished_at.endswith("+00:00")


def test_a_bad_value_is_named_and_nothing_of_its_cell_is_kept(tmp_path):
    with Store(tmp_path / "s") as store:
        with pytest.raises(ValueError, match=r"column 'x' of Thing\(number=1.* holds ndarray"):
            store.add(Thing(1), [Row(x=1.0), Row(x=np.zeros(2))], seconds=0.0)
        assert store.rows(dict) == []
        assert store.finished([cell_key(Thing(1))]) == set()


def test_a_cell_is_written_once(tmp_path):
    with Store(filled(tmp_path / "s")) as store:
        with pytest.raises(ValueError, match="a cell is written once"):
            store.add(Thing(1), [Row(x=5)], seconds=0.0)
        assert [row["x"] for row in store.rows(dict)] == [1, 1, 2, 2]


# --- files that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"), [("fedgauss", "fedgauss 0.0.0"), ("format", "format 0.0.0"), ("spec", "specs 0.0.0")]
)
def test_another_version_is_refused_and_left_alone(tmp_path, name, words):
    path = filled(tmp_path / "s")
    change_meta(path, name, "0.0.0")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="rows of one version only") as caught:
        Store(path)
    message = str(caught.value)
    assert words in message
    assert f"this is fedgauss {fedgauss.__version__} (store format 1, specs 2)" in message
    assert str(path) in message
    assert "another --out, or delete the file" in message
    assert path.read_bytes() == before


def test_files_of_another_kind_are_refused_and_left_alone(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other"
    text.write_text("not a database, and long enough to be looked at" * 50)
    raw = sqlite3.connect(other)
    raw.execute("CREATE TABLE songs (name TEXT)")
    raw.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="must be an SQLite file written by fedgauss") as caught:
            Store(path)
        assert str(path) in str(caught.value)
        assert path.read_bytes() == before
        assert not path.with_name(f"{path.name}-wal").exists()


@pytest.mark.parametrize("where", ["cut", "overwritten"])
def test_a_damaged_file_is_noticed_when_it_is_opened(tmp_path, where):
    path = filled(tmp_path / "s", range(400))
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        content[:middle] if where == "cut" else content[:middle] + bytes(range(256)) * 16 + content[middle + 4096 :]
    )
    with pytest.raises(StoreError, match="must be an SQLite file written by fedgauss"):
        Store(path)


def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "s"
    path.touch()
    assert filled(path) == path


def test_places_that_take_no_file(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    nobody_writes = Path("/proc")  # whatever its mode, root may write to any other folder
    for path in (tmp_path / "file" / "s", tmp_path / "folder", nobody_writes / "s", nobody_writes / "new" / "s"):
        with pytest.raises(StoreError, match="must be a file that can be written to") as caught:
            Store(path)
        assert str(path) in str(caught.value)


def test_a_full_disk_keeps_what_finished(tmp_path):
    path = tmp_path / "s"
    with Store(path) as store:
        store.add(Thing(0), [Row(x=0)], seconds=0.0)
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(StoreError, match=r"must have room to grow; .*full.* Finished cells are kept") as caught:
            store.add(Thing(1), [Row(x="long" * 10_000)], seconds=0.0)
        assert str(path) in str(caught.value)
        store.add(Thing(2), [Row(x=2)], seconds=0.0)
    with Store(path) as store:
        assert [row["x"] for row in store.rows(dict)] == [0, 2]


def test_the_second_process_is_told(tmp_path):
    path = tmp_path / "s"
    opening = "import sys; from fedgauss.sweep.store import Store; Store(sys.argv[1])"
    source = Path(fedgauss.__file__).parents[1]
    with Store(path) as store:
        store.add(Thing(1), [Row(x=1)], seconds=0.0)
        second = subprocess.run([sys.executable, "-c", opening, path], cwd=source, capture_output=True, text=True)
        assert second.returncode == 1
        assert f"a store is used by one sweep at a time; {path} is in use." in second.stderr
        store.add(Thing(2), [Row(x=2)], seconds=0.0)
    with Store(path) as store:
        assert [row["x"] for row in store.rows(dict)] == [1, 2]
