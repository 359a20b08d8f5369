"""Public names: they are what they are called, whatever was imported before, and the reference has them all."""

import importlib
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

import fedgauss

PACKAGES = ["approx", "detect", "networks", "problems", "stopping", "testing", "theory"]
REFERENCE = (Path(__file__).parents[1] / "docs" / "reference.md").read_text()


@pytest.fixture(scope="module", autouse=True)
def everything_imported():
    """A module once imported stands in its package under its own name, and must not hide a function there."""
    for name in PACKAGES:
        package = importlib.import_module(f"fedgauss.{name}")
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            importlib.import_module(f"fedgauss.{name}.{module.name}")


@pytest.mark.parametrize("name", PACKAGES)
def test_no_public_function_is_hidden_by_its_module(name):
    package = importlib.import_module(f"fedgauss.{name}")
    modules = [each for each in package.__all__ if isinstance(getattr(package, each), ModuleType)]
    assert modules == (["families"] if name == "problems" else [])  # a package of its own, by design
    assert set(package.__all__) <= set(dir(package))


def test_names_of_the_package_are_what_they_are_called():
    for name in fedgauss.__all__:
        found = getattr(fedgauss, name)
        if not isinstance(found, ModuleType):
            assert found.__name__ == name
    with pytest.raises(AttributeError, match="module 'fedgauss' has no attribute 'nothing'"):
        fedgauss.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["", *PACKAGES])
def test_the_reference_has_every_public_name(name):
    package = importlib.import_module(f"fedgauss.{name}".rstrip("."))
    words = set(re.findall(r"\w+", REFERENCE))
    assert [each for each in package.__all__ if each not in words] == []
