"""A pass of SGD between sites: the same as in one process, and what a site refuses of it."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.federated.keys import Key
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.sgd_program import mix
from fedgauss.federated.sgd_rows import SgdRows
from fedgauss.federated.wire import decode, encode
from fedgauss.inference.client_steps import shuffle
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD
from site_rows import Sites, home, many_columns

ROWS = many_columns(11, {"a": 100, "b": 110, "c": 120})
COST = Model("cost ~ age + dose", family="gaussian")
WILLING = Policy(passes=1)
KEY = Key.fresh()
PASS = SGD(sync_every=30)


def fit_between(model=COST, solver=PASS, policy=WILLING, masked=False, frame=ROWS, sites=None):
    with Sites(frame, policy) if sites is None else sites as there:
        return federate(model, there, masked=masked, key=KEY, solver=solver)


@pytest.mark.parametrize(
    ("model", "solver", "masked"),
    [
        (COST, PASS, False),
        (Model("cost ~ age + dose - 1", family="gaussian"), SGD(sync_every=22, weights="equal"), False),
        (COST, SGD(sync_every=33, weights=[0.5, 0.2, 0.3], network=fg.networks.path(3)), False),
        (Model("died ~ age + dose", family="binomial"), SGD(sync_every=22, seed=3), False),  # the burn-in ends at one
        (Model("visits ~ scale(age) + dose", family="poisson"), SGD(sync_every=40, standardise=False), False),
        (Model("blood ~ age + dose", family="one_versus_rest"), SGD(sync_every=30), False),
        (Model("died ~ age + dose + C(ward)", family="binomial"), SGD(sync_every=40), True),
        (Model("error ~ age + dose", family="huber"), SGD(sync_every=33), True),
    ],
    ids=lambda value: getattr(value, "target", None),
)
def test_it_is_the_pass_of_one_process(model, solver, masked):
    """To single precision, in which clients take their steps."""
    found = fit_between(model, solver, masked=masked)
    if masked:
        solver = SGD(sync_every=solver.sync_every, network=fg.networks.complete(3))
    pooled = fg.fit(ROWS, model, client="h", solver=solver, progress=False)
    np.testing.assert_array_less(np.abs(found.params - pooled.params) / pooled.std_errors, 1e-3)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-3, atol=1e-5 * np.diag(pooled.cov).min())
    assert found.names == pooled.names
    hidden = {"Rows per client"} if masked else set()
    assert found.facts == {name: fact for name, fact in pooled.facts.items() if name not in hidden}


def test_everybody_computes_the_same_parameters_to_the_bit():
    """Of what sites say in the clear, the next message of each follows from the mixed parameters of all."""
    theta, network = np.random.default_rng(0).normal(size=(3, 4)), fg.networks.ring(3)
    np.testing.assert_allclose(mix(network, theta), network.matrix.T @ theta, rtol=1e-15)
    with Sites(ROWS, WILLING) as sites:
        found = federate(COST, sites, key=KEY, solver=PASS)
        again = [json for order, json in sites.said if order == "hear"][-1]
    assert all(decode(reply) == {"ended": True} for reply in again.values())
    assert found.notes == ()


def test_under_masks_nobody_says_parameters_of_its_own():
    with Sites(ROWS, WILLING) as sites:
        federate(COST, sites, masked=True, key=KEY, solver=PASS)
    with Sites(ROWS, WILLING) as plain:
        federate(COST, plain, key=KEY, solver=SGD(sync_every=30, network=fg.networks.complete(3)))
    words, clear = ([decode(r["a"])["opening"] for o, r in there.said if o == "open"] for there in (sites, plain))
    assert len(words) == len(clear) + 1  # the count of cells, which is of totals
    numbers = [one["numbers"] for one in words if "numbers" in one]
    assert all(np.mean(one[:, -1] == 0) < 0.1 for one in numbers)  # of integers below 2^192 the last word is 0


def test_a_site_that_was_put_away_goes_on_where_it_was():
    """As Flower's nodes do between any two messages."""

    class PutAway(Sites):
        def ask(self, order, contents):
            replies = super().ask(order, contents)
            site = self.sites["b"]
            state = decode(encode(site.state()))
            site.put_away()
            fresh = type(site)(site._table._frame, site.home, WILLING, lambda text: None)
            fresh.restore(state)
            self.sites["b"] = fresh
            return replies

    assert fit_between(sites=PutAway(ROWS, WILLING)).params.tolist() == fit_between().params.tolist()


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (SGD(passes=2), "a pass between sites cannot have passes yet. Leave it out."),
        (SGD(finish=1), "a pass between sites cannot have finish yet"),
        (SGD(method="bootstrap"), "a pass between sites cannot have method yet"),
        (SGD(sync_every=0), "sync_every must be"),
        (SGD(weights="rank"), "weights must be one of 'rows', 'equal'"),
        (SGD(standardise=1), "standardise must be True or False; got 1"),
        (SGD(network=fg.networks.ring(4)), "mixing must be K x K with K = 3 clients"),
        (SGD(network=fg.networks.gossip_pairs(3)), "a pass between sites needs a network that stays the same"),
        (SGD(sync_every=111), "sync_every must be at most the 110 steps of a pass; got 111"),
        ("sgd", "solver must be 'scoring' or settings of a pass, fg.SGD(); got 'sgd'"),
    ],
)
def test_settings_that_no_pass_between_sites_has_are_refused(solver, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        fit_between(solver=solver)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        (COST, {"masked": True, "solver": SGD(network=fg.networks.path(3))}, "under masks sites see means over all"),
        (Model("cost ~ age", family="gaussian", errors="HC1"), {}, "errors='HC1' belongs to solver='scoring'"),
        (Model("cost ~ age", family="gaussian", ridge=1.0), {}, "ridge=1.0 belongs to solver='scoring'"),
        (Model("visits ~ age", family="poisson", exposure="years"), {}, "SGD takes covariates and a response alone"),
        (Model("falls ~ age", family="negative_binomial"), {}, "has no fit by SGD"),
    ],
)
def test_models_that_no_pass_has_are_refused(model, options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        fit_between(model, **options)


def test_private_fits_are_by_scoring():
    with pytest.raises(ValueError, match="a private fit is by scoring"):
        Plan(COST, ("a", "b"), True, "asker", "1", fg.Privacy(1.0), PASS)


def test_a_site_makes_no_pass_that_its_policy_does_not_allow():
    with pytest.raises(RunRefused, match="this site's policy has passes = 0: it makes no pass of SGD"):
        fit_between(policy=Policy())


def test_a_table_makes_as_many_passes_as_its_policy_allows():
    """A second one reads the same rows in other company, and even a repeat may go by other parameters."""
    homes = {name: home(WILLING) for name in "abc"}
    with Sites(ROWS, WILLING, homes) as sites:
        first = federate(COST, sites, key=KEY, solver=PASS)
        (run,) = sites.sites["a"].home.ledger._history.runs
        assert (run.parameters, run.matrices, run.passes) == (2, 4, 1)
        for solver in (PASS, SGD(sync_every=22), SGD(seed=1, sync_every=30)):
            with pytest.raises(RunRefused, match="at most 1 passes over all runs; it has answered 1"):
                federate(COST, sites, key=KEY, solver=solver)
        federate(COST, sites, key=KEY)  # scoring goes on
        assert "passes: 1 of 1, 0 left" in sites.sites["a"].home.ledger.report()
    more = Policy(passes=2)
    with Sites(ROWS, more) as sites:
        twice = [federate(COST, sites, key=KEY, solver=PASS) for _ in range(2)]
    assert twice[0].params.tolist() == twice[1].params.tolist() == first.params.tolist()


@pytest.mark.parametrize(
    ("sync_every", "instead"),
    [(10, 11), (21, 22), (54, 55)],  # site a reads 100 rows in 110 steps: 9 a round, or 5 or 1 after the last one
)
def test_rounds_of_few_rows_are_refused_with_how_many_steps_would_do(sync_every, instead):
    words = (
        "at least 10 rows of this site must be read between two synchronisations of SGD, and after the last of 110 "
        f"steps; with sync_every={sync_every} fewer are somewhere. Use sync_every={instead}."
    )
    with pytest.raises(RunRefused, match=words):
        fit_between(solver=SGD(sync_every=sync_every))
    fit_between(solver=SGD(sync_every=instead))


def test_rounds_in_which_few_rows_have_a_level_are_refused():
    model = Model("died ~ age + dose + C(ward)", family="binomial")
    with pytest.raises(RunRefused, match="at least 3 rows of this site must count, however columns are combined"):
        fit_between(model, SGD(sync_every=20))


def test_columns_of_warm_up_burn_in_and_window_are_asked_of_the_ledger():
    """The products of each are told: where warm-up and burn-in differ by one row, so is that row."""
    names = [f"{k:02}" for k in range(12)]
    fit_between(solver=SGD(sync_every=17), frame=many_columns(3, dict.fromkeys(names, 51)))  # both of 10 rows
    with pytest.raises(
        RunRefused, match=r"must rest on at least 3 rows; .* 'age of the burn-in', 'age of the warm-up'"
    ):
        fit_between(solver=SGD(sync_every=18), frame=many_columns(3, dict.fromkeys(names, 54)))  # of 10 and 11


@pytest.mark.parametrize("far", [30.0, -30.0])
def test_a_site_that_moves_the_parameter_reads_no_row_of_others(far, monkeypatch):
    """At a steep intercept all residuals vanish but those of the rarer outcome, of which a round has few."""
    honest, after_the_lie = SgdRows.reply, []

    def lie(self, what, again, **content):
        after_the_lie.extend(one.since for one in content.get("stretches", ()) if one.since)
        numbers = honest(self, what, again, **content)
        if what == "steps" and self._here == 0:
            numbers["theta"] = np.array([3 * far, 0.0, 0.0])  # under masks a site moves the mean by a third
        return numbers

    monkeypatch.setattr(SgdRows, "reply", lie)
    frame = ROWS.copy()
    for here, name in enumerate("abc"):  # as rows are read: seven of the rarer outcome in the burn-in, then two a round
        at = np.flatnonzero(frame.h == name)[shuffle(int(np.sum(frame.h == name)), here, PASS.seed)]
        place = np.arange(len(at))
        frame.loc[at, "died"] = np.where((place < 25) & (place % 4 == 0) | (place % 15 == 0), far < 0, far > 0).astype(
            int
        )
    with pytest.raises(RunRefused, match="of this site must count at every parameter; at this one fewer do"):
        fit_between(Model("died ~ age + dose", family="binomial"), frame=frame, masked=True)
    assert set(after_the_lie) == {30}  # nothing of the round after it was told
    monkeypatch.setattr(SgdRows, "reply", honest)
    fit_between(Model("died ~ age + dose", family="binomial"), frame=frame, masked=True)


def test_without_masks_rows_of_few_values_can_be_worked_out(monkeypatch):
    """docs/limits.md: of all sequences of rows that there can be, one leads to the parameters that a site has sent."""
    honest, told, rng = SgdRows.reply, [], np.random.default_rng(2)

    def spy(self, what, again, **content):
        numbers = honest(self, what, again, **content)
        if what == "steps" and self._here == 0:
            told.append((self._course, content["matrices"], content["stretches"][0], numbers["theta"]))
        return numbers

    monkeypatch.setattr(SgdRows, "reply", spy)
    kinds = [np.concatenate([rng.permutation(8) % 4 for _ in range(15)]) for _ in "ab"]  # of 120 rows, as they are read
    kinds[1][-1] ^= 1  # or the two would have one table
    stored = [own[np.argsort(shuffle(120, here, 0))] for here, own in enumerate(kinds)]
    rows = np.concatenate(stored)
    frame = pd.DataFrame({"smokes": rows // 2, "died": rows % 2, "h": np.repeat(["a", "b"], 120)})
    willing = Policy(passes=1, least_rows=8)
    fit_between(Model("died ~ smokes", family="binomial"), SGD(sync_every=8), willing, frame=frame)
    read = []
    for course, matrices, (since, until, theta, _), sent in told:
        places = theta[None]
        for step in range(since, until):
            burning, after = step < course.plan.burn_in, []
            for kind in range(4):
                x, eta = course.units.rows(np.array([[kind // 2]]))[0], course.plan.eta[step]
                mean = 1.0 / (1.0 + np.exp(-places @ x))
                slopes = (mean - kind % 2)[:, None] * x
                moves = slopes @ matrices[not burning].T
                q = eta * mean * (1.0 - mean) * (moves @ x) ** 2 / np.einsum("ij,ij->i", slopes, moves)
                after.append(places - eta * moves / (1.0 + q if burning else np.maximum(q, 1.0))[:, None])
            places = np.stack(after, axis=1).reshape(-1, 2)
        nearest = int(np.abs(places - sent).max(axis=1).argmin())
        read += [nearest // 4**k % 4 for k in reversed(range(until - since))]
    np.testing.assert_array_equal(read, kinds[0][: len(read)])


def test_settings_travel():
    for solver in (
        PASS,
        SGD(network=fg.networks.ring(3), weights=[0.5, 0.25, 0.25]),
        SGD(network=np.full((3, 3), 1 / 3)),
    ):
        plan = Plan(COST, ("a", "b", "c"), False, "asker", "1", None, solver)
        read = Plan.from_wire(decode(encode(plan.to_wire())))
        assert read.run == plan.run
        assert read.sgd.graph(3).name == solver.graph(3).name
        np.testing.assert_array_equal(read.sgd.graph(3).matrix, solver.graph(3).matrix)
    runs = [Plan(COST, ("a", "b", "c"), False, "asker", "1", None, one).run for one in (None, PASS, SGD(seed=1))]
    assert len(set(runs)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"sync_every": "ten"}, {"seed": -1}, {"weights": {}}, {"weights": np.ones(2)}, {"network": {}}, {"network": 3},
        {"network": {"name": "x", "matrix": np.ones((3, 3))}}, {"network": {"name": 1, "matrix": np.eye(3)}},
        {"standardise": "yes"}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_are_none_are_refused(change):
    held = Plan(COST, ("a", "b", "c"), False, "asker", "1", None, PASS).to_wire()
    held["sgd"] |= change
    with pytest.raises(ValueError, match=r"."):
        Plan.from_wire(decode(encode(held)))


def test_stops_are_synchronisations_that_somebody_hears_of():
    from fedgauss.inference.client_pass import Course
    from fedgauss.inference.preparation import Location, Units

    units = Units(Location(np.zeros(1), np.ones(1)), None, True)
    for tau, stops in ((50, [0, 50, 100, 110]), (55, [0, 55, 110]), (110, [0, 110])):
        course = Course(units, fg.families.as_family("linear"), np.zeros(2), 330, 3, tau)
        assert course.stops == stops
        assert all(until > since for since, until in pairwise(stops))
