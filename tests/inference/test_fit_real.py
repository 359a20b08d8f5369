"""`fit` on data that come with public packages, beside the pooled fit of statsmodels; run with -s to see the table."""

import time
from functools import partial

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.datasets import load_breast_cancer, load_diabetes

from any_fit import any_fit

by_sgd = partial(any_fit, solver="sgd")

SPLITS = 10
ANES_FIVE = ["logpopul", "selfLR", "age", "educ", "income"]


def fair():
    frame = sm.datasets.fair.load_pandas().data
    return frame.drop(columns="affairs").assign(y=(frame.affairs > 0).astype(int))


def anes96(columns=None):
    """With the logarithm of the population, and not the population too: nine covariates in all."""
    frame = sm.datasets.anes96.load_pandas().data.rename(columns={"vote": "y"}).drop(columns="popul")
    return frame if columns is None else frame[[*columns, "y"]]


def diabetes():
    return load_diabetes(as_frame=True, scaled=False).frame.rename(columns={"target": "y"})


def breast_cancer(columns):
    frame = load_breast_cancer(as_frame=True).frame.rename(columns={"target": "y"})
    return frame[[*frame.columns[:columns], "y"]]


def beside_the_pooled_fit(name, frame, family, clients, passes):
    """Over random splits: (estimate - pooled) / HC0 error, and our error over the HC0 one, (splits, d) each.

    Errors of one pass are of its window; times sqrt(window / rows) they can be compared.
    """
    x, y = sm.add_constant(frame.drop(columns="y")), frame["y"]
    pooled = sm.OLS(y, x).fit(cov_type="HC0") if family == "linear" else sm.Logit(y, x).fit(
        cov_type="HC0", disp=0, maxiter=100
    )  # fmt: skip
    gaps, ratios = [], []
    for split in range(SPLITS):
        client = np.random.default_rng(split).permutation(len(frame)) % clients
        found = by_sgd(frame.assign(client=client), "y", "client", family, passes=passes, seed=split)
        assert found.names == tuple(pooled.params.index)
        gaps.append((found.params - pooled.params) / pooled.bse)
        ratios.append(found.std_errors / pooled.bse * (np.sqrt(0.8) if passes == 1 else 1.0))
    gaps, ratios = np.abs(gaps), np.array(ratios)
    print(
        f"\n{name}: {len(frame):,} rows, {clients} clients, {gaps.shape[1]} parameters, {passes} passes: gap rms "
        f"{np.sqrt((gaps**2).mean()):.2f}, largest {gaps.max():.2f}; error ratio {ratios.mean():.2f} "
        f"({ratios.min():.2f} to {ratios.max():.2f}); {near(gaps)} of {SPLITS} within two errors, "
        f"{alike(ratios)} within 15 %"
    )
    return gaps, ratios


def near(gaps):
    """Splits in which every coefficient is within two standard errors."""
    return int((gaps.max(axis=1) < 2.0).sum())


def alike(ratios):
    """Splits in which every standard error is within 15 %."""
    return int((np.abs(ratios - 1.0).max(axis=1) < 0.15).sum())


@pytest.mark.study
def test_affairs_in_one_pass():
    gaps, ratios = beside_the_pooled_fit("fair", fair(), "logistic", 10, 1)
    assert near(gaps) >= 9
    assert alike(ratios) >= 9


@pytest.mark.study
def test_votes_on_five_covariates_in_one_pass():
    gaps, _ = beside_the_pooled_fit("anes96, five covariates", anes96(ANES_FIVE), "logistic", 3, 1)
    assert near(gaps) >= 9


@pytest.mark.study
@pytest.mark.parametrize(
    ("name", "frame", "family", "clients", "passes"),
    [
        ("anes96, nine covariates", anes96(), "logistic", 3, 10),
        ("diabetes", diabetes(), "linear", 10, 10),
        ("breast cancer, five columns", breast_cancer(5), "logistic", 5, 20),
    ],
    ids=["anes96", "diabetes", "breast cancer"],
)
def test_small_data_in_at_most_twenty_passes(name, frame, family, clients, passes):
    gaps, ratios = beside_the_pooled_fit(name, frame, family, clients, passes)
    assert near(gaps) >= 9
    assert alike(ratios) >= 9


@pytest.mark.study
def test_natural_clients_of_very_different_size():
    """Occupations of 41 to 2,783 people: the pooled fit all the same, in one pass."""
    frame = fair()
    x = sm.add_constant(frame.drop(columns=["y", "occupation"]))
    pooled = sm.Logit(frame.y, x).fit(disp=0, cov_type="HC0")
    found = by_sgd(frame, "y", "occupation", "logistic")
    assert np.abs((found.params - pooled.params) / pooled.bse).max() < 2.0
    assert np.abs(found.std_errors / pooled.bse * np.sqrt(0.8) - 1.0).max() < 0.15


@pytest.mark.study
def test_votes_on_nine_covariates_in_one_pass_are_flagged():
    """One pass of 944 rows is too short here, and the summary says what to do."""
    frame = anes96().assign(client=np.arange(944) % 3)
    text = " ".join(str(by_sgd(frame, "y", "client", "logistic")).split())
    assert "from where the gradient vanishes. The estimate is one Newton step from there" in text
    assert "passes=5 or more reads them again" in text


def test_all_columns_of_breast_cancer_are_separable_and_refused_at_once():
    frame = breast_cancer(30).assign(client=np.arange(569) % 5)
    began = time.monotonic()
    with pytest.raises(ValueError, match="y is linearly separable: the two classes can be told apart without error"):
        by_sgd(frame, "y", "client", "logistic")
    assert time.monotonic() - began < 10.0
