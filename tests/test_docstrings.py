"""Docstrings: the examples in them run, and sections on parameters name every parameter there is."""

import doctest
import importlib
import inspect
import re

import pytest

import fedgauss
from fedgauss import approx, networks, step_sizes, theory
from fedgauss.engine import observers, projections

MODULES = [
    pytest.param("fedgauss.inference.infer", marks=pytest.mark.study),  # compiles for seconds
    pytest.param("fedgauss.inference.infer_run", marks=pytest.mark.study),
    "fedgauss._checks",
    "fedgauss._linearization",
    "fedgauss._rounds",
    "fedgauss.detect.clients.monitor",
    "fedgauss.detect.innovations",
    "fedgauss.detect.monitor",
    "fedgauss.engine.chunks",
    "fedgauss.engine.loop",
    "fedgauss.engine.observers",
    "fedgauss.engine.runs",
    "fedgauss.engine.simulate",
    "fedgauss.federated.privacy",
    "fedgauss.inference.estimate",
    "fedgauss.inference.fit",
    "fedgauss.inference.fit_result",
    "fedgauss.inference.hypotheses",
    "fedgauss.inference.meta",
    "fedgauss.inference.model",
    "fedgauss.inference.coefficient_table",
    "fedgauss.inference.sgd",
    "fedgauss.inference.site_estimates",
    "fedgauss.networks.changing",
    "fedgauss.networks.graphs",
    "fedgauss.problems.linearize",
    "fedgauss.step_sizes",
    "fedgauss.stopping.plateau",
    "fedgauss.theory.advice",
    "fedgauss.theory.distances",
]
OWNERS = [approx, networks, observers, projections, step_sizes, theory]
TOP = [name for name in fedgauss.__all__ if not inspect.ismodule(getattr(fedgauss, name))]
MADE_BY_CALLS = {"DivergedError", "FedgaussWarning", "Runs"}  # nobody calls them: they have attributes, or nothing
PUBLIC_OF_MODULES = {"ball", "box", "constant", "from_array", "per_client", "polynomial", "sync_mask", "warm_start"}
CALLS = sorted(
    {getattr(fedgauss, name) for name in TOP if name not in MADE_BY_CALLS}
    | {
        call
        for owner in OWNERS
        for name, call in inspect.getmembers(owner, inspect.isfunction)
        if name in getattr(owner, "__all__", PUBLIC_OF_MODULES)
    },
    key=lambda call: (call.__module__, call.__name__),
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.__module__}.{call.__name__}")
def test_every_parameter_is_documented(call):
    text = inspect.getdoc(call)
    parameters = list(inspect.signature(call).parameters)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", text, re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^(\S.*?)(?: :.*)?$", section[1], re.MULTILINE) if section else []
    assert sorted(name for head in heads for name in head.split(", ")) == sorted(parameters)
    assert inspect.isclass(call) or "\nReturns\n" in text


@pytest.mark.parametrize("name", TOP)
def test_every_name_of_the_package_has_an_example_that_runs(name):
    """In a module whose examples run above, without one that is skipped."""
    found = getattr(fedgauss, name)
    examples = inspect.getdoc(found).partition("\nExamples\n")[2]
    assert ">>> import fedgauss as fg" in examples or f">>> {name}" in examples
    assert "+SKIP" not in examples
    assert found.__module__ in [getattr(module, "values", [module])[0] for module in MODULES]
