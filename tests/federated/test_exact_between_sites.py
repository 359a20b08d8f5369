"""An exact fit between sites: the pooled fit to rounding, from totals and nothing else."""

import json
import re

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.policy import Policy
from fedgauss.inference.model import Model
from site_rows import MODELS, ROWS, Sites, model_of, own, site_of

DIED = Model("died ~ age + dose", family="binomial")


def assert_same(found, other, rtol, facts=True):
    """Parameters, covariances and all that a summary says."""
    assert found.names == other.names
    np.testing.assert_allclose(found.params, other.params, rtol=rtol)
    np.testing.assert_allclose(found.cov, other.cov, rtol=10 * rtol, atol=10 * rtol * np.abs(other.cov).max())
    known = {name: fact for name, fact in other.facts.items() if name in found.facts or name != "Rows per client"}
    assert found.facts == known or not facts
    assert (found.statistics is None) == (other.statistics is None)
    if found.statistics is not None:
        for name in ("log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "dispersion"):
            ours, theirs = getattr(found.statistics, name), getattr(other.statistics, name)
            assert ours == (None if theirs is None else pytest.approx(theirs, rel=10 * rtol))
    if other.heterogeneity is not None:
        assert found.heterogeneity.statistic == pytest.approx(other.heterogeneity.statistic, rel=1e3 * rtol)


@pytest.mark.parametrize("model", MODELS)
def test_sites_give_what_the_pooled_frame_gives_masked_or_not(model):
    """Through lines of JSON: 1e-9 from the pooled fit, since sites round their sums, and masks change nothing."""
    pooled = fg.fit(ROWS, model_of(model), client="h")
    with Sites() as plain, Sites() as hidden:
        found, masked = federate(model_of(model), plain), federate(model_of(model), hidden, masked=True)
    assert_same(found, pooled, 1e-9)
    assert_same(masked, pooled, 1e-9)
    assert_same(masked, found, 1e-10)
    assert (found.sites is None) == (pooled.sites is None) == (model == "effects of sites")
    if found.sites is not None:
        np.testing.assert_allclose(found.sites.params, pooled.sites.params, rtol=1e-6)
    assert masked.sites is None
    assert any("totals over sites, and no site's own" in note for note in masked.notes)


@pytest.mark.parametrize("masked", [False, True])
def test_a_site_without_an_event_takes_part_in_a_cox_regression(masked):
    """Its sums are zeros, at every parameter."""
    frame = ROWS.assign(ended=ROWS.ended.where(ROWS.h != "a", 0))
    model = Model("months", event="ended", features=["age", "dose"], family="cox")
    with Sites(frame) as sites:
        found = federate(model, sites, masked=masked)
    assert_same(found, fg.fit(frame, model, client="h"), 1e-10)
    assert_same(found, fg.fit(frame[frame.h != "a"], model, client="h"), 1e-10, facts=False)


def test_of_a_masked_run_nobody_hears_a_number_of_a_site_but_its_rows():
    """What is not a name, a level, a count of rows or a signature is a masked word, new in every run."""
    heard = []
    for _ in range(2):
        with Sites() as sites:
            federate(Model("visits ~ age + ward", family="poisson"), sites, masked=True)
        heard.append([json.loads(one)["opening"] for order, of in sites.said if order == "open" for one in of.values()])
    for opening in heard[0]:
        assert set(opening) <= {"words", "salt", "numbers"}
        assert set(opening["words"]) <= {"rows", "dropped", "levels", "reasons", "tags"}
    words = [{word for one in run if "numbers" in one for word in _words(one)} for run in heard]
    assert not words[0] & words[1]


def _words(opening):
    """The masked numbers of a message, 32 bytes each in base64, cut where numbers end."""
    shape, text = opening["numbers"]["$words"]
    assert shape[1] == 4
    return re.findall(".{128}", text)


def test_columns_may_come_in_another_order_and_levels_be_missing_at_a_site():
    frame = ROWS[~((ROWS.h == "b") & (ROWS.ward == "north"))]
    model = Model("died", features=["age", "ward", "dose"], family="binomial")
    with Sites(frame) as sites:
        sites.sites["b"] = site_of(own(frame, "b").iloc[:, ::-1])
        found = federate(model, sites)
    pooled = fg.fit(frame, model, client="h")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-9, atol=1e-12)


