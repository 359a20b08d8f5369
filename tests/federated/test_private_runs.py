"""Private runs between sites: what they find and cost, what they refuse, and that a table's budget holds."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.policy import Policy
from fedgauss.federated.wire import decode, encode
from fedgauss.inference.fit_result import Fit
from site_rows import Sites, home, home_at, own, site_of

RANGES = {"age": (20, 90), "dose": (-3, 3), "cost": (-6, 8)}
MODEL = fg.Model("died ~ age + dose + ward", family="binomial")


def normal_noise(seed):
    """Rounded normals in place of the exact sampler: quick, and repeated by the seed."""
    rng = np.random.default_rng(seed)
    return lambda variance, size: np.rint(rng.normal(0.0, math.sqrt(variance), size))


def table(sites, n=9_000, seed=3):
    rng = np.random.default_rng(seed)
    age, dose = np.clip(rng.normal(55, 12, n), 20, 90).round(), np.clip(rng.normal(size=n), -3, 3)
    ward = rng.choice(["east", "south"], n)
    line = -0.8 + 0.03 * (age - 55) + 0.5 * dose + 0.4 * (ward == "south")
    return pd.DataFrame(
        {
            "age": age, "dose": dose, "ward": ward, "died": (rng.random(n) < 1 / (1 + np.exp(-line))).astype(int),
            "cost": line + rng.normal(size=n), "visits": rng.poisson(np.exp(line)),
            "h": np.array(list("abcdefgh"))[:sites][rng.integers(0, sites, n)],
        }
    )  # fmt: skip


ROWS = table(3)


class Noisy(Sites):
    """Sites whose noise a seed repeats."""

    def __init__(self, frame=ROWS, policy=None, homes=None, seed=0):
        super().__init__(frame, policy, homes)
        homes = homes or {}
        self.sites = {
            name: site_of(own(frame, name), policy, homes.get(name), noise=normal_noise([seed, place]))
            for place, name in enumerate(self.names)
        }


def private(model=MODEL, epsilon=8.0, sites=None, ranges=RANGES, **options):
    with sites or Noisy(**options) as reached:
        return federate(model, reached, masked=True, privacy=fg.Privacy(epsilon, 1e-6, ranges))


@pytest.mark.parametrize("sites", [3, 8])
@pytest.mark.parametrize(("target", "family"), [("died", "logistic"), ("cost", "gaussian"), ("visits", "poisson")])
def test_it_is_near_the_fit_without_noise(target, family, sites):
    """At epsilon 8 within four standard errors of its own (wrong with 3e-4 a family, seeds fixed), and hardly wider."""
    rows = table(sites)
    model = fg.Model(f"{target} ~ age + dose + ward", family=family)
    pooled = fg.fit(rows, model, client="h")
    found = private(model, frame=rows)
    assert found.names == pooled.names
    assert np.all(np.abs(found.params - pooled.params) < 4 * found.std_errors)
    wider = found.std_errors / pooled.std_errors
    assert np.all((wider > 0.9) & (wider < 1.3))
    assert found.facts["Rows"] == "9,000"


def test_less_epsilon_is_wider_and_says_so():
    wide, narrow = private(epsilon=0.5), private(epsilon=8.0)
    assert np.all(wide.std_errors > 1.1 * narrow.std_errors)
    text = wide.summary()
    assert "epsilon 0.5, delta 1e-06" in text
    assert "times those without noise" in text
    assert "Differential privacy: intervals count the noise" in text
    assert "totals over sites, and no site's own" in text


def test_a_private_fit_is_saved_and_predicts(tmp_path):
    found = private()
    found.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert again.facts == found.facts
    assert again.notes == found.notes
    assert np.array_equal(again.predict(ROWS.head(5)), found.predict(ROWS.head(5)))


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("died ~ age + dose - 1", "has an intercept, no offset"),
        ("died ~ age + offset(dose)", "has an intercept, no offset"),
        ("died ~ scale(age)", "needs means of all rows"),
        ("died ~ ns(age, df=3)", "needs means of all rows"),
        ("died ~ age + cost * ward", r"the range of 'dose'|Use --range cost=LOW:HIGH, or fg.Privacy"),
        ("died ~ log(age)", r"Use --range 'log\(age\)'=LOW:HIGH"),
    ],
)
def test_formulas_that_need_more_than_totals_with_noise_are_refused(formula, words):
    with Noisy() as sites, pytest.raises(ValueError, match=words):
        federate(
            fg.Model(formula, family="binomial"), sites, masked=True, privacy=fg.Privacy(8.0, ranges={"age": (20, 90)})
        )
    assert not any("epsilon: 8" in site.home.ledger.report() for site in sites.sites.values())


def test_ranges_of_products_follow_from_those_of_factors():
    """Levels are zeros and ones; a spline with knots and bounds has a range for each column."""
    model = fg.Model("died ~ age * ward + ns(dose, knots=[0], bounds=[-2, 2])", family="binomial")
    spline = "ns(dose, knots=[0], bounds=[-2, 2])"
    with Noisy() as sites, pytest.raises(ValueError, match=r"needs the range of 'ns\(dose"):
        federate(model, sites, masked=True, privacy=fg.Privacy(8.0, ranges=RANGES))
    ranges = RANGES | {f"{spline}[{j}]": (-2, 2) for j in range(2)}
    found, pooled = private(model, ranges=ranges), fg.fit(ROWS, model, client="h")
    assert found.names == pooled.names
    assert np.all(np.abs(found.params - pooled.params) < 4 * found.std_errors)


def test_ranges_may_come_from_policies():
    """Of sites that differ the widest counts, and what the plan says counts before that."""
    policy = Policy(ranges={"age": (18, 100), "dose": (-4, 4)})
    found = private(ranges={}, policy=policy)
    assert np.array_equal(found.params, private(ranges=policy.ranges).params)
    assert not np.array_equal(found.params, private(ranges={"age": (20, 90)}, policy=policy).params)


def test_what_leaves_a_site_is_masked_words_and_nothing_else():
    """No number but the levels, nor a tag of a table; of two runs with the same noise no word is the same.

    Who shares the key of a tag, as another site does, could tell by it whether a guess of the whole table is right.
    """
    heard = []
    for _ in range(2):
        with Noisy() as sites:
            private(sites=sites)
        heard.append([decode(one)["opening"] for order, of in sites.said if order == "open" for one in of.values()])
    for opening in heard[0]:
        assert set(opening) <= {"words", "salt", "numbers"}
        assert set(opening["words"]) <= {"levels", "reasons", "tags", "ranges"}
        assert not opening["words"].get("tags")
    words = [{word for one in run if "numbers" in one for word in one["numbers"].ravel().tolist()} for run in heard]
    assert not words[0] & words[1]


def test_the_exact_sampler_gives_a_fit_too():
    """Sites as they come, without a seed: wrong with less than 1e-8, six standard errors of four parameters."""
    with Sites() as sites:
        pass
    small = table(3, 3_000)
    sites = Sites(small)
    found = private(fg.Model("died ~ age", family="binomial"), sites=sites)
    pooled = fg.fit(small, fg.Model("died ~ age", family="binomial"), client="h")
    assert np.all(np.abs(found.params - pooled.params) < 6 * found.std_errors)


def test_the_ledger_has_the_cost_before_the_first_answer_leaves():
    """The line is on disk when a site is asked for its noise, with nothing told of columns."""
    place = home(name="north")
    seen = []

    def noise(variance, size):
        seen.append([json.loads(line.rpartition(" ")[0])["is"] for line in place.ledger.path.read_text().splitlines()])
        return np.zeros(size)

    sites = Noisy()
    sites.sites["a"] = site_of(own(ROWS, "a"), where=place, noise=noise)
    private(sites=sites)
    assert all(lines.count("privacy") == 1 and lines[-1] == "privacy" for lines in seen)
    assert "tell" not in seen[-1]
    assert "epsilon 8, delta 1e-06" in place.ledger.report()


def test_a_repeat_costs_as_much_again_and_the_budget_outlives_restarts():
    policy = Policy(epsilon=2.0, delta=1e-5)
    homes = {name: home(policy, name) for name in "abc"}
    found = [private(epsilon=1.2, policy=policy, homes=homes, seed=seed) for seed in range(3)]
    assert len({fit.params[0] for fit in found}) == 3
    path = homes["a"].ledger.path
    for again in range(2):  # the second time from the file
        if again:
            homes = {name: home_at(one.ledger.path, policy, one.key) for name, one in homes.items()}
        with pytest.raises(RunRefused) as refused:
            private(epsilon=1.2, policy=policy, homes=homes)
        reasons = refused.value.reasons["a"]
        assert "private runs may tell epsilon 2 of this table in all, at delta 1e-05; with this one" in reasons[0]
        assert "Another run may have epsilon" in reasons[0]
    report = homes["a"].ledger.report()
    assert "of 2 at delta 1e-05. Another run may have epsilon" in report
    assert path.read_text().count('"is":"privacy"') == 3  # refused runs cost nothing
    private(fg.Model("cost ~ age", family="gaussian"), 0.2, policy=policy, homes=homes)


def test_a_site_that_has_no_budget_says_so_before_others_spend_theirs():
    homes = {name: home(name=name) for name in "bc"}
    sites = Noisy(homes=homes)
    policy = Policy(epsilon=0)
    sites.sites["a"] = site_of(own(ROWS, "a"), policy, home(policy))
    with pytest.raises(RunRefused, match="epsilon = 0: it takes no part in private runs"):
        private(sites=sites)
    assert all("privacy" not in one.ledger.path.read_text() for one in homes.values())
    assert "epsilon: 0 of 10 at delta 1e-05. all left" in homes["b"].ledger.report()


def test_a_mailbox_cannot_change_epsilon():
    """The plan is signed by who asks."""

    class Greedy(Noisy):
        def ask(self, order, contents):
            if order == "join":
                for content in contents.values():
                    content["plan"]["privacy"]["epsilon"] = 80.0
            return super().ask(order, contents)

    with pytest.raises(RunRefused, match="who asks must have signed the plan"):
        private(sites=Greedy())


def test_rows_with_levels_that_nobody_names_add_nothing():
    """A ward with one patient is neither named nor refused; without noise the fit is that of all others."""
    frame = ROWS.copy()
    frame.loc[[5], "ward"] = "the mayor's"
    sites = Noisy(frame)
    found = private(sites=sites)
    assert "mayor" not in str(sites.said)
    assert np.array_equal(found.names, fg.fit(ROWS, MODEL, client="h").names)
    assert np.all(np.abs(found.params - fg.fit(ROWS, MODEL, client="h").params) < 4 * found.std_errors)


def test_two_sites_hide_each_from_the_other():
    """The other site knows its own noise; what is left has the whole variance, so two are enough."""
    variances = []

    def noise(variance, size):
        variances.append(variance)
        return np.zeros(size)

    rows = table(2)
    sites = Noisy(rows)
    sites.sites["a"] = site_of(own(rows, "a"), noise=noise)
    private(sites=sites)
    three = Noisy(table(3))
    alone, variances = list(variances), variances
    variances.clear()
    three.sites["a"] = site_of(own(table(3), "a"), noise=noise)
    private(sites=three)
    assert [one / other for one, other in zip(alone, variances, strict=True)] == pytest.approx([2.0] * len(alone))


def test_a_run_that_was_stopped_goes_on_and_is_paid_for_again(tmp_path):
    """What was told is gone over, and the rest is asked for in a run that costs as much as a whole one."""
    from fedgauss.federated.journal import Journal

    homes = {name: home(name=name) for name in "abc"}

    class Stops(Noisy):
        def ask(self, order, contents):
            if order == "open" and sum(asked[0] == "open" for asked in self.asked) == 5:
                raise KeyboardInterrupt
            return super().ask(order, contents)

    journal = tmp_path / "rounds.jsonl"
    privacy = fg.Privacy(2.0, 1e-6, RANGES)
    with Stops(homes=homes) as sites, pytest.raises(KeyboardInterrupt):
        federate(MODEL, sites, masked=True, privacy=privacy, journal=Journal(journal))
    with Noisy(homes=homes, seed=9) as sites:
        found = federate(MODEL, sites, masked=True, privacy=privacy, journal=Journal(journal))
    assert sum(order == "open" for order, _ in sites.asked) < 8
    assert np.all(np.abs(found.params - fg.fit(ROWS, MODEL, client="h").params) < 5 * found.std_errors)
    assert homes["a"].ledger.path.read_text().count('"is":"privacy"') == 2


def test_a_site_that_is_put_away_between_two_orders_pays_once():
    """A budget for one run is enough, and noise that has left is not drawn again."""
    policy = Policy(epsilon=8.0, delta=1e-6)

    class PutAway(Noisy):
        def ask(self, order, contents):
            replies = super().ask(order, contents)
            for place, (name, site) in enumerate(self.sites.items()):
                state = decode(encode(site.state()))
                site.put_away()
                new = site_of(own(ROWS, name), policy, site.home, noise=normal_noise([len(self.asked), place]))
                new.restore(state)
                self.sites[name] = new
            return replies

    sites = PutAway(policy=policy)
    found = private(epsilon=7.9, sites=sites)
    assert np.all(np.abs(found.params - fg.fit(ROWS, MODEL, client="h").params) < 4 * found.std_errors)
    assert sites.sites["a"].home.ledger.path.read_text().count('"is":"privacy"') == 1
