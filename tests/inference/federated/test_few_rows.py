"""Scripts of a dishonest coordinator: what each recovers from sums, and that a site refuses to tell these sums."""

from itertools import combinations

import numpy as np
import pytest
from fedgauss.inference.federated import few_rows
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.few_rows import check_design, check_round, check_shares, leverages, rows_apart

RNG = np.random.default_rng(11)
N = 80
AGE = RNG.uniform(20, 90, N).round(1)
INCOME = RNG.lognormal(10, 0.5, N).round()
ONES = np.ones(N)
SMOKES = (np.arange(N) % 3 == 0).astype(float)


def design(**columns):
    return np.column_stack([ONES, *columns.values()]), ["const", *columns]


def no_row_in(error):
    """A refusal quotes no value of a row."""
    return not any(repr(value) in str(error.value) for column in (AGE, INCOME) for value in column.tolist())


# ---- reconstruction by two columns that differ in few rows


def test_two_columns_that_differ_in_one_row():
    """The difference of two columns of X'X is that row: its age and income to the last digit."""
    other = SMOKES.copy()
    other[7] = 1 - other[7]
    x, names = design(smokes=SMOKES, smoked=other, age=AGE, income=INCOME)
    sums = x.T @ x
    stolen = (sums[2] - sums[1]) * np.sign(other[7] - SMOKES[7])
    np.testing.assert_allclose(stolen[3:], [AGE[7], INCOME[7]], rtol=1e-12)  # what it would have been
    with pytest.raises(
        Refused, match=r"must differ in at least 5 rows at this site, .*; 'smokes' and 'smoked' do not"
    ) as error:
        check_design(x, names)
    assert no_row_in(error)


def test_a_column_that_is_the_outcome_but_for_two_rows():
    """X'y less a column of X'X is the sum of two rows."""
    died, died_here = SMOKES.copy(), SMOKES.copy()
    died_here[[6, 9]] = 0.0
    x, names = design(age=AGE, died_here=died_here)
    check_design(x, names)
    with pytest.raises(Refused, match="'died_here' and 'died' do not"):
        check_design(x, names, {"died": died})
    rare = (np.arange(N) < 6).astype(float)
    check_design(x, names, {"rare": rare})  # few of an outcome in a level: a count, and no weight


@pytest.mark.parametrize("few", [1, 2, 3, 4])
@pytest.mark.parametrize("turned", [False, True], ids=["the same", "the opposite"])
@pytest.mark.parametrize("scale", [1.0, -2.5])
def test_columns_that_are_nearly_the_same_or_the_opposite(few, turned, scale):
    other = SMOKES.copy()
    other[RNG.choice(N, few, replace=False)] = 0.5  # a third value: no longer a 0/1 column
    x, names = design(age=AGE, smokes=SMOKES, other=scale * (1 - other if turned else other) + 3)
    with pytest.raises(Refused, match=r"one of .*'smokes' and 'other'"):
        check_design(x, names, in_a_cell=1)


def test_a_column_that_is_the_sum_of_two_others_but_for_three_rows():
    left, right = RNG.normal(size=(2, N))
    total = left + right
    total[[3, 30, 60]] += 1.0
    x, names = design(left=left, age=AGE, right=right, total=total)
    with pytest.raises(Refused, match="one of 'left', 'right' and 'total' is not"):
        check_design(x, names)
    total[[4, 40]] -= 1.0  # five rows
    check_design(np.column_stack([ONES, left, right, left + right + RNG.normal(size=N)]), list("abcd"))
    check_design(x := np.column_stack([ONES, left, AGE, right, total]), names)
    assert rows_apart(x, 5) is not None


def test_interactions_of_columns_that_are_nearly_the_same():
    """Neither of 'a' and 'b' is there, only age for those who have it."""
    other = SMOKES.copy()
    other[[7, 8]] = 1 - other[[7, 8]]
    x, names = design(sex=(np.arange(N) % 2).astype(float), a=AGE * SMOKES, b=AGE * other, dose=RNG.normal(size=N))
    with pytest.raises(Refused, match="one of 'a' and 'b' is not"):
        check_design(x, names, in_a_cell=1)


