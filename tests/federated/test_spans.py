"""The search against one over all sets of rows, and against what an analyst might try."""

from itertools import combinations

import numpy as np
import pytest

from fedgauss.federated import spans
from fedgauss.federated.spans import ETA, extend, rows_apart, search, span_of


def is_apart(columns, rows):
    """Whether a combination of columns has all but ETA of its squares in these rows, from the singular values."""
    basis = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
    q = basis[0][:, basis[1] > spans.BLIND]
    return np.linalg.svd(q[list(rows)], compute_uv=False)[0] ** 2 >= 1.0 - ETA


def smallest_by_all_sets(columns, few):
    """The size of the smallest set of fewer than `few` rows, one after the other; None where there is none."""
    for size in range(1, few):
        if any(is_apart(columns, rows) for rows in combinations(range(len(columns)), size)):
            return size
    return None


@pytest.mark.parametrize("few", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(40))
def test_the_search_finds_what_a_search_of_all_sets_does(few, seed):
    rng = np.random.default_rng(seed)
    n, q = 14, int(rng.integers(2, 9))
    columns = rng.integers(0, 3, (n, q)) * rng.standard_normal((n, q)) + 1e-12
    if seed % 2:  # nearly apart, on both sides of the threshold
        rows = rng.choice(n, rng.integers(1, 5), replace=False)
        vector = rng.standard_normal(n) * 10.0 ** rng.uniform(-2.5, -1.0)
        vector[rows] += rng.standard_normal(len(rows))
        columns[:, -1] = columns[:, :-1] @ rng.standard_normal(q - 1) + vector
    expected, search = smallest_by_all_sets(columns, few), rows_apart(columns, few)
    assert search.complete
    assert (search.rows is None) == (expected is None)
    if search.rows is not None:
        assert len(search.rows) < few
        assert is_apart(columns, search.rows)


def hospital(rng, n):
    age, bmi = rng.normal(60, 12, n).round(), rng.lognormal(3.3, 0.15, n).round(1)
    return np.column_stack([np.ones(n), age, bmi, rng.random(n) < 0.3, rng.normal(130, 15, n)])


@pytest.mark.parametrize("few", [3, 5])
@pytest.mark.parametrize("n", [60, 300, 2000])
def test_ordinary_columns_pass(few, n):
    rng = np.random.default_rng(n)
    x = hospital(rng, n)
    columns = np.column_stack([x, x[:, 1] * x[:, 4], np.log(x[:, 2]), x[:, 1] ** 2, np.sqrt(x[:, 1] + 40.0)])
    assert rows_apart(columns, few) == (None, True, None)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("count", [1, 2])
def test_a_change_of_few_rows_is_found_however_small(size, count):
    rng = np.random.default_rng(5)
    x = hospital(rng, 400)
    changed = x[:, 4].copy()
    changed[7 : 7 + count] *= 1.0 + size * 20.0  # a value is a twentieth of the column's length
    search = rows_apart(np.column_stack([x, 5.0 - 3.0 * changed]), 3)
    assert search.rows.tolist() == list(range(7, 7 + count))
    assert np.abs(search.weights)[[4, 5]].min() > 100 * np.abs(search.weights)[[1, 2, 3]].max()


def test_it_is_blind_below_its_threshold():
    rng = np.random.default_rng(5)
    x = hospital(rng, 400)
    changed = x[:, 4].copy()
    changed[7] += 0.5 * spans.BLIND * np.linalg.norm(changed)
    assert rows_apart(np.column_stack([x, changed]), 3).rows is None


def test_no_single_run_tells_but_three_do():
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((2, 500))
    c = a + b
    c[11] += 1.0
    runs = [np.column_stack([np.ones(500), run]) for run in (a, b, c)]
    for pair in combinations(runs, 2):
        assert rows_apart(np.column_stack(pair), 5).rows is None
    assert rows_apart(np.column_stack(runs), 5).rows.tolist() == [11]


def test_columns_of_zeros_and_ones_that_differ_in_few_rows_and_in_enough():
    rng = np.random.default_rng(7)
    a = (rng.random(500) < 0.4).astype(float)
    for differ in (1, 2, 3, 4):
        b = a.copy()
        b[40 : 40 + differ] = 1.0 - b[40 : 40 + differ]
        search = rows_apart(np.column_stack([np.ones(500), a, 1.0 - b]), 4)
        assert (search.rows is None) == (differ == 4)