def test_rows_with_missing_values_are_dropped_and_counted():
    frame = ROWS.assign(dose=ROWS.dose.where(np.arange(len(ROWS)) % 7 > 0))
    with (
        Sites(frame) as sites,
        pytest.raises(RunRefused, match=r"must not be missing; they are in 'dose' \(13\)") as all_of,
    ):
        federate(DIED, sites)
    assert list(all_of.value.reasons) == ["a", "b", "c"]
    model = Model("died ~ age + dose", family="binomial", missing="drop")
    with Sites(frame) as sites:
        found = federate(model, sites)
    assert_same(found, fg.fit(frame, model, client="h"), 1e-10)
    assert found.facts["Rows dropped"] == "52"


def test_rare_levels_are_pooled_and_named_ones_merged_at_the_sites():
    """As in one process, and the fit predicts for rows that still have the old levels."""
    rng = np.random.default_rng(5)
    stage = rng.choice(["I", "II", "III", "IV", "V"], len(ROWS), p=[0.4, 0.3, 0.2, 0.04, 0.06])
    frame = ROWS.assign(stage=stage)
    model = Model("died ~ age + stage", family="binomial", pool_rare=40, merged={"stage": {"III": "II"}})
    pooled = fg.fit(frame, model, client="h")
    for masked in (False, True):
        with Sites(frame) as sites:
            found = federate(model, sites, masked=masked)
        assert found.names == pooled.names
        np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
        np.testing.assert_allclose(found.predict(frame.head(9)), pooled.predict(frame.head(9)), rtol=1e-9)


def test_all_reasons_of_all_sites_come_in_one_message():
    frame = ROWS.assign(ward=np.where(np.arange(len(ROWS)) == 3, "attic", ROWS.ward))
    policy = {"a": Policy(), "b": Policy(least_rows=1000, families=("gaussian",)), "c": Policy()}
    sites = LocalSites({name: site_of(own(frame, name), policy[name]) for name in "abc"})
    with sites, pytest.raises(RunRefused) as refused:
        federate(Model("died ~ age + ward", family="binomial"), sites)
    reasons = refused.value.reasons
    assert set(reasons) == {"a", "b"}
    assert any("some of 'ward' have fewer" in words and "pool_rare=3" in words for words in reasons["a"])
    assert any("at least 1000 rows" in words for words in reasons["b"])
    assert any("allows the families 'gaussian'" in words for words in reasons["b"])


def test_a_cell_of_one_patient_is_not_summed():
    """Of patients of stage IV one died: the sum of age:stage over the dead would be that patient's age."""
    rng = np.random.default_rng(2)
    stage = np.where((ROWS.h == "b") & (rng.random(len(ROWS)) < 0.08), "IV", rng.choice(["I", "II"], len(ROWS)))
    died = np.where(stage == "IV", 0, ROWS.died)
    died[np.flatnonzero(stage == "IV")[0]] = 1
    frame = ROWS.assign(stage=stage, died=died)
    for masked in (False, True):
        with (
            Sites(frame) as sites,
            pytest.raises(RunRefused, match="every cell of two columns must have at least 3 rows"),
        ):
            federate(Model("died ~ age * stage", family="binomial"), sites, masked=masked)
    with Sites(frame, Policy(cells=3)) as sites, pytest.raises(RunRefused, match=r"'stage\[T.IV\]' and 'died'"):
        federate(Model("died ~ age + stage", family="binomial"), sites, masked=True)


def test_a_table_under_two_names_is_refused():
    rows = own(ROWS, "a")
    sites = LocalSites({name: site_of(rows) for name in "abc"})
    with sites, pytest.raises(ValueError, match="sites 'a' and 'b' have the same table, which would count twice"):
        federate(DIED, sites, masked=True)
    one = site_of(rows)
    sites = LocalSites({"a": one, "b": site_of(own(ROWS, "b"), where=one.home), "c": site_of(own(ROWS, "c"))})
    with sites, pytest.raises(ValueError, match=r"every site must have a key of its own.*'a' and 'b' have the same"):
        federate(DIED, sites, masked=True)


def test_a_model_that_has_no_estimate_ends_with_the_reason():
    frame = ROWS.assign(died=(ROWS.dose > 0).astype(int))
    with (
        Sites(frame) as sites,
        pytest.raises(ValueError, match=r"no finite estimate|Is a level without both|three quarters as many"),
    ):
        federate(DIED, sites)
