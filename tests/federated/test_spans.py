"""The search against one over all sets of rows, and against what an analyst might try."""

from itertools import combinations

import numpy as np
import pytest

from fedgauss.federated import spans
from fedgauss.federated.spans import ETA, clash, rows_apart


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


class TestSettled:
    """Columns whose counts over all sites are large enough, and which are nearly empty here."""

    n = 200

    def column(self, *rows, value=1.0):
        own = np.zeros(self.n)
        own[list(rows)] = value
        return own

    def search(self, others, settled, few=3):
        return rows_apart(np.column_stack(others), few, np.column_stack(settled))

    def others(self, seed=0):
        return list(hospital(np.random.default_rng(seed), self.n).T)

    @pytest.mark.parametrize("few", [3, 5])
    def test_alone_they_pass(self, few):
        settled = [self.column(4), self.column(8, 9), self.column(8, 9, value=2.0)]
        assert self.search(self.others(), settled, few) == (None, True, None)
        assert rows_apart(np.column_stack([*self.others(), *settled]), few).rows is not None

    @pytest.mark.parametrize("few", [3, 4, 5])
    def test_a_sum_with_another_column_that_is_zero_but_in_a_row_is_found(self, few):
        rare = self.column(*range(10, 9 + few))
        for alone in (10, 150):  # within its rows, and elsewhere
            x = self.others()
            dense = 2.0 * x[1] - 7.0 * rare + self.column(alone)
            search = self.search([*x, dense], [rare], few)
            assert search.rows is not None
            assert alone in search.rows

    def test_the_difference_of_a_column_and_one_that_has_a_row_more_is_found(self):
        search = self.search([*self.others(), self.column(8, 9, 10, 11, 12)], [self.column(8, 9)])
        assert search.rows is None  # three rows are enough
        search = self.search([*self.others(), self.column(8, 9, 10)], [self.column(8, 9)])
        assert 10 in search.rows

    @pytest.mark.parametrize("seed", range(60))
    def test_every_vector_that_is_no_combination_of_settled_columns_is_found(self, seed):
        rng = np.random.default_rng(seed)
        few = int(rng.integers(3, 6))
        places = rng.permutation(self.n)
        sizes = rng.integers(1, few, size=3)
        ends = np.cumsum(sizes)
        settled = [self.column(*places[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
        x = self.others(seed)
        vector = np.zeros(self.n)
        pool = places[: ends[-1] + 3]  # rows of settled columns, and others
        rows = rng.choice(pool, rng.integers(1, few), replace=False)
        vector[rows] = rng.uniform(0.5, 2.0, len(rows)) * rng.choice([-1.0, 1.0], len(rows))
        left = vector - sum(z * (z @ vector) / (z @ z) for z in settled)
        mixed = vector + sum(rng.standard_normal() * column for column in (*x, *settled))
        search = self.search([*x, mixed], settled, few)
        assert (search.rows is not None) == (np.linalg.norm(left) > 1e-9)
        if search.rows is not None:
            assert set(np.flatnonzero(np.abs(left) > 1e-9)) <= set(search.rows)

    def test_settled_columns_that_overlap_clash(self):
        one, two = self.column(1, 2), self.column(2, 3)
        assert clash(np.column_stack([one, two])) == (0, 1)
        assert clash(np.column_stack([one, self.column(3, 4)])) is None
        assert clash(np.column_stack([one, 3.0 * one])) is None
        weighted = one.copy()
        weighted[1] = 2.0
        assert clash(np.column_stack([one, weighted])) == (0, 1)
