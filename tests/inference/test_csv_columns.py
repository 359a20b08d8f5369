"""CSV files as pandas reads them, value by value."""

import numpy as np
import pandas as pd
import pytest

from fedgauss.inference import csv_columns as module
from fedgauss.inference.csv_columns import csv_columns
from fedgauss.inference.tables import Frame, read_table

VALUES = [
    "1", " 1", "1 ", "+5", "-2.5", ".5", "1.", "1e5", "1E-400", "1e999", "inf", "-Infinity", "nan", "", "NA", "None",
    "N/A", "#N/A N/A", "1.#QNAN", "<NA>", "null", " NA", "1_000", "0x10", "1d5", "--1", "٣", "True", "FALSE", "true",
    "yes", "text, with a comma", 'a "quote"', "two\nlines", "é", "007", "0.1", "123456789.123456789", "123456789012345",
]  # fmt: skip


@pytest.fixture
def file(tmp_path):
    def write(text):
        (tmp_path / "data.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / "data.csv"

    return write


def same(ours, theirs):
    """Numbers to two units in the last place (pandas' are not always the nearest), all else as it is."""
    assert list(ours) == list(theirs.columns)
    for name, values in ours.items():
        wanted = theirs[name]
        missing = np.array([value is None or value != value for value in values.tolist()], dtype=bool)
        assert missing.tolist() == wanted.isna().tolist(), name
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values, wanted.astype(float), rtol=5e-16)
        else:
            assert values[~missing].tolist() == wanted[~missing].tolist(), name


@pytest.mark.parametrize("size", [2, 4096])
def test_columns_are_those_of_pandas(file, monkeypatch, size):
    """Random columns of 6 rows from kinds that can be mixed; in chunks of two rows, text comes up late."""
    monkeypatch.setattr(module, "_CHUNK", size)
    rng, numbers, words = np.random.default_rng(5), VALUES[:21], VALUES[21:]
    columns = {}
    for j in range(150):
        some = rng.choice(numbers, 6) if j % 3 else np.where(rng.random(6) < 0.6, rng.choice(numbers, 6), "x")
        columns[f"c{j}"] = np.where(rng.random(6) < 0.3, rng.choice(words, 6), some) if j % 3 == 2 else some
    columns |= {f"t{j}": rng.choice(["True", "FALSE", "true", ""][: 3 + j % 2], 6) for j in range(4)}
    frame = pd.DataFrame(columns)
    path = file("")
    frame.to_csv(path, index=False)
    same(csv_columns(path), pd.read_csv(path))


def test_lines_that_are_short_or_empty_are_filled_and_skipped(file):
    path = file("\ufeffa,b,c\n1,x,2\n\n3\n4,,5\n")
    same(csv_columns(path), pd.read_csv(path))
    assert {name: len(values) for name, values in csv_columns(file("a,b\n")).items()} == {"a": 0, "b": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv could not be read as csv: No columns to parse"),
        ("a,b\n1,2,3\n", "could not be read as csv: line 2 has 3 fields, and the first line has 2"),
        (b"a,b\n\xff,1\n", "must be text in UTF-8; it is in another encoding"),
        ("a\n" + "x" * 200_000, "could not be read as csv: line 2: field larger than field limit"),
        ("a,a\n1,2\n", "'a' is repeated"),
        ("a;b\n1;2\n", "seems to have semicolons"),
        ("a\tb\n1\t2\n", "seems to have tabs"),
        (",b\n1,2\n", "column 1 of .* has none"),
    ],
)
def test_files_that_are_no_tables_are_refused(file, text, message):
    with pytest.raises(ValueError, match=message):
        read_table(file(text))


def test_columns_are_a_frame(file):
    path = file("ward,age,well\nnorth,30,True\nsouth,NA,False\nnorth,50.5,True\n")
    frame = Frame(read_table(path))
    assert frame.complete(["age", "ward"]).tolist() == [True, False, True]
    read = frame.read(["ward", "well"])
    assert (read["ward"].levels, read["well"].levels) == (("north", "south"), (False, True))
    np.testing.assert_array_equal(read["ward"].values, [0.0, 1.0, 0.0])
