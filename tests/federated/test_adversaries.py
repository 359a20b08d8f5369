"""The readers of rows find what was planted, and nothing where there is nothing to find."""

import re
from itertools import islice

import numpy as np
import pytest
from adversaries import (
    CLOSE,
    LEVELS,
    TARGETS,
    match,
    random_models,
    random_table,
    read_by_differences,
    read_by_span,
    read_by_value,
    read_sites,
    rows_in_span,
)

N = 300
COLUMNS = ("age", "dose", "bmi", "sex", "cost")


@pytest.fixture
def table():
    return random_table(np.random.default_rng(1), N)


def rows_of(table, names=COLUMNS):
    return np.column_stack([table[name] for name in names])


def with_ones(x):
    return np.column_stack([np.ones(len(x)), x])


def rounds(table, names, seed, n_rounds):
    """Left vectors of an honest run: columns with the weights of a logistic fit on its way."""
    x = with_ones((rows_of(table, names) - 30) / 30)
    path = np.random.default_rng(seed).normal(0, 0.3, x.shape[1]) * np.linspace(1, 0, n_rounds)[:, None]
    weights = 1 / (2 + 2 * np.cosh(path @ x.T))
    return np.concatenate([(w[:, None] * x).T for w in weights]).T


def innocent(table, n_rounds=2):
    """Left vectors of three ordinary runs."""
    runs = (("age", "bmi"), ("dose", "sex", "bmi"), ("age", "smoker", "marker"))
    return np.column_stack([rounds(table, names, seed, n_rounds) for seed, names in enumerate(runs)])


# --- tables and models ------------------------------------------------------------------------------------------------


def test_tables_tempt(table):
    counts = np.unique(table["age"], return_counts=True)[1]
    assert (counts == 1).any()
    assert np.sum(table["dose"] != table["dose2"]) == np.sum(table["sex"] != table["sex2"]) == 1
    assert 1 <= np.sum(np.isnan(table["lab"])) <= 3
    assert 0 < np.sum(table["code"] == "D") < 10
    np.testing.assert_array_equal(table["cost"], random_table(np.random.default_rng(1), N)["cost"])


def test_models_are_of_the_whole_grammar_and_of_columns_that_there_are(table):
    """Of 600 draws of 1 to 4 terms each kind of 12 is missed with a chance below 12 (11 / 12)^600 = 2e-22."""
    models = list(islice(random_models(np.random.default_rng(2), table), 600))
    said = "\n".join(model["formula"] for model in models)
    for part in ("log(", "sqrt(", "I(", "**2", ":ward", "*sex", "scale(", "ns(", "knots=", "C(age)", "Treatment('"):
        assert part in said
    assert {model["family"] for model in models} == set(TARGETS)
    assert {role for model in models for role in model} >= {"offset", "exposure", "row_weights", "event"}
    functions = {
        "log",
        "log2",
        "sqrt",
        "I",
        "scale",
        "center",
        "ns",
        "C",
        "Treatment",
        "offset",
        "df",
        "knots",
        "bounds",
    }
    levels = {str(level) for name in LEVELS for level in table[name]}
    assert set(re.findall(r"[A-Za-z_]\w*", said)) <= functions | set(table) | levels
    for model in models:
        target, terms = model["formula"].split(" ~ ")
        assert not re.search(rf"\b{target}\b", terms)


# --- guesses ----------------------------------------------------------------------------------------------------------


def test_a_match_of_few_columns_is_luck(table):
    rows = rows_of(table)
    assert [one.who for one in match(rows[[7]], rows)] == [(7,)]
    assert match(rows[[7]] + 2 * CLOSE * rows.std(axis=0), rows) == []
    two = rows_of(table, ("sex", "smoker"))
    assert match(two[[7]], two) == []  # many patients are like this one
    assert match(rows[[7]], rows, fixed=range(rows.shape[1])) == []


def test_guesses_of_no_merit_read_nothing(table):
    """100,000 rows made of the values of others: a chance of 1e-4 of a false find, or less, by the bound itself."""
    rng, rows = np.random.default_rng(3), rows_of(table)
    guesses = np.column_stack([rng.choice(column, 100_000) for column in rows.T])
    own = (guesses[:, None, :3] == rows[None, :1, :3]).all(axis=2).ravel()
    assert match(guesses[~own], rows) == []


# --- spans ------------------------------------------------------------------------------------------------------------


def test_a_span_without_short_vectors_has_none(table):
    left, right = innocent(table), rows_of(table)
    assert rows_in_span(left) == []
    assert read_by_span(left, right, left.T @ right) == []


@pytest.mark.parametrize("how", ["as it is", "rescaled", "combined", "transformed"])
def test_a_column_that_differs_in_one_row_is_found_in_a_span(table, how):
    left, right = innocent(table), rows_of(table)
    changed = {
        "as it is": table["dose2"],
        "rescaled": 39.37 * table["dose2"] - 11,
        "combined": 2 * table["dose2"] - 3 * table["sex"] + 0.5,
        "transformed": np.log(5 + table["dose2"]),
    }[how]
    own = np.log(5 + table["dose"]) if how == "transformed" else table["dose"]
    left = np.column_stack([left, np.ones(N), own, table["sex"], changed])
    where = int(np.flatnonzero(table["dose"] != table["dose2"])[0])
    (found,) = read_by_span(left, right, left.T @ right)
    assert found.who == (where,)
    assert found.error < 1e-6


