"""The budget: what multipliers cost, what is left of it, and what is refused."""

import math
import sys

import pytest
from scipy import optimize, stats

from fedgauss.federated.privacy import GRID, Privacy, check_range, compose, remaining

DELTA = 1e-6


def epsilon_of(multipliers, delta=DELTA):
    """Epsilon of Gaussian mechanisms, from the closed form: together they are one with 1 / m^2 summed up."""
    mu = math.sqrt(sum(1 / m**2 for m in multipliers))
    gap = lambda e: stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu) - delta  # noqa: E731
    return optimize.brentq(gap, 0.0, 100.0)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_multipliers_spend_the_budget_and_no_more(epsilon):
    """Three in a thousand more noise than the closed form would be a budget wasted."""
    shares = {"a": 0.7, "b": 0.2, "c": 0.1}
    found = Privacy(epsilon, DELTA).multipliers(shares)
    spent = epsilon_of(found.values())
    assert 0.997 * epsilon < spent < 1.0001 * epsilon
    assert found["b"] / found["a"] == pytest.approx((0.7 / 0.2) ** 0.5, abs=2e-3)
    assert all(m * GRID == pytest.approx(round(m * GRID)) for m in found.values())


def test_shares_need_not_add_up_to_one():
    one, other = (Privacy(1.0).multipliers({"a": by * 0.5, "b": by * 0.5}) for by in (1.0, 3.0))
    assert one == other


def test_fits_of_a_table_add_up():
    cost = Privacy(1.0, DELTA).cost({"a": 0.9, "b": 0.1})
    both = compose([cost], cost, DELTA)
    assert both.epsilon == pytest.approx(epsilon_of(2 * cost), rel=1e-3)
    assert 1.0 < both.epsilon < 2.0
    assert both.delta == DELTA


def test_what_is_left_can_be_spent_and_no_more():
    budget, cost = Privacy(1.0, DELTA), Privacy(0.5, DELTA).cost({"a": 1.0})
    left = remaining(budget, [cost, cost])
    assert left is not None
    after = compose([cost, cost], left.cost({"a": 1.0}), DELTA).epsilon
    assert 0.99 < after <= 1.0 + 1e-3


def test_nothing_is_left_of_a_budget_that_was_spent():
    budget = Privacy(1.0, DELTA)
    assert remaining(budget, [budget.cost({"a": 1.0})]) is None
    whole = remaining(budget, [])
    assert whole is not None
    assert 0.995 < whole.epsilon <= 1.0001


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (0.0, 1e-6, "epsilon must be at least 0.01; got 0"),
        (math.nan, 1e-6, "epsilon must be finite"),
        (1.0, 0.0, "delta must be above 0"),
        (1.0, 0.5, "at most 0.01; got 0.5"),
    ],
)
def test_budgets_that_promise_nothing_are_refused(epsilon, delta, words):
    with pytest.raises(ValueError, match=words):
        Privacy(epsilon, delta)


def test_a_delta_of_one_row_is_refused():
    Privacy(1.0, 1e-4).check_rows(9_999)
    with pytest.raises(ValueError, match="below 1 / 10000"):
        Privacy(1.0, 1e-4).check_rows(10_000)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"shares of a budget must be above 0; got -0.5\. Leave"):
        Privacy(1.0).multipliers({"a": 1.0, "b": -0.5})
    with pytest.raises(ValueError, match="above 0"):
        Privacy(1.0).multipliers({"a": 1.0, "b": 0.0})


def test_the_smallest_epsilon_and_the_largest_delta_are_budgets():
    assert (Privacy(0.01).epsilon, Privacy(1.0, 0.01).delta, Privacy(1.0).delta) == (0.01, 0.01, 1e-6)


def test_multipliers_are_those_of_the_budget_by_name_and_rounded_up():
    """By the closed form, to the next thousandth: a third part of all in each of two."""
    found = Privacy(1.0, DELTA).multipliers({"b": 1.0, "a": 2.0})
    assert list(found) == ["b", "a"]
    one = optimize.brentq(lambda m: epsilon_of([m]) - 1.0, 0.1, 100.0)
    unit = math.ceil(one * 1_000 - 1e-4)
    assert found == {"b": math.ceil(unit * 3.0**0.5) / 1_000, "a": math.ceil(unit * 1.5**0.5) / 1_000}
    assert Privacy(1.0, DELTA).cost({"b": 1.0, "a": 2.0}) == tuple(found.values())


def test_nothing_costs_the_least_that_can_be_said():
    assert compose([], (1e6,), DELTA) == Privacy(0.01, DELTA)


def test_what_would_be_less_than_the_least_is_nothing():
    budget = Privacy(1.0, DELTA)
    rest = sum(1 / m**2 for m in budget.cost({"all": 1.0}))
    least = sum(1 / m**2 for m in Privacy(0.01, DELTA).cost({"all": 1.0}))
    assert remaining(budget, [((rest - 0.9 * least) ** -0.5,)]) is None
    left = remaining(budget, [((rest - 1.5 * least) ** -0.5,)])
    assert left is not None
    assert 0.01 <= left.epsilon < 0.02
    assert remaining(Privacy(0.01, DELTA), []) is not None


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((1.0,), "two numbers"), ((1.0, 2.0, 3.0), "two numbers"), ({1.0: 2.0}, "two numbers"), ("ab", "two numbers"),
        ((1.0, True), "two numbers"), ((1.0, "2"), "two numbers"), (7, "two numbers"),
        ((2.0, 1.0), "low < high"), ((1.0, 1.0), "low < high"), ((-1.5e308, 1.5e308), "low < high"),
        ((math.nan, 1.0), "low < high"), ((0.0, math.inf), "low < high"),
    ],
)  # fmt: skip
def test_a_range_has_two_ends_in_their_order(ends, words):
    with pytest.raises(ValueError, match=f"range of 'age' must be .*{words}"):
        Privacy(1.0, ranges={"age": ends})
    with pytest.raises(ValueError, match=r"got '(x{59})\.") as raised:
        check_range("age", "x" * 100)
    assert "x" * 60 not in str(raised.value)


def test_ranges_are_floats_and_come_back_from_the_wire():
    found = Privacy(1.0, ranges={"age": [18, 100]})
    assert found.ranges == {"age": (18.0, 100.0)}
    assert all(type(end) is float for end in found.ranges["age"])
    assert found.to_wire() == {"epsilon": 1.0, "delta": 1e-6, "ranges": {"age": [18.0, 100.0]}}
    assert Privacy.from_wire(found.to_wire()) == found
    for wrong in ({"ranges": {"age": (18.0, 100.0)}}, {"more": 1}, {"ranges": 5}, {"epsilon": 10**400}):
        with pytest.raises(ValueError, match=r"as fedgauss sends them|must be"):
            Privacy.from_wire(found.to_wire() | wrong)


def test_without_the_accountant_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fedgauss\[private\]'"):
        Privacy(1.0).cost({"a": 1.0})
