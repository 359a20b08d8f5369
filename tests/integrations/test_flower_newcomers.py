"""Newcomers: who is one, what they are compared by, and how often an honest one is held back."""

import json

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedgauss.detect.clients import Compared
from fedgauss.integrations.flower.newcomers import Newcomers, Trial, _numbers


def compared(moves):
    vectors = np.stack([*moves.values()])
    return Compared(tuple(moves), vectors @ vectors.T, {})


def rounds(count, clients, seed=0, dim=40):
    """Moves of clients with a common direction and own ones."""
    rng = np.random.default_rng(seed)
    own = {k: 1.0 + np.random.default_rng([seed, k]).normal(size=dim) for k in range(40)}
    for number in range(1, count + 1):
        yield {k: own[k] + 0.3 * rng.normal(size=dim) for k in clients(number)}


def test_numbers_are_cosines_and_lengths_less_their_medians():
    (moves,) = rounds(1, lambda r: range(6))
    known = np.array([True, True, True, False, True, True])
    found = _numbers(compared(moves), known)
    unit = {k: u / np.linalg.norm(u) for k, u in moves.items()}
    cosines = [np.median([unit[k] @ unit[j] for j in moves if j != k and known[j]]) for k in moves]
    lengths = [np.log(np.linalg.norm(u)) for u in moves.values()]
    for column, values in zip(found.T, (cosines, lengths), strict=True):
        np.testing.assert_allclose(column, np.array(values) - np.median(np.array(values)[known]), rtol=1e-12)


def test_founders_are_those_who_came_before_half_of_a_round_could_be_judged():
    newcomers = Newcomers()
    for number, moves in enumerate(rounds(25, lambda r: [*range(9), 9 + r]), start=1):  # and a new name each round
        found = newcomers.take(compared(moves), (), closed=False)
        assert newcomers.founded == (number >= 11)
        assert found.new == ({9 + number} if number > 11 else set())
    assert newcomers.waiting([0, 8, 10, 20, 34]) == {10, 20, 34}  # names that came once before are no founders


def test_few_of_many_found_nothing():
    """Where clients are seen once, everybody acts."""
    newcomers = Newcomers()
    for moves in rounds(5, lambda r: range(5 * r, 5 * r + 5)):
        newcomers.take(compared(moves), (), closed=False)
    assert not newcomers.founded
    assert newcomers.waiting([0, 99]) == set()


@pytest.mark.parametrize(("closed", "factor"), [(False, 1.0), (False, -1.0), (False, 5.0), (True, 1.0)])
def test_a_newcomer_acts_after_eight_rounds_if_it_moves_like_the_others(closed, factor):
    newcomers, joined = Newcomers(), None
    for number, moves in enumerate(rounds(30, lambda r: range(9 + (r > 14))), start=1):
        if 9 in moves:
            moves[9] = factor * moves[9]
        found = newcomers.take(compared(moves), (), closed)
        if found.established:
            joined = number
            assert found.established == {9}
        assert (9 in found.new) == (number == 15)
    assert joined == (23 if factor == 1.0 and not closed else None)
    assert newcomers.like_the_others(9) == (factor == 1.0)
    if joined is None:
        newcomers.establish([9])
    assert not newcomers.waiting([9])


def test_several_that_stand_out_are_a_crowd():
    newcomers = Newcomers()
    names = lambda r: [*range(9), *([9 + (r - 12) // 6] if r >= 12 else [])]  # noqa: E731
    crowd = []
    for moves in rounds(29, names):
        newcomers.take(compared({k: -u if k >= 9 else u for k, u in moves.items()}), (), closed=False)
        crowd.append(newcomers.crowd())
    assert crowd[27] == [9, 10, 11]
    assert not any(crowd[:27])


def test_who_is_established_outlives_a_restart():
    one, other = Newcomers(), Newcomers()
    played = list(rounds(26, lambda r: range(9 + (r > 14))))
    for moves in played[:20]:
        one.take(compared(moves), (), closed=False)
    other.restore(json.loads(json.dumps(one.state())))
    assert other.waiting(range(11)) == {9, 10}
    for moves in [*played[20:], *played[20:]]:
        other.take(compared(moves), (), closed=False)
    assert 9 in other.established  # after eight more rounds, since trials begin anew


def test_a_newcomer_that_comes_back_after_long_begins_anew():
    """Else a name could rest until its trial is forgotten, and act."""
    newcomers = Newcomers()
    here = lambda r: range(9 + (15 <= r < 20 or r >= 90))  # noqa: E731
    for number, moves in enumerate(rounds(99, here), start=1):
        found = newcomers.take(compared({k: -u if k == 9 else u for k, u in moves.items()}), (), closed=False)
        assert not found.established, number


@pytest.mark.parametrize(
    ("others", "law", "most"),
    [(8, "normal", 0.01), (8, "lognormal", 0.025), (4, "normal", 0.08), (4, "lognormal", 0.1)],
)
def test_how_often_an_honest_newcomer_is_held_back(others, law, most):
    """4,000 newcomers from the same law as the others: figures of docs/limits.md. By chance fails less than 1e-4.

    It would fail if newcomers had to lie among the others, which one in five to one in two would not.
    """
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(4000, others + 1, 2))
    drawn = np.exp(0.5 * drawn) if law == "lognormal" else drawn
    held = 0
    for numbers in drawn:
        trial = Trial()
        trial.add(numbers[0], dict(enumerate(numbers[1:])))
        held += not trial.inside()
    print(f"{others} others, {law}: {held / 4000:.4f} held back")
    assert 0 < held / 4000 < most
