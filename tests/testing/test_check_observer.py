"""The battery for observers: every shipped one passes, and every rule finds a broken one."""

import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure

from fedgauss.engine import observers
from fedgauss.engine.observers import Observer
from fedgauss.inference.client_sums import ClientSums, HessianSums, RoundStart
from fedgauss.inference.methods import BatchMeans, RandomScaling
from fedgauss.inference.passes import LastClients
from fedgauss.problems import pytree
from fedgauss.testing import check_observer, checks_for_observer, observer

SHIPPED = {
    "Average": observers.Average(),
    "Last": observers.Last(),
    "sup_partial_sum": observers.sup_partial_sum([1.0, 0.0]),
    "sup_partial_sum max": observers.sup_partial_sum([1.0, 0.0], norm="max"),
    "Disagreement": observers.Disagreement(),
    "CusumPath": observers.CusumPath(),
    "at": observers.at([3, 9], observers.Average()),
    "path": observers.path(every=2),
    "uploads": observers.uploads(every=2),
    "LastClients": LastClients(),
    "ClientSums": ClientSums(3, 5),
    "HessianSums": HessianSums(3),
    "RoundStart": RoundStart(5),
    "RandomScaling": RandomScaling(),
    "BatchMeans": BatchMeans(),
}


# Those of inference, which its own tests run, and one that differs from another by a word.
RARELY = (
    "sup_partial_sum max",
    "LastClients",
    "ClientSums",
    "HessianSums",
    "RoundStart",
    "RandomScaling",
    "BatchMeans",
)
LONG = dict.fromkeys(RARELY, pytest.mark.study)


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in SHIPPED])
def test_shipped_observers_conform(name):
    report = check_observer(SHIPPED[name])
    assert len(report.outcomes) == 13


@pytest.mark.parametrize("name", sorted(set(vars(observers)) - {"Latest", "Observer", "Periodic"}))
def test_no_shipped_observer_is_left_out(name):
    kind = getattr(observers, name)
    if isinstance(kind, type) and issubclass(kind, Observer):
        assert any(type(each) is kind for each in SHIPPED.values())


@pytree
class Furthest(Observer):
    """max_t |Y_t|, a sound observer for mutants to spoil."""

    keeps_time = False

    def init(self, theta, n_steps):
        return jnp.zeros_like(theta[0, 0])

    def update(self, state, step):
        return jnp.maximum(state, jnp.sqrt((step.mean**2).sum(axis=0)))

    def value(self, state):
        return {"furthest": state}


def spoiled(**methods):
    """The sound observer with other methods."""
    return pytree(type("Spoiled", (Furthest,), methods))()


class NotRegistered(Furthest):
    pass


@pytree
class Checking(Furthest):
    center: object

    def __post_init__(self):
        if len(self.center) != 2:
            raise ValueError("give two coordinates")


def refuse(self, dim, n_steps):
    raise ValueError("too short")


def count_outside(self, state, step, calls=[]):  # noqa: B006
    calls.append(1)
    return jnp.maximum(state, step.mean[0] * len(calls))


def watch_a_client(self, state, step):
    return jnp.maximum(state, step.theta[0, 0])


def remember_outside(self, state, step, seen={}):  # noqa: B006
    """The largest first coordinate of all replicates in the chunk."""
    return jnp.maximum(state, step.mean[0].max())


def test_the_sound_observer_conforms():
    check_observer(Furthest())


MUTANTS = [
    ("pytree", NotRegistered(), "NotRegistered is a leaf itself"),
    ("pytree", Checking(np.ones(2)), "placeholders in place of its numbers"),
    ("suits the run", spoiled(check=refuse), "ValueError: too short"),
    ("names", spoiled(value=lambda self, state: state), "Got: ShapeDtypeStruct"),
    ("names", spoiled(value=lambda self, state: {"the furthest": state}), "the name 'the furthest'"),
    ("names", spoiled(value=lambda self, state: {"seed": state}), "'seed', which runs have already"),
    ("replicates last", spoiled(value=lambda self, state: {"furthest": state.max()}), r"furthest of shape \(\)"),
    ("same state", spoiled(update=lambda self, state, step: step.mean), "body_fun|carry"),
    ("memory", spoiled(init=lambda self, theta, n: jnp.zeros((n, 16))), "176, 352 and 704 numbers"),
    ("memory", spoiled(keeps_time=True, init=lambda self, theta, n: jnp.zeros((n, n))), "121, 484 and 1936 numbers"),
    ("finite", spoiled(value=lambda self, state: {"furthest": jnp.log(-state)}), "16 of 16 entries of furthest"),
    ("looks at the path", spoiled(update=lambda self, state, step: state), "the same values after step 1"),
    ("chunks", spoiled(update=remember_outside), "furthest differs by .* another replicate"),
    ("pure", spoiled(update=count_outside), "another program the second time"),
    ("mean alone", spoiled(update=watch_a_client, mean_only=True), "furthest differs by .* stand at their mean"),
]


@pytest.mark.parametrize(("name", "broken", "pattern"), MUTANTS)
def test_every_rule_finds_a_broken_observer(name, broken, pattern):
    expect_failure(checks_for_observer(broken), name, pattern)


def test_segments_and_settings_are_compared(monkeypatch):
    """The engine sees to it that both agree for every observer, so results are spoiled after it."""
    whole = observer._Case.results

    def spoiled_results(case, stops=(observer._STEPS,), first=0, settings=1):
        found = whole(case, stops, first, settings)
        return {name: value + 0.01 * (len(stops) - 1 + settings - 1) for name, value in found.items()}

    monkeypatch.setattr(observer._Case, "results", spoiled_results)
    battery = checks_for_observer(Furthest())
    expect_failure(battery, "segments", r"furthest differs by 0\.01 in two segments")
    expect_failure(battery, "together", r"furthest differs by 0\.01 as setting 0 of two")


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(observer._RULES, sys.modules[__name__])


def test_parts_with_the_same_fields_are_not_taken_for_each_other():
    """JAX compares dataclasses by their fields alone, and now and then ran one observer's program for another."""
    structures = [jax.tree.structure(each) for each in SHIPPED.values()]
    assert [i for i, mine in enumerate(structures) if mine in structures[:i]] == []
    registered = jax.tree_util.register_dataclass(dataclass(frozen=True, eq=False)(type("Alike", (Furthest,), {})))
    expect_failure(checks_for_observer(registered()), "pytree", "equal to that of another class with the same fields")
