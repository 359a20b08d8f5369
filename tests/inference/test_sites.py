"""An exact fit between sites: the pooled fit to rounding, from sums over all rows and nothing else."""

import numpy as np
import pandas as pd
import pytest
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site

import fedgauss as fg
from any_fit import any_fit
from site_rows import MODELS, ROWS, Channel, asked_of, own

NO_MEANS = {"means": np.zeros(0), "sds": np.zeros(0)}


def assert_same(found, other, rtol, facts=True):
    """Parameters, covariances and all that a summary says."""
    assert found.names == other.names
    np.testing.assert_allclose(found.params, other.params, rtol=rtol)
    np.testing.assert_allclose(found.cov, other.cov, rtol=10 * rtol, atol=10 * rtol * np.abs(other.cov).max())
    assert found.facts == other.facts or not facts
    assert (found.statistics is None) == (other.statistics is None)
    if found.statistics is not None:
        for name in ("log_likelihood", "null_log_likelihood", "deviance", "null_deviance", "dispersion"):
            ours, theirs = getattr(found.statistics, name), getattr(other.statistics, name)
            assert ours == (None if theirs is None else pytest.approx(theirs, rel=10 * rtol))
    if other.heterogeneity is not None:
        assert found.heterogeneity.statistic == pytest.approx(other.heterogeneity.statistic, rel=1e3 * rtol)


@pytest.mark.parametrize("model", MODELS)
def test_sites_give_what_the_pooled_frame_gives_masked_or_not(model):
    """Through lines of JSON: 1e-10 from the pooled fit, and masks change nothing."""
    target, options = MODELS[model]
    pooled = any_fit(ROWS, target, "h", **options)
    plain, hidden = Channel(), Channel()
    found = fit_sites(plain.ask, plain.names, target, **options)
    masked = fit_sites(hidden.ask, hidden.names, target, masked=True, **options)
    assert_same(found, pooled, 1e-10)
    assert_same(masked, pooled, 1e-10)
    assert_same(masked, found, 1e-10)
    means = ["spread"] if model in ("scale", "splines") else []
    prepared = ["describe", "levels", *means, "design", "squares", "units"]
    assert plain.orders[: len(prepared)] == prepared
    assert hidden.orders[: len(prepared) + 2] == ["keys", "meet", *prepared]
    assert len(plain.said) <= 20
    assert (found.sites is None) == (pooled.sites is None) == (model == "effects of sites")
    if found.sites is not None:
        np.testing.assert_allclose(found.sites.params, pooled.sites.params, rtol=1e-6)
    assert masked.sites is None
    assert "own" not in hidden.orders
    assert any("totals over sites, and no site's own" in note for note in masked.notes)


@pytest.mark.parametrize("masked", [False, True])
def test_a_site_without_an_event_takes_part_in_a_cox_regression(masked):
    """Its sums are zeros, at every parameter."""
    frame, model = (
        ROWS.assign(ended=ROWS.ended.where(ROWS.h != "a", 0)),
        {"event": "ended", "features": ["age", "dose"]},
    )
    channel = Channel(frame)
    found = fit_sites(channel.ask, channel.names, "months", masked=masked, **model)
    assert_same(found, any_fit(frame, "months", "h", **model), 1e-10)
    assert_same(found, any_fit(frame[frame.h != "a"], "months", "h", **model), 1e-10, facts=False)


def test_of_a_masked_fit_the_coordinator_hears_no_number_of_a_site():
    """But counts of rows: what is not a name, a level or a masked word is not there, and words are new in every run."""
    heard = []
    for _ in range(2):
        channel = Channel()
        fit_sites(channel.ask, channel.names, "visits", "poisson", ["age", "ward"], masked=True)
        heard.append(channel.said)
    for order, texts in heard[0]:
        for told in map(decoded, texts):
            kinds = {name: type(value) for name, value in told.items()}
            allowed = {
                "keys": {"public": str}, "meet": {}, "describe": {"rows": int, "dropped": int, "levels": dict},
                "design": {"masked": dict, "names": list}, "units": {},
            }  # fmt: skip
            assert kinds == allowed.get(order, {"masked": dict}), order
    for (order, first), (_, second) in zip(*heard, strict=True):
        if "masked" in decoded(first[0]):
            assert all(a != b for a, b in zip(first, second, strict=True)), order