def test_one_value_that_outweighs_all_others_is_a_row_apart():
    x = np.ones((300, 2))
    x[:, 1] = np.random.default_rng(8).standard_normal(300)
    x[9, 1] = 1e4
    assert rows_apart(x, 3).rows.tolist() == [9]


def test_as_many_columns_as_rows_span_everything():
    columns = np.random.default_rng(9).standard_normal((300, 450))
    for few in (3, 5):
        search = rows_apart(columns, few)
        assert search.rows is not None
        assert len(search.rows) < few


def test_a_search_that_would_take_too_long_says_so(monkeypatch):
    columns = np.random.default_rng(10).standard_normal((300, 270))
    monkeypatch.setattr(spans, "_WORK", 1e8)
    assert rows_apart(columns, 5) == (None, False, None)


def test_columns_that_are_told_twice_or_empty_add_nothing():
    x = hospital(np.random.default_rng(11), 200)
    twice = np.column_stack([x, x * 3.0, np.zeros(200), x @ np.arange(5.0), x[:, 1] - x[:, 2]])
    assert rows_apart(twice, 5) == (None, True, None)
    assert rows_apart(np.zeros((200, 2)), 5) == (None, True, None)
    assert rows_apart(np.zeros((200, 0)), 5) == (None, True, None)


def test_scales_do_not_matter():
    x = hospital(np.random.default_rng(12), 200)
    changed = x[:, 1].copy()
    changed[3] += 1.0
    columns = np.column_stack([x, changed]) * np.array([1e200, 1e-200, 1.0, 1e9, 1e150, 1e-150])
    assert rows_apart(columns, 3).rows.tolist() == [3]


def test_numbers_must_be_finite():
    with pytest.raises(ValueError, match="must be finite"):
        rows_apart(np.array([[1.0], [np.nan]]), 3)


def projection(span):
    return span.basis @ span.basis.T


@pytest.mark.parametrize("seed", range(10))
def test_a_span_that_grows_is_that_of_all_columns(seed):
    rng = np.random.default_rng(seed)
    x = hospital(rng, 300)
    late = [x[:, 1:3] @ [3.0, -2.0], np.log(x[:, 1] + 99.0), x[:, 2] * x[:, 1], np.zeros(300), x[:, 2] + 1e-7 * x[:, 4]]
    columns = np.column_stack([x, *late]) * 10.0 ** rng.integers(-9, 9, 10)
    at_once, growing = span_of(columns), span_of(columns[:, :0])
    for start in range(0, 10, 3):
        growing = extend(growing, columns[:, start : start + 3])
    assert growing.basis.shape == at_once.basis.shape == (300, 7)
    assert np.abs(growing.basis.T @ growing.basis - np.eye(7)).max() < 1e-13
    assert np.abs(projection(growing) - projection(at_once)).max() < 1e-8
    assert np.abs(spans.scale(columns) @ growing.weights - growing.basis).max() < 1e-8


@pytest.mark.parametrize("size", [1.0, 1e-4, 1e-8, 1e-10])
def test_a_span_that_grows_by_a_column_that_differs_in_a_row_has_it(size):
    rng = np.random.default_rng(5)
    x = hospital(rng, 400)
    changed = x[:, 4].copy()
    changed[7] += size * np.linalg.norm(changed)
    span = extend(span_of(x), (2.0 - changed)[:, None])
    assert np.abs(span.basis.T @ span.basis - np.eye(6)).max() < 1e-13
    found = search(span, 3)
    assert found.rows.tolist() == [7]
    assert np.abs(found.weights)[5] > 1e-2 * np.abs(found.weights).max()


