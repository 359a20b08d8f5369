"""Predictions for new rows, against statsmodels, with a design that is a stand-in."""

from dataclasses import dataclass

import numpy as np
import pytest
import statsmodels.api as sm

from fedgauss.inference.fit_result import Fit, FitStatistics
from fedgauss.inference.prediction import Prediction

RNG = np.random.default_rng(8)
X = sm.add_constant(RNG.standard_normal((200, 2)))
NEW = sm.add_constant(RNG.standard_normal((7, 2)))
FRAME = {"a": NEW[:, 1], "b": NEW[:, 2], "days": np.arange(1.0, 8.0)}


class Columns:
    """The intercept and two columns; with `days`, their logarithm is an offset."""

    def __init__(self, exposure=False, extra=0):
        self.exposure, self.extra = exposure, extra

    def matrix(self, frame):
        return np.column_stack([np.ones(len(frame["a"])), frame["a"], frame["b"], *[frame["a"]] * self.extra])

    def offset(self, frame):
        return np.log(frame["days"]) if self.exposure else 0.0


@dataclass
class Mean:
    """A family with this mean function."""

    mean: object
    additive: bool = False
    extra_names: tuple = ()


FAMILIES = {
    "Binomial": (Mean(lambda eta: 1 / (1 + np.exp(-eta))), (RNG.random(200) < 0.4).astype(float)),
    "Poisson": (Mean(np.exp), RNG.poisson(2.0, 200).astype(float)),
    "Gaussian": (Mean(lambda eta: eta, additive=True), X @ [1.0, 2.0, 3.0] + RNG.standard_normal(200)),
}


def fitted(family, design=None):
    mean, y = FAMILIES[family]
    pooled = sm.GLM(y, X, family=getattr(sm.families, family)()).fit()
    found = Fit(
        pooled.params, pooled.cov_params(), 0.95, "scoring", ("const", "a", "b"),
        statistics=FitStatistics(200, 3, 197, dispersion=pooled.scale), design=design or Columns(), family=mean,
    )  # fmt: skip
    return found, pooled


@pytest.mark.parametrize("family", FAMILIES)
def test_means_and_their_intervals_are_those_of_statsmodels(family):
    found, pooled = fitted(family)
    theirs = pooled.get_prediction(NEW)
    np.testing.assert_allclose(found.predict(FRAME), pooled.predict(NEW), rtol=1e-12)
    np.testing.assert_allclose(found.predict(FRAME, type="predictor"), NEW @ pooled.params, rtol=1e-12)
    for level in (None, 0.8):
        ours = found.predict(FRAME, interval="confidence", level=level)
        table = theirs.summary_frame(alpha=0.05 if level is None else 0.2)
        np.testing.assert_allclose(ours.estimate, table["mean"], rtol=1e-10)
        np.testing.assert_allclose(ours.low, table["mean_ci_lower"], rtol=1e-10)
        np.testing.assert_allclose(ours.high, table["mean_ci_upper"], rtol=1e-10)
    np.testing.assert_allclose(ours.std_error, theirs.linpred.se, rtol=1e-10)
    linear = found.predict(FRAME, interval="confidence", type="predictor")
    np.testing.assert_allclose((linear.high - linear.low) / 2, 1.959963985 * ours.std_error, rtol=1e-8)


def test_a_new_response_varies_more_than_its_mean():
    found, pooled = fitted("Gaussian")
    ours = found.predict(FRAME, interval="prediction")
    half = 1.959963985 * np.sqrt(np.einsum("ij,jk,ik->i", NEW, pooled.cov_params(), NEW) + pooled.scale)
    np.testing.assert_allclose(ours.high - ours.estimate, half, rtol=1e-8)
    for family in ("Binomial", "Poisson"):
        with pytest.raises(ValueError, match="interval='prediction' needs a response that is its predictor plus noise"):
            fitted(family)[0].predict(FRAME, interval="prediction")


def test_an_exposure_is_part_of_the_predictor():
    found, pooled = fitted("Poisson", Columns(exposure=True))
    np.testing.assert_allclose(found.predict(FRAME), pooled.predict(NEW, exposure=FRAME["days"]), rtol=1e-12)


