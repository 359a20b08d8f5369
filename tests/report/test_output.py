"""Folders and files that results go to."""

import os
from dataclasses import dataclass

import pytest

from fedgauss._files import writable_folder, write_whole
from fedgauss.report.output import rows_csv


def test_a_new_folder_is_made_with_its_parents(tmp_path):
    folder = writable_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match="must be a folder that can be written to") as caught:
            writable_folder(path)
        assert str(path) in str(caught.value)


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_whole(path, b"old")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"


@dataclass(frozen=True)
class Point:
    n: int
    gap: float | None
    note: str | None = None


@dataclass(frozen=True)
class Attacked:
    n: int
    alarms: int


def test_rows_have_the_columns_of_all_kinds_in_the_order_in_which_they_come():
    rows = [Point(10, 0.1), Attacked(20, 3), Point(30, None)]
    assert rows_csv(rows) == b"n,gap,alarms\n10,0.1,\n20,,3\n30,,\n"  # nothing was noted, so no column says so


def test_a_number_in_a_file_is_the_number_to_the_bit():
    third = 1.0 / 3.0
    assert rows_csv([Point(1, third, "a,b")]) == f'n,gap,note\n1,{third!r},"a,b"\n'.encode()