def test_what_rounding_leaves_of_a_dependence_adds_nothing_to_a_span():
    rng = np.random.default_rng(6)
    year = rng.integers(2010, 2020, 500).astype(float)
    span = span_of(np.column_stack([np.ones(500), year, year**2]))
    for other in ((year - 2015.0) ** 2, (year - year.mean()) / 3.1, year * year + 7.0 * year - 3.0):
        span = extend(span, other[:, None])
    assert span.basis.shape == (500, 3)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_shown_quickly_is_never_what_the_search_denies(seed):
    """Columns of all kinds, with and without few rows apart: shown is what is so, and of many plain rows always."""
    rng = np.random.default_rng(seed)
    for _ in range(10):
        n, q, few = int(rng.integers(5, 60)), int(rng.integers(1, 6)), int(rng.integers(2, 5))
        columns = rng.standard_t(rng.choice([1.5, 3.0, 30.0]), size=(n, q)) * 10.0 ** rng.integers(-6, 6, q)
        if rng.random() < 0.5:
            columns[:, 0] = columns[:, -1] + np.where(np.arange(n) < few - 1, 1.0, 0.0)
        if rng.random() < 0.5:
            columns = np.hstack([columns, 3.0 * columns[:, :1]])
        if spans.plainly_enough(columns, few):
            assert spans.rows_apart(columns, few) == spans.Search(None, True)
    assert spans.plainly_enough(np.column_stack([np.ones(500), rng.normal(size=(500, 5))]), 3)
    twice = rng.normal(size=(500, 1))
    assert spans.plainly_enough(np.hstack([twice, 7.0 * twice, np.zeros((500, 1))]), 3)
    assert not spans.plainly_enough(np.hstack([twice, twice + 1e-8 * (np.arange(500) < 2)[:, None]]), 3)


@pytest.mark.parametrize("rows", [1, 9, 5000])
def test_a_triangle_is_of_all_rows(rows):
    columns = np.random.default_rng(rows).normal(size=(rows, 4))
    triangle = spans._triangle(columns)
    np.testing.assert_allclose(triangle.T @ triangle, columns.T @ columns, rtol=1e-10, atol=1e-10)


def test_rows_that_are_not_needed_are_left_out():
    """Two rows are found beside a third, which is looked at first and has nothing to do with them."""
    rng = np.random.default_rng(1)
    high, pair = 0.02 * rng.normal(size=120), np.zeros(120)
    high[99], pair[[7, 30]] = 1.0, 1.0
    columns = np.column_stack([np.ones(120), rng.normal(size=120), high, pair])
    assert set(spans._Branches(span_of(columns).basis).search((), 3)) == {7, 30, 99}
    assert spans.rows_apart(columns, 4).rows.tolist() == [7, 30]


def reached(columns, few=3):
    return np.flatnonzero(spans.in_reach(span_of(columns), few)).tolist()


def test_rows_in_reach_are_those_of_few_and_those_beside_them():
    """A vector on three rows reaches none by itself, and all of them where another one is on one of these."""
    rng = np.random.default_rng(13)
    x = hospital(rng, 200)
    one, three = np.zeros((2, 200))
    one[7], three[[7, 30, 90]] = 1.0, (1.0, -2.0, 3.0)
    assert reached(x) == []
    assert reached(np.column_stack([x, x[:, 1] + one])) == [7]
    assert reached(np.column_stack([x, x[:, 1] + three])) == []
    assert reached(np.column_stack([x, x[:, 1] + three]), few=4) == [7, 30, 90]
    assert reached(np.column_stack([x, x[:, 1] + one, x[:, 2] + three])) == [7, 30, 90]


def test_where_columns_are_many_rows_of_high_leverage_are_taken_for_those_in_reach(monkeypatch):
    rng = np.random.default_rng(14)
    columns = np.column_stack([rng.normal(size=(60, 25)), np.eye(60)[:, 5] * 1e3 + rng.normal(size=60)])
    basis = span_of(columns).basis
    high = np.flatnonzero(np.square(basis).sum(axis=1) >= (1.0 - ETA) / 2).tolist()
    assert 5 in high
    assert reached(columns) == high
    assert reached(columns, few=2) == [row for row in high if np.square(basis[row]).sum() >= 1.0 - ETA]
    monkeypatch.setattr(spans, "_WORK", 0.0)  # and where the search would take too long
    few = np.column_stack([columns[:, :10], columns[:, 10] + 1e-3 * np.eye(60)[:, 9]])
    basis = span_of(few).basis
    assert reached(few) == np.flatnonzero(np.square(basis).sum(axis=1) >= (1.0 - ETA) / 2).tolist()
