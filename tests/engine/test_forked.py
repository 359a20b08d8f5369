"""A child that was forked after JAX computed is told so; it used to wait for ever."""

import multiprocessing
import warnings

import pytest

import fedgauss as fg

PROBLEM, RING = fg.problems.random_effects(4, seed=1907), fg.networks.ring(4)


def simulated(replies):
    try:
        fg.simulate(PROBLEM, RING, [0.1] * 5, n_steps=5)
    except RuntimeError as error:
        replies.put(f"{type(error).__name__}: {error}")


def told_by_child(target):
    """What a forked child says, within a minute."""
    context = multiprocessing.get_context("fork")
    replies = context.SimpleQueue()
    child = context.Process(target=target, args=(replies,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python and JAX warn of forks, too
        child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        child.join()
        pytest.fail("the child waits for ever")
    return replies.get()


def linearized(replies):
    try:
        fg.linearize(fg.problems.random_effects(4, seed=3))
    except RuntimeError as error:
        replies.put(f"{type(error).__name__}: {error}")


def test_a_forked_child_is_told_that_it_cannot_compute():
    fg.simulate(PROBLEM, RING, [0.1] * 5, n_steps=5)
    for target in (simulated, linearized):
        said = told_by_child(target)
        assert said.startswith("RuntimeError: fedgauss must not compute by JAX in a forked process")
        assert "multiprocessing.get_context('spawn')" in said