def test_two_rows_are_found_in_a_span(table):
    left, right = innocent(table), rows_of(table)
    changed = table["sex"].copy()
    changed[[40, 90]] = 1 - changed[[40, 90]]
    left = np.column_stack([left, np.ones(N), table["sex"], changed])
    (found,) = read_by_span(left, right, left.T @ right)
    assert sorted(found.who) == [40, 90]
    three = changed.copy()
    three[140] = 1 - three[140]
    left[:, -1] = three
    assert read_by_span(left, right, left.T @ right) == []


def test_noise_hides_a_row(table):
    left = np.column_stack([innocent(table), np.ones(N), table["dose"], table["dose2"]])
    right = rows_of(table)
    noise = np.random.default_rng(4).normal(size=(left.shape[1], right.shape[1])) * right.std(axis=0)
    assert len(read_by_span(left, right, left.T @ right)) == 1
    assert read_by_span(left, right, left.T @ right + noise) == []


# --- differences ------------------------------------------------------------------------------------------------------


def test_differences_of_ordinary_runs_read_nothing(table):
    rows = rows_of(table)
    totals = innocent(table, n_rounds=6).T @ with_ones(rows)
    assert read_by_differences(totals, rows, {0: range(18, 105), 3: (0, 1)}) == []


@pytest.mark.parametrize("factor", [1.0, 2.0, 1000.0, 2.54])
def test_a_corrected_row_is_read_from_two_runs(table, factor):
    """Factors that are in no list are solved for by sex, which is 0 or 1."""
    rows = rows_of(table)
    left = np.column_stack([innocent(table, n_rounds=3), table["dose"], factor * table["dose2"]])
    where = int(np.flatnonzero(table["dose"] != table["dose2"])[0])
    (found,) = read_by_differences(left.T @ with_ones(rows), rows, {3: (0, 1)})
    assert found.who == (where,)
    assert found.error < 1e-6


def test_a_row_that_was_left_out_is_read(table):
    rows, there = rows_of(table), ~np.isnan(table["lab"])
    there[np.flatnonzero(~there)[1:]] = True  # one is missing
    left = np.column_stack([np.ones(N), table["smoker"], there])
    assert [one.who for one in read_by_differences(left.T @ with_ones(rows), rows)] == [(int(np.argmin(there)),)]


def test_a_cell_of_one_row_is_read_from_three_columns(table):
    rows = rows_of(table)
    alone = np.arange(N) == 123
    left = np.column_stack([np.ones(N), table["smoker"], 1 - table["smoker"] - alone])
    assert [one.who for one in read_by_differences(left.T @ with_ones(rows), rows)] == [(123,)]


def test_the_jump_of_a_weight_is_read(table):
    """Two informations of a loss whose weight falls from 1 to .05 where a residual crosses a threshold."""
    rows, residual = rows_of(table), np.random.default_rng(5).normal(size=N)
    x = with_ones(rows)
    crossed = float(np.sort(np.abs(residual))[200])
    before, after = (np.where(np.abs(residual) < crossed + step, 1.0, 0.05) for step in (-1e-9, 1e-9))
    totals = np.concatenate([(x * w[:, None]).T @ x for w in (before, after)])
    assert [one.who for one in read_by_differences(totals, rows)] == [(int(np.argsort(np.abs(residual))[200]),)]


# --- values of one column ---------------------------------------------------------------------------------------------


def bumps(table, slope=1.0):
    """Informations of logistic fits on age alone, each steep about another age."""
    ages, about = np.arange(15, 110), np.linspace(10, 114, 105)
    likely = 1 / (1 + np.exp(-slope * (ages - about[:, None])))
    kernels = likely * (1 - likely)
    of_rows = kernels[:, (table["age"] - 15).astype(int)]
    return kernels, of_rows @ with_ones(rows_of(table))


def test_patients_with_an_age_of_their_own_are_read(table):
    ages, counts = np.unique(table["age"], return_counts=True)
    alone = [int(np.flatnonzero(table["age"] == age)[0]) for age in ages[counts == 1]]
    kernels, totals = bumps(table)
    found = read_by_value(kernels, totals, rows_of(table))
    assert [one.who[0] for one in found] == sorted(alone)
    assert len(alone) > 3


def test_ages_of_several_patients_tell_of_none(table):
    table["age"] = np.tile(np.arange(30, 80), 6).astype(float)
    kernels, totals = bumps(table)
    assert read_by_value(kernels, totals, rows_of(table)) == []


def test_an_honest_path_takes_few_ages_apart(table):
    """Six rounds whose weights change little: far fewer equations than ages."""
    kernels, totals = bumps(table, slope=0.05)
    assert read_by_value(kernels[40:46], totals[40:46], rows_of(table)) == []


# --- sites ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rosters", "read"),
    [
        ([[1, 1, 1, 1]], []),
        ([[1, 1, 1, 1], [1, 1, 0, 0]], []),
        ([[1, 1, 1, 1], [1, 1, 1, 0]], [3]),
        ([[1, 1, 1, 0], [0, 1, 1, 1], [1, 1, 1, 1]], [0, 3]),
        ([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0]], [0, 1, 2]),  # beside sites whose sums are known
        ([[3, 0, 0, 0]], [0]),  # one table under three names
        ([[2, 1, 1, 1], [1, 1, 1, 1]], [0]),
    ],
)
def test_sites_are_read_where_rosters_say_so(rosters, read):
    own = np.random.default_rng(6).normal(size=(4, 7))
    rosters = np.array(rosters)
    assert [one.who[0] for one in read_sites(rosters, rosters @ own, own)] == read


def test_sums_at_other_parameters_do_not_tell_a_site():
    rng = np.random.default_rng(7)
    own, rosters = rng.normal(size=(4, 7)), np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    assert read_sites(rosters, rosters @ own + 0.1 * rng.normal(size=(2, 7)), own) == []
