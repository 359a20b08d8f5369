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
    "fedgauss._linearization",
    "fedgauss.engine.simulate",
    "fedgauss.engine.observers",
    "fedgauss.inference.estimate",
    "fedgauss.inference.hypotheses",
    "fedgauss.inference.meta",
    "fedgauss.inference.named",
    "fedgauss.inference.site_estimates",
    "fedgauss.networks.graphs",
    "fedgauss.step_sizes",
    "fedgauss.theory.advice",
    "fedgauss.theory.distances",
]
OWNERS = [approx, networks, observers, projections, step_sizes, theory]
TOP = ["advise", "ball_distance", "gradient_moments", "linearization", "near_optimum", "simulate", "simulate_together"]
PUBLIC_OF_MODULES = {"ball", "box", "constant", "from_array", "per_client", "polynomial", "sync_mask", "warm_start"}
CALLS = sorted(
    {getattr(fedgauss, name) for name in TOP}
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
    assert "\nReturns\n" in text
