"""How many digits a site gives at a parameter, and where the path of a fit may go."""

from types import SimpleNamespace

import numpy as np
import pytest

from fedgauss.families.rows import Rows
from fedgauss.federated.path import Path

RNG = np.random.default_rng(5)
X = np.column_stack([np.ones(200), RNG.normal(size=(200, 2))])
X[:, 1:] /= np.sqrt(np.mean(X[:, 1:] ** 2, axis=0))


def path_of(
    x=X, intercept=True, outputs=1, extra=(), size=1.0, residual=1.0, quadratic=False, additive=False, offset=0.0
):
    kind = SimpleNamespace(
        n_outputs=outputs, extra_names=extra, quadratic=quadratic, additive=additive,
        sizes=lambda response: (size, residual),
    )  # fmt: skip
    return Path(kind, Rows(x, np.zeros(len(x)), offset), intercept)


def along(path, *thetas, kind="score"):
    """What each of these parameters in turn is answered with."""
    return [path.step(SimpleNamespace(kind=kind, theta=np.array(theta, dtype=float))) for theta in thetas]


START = [0.3, 0.0, 0.0]
FIRST = (START, [0.3, 1.0, 0.0])  # after these a step is as long as the one from there, if that was longer


def test_a_step_is_how_far_the_parameter_has_moved_now_or_before_and_at_most_one():
    thetas = *FIRST, [0.3, 1.5, -0.25], [0.1, 1.5, -0.25], [0.1, 1.5, -0.15], [0.1, 1.5, 4.0]
    assert along(path_of(), *thetas) == pytest.approx([0.0, 1.0, 1.0, 0.5, 0.2, 1.0])
    assert along(path_of(), START, [0.3, 0.5, 0.0], [0.3, 0.75, 0.0]) == [0.0, 1.0, 0.5]
    still = [0.3, 1.25, 0.0]
    assert along(path_of(), *FIRST, still, still, still) == [0.0, 1.0, 1.0, 0.25, 0.25]  # none is no step


def test_where_a_path_has_ended_all_digits_are_told_and_nothing_elsewhere():
    path = path_of()
    along(path, *FIRST, [0.3, 1.5, 0.0])
    ends = [0.3, 1.5, 0.0], [0.3, 1.5 + 2.0**-7, 0.0], [0.3, 1.5 + 2.0**-6, 0.0], [99.0, 9.0, 0.0]
    assert along(path, *ends, kind="final") == [0.0, 0.0, None, None]
    assert along(path, [0.3, 1.75, 0.0], kind="sums") == [0.5]


def test_where_slopes_are_zero_all_digits_are_told():
    assert along(path_of(), START, [9.0, 0.0, 0.0], [9.0, 0.5, 0.0], [9.0, 0.5, 0.1]) == [0.0, 0.0, 1.0, 0.5]
    assert along(path_of(intercept=False, x=X[:, 1:]), [0.0, 0.0], [0.5, 0.0], [0.5, 0.0]) == [0.0, 1.0, 0.5]
    assert along(path_of(quadratic=True), START, [0.0, 99.0, 0.0]) == [0.0, 0.0]
    extra = path_of(extra=("scale",))  # a parameter that is no slope
    assert along(extra, [0.3, 0.0, 0.0, 1.0], [0.3, 0.0, 0.0, 9.0], [0.3, 0.5, 0.0, 9.0]) == [0.0, 0.0, 1.0]
    two = path_of(outputs=2)
    assert along(two, [0.0] * 6, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0, 0.0, 0.25]) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("unlike", [{"offset": X[:, 1]}, {"additive": True}])
def test_where_zero_slopes_do_not_make_rows_alike_the_model_without_covariates_has_a_path_of_its_own(unlike):
    """Rows count by their offsets, or by their responses: at each intercept otherwise."""
    path = path_of(**unlike)
    assert along(path, START, [0.8, 0.0, 0.0], [0.801, 0.0, 0.0]) == pytest.approx([1.0, 1.0, 0.5])
    assert along(path, [0.802, 0.0, 0.0]) == pytest.approx([0.001])
    assert path.exact
    assert along(path, [0.9, 0.0, 0.0], [0.802, 2.0, 0.0]) == [None, 1.0]  # with slopes it may go anywhere once more
    assert not path.exact
    assert along(path, [0.802, 0.0, 0.0]) == [1.0]  # and not a second time
    alike = path_of(offset=np.full(len(X), 2.0))
    assert along(alike, START, [9.0, 0.0, 0.0]) == [0.0, 0.0]


