"""Folders and files that results go to."""

import os

import pytest

from fedgauss.report.output import writable_folder, write_whole


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