@pytest.mark.parametrize("n", [16, 30])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_search_finds_what_all_sets_of_rows_show(n, most):
    """Against all sets of up to three rows, for 0/1 columns whose combinations vanish by chance: the same verdict."""
    found = 0
    for _ in range(15):
        x = np.column_stack([np.ones(n), RNG.integers(0, 2, (n, 4)) * (RNG.random((n, 4)) < 0.4)])
        rank = np.linalg.matrix_rank(x)
        sets = [rows for size in range(1, most + 1) for rows in combinations(range(n), size)]
        zeroed = np.repeat(x[None], len(sets), axis=0)
        for which, rows in enumerate(sets):
            zeroed[which, list(rows)] = 0.0
        few = bool(np.any(np.linalg.matrix_rank(zeroed) < rank))
        rows = rows_apart(x, most)
        assert (rows is not None) == few
        found += few
        if rows is not None:
            assert len(rows) <= most
            assert np.linalg.matrix_rank(np.delete(x, rows, axis=0)) < rank
    assert found > 0 or most == 1


def test_leverage_is_the_largest_share_of_a_row():
    basis = np.linalg.qr(np.column_stack([ONES, AGE, SMOKES]))[0]
    hat = basis @ basis.T
    np.testing.assert_allclose(leverages(basis), np.diag(hat))
    twice = np.column_stack([ONES, AGE, SMOKES, 1 - SMOKES, 0 * ONES])
    np.testing.assert_allclose(few_rows._quick_leverages(twice), np.diag(hat), rtol=1e-8)


def test_a_column_that_few_rows_have():
    """An interaction of two 0/1 columns that four rows have both."""
    two = np.zeros(N)
    two[[0, 3, 6, 9]] = 1.0
    x, names = design(both=two, age=AGE)
    with pytest.raises(Refused, match="in 'both' fewer do"):
        check_design(x, names)


# ---- reconstruction by cells


def test_the_cell_of_one_row():
    """Its weight is an entry of X'WX; at as many parameters as columns, the row follows. Nothing here is extreme."""
    sex, icu = (np.arange(N) < 40).astype(float), np.zeros(N)
    icu[[17, *range(50, 70)]] = 1.0  # one woman in intensive care
    x, names = design(sex=sex, icu=icu, age=(AGE - 50) / 10, dose=RNG.normal(size=N))
    thetas = RNG.normal(size=(5, 5)) * 0.1 + np.array([2.0, 0, 0, 0, 0])  # predictors above 0: no sign to guess
    entries = []
    for theta in thetas:
        p = 1 / (1 + np.exp(-x @ theta))
        entries.append((x.T * (p * (1 - p)) @ x)[1, 2])
    predictors = np.arccosh(1 / (2 * np.sqrt(entries))) * 2
    np.testing.assert_allclose(np.linalg.solve(thetas, predictors), x[17], atol=1e-6)
    with pytest.raises(
        Refused, match=r"cells of two columns must have at least 3 rows or none .* 'sex' and 'icu' have"
    ):
        check_design(x, names)
    check_design(x, names, in_a_cell=1)  # for masked sums


@pytest.mark.parametrize("cell", [(1, 1), (1, 0), (0, 1), (0, 0)])
def test_every_cell_counts(cell):
    """n, n - a, n - b, n - a - b + ab are all told."""
    a, b = (RNG.random((2, 200)) < 0.5).astype(float)
    inside = (a == cell[0]) & (b == cell[1])
    keep = ~inside | (np.cumsum(inside) <= 2)
    x = np.column_stack([np.ones(200), a, b, RNG.normal(size=200)])[keep]
    with pytest.raises(Refused, match="cells of two columns"):
        check_design(x, list("1abx"))
    keep = ~inside | (np.cumsum(inside) <= 3)
    check_design(np.column_stack([np.ones(200), a, b, RNG.normal(size=200)])[keep], list("1abx"))


# ---- reconstruction by a value that dominates


def test_an_income_of_four_billion():
    """Its products with other columns, divided by it, are its row."""
    income = INCOME.copy()
    income[21] = 4e9
    x, names = design(age=AGE, smokes=SMOKES, income=income)
    sums = x.T @ x
    np.testing.assert_allclose((sums[3] / sums[3, 3] * 4e9)[1:3], [AGE[21], SMOKES[21]], atol=0.2)
    with pytest.raises(
        Refused, match=r"at most 0.75 of a sum of squares .*; of 'income' one row makes up more"
    ) as error:
        check_shares({"age": AGE, "income": income})
    assert no_row_in(error)
    assert "4000000000" not in str(error.value)
    assert "4e+09" not in str(error.value)
    with pytest.raises(Refused, match="of 'income' one row makes up more"):
        check_design(x, names)
    assert rows_apart(x, 4).tolist() == [21]  # its leverage is 1, also within combinations
    check_shares({"age": AGE, "income": INCOME, "smokes": SMOKES})


@pytest.mark.parametrize("many", [2, 3, 4])
def test_a_few_incomes_of_billions(many):
    income = INCOME.copy()
    income[:many] = 4e9
    with pytest.raises(Refused, match="fewer than 5 rows make up"):
        check_shares({"income": income})
    income[:5] = 4e9
    check_shares({"income": income})