def test_a_shape_beside_the_coefficients_is_no_coefficient():
    found, _ = fitted("Poisson")
    shaped = Fit(
        [*found.params, 0.7], np.pad(found.cov, (0, 1)) + np.diag([0, 0, 0, 1.0]), 0.95, "scoring",
        (*found.names, "alpha"), design=Columns(), family=Mean(np.exp, extra_names=("alpha",)),
    )  # fmt: skip
    ours, plain = (each.predict(FRAME, "confidence") for each in (shaped, found))
    np.testing.assert_array_equal(ours.estimate, plain.estimate)
    np.testing.assert_allclose(ours.high, plain.high)


def test_an_interval_is_in_order_where_the_mean_falls():
    found, _ = fitted("Poisson")
    falling = Fit(**vars(found) | {"family": Mean(lambda eta: 1 / (1 + np.exp(eta)))})
    ours = falling.predict(FRAME, interval="confidence")
    assert np.all((ours.low < ours.estimate) & (ours.estimate < ours.high))


def test_several_predictors_a_row():
    params = RNG.standard_normal(6)
    root = RNG.standard_normal((6, 6))
    softmax = Mean(lambda eta: np.exp(eta) / np.exp(eta).sum(axis=0))
    found = Fit(params, root @ root.T, 0.95, "scoring", tuple("abcdef"), design=Columns(), family=softmax)
    eta = NEW @ params.reshape(2, 3).T
    np.testing.assert_allclose(found.predict(FRAME, type="predictor"), eta)
    np.testing.assert_allclose(found.predict(FRAME).sum(axis=1), 1.0)
    ours = found.predict(FRAME, "confidence", type="predictor")
    block = found.cov[3:, 3:]
    np.testing.assert_allclose(ours.std_error[:, 1] ** 2, np.einsum("ij,jk,ik->i", NEW, block, NEW))
    assert "7 predictions" in str(ours)
    with pytest.raises(ValueError, match="one predictor a row; this family has 2"):
        found.predict(FRAME, "confidence")
    with pytest.raises(ValueError, match="take a column"):
        ours.to_frame()


def test_draws_of_a_bootstrap_become_draws_of_the_predictor():
    draws = np.random.default_rng(0).standard_normal((4000, 3)) * [1.0, 0.5, 0.1]
    found = Fit(
        [0.0, 1.0, 2.0], np.diag([1.0, 0.25, 0.01]), 0.95, "bootstrap", ("const", "a", "b"), deviations=draws,
        design=Columns(), family=FAMILIES["Gaussian"][0],
    )  # fmt: skip
    ours = found.predict(FRAME, "confidence")
    half = np.quantile(np.abs(draws @ NEW.T), 0.95, axis=0)
    np.testing.assert_allclose(ours.high - ours.estimate, half)


def test_predictions_print_themselves():
    found, _ = fitted("Poisson")
    many = {key: np.tile(column, 3) for key, column in FRAME.items()}
    ours = found.predict(many, interval="confidence")
    assert isinstance(ours, Prediction)
    assert str(ours).startswith("21 predictions of the mean (confidence), 95 % intervals")
    assert str(ours).count("\n") == 12
    assert list(ours.to_frame().columns) == ["estimate", "std_error", "low", "high"]


def test_what_is_refused():
    found, _ = fitted("Poisson")
    with pytest.raises(ValueError, match="this fit does not know them"):
        Fit([1.0], np.eye(1), 0.95, "scoring", ("a",)).predict(FRAME)
    with pytest.raises(ValueError, match="a column for each of 3 parameters; it has 5"):
        Fit(**vars(found) | {"design": Columns(extra=2)}).predict(FRAME)
    with pytest.raises(ValueError, match="interval must be one of 'confidence', 'prediction'"):
        found.predict(FRAME, interval="confident")
    with pytest.raises(ValueError, match="type must be one of 'mean', 'predictor'"):
        found.predict(FRAME, type="link")
    with pytest.raises(ValueError, match="level must lie strictly"):
        found.predict(FRAME, "confidence", level=95)
    with pytest.raises(ValueError, match="the design's matrix must be finite"):
        found.predict({**FRAME, "a": np.full(7, np.nan)})
    with pytest.raises(ValueError, match="mean must have the shape"):
        Fit(**vars(found) | {"family": Mean(lambda eta: eta[0])}).predict(FRAME)