def test_columns_may_come_in_another_order_and_levels_be_missing_at_a_site():
    frame = ROWS[~((ROWS.h == "b") & (ROWS.ward == "north"))]
    channel = Channel(frame)
    channel.sites[1] = Site(own(frame, "b").iloc[:, ::-1])
    features = ["age", "ward", "dose"]
    found = fit_sites(channel.ask, channel.names, "died", "binomial", features)
    assert_same(found, fg.fit(frame, "died", "h", "binomial", features), 1e-10)


def test_rows_with_missing_values_are_dropped_and_counted():
    frame = ROWS.assign(dose=ROWS.dose.where(np.arange(len(ROWS)) % 7 > 0))
    options = {"family": "binomial", "features": ["age", "dose"]}
    channel = Channel(frame)
    with pytest.raises(ValueError, match=r"site 'a': values must not be missing; they are in 'dose' \(13\)"):
        fit_sites(channel.ask, channel.names, "died", **options)
    channel = Channel(frame)
    found = fit_sites(channel.ask, channel.names, "died", missing="drop", **options)
    assert_same(found, any_fit(frame, "died", "h", missing="drop", **options), 1e-10)
    assert found.facts["Rows dropped"] == "52"


@pytest.fixture
def ready():
    """Site a, once it has answered what comes before the sums of a fit."""
    channel = Channel()

    def ask(order, contents):
        if order == "final":
            raise KeyboardInterrupt
        return channel.ask(order, contents)

    with pytest.raises(KeyboardInterrupt):
        fit_sites(ask, channel.names, "died", "binomial", ["age", "dose"])
    return channel.sites[0]


def test_a_parameter_that_singles_out_rows_is_refused(ready):
    """Far along a direction all rows but those near a plane lose their weight: their sums would be a row's."""
    for theta in ([0.0, 1e4, 0.0], [300.0, 500.0, 0.0]):
        reply = ready.answer("sums", {"theta": np.array(theta)})
        assert reply["log_likelihood"] <= -1e100
        assert not reply["score"].any()
        assert not reply["information"].any()
        assert "at least 5 rows must count" in ready.answer("final", {"theta": np.array(theta)})["error"]
    assert ready.answer("sums", {"theta": np.zeros(3)})["information"].any()


def test_sums_are_not_told_for_ever():
    """Each order has its number, and the policy one for all of them; what is refused counts."""
    channel = Channel(policy=Policy(most_rounds=1000))

    def ask(order, contents):
        if order == "sums":
            raise KeyboardInterrupt
        return channel.ask(order, contents)

    with pytest.raises(KeyboardInterrupt):
        fit_sites(ask, channel.names, "died", "binomial", ["age", "dose"])
    site, far = channel.sites[0], {"theta": np.array([0.0, 1e4, 0.0])}
    replies = [site.answer("sums", {"theta": np.array([0.0, 0.0, 1e-3 * i])}) for i in range(130)]
    assert "error" not in replies[119]
    assert "'sums' is answered at most 120 times in a fit" in replies[120]["error"]
    assert "error" not in site.answer("final", {"theta": np.zeros(3)})
    assert "at least 5 rows must count" in site.answer("final", far)["error"]
    assert "error" not in site.answer("final", {"theta": np.zeros(3)})
    assert "at most 3 times" in site.answer("final", {"theta": np.zeros(3)})["error"]


def test_what_belongs_to_another_run_is_refused(ready):
    for order in ("describe", "levels", "begin", "advance", "units", "keys", "meet"):
        assert "is no part of it. Restart the site" in ready.answer(order, {})["error"]
    assert "'theta' must be an array of d numbers" in ready.answer("sums", {"theta": np.zeros(4)})["error"]


def test_a_site_with_few_rows_for_its_columns_takes_no_part():
    frame = pd.concat([ROWS[ROWS.h == "a"][:20], ROWS[ROWS.h != "a"]])
    rng = np.random.default_rng(0)
    wide = frame.assign(**{f"x{i}": rng.normal(size=len(frame)) for i in range(4)})
    channel = Channel(wide)
    with pytest.raises(ValueError, match=r"site 'a': .* 3 rows for each parameter; 7 parameters and 20 rows are fewer"):
        fit_sites(channel.ask, channel.names, "died", "binomial", ["age", "dose", "x0", "x1", "x2", "x3"])


def test_separable_classes_are_named_as_the_cause():
    """Along the way a few rows keep all the weight, and sites say no more than that parameters are unlikely."""
    frame = ROWS.assign(died=(ROWS.age > 50).astype(int))
    for masked in (False, True):
        channel = Channel(frame)
        with pytest.raises(ValueError, match="'died' has no finite estimate"):
            fit_sites(channel.ask, channel.names, "died", "binomial", ["age", "dose"], masked=masked)