def test_offsets_spread_predictors():
    for spread, told in ((7.9, True), (8.1, False)):
        (found,) = along(path_of(offset=spread * X[:, 1] / np.std(X[:, 1])), START)
        assert (found is not None) == told


def test_a_path_contracts():
    """From where a step of d led, or the one before it, it goes no further than 32 d."""
    for by, told in ((0.99, True), (1.01, False)):
        path = path_of()
        along(path, *FIRST, [0.3, 1.0 + 2.0**-6, 0.0], [0.3, 1.0, 0.0])  # the last has d = 2^-6
        (found,) = along(path, [0.3, 1.0 + 0.5 * by, 0.0])
        assert (found is not None) == told
    path = path_of()
    along(path, *FIRST, [0.3, 1.0 + 2.0**-6, 0.0], [0.3, 1.0, 0.0])
    assert along(path, [0.3, 2.0, 0.0], [0.3, 1.25, 0.0]) == [None, 0.75]  # measured from where nothing was told
    far = path_of(size=8.0)
    assert along(far, START, [9.0, 1.0, 0.0], [9.0 + 33 * 8.0, 1.0, 0.0]) == [0.0, 1.0, None]


def test_the_first_short_step_is_where_sums_become_exact():
    path, d = path_of(), 2.0**-7
    along(path, *FIRST, [0.3, 1.0 + 2 * d, 0.0])
    assert not path.exact
    along(path, [0.3, 1.0 + 3 * d, 0.0])  # short, but the last was not
    assert not path.exact
    along(path, [0.3, 1.0 + 4 * d, 0.0])
    assert path.exact
    along(path, [0.3, 1.2, 0.0])
    assert path.exact  # and stay so


def test_rows_whose_predictors_spread_too_far_are_not_told_of():
    for slope, told in ((7.9, True), (8.1, False)):
        assert (along(path_of(), START, [0.0, slope, 0.0])[1] is not None) == told
        assert (along(path_of(size=4.0), START, [0.0, 4 * slope, 0.0])[1] is not None) == told
    two = path_of(outputs=2)
    assert along(two, [0.0] * 6, [0.0, 1.0, 0.0, 0.0, 8.1, 0.0])[1] is None


def moves(path, *thetas):
    """The last step, measured by itself: the one before it was none."""
    along(path, *thetas[:1], thetas[0])
    path._moved = 0.0
    return along(path, *thetas[1:])[-1]


def test_steps_are_in_units_of_columns_and_residuals():
    """By powers of two, so that rounded sums of all sites add up."""
    assert moves(path_of(size=5.0), START, [0.3, 2.0, 0.0]) == 0.5
    assert moves(path_of(size=0.0), START, [0.3, 0.5, 0.0]) == 0.5
    wide = X * [1.0, 9.0, 0.1]
    assert moves(path_of(x=wide), START, [0.3, 0.0625, 0.0]) == 0.5
    assert moves(path_of(x=wide), START, [0.3, 0.0, 0.5]) == 0.5  # smaller ones count as 1
    two = path_of(x=wide, outputs=2, extra=("scale",))
    assert moves(two, [0.0] * 7, [0.0, 0.0625, 0.0, 0.0, 0.0, 0.0, 0.0]) == 0.5
    assert along(two, [0.0, 0.0625, 0.0, 0.0, 0.0625, 0.0, 0.0]) == [0.5]  # each output has slopes of its own
    extra = path_of(x=wide, extra=("scale",))
    assert moves(extra, [0.0, 0.01, 0.0, 0.0], [0.0, 0.01, 0.0, 0.25]) == 0.25


def test_numbers_are_rounded_to_what_the_next_step_needs():
    path = path_of(x=X * [1.0, 9.0, 1.0], size=2.0, residual=5.0)
    numbers = {"value": np.array(1 / 3), "score": np.full(3, 1 / 3), "information": np.full((3, 3), 1 / 3)}
    found = path.rounded(numbers, 0.3)  # a quarter, to the power of two
    units = np.array([1.0, 8.0, 1.0])
    grids = {"value": 0.25**2 * 2 * 4, "score": 0.25 * 4 * units, "information": 0.25 * 4 / 2 * np.outer(units, units)}
    for name, grid in grids.items():
        np.testing.assert_array_equal(found[name], np.round((1 / 3) / (grid / 1024)) * grid / 1024)


def test_a_model_without_covariates_has_no_slopes():
    assert along(path_of(X[:, :1]), [0.3], [40.0], [0.5]) == [0.0, 0.0, 0.0]
