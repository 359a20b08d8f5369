"""What a release is made of: one version, all files, an extra's check for each extra, the Pythons that are tried."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import fedgauss

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PYTHONS = ["3.11", "3.12", "3.13"]


def test_the_version_and_its_date_are_the_same_everywhere():
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "fedgauss.__version__"}
    newest = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = dict(re.findall(r"^(version|date-released): (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert newest is not None
    assert newest.groups() == (cited["version"], cited["date-released"])
    assert newest[1] == fedgauss.__version__


@pytest.mark.parametrize("lock", sorted(ROOT.glob("requirements*.lock")), ids=lambda lock: lock.name)
def test_a_lock_has_pins_and_hashes_and_no_address(lock):
    """So that pip --require-hashes and pip-audit --disable-pip can read it anywhere."""
    entries = lock.read_text().replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==\S+( ; [^-]+?)?( +--hash=sha256:[0-9a-f]{64})+", entry), entry
    assert "//" not in lock.read_text()


def test_every_file_that_is_not_python_is_packaged():
    package = ROOT / "src" / "fedgauss"
    files = {
        str(file.relative_to(package))
        for file in package.rglob("*")
        if file.is_file() and file.suffix not in (".py", ".pyc")
    }
    declared = {
        str(file.relative_to(package))
        for pattern in PROJECT["tool"]["setuptools"]["package-data"]["fedgauss"]
        for file in package.glob(pattern)
    }
    assert files == declared


def test_every_extra_has_a_check(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    smoke = pytest.importorskip("smoke_extras")
    assert list(smoke.EXTRAS) == list(PROJECT["project"]["optional-dependencies"])


def test_the_pythons_of_the_metadata_are_those_that_are_tried():
    told = [name.rpartition(" ")[2] for name in PROJECT["project"]["classifiers"] if "Python :: 3." in name]
    assert told == PYTHONS
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert matrix is not None
    assert [name.strip(' "') for name in matrix[1].split(",")] == PYTHONS


def test_the_smoke_test_notices_a_silent_lack(monkeypatch, tmp_path):
    """An extra that does nothing without its package, or whose error does not name it, is a failure."""
    spec = importlib.util.spec_from_file_location("extras_under_test", ROOT / "scripts" / "smoke_extras.py")
    smoke = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(smoke)

    def fails(folder):
        raise ImportError("no such module")

    for use in (fails, lambda folder: "fine"):
        monkeypatch.setitem(smoke.EXTRAS, "frames", smoke.Extra("no_such_module", use))
        with pytest.raises(AssertionError, match="without no_such_module"):
            smoke.check_extra("frames", False, tmp_path)
    with pytest.raises(AssertionError, match="did not bring no_such_module"):
        smoke.check_extra("frames", True, tmp_path)