def test_a_step_too_far_is_taken_back_in_a_masked_fit_too():
    """Of counts up to 500 with a predictor that misses by much; sums of e^80 could be told by no mask."""
    frame = ROWS.assign(visits=np.where(np.arange(len(ROWS)) % 60 < 6, 500 + ROWS.visits, ROWS.visits))
    frame = frame.assign(dose=ROWS.dose + 6 * (np.arange(len(ROWS)) % 60 < 6))
    pooled = fg.fit(frame, "visits", "h", "poisson", ["age", "dose"])
    channel = Channel(frame)
    found = fit_sites(channel.ask, channel.names, "visits", "poisson", ["age", "dose"], masked=True)
    assert_same(found, pooled, 1e-9)
    again = Channel(frame)
    asked = again.ask

    def far(order, contents):
        return asked(order, [c | {"theta": np.full(3, 60.0)} if order == "sums" else c for c in contents])

    with pytest.raises(ValueError, match="sites do not tell their sums where this fit starts"):
        fit_sites(far, again.names, "visits", "poisson", ["age", "dose"], masked=True)


def test_a_site_can_be_put_away_between_two_orders():
    for masked in (False, True):
        whole, parted = Channel(), Channel()

        def ask(order, contents, parted=parted):
            states = [decoded(encoded(site.state())) for site in parted.sites]
            parted.sites = [
                Site.restored(own(ROWS, name), state) for name, state in zip(parted.names, states, strict=True)
            ]
            return parted.ask(order, contents)

        options = {"family": "binomial", "formula": "died ~ scale(age) + ward", "masked": masked}
        found = fit_sites(ask, parted.names, "died", **options)
        np.testing.assert_array_equal(found.params, fit_sites(whole.ask, whole.names, "died", **options).params)


ROWS_A = own(ROWS, "a").assign(
    kind=np.where(np.arange(90) < 30, "k", "m"), sex=np.where((np.arange(90) < 4) | (np.arange(90) >= 60), "f", "m"),
    rest=np.where(np.arange(90) < 30, np.arange(90) % 3, 0.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("formula", "change", "message"),
    [
        ("kind:sex", {}, "'sex[T.m]' and 'kind[T.m]:sex[f]' do not"),  # 'm' or 'm and f': but for four with k and f
        ("kind:sex:age", {}, "in 'kind[k]:sex[f]:age' fewer do"),
        ("kind + sex + age", {}, ""),  # a cell of four is told: three are the fewest
        ("kind*log(age)", {}, ""),
        ("kind + I(rest ** 5)", {}, ""),
        ("ns(age, knots=[50, 50.01, 50.02], bounds=[49.99, 50.03])", {}, "at least 5 rows must lie between two knots"),
        ("ns(age, knots=[50], bounds=[40, 60])", {}, ""),
        ("scale(age)", {}, ""),
        ("dose + offset(age)", {}, ""),
        ("log(dose)", {}, "log(dose) needs values above 0; column 'dose' has others"),
        ("log(age - 31.4)", {}, "under log() there is a column"),
        ("age", {"age": np.where(np.arange(90) == 7, 123456789.0, ROWS_A.age)}, "one of column 'age' does"),
        ("scale(age)", {"age": np.where(np.arange(90) == 7, 123456789.0, ROWS_A.age)}, "one of column 'age' does"),
        ("I(years ** 5)", {"years": np.where(np.arange(90) == 7, 12.0, ROWS_A.years)}, "one row makes up more"),
        ("scale(years ** 5)", {"years": np.where(np.arange(90) == 7, 12.0, ROWS_A.years)}, "one row makes up more"),
        ("age", {"age": ROWS_A.age.astype(str)}, "column 'age' holds numbers as text"),
        ("exp(age)", {}, "Make it a column of the frame first"),
    ],
)
def test_formulas_of_strangers_set_no_row_apart(formula, change, message):
    """Refused where a cell, a stretch between knots or a value is that of a few; the words quote no value."""
    site, said = Site(ROWS_A.assign(**change)), []
    reply = site.answer("describe", asked_of(target="died", family="binomial", formula=f"died ~ {formula}"))
    if "error" not in reply:
        reply = site.answer("levels", {"levels": reply["levels"], "total": 360})
        said.append(reply)
    if "error" not in reply:
        needs = len(reply["needed"])
        reply = site.answer("design", {"means": np.full(needs, 50.0), "sds": np.full(needs, 10.0)})
        said.append(reply)
    assert message in reply.get("error", "")
    assert bool(message) == ("error" in reply)
    assert "123456789" not in encoded({"said": said})