def test_interactions_the_response_and_row_weights_count_as_well():
    wild = AGE.copy()
    wild[3] = 1e6
    for name in ("age:smokes", "cost"):
        with pytest.raises(Refused, match=f"of '{name}' one row makes up more"):
            check_shares({"age": AGE, name: wild * SMOKES})
    weights = ONES.copy()
    weights[5] = 1e7
    with pytest.raises(Refused, match="of the row weights one row makes up more"):
        check_shares({"age": AGE}, weights)
    light = np.where(np.arange(N) == 3, 1e-12, 1.0)
    check_shares({"age": wild}, light)  # a row without weight outweighs nobody


def test_columns_of_any_unit_are_judged_alike():
    for unit in (1e-200, 1.0, 1e150):
        check_shares({"age": AGE * unit})
        check_shares({"age": AGE * unit})
    check_shares({"same": np.full(N, 0.1)})  # constant: there is nothing to dominate
    check_shares({"none": np.zeros(N)})


# ---- reconstruction by parameters


def test_parameters_at_which_one_row_has_all_the_weight():
    """Poisson: exp(x'theta) of the oldest patient outweighs all others, and X'WX is that patient's row."""
    x, _ = design(age=(AGE - 50) / 10, smokes=SMOKES, dose=RNG.normal(size=N))
    theta = np.array([0.0, 500.0, 0.0, 0.0])
    mean = np.exp(x @ theta - (x @ theta).max())
    oldest = int(AGE.argmax())
    sums = (x.T * mean) @ x
    np.testing.assert_allclose(sums[0] / sums[0, 0], x[oldest], atol=1e-6)
    with pytest.raises(Refused, match="at least 5 rows must count at the parameters of an order"):
        check_round(x, mean, RNG.poisson(2, N) - mean)


def test_parameters_at_which_few_rows_have_some():
    """Logistic: probabilities of 0 and 1 for all but the rows between two ages."""
    x, _ = design(age=(AGE - 50) / 10, smokes=SMOKES)
    p = 1 / (1 + np.exp(-np.clip(x @ [0.0, 300.0, 0.0], -500, 500)))
    with pytest.raises(Refused, match="must count at the parameters"):
        check_round(x, p * (1 - p), SMOKES - p)


def test_a_level_in_which_one_row_has_all_the_weight():
    weights = np.where((SMOKES == 1) & (np.arange(N) != 3), 1e-9, 0.25)
    x, _ = design(smokes=SMOKES, dose=RNG.normal(size=N))
    with pytest.raises(Refused, match="no row may outweigh all others in a combination of columns"):
        check_round(x, weights, RNG.normal(size=N))


def test_a_residual_that_dominates():
    """X'r is that row times its residual."""
    x, _ = design(age=AGE)
    residuals = RNG.normal(size=N)
    residuals[9] = 1e6
    with pytest.raises(Refused, match="of the residuals at these parameters one row makes up more"):
        check_round(x, ONES, residuals)


# ---- honest designs


def test_honest_fits_are_answered():
    """Skew covariates, factors, a rare outcome, three rows a parameter: 200 designs and fits by scoring, none refused.

    The seed is fixed; a rule that refuses one honest design in a hundred would fail this in .87 of seeds.
    """
    rng = np.random.default_rng(12)
    for _ in range(200):
        n = int(rng.integers(60, 400))
        ward, sex = rng.integers(0, 3, n), rng.integers(0, 2, n)
        columns = [np.ones(n), rng.normal(size=n), rng.gamma(2.0, size=n), sex, ward == 1, ward == 2]
        x = np.column_stack([*columns, sex * columns[1]]).astype(float)
        check_design(x, [f"x{j}" for j in range(x.shape[1])])
        check_shares({f"x{j}": x[:, j] for j in range(1, x.shape[1])})
        theta = np.array([-1.5, 0.5, 0.2, 0.3, -0.3, 0.3, 0.2])
        p = 1 / (1 + np.exp(-x @ theta))
        check_round(x, p * (1 - p), (rng.random(n) < p) - p)
        mean = np.exp(x @ theta)
        check_round(x, mean, rng.poisson(mean) - mean)


def test_collinear_columns_at_one_site_are_no_disclosure():
    """A site without a level, or with a column that is another's double: nothing new is told."""
    x = np.column_stack([ONES, AGE, 2 * AGE + 1, np.zeros(N), SMOKES, 1 - SMOKES])
    check_design(x, list("1abcde"))
    check_round(x, ONES, RNG.normal(size=N))
