"""Short campaigns: what an attacker does not read, what it finds where a rule is missing, and what it still reads.

The campaigns themselves are run by `benchmarks/adversaries.py` and recorded in benchmarks/recorded. A reader takes for
luck what guesses of no merit hit with a chance of 1e-4 or more, so that each world here fails wrongly with 1e-4 at
most.
"""

import campaigns
import numpy as np
import pytest
from campaigns import (
    CORE,
    Steers,
    World,
    attack_as_mailbox,
    attack_as_site,
    bent,
    judge,
    masks_read,
    model_of,
    plant_level,
    read_levels,
)
from scipy.optimize import least_squares
from scipy.special import expit

import fedgauss as fg
from fedgauss.families.rows import Sums
from fedgauss.families.same_bits import factor, solve
from fedgauss.federated import path
from fedgauss.inference.scoring import mended

WANTED = {"target": "cost", "family": "gaussian", "terms": list(CORE)}
DIED = {"target": "died", "family": "binomial", "terms": list(CORE)}


def test_a_mailbox_reads_nothing():
    world = World(1, honest=3, rows=(500, 600))
    attack_as_mailbox(world, most=20)
    found = judge(world)
    assert world.answered > 5
    assert (found.rows, found.sites, found.masks) == ([], [], [])


@pytest.mark.parametrize("masked", [True, False])
def test_without_the_rule_on_spans_a_mailbox_reads_the_row_in_which_two_columns_differ(monkeypatch, masked):
    monkeypatch.setattr("fedgauss.federated.ledger.check_spans", lambda known, new, few, read: known.add(new, read))
    monkeypatch.setattr("fedgauss.federated.ledger.check_places", lambda known, own, *more: own.rows[:0])
    monkeypatch.setattr("fedgauss.federated.ledger.check_together", lambda *arguments: None)
    world = World(2, honest=3)
    for name in "bc":
        world.tables[name]["sex2"] = world.tables[name]["sex"].copy()
        world.start(name)
    for terms in (["sex"], ["sex2"]):
        assert world.ask(model_of({**WANTED, "terms": [*CORE, *terms]}), "abc", masked) == "answered"
    row = int(np.argmax(world.tables["a"]["sex"] != world.tables["a"]["sex2"]))
    found = judge(world)
    assert [one for one in found.rows if one.startswith(f"row ({row},) of a")]
    assert found.by_span > 0


def test_without_the_rule_on_cells_a_mailbox_reads_the_one_smoker_who_died(monkeypatch):
    model = model_of({**DIED, "terms": [*CORE, "smoker", *(f"{name}:smoker" for name in CORE)]})

    def of_one_smoker_who_died():
        world = World(3, honest=3)
        for name, table in world.tables.items():
            table["smoker"] = np.where(
                table["died"] == 1, 0.0, np.random.default_rng(0).random(len(table["died"])) < 0.3
            )
            if name == "a":
                table["smoker"][np.argmax(table["died"])] = 1.0
            world.start(name)
        end = world.ask(model, "abc")
        return world, end, judge(world)

    _, end, found = of_one_smoker_who_died()
    assert "every cell of two columns" in end
    assert found.rows == []
    monkeypatch.setattr("fedgauss.federated.rules.check_cells", lambda *arguments, **options: None)
    world, _, found = of_one_smoker_who_died()
    row = int(np.argmax(world.tables["a"]["died"]))
    assert any(one.startswith(f"row ({row},)") for one in found.rows)


def test_masks_whose_words_do_not_depend_on_the_round_are_seen(monkeypatch):
    from fedgauss.federated.masks import Masks

    world = World(4, honest=3)
    world.ask(model_of(DIED), "abc")
    assert masks_read(world.opened) == []
    words = Masks.words
    monkeypatch.setattr(Masks, "words", lambda self, transcript, size: words(self, b"", size))
    world = World(4, honest=3)
    world.ask(model_of(DIED), "abc")
    assert set(masks_read(world.opened)) == {f"two numbers of site {name} have one mask" for name in "abc"}
    monkeypatch.setattr(Masks, "words", lambda self, transcript, size: np.zeros((size, 4), np.uint64))
    world = World(4, honest=3)
    world.ask(model_of(DIED), "abc")
    assert any("cancel" in one for one in masks_read(world.opened))


def test_without_the_rule_on_rosters_a_mailbox_reads_the_sums_of_one_site(monkeypatch):
    def asked():
        world = World(5, honest=4)
        for roster in ("abcd", "abc"):
            world.ask(model_of(WANTED), roster)
        return judge(world).sites

    assert asked() == []
    monkeypatch.setattr("fedgauss.federated.ledger.Ledger._check_sites", lambda self, run, new: None)
    assert any(one.startswith("site d") for one in asked())


def test_two_rosters_that_share_no_site_tell_no_sums_of_the_one_between():
    """Of five sites less two less two others there is one left, and no site takes part in both small runs."""
    world = World(6, honest=5)
    ends = [world.ask(model_of(WANTED), roster) for roster in ("abcde", "cd", "ae")]
    assert ends[0] == "answered"
    assert judge(world).sites == []


def test_a_step_can_be_led_to_any_parameter():
    """The scores that `bent` finds make the next step the one that was wanted, where it goes on with the last."""
    rng, missed = np.random.default_rng(6), []
    for _ in range(200):
        step, aside = rng.normal(size=(2, 4))
        wanted = 0.3 * step + 0.3 * aside * np.linalg.norm(step) / np.linalg.norm(aside)
        if step @ wanted < 0.5 * wanted @ wanted:  # backwards: there it comes near
            continue
        here = Sums(0.0, 1e18 * step, 1e18 * np.eye(4))
        there, miss = bent(here, step, wanted)
        made = mended(here, there, step)
        missed.append(miss)
        np.testing.assert_allclose(np.abs(solve(factor(made), there.score) - wanted).max(), miss, atol=1e-9)
    assert len(missed) > 100
    assert max(missed) < 1e-9


def test_a_dishonest_site_that_lies_at_random_reads_nothing():
    world = World(7, honest=2, dishonest=1, liar=Steers)
    attack_as_site(world, "chaos", ["abx"], most=10)
    found = judge(world)
    assert (found.rows, found.sites, found.masks) == ([], [], [])


def without(monkeypatch, *parts):
    """Take parts of the mechanism out of sites, by name."""
    for part in parts:
        if part == "digits":
            monkeypatch.setattr(path, "_DIGITS", 2.0**-60)
            monkeypatch.setattr(campaigns, "_DIGITS", 2.0**-60)
        elif part == "contraction":
            monkeypatch.setattr(path, "_FURTHEST", 1e30)
        elif part == "spread":
            monkeypatch.setattr(path, "_WIDEST", 1e30)
        else:
            monkeypatch.setattr("fedgauss.federated.ledger.check_places", lambda known, own, *more: own.rows[:0])
    monkeypatch.setattr("fedgauss.federated.ledger.check_together", lambda *arguments: None)


def led(kind, seed, most):
    """What somebody reads who leads a run."""
    world = World(seed, honest=2, dishonest=1, liar=Steers)
    read = attack_as_site(world, kind, ["abx"], most=most)
    return len(judge(world).rows) + len(read)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_dishonest_site_that_leads_along_mild_parameters_reads_no_row(seed):
    assert led("near", seed, 4) == 0


def test_a_dishonest_site_that_leads_along_steep_parameters_reads_no_row():
    assert led("steep", 1, 4) == 0


def test_with_all_digits_a_dishonest_site_reads_the_row_beyond_all_others(monkeypatch):
    without(monkeypatch, "digits", "contraction", "places")
    assert led("near", 1, 4) > 0


def test_a_dishonest_site_reads_no_row_where_offsets_take_the_place_of_slopes():
    assert led("offset", 2, 4) == 0


def test_where_zero_slopes_count_as_alike_whatever_the_offsets_a_dishonest_site_reads_a_row(monkeypatch):
    """With all digits at every intercept: rows count by their offsets."""
    begin = path.Path.__init__

    def without_offsets(self, family, rows, *more):
        begin(self, family, rows._replace(offset=0.0), *more)

    monkeypatch.setattr(path.Path, "__init__", without_offsets)
    assert led("offset", 2, 4) > 0


def leader_of_levels(monkeypatch, rows):
    """The rows of a level that somebody reads who leads as many runs as the table answers."""
    monkeypatch.setattr(campaigns, "plant_level", lambda world, _: plant_level(world, rows))
    world = World(1, honest=2, dishonest=1, liar=Steers)
    return len(attack_as_site(world, "level", ["abx"]))


@pytest.mark.parametrize(("rows", "seen"), [(3, 3), (8, 0), (20, 0)])
def test_a_dishonest_site_reads_levels_of_the_fewest_rows_alone(monkeypatch, rows, seen):
    """As docs/limits.md says: what one honest fit may tell of three rows is more numbers than these have values."""
    assert leader_of_levels(monkeypatch, rows) == seen


def test_where_numbers_are_not_counted_a_dishonest_site_reads_all_rows_of_a_level(monkeypatch):
    monkeypatch.setattr("fedgauss.federated.shares.Share.most", 10**9)
    assert leader_of_levels(monkeypatch, 8) == 8


def test_one_honest_fit_with_robust_errors_tells_the_three_rows_of_a_level():
    """As docs/limits.md says: nine values, and twelve sums of functions of them. For four rows these are too few."""
    for rows, seen in ((3, 3), (4, 0)):
        world = World(2, honest=3, rows=(300, 400))
        plant_level(world, rows)
        assert world.ask(model_of({**DIED, "terms": [*CORE, "rare"], "errors": "HC0"}), "abc") == "answered"
        assert len(read_levels(world, world.honest, "rare")) == seen


def test_coefficients_and_covariances_of_any_exact_fit_tell_the_ages_of_three_rows():
    """No protocol between sites can keep what its result says: here that of `fit` on all rows in one place.

    Of the rows with the level the residuals add up to zero, and two elements of the inverse of the covariance matrix
    are the sums of p (1 - p) and of p (1 - p) age over them: three equations for three ages.
    """
    rng = np.random.default_rng(4)
    age, rare, died = rng.integers(18, 90, 900).astype(float), np.zeros(900), np.zeros(900)
    died[rng.random(900) < expit(0.03 * age - 2.0)] = 1.0
    three = [5, 300, 700]
    rare[three], died[three] = 1.0, [1.0, 0.0, 0.0]
    site = np.repeat(["north", "south"], 450)
    rows = {"age": age, "rare": rare, "died": died, "site": site}
    fit = fg.fit(rows, fg.Model("died ~ age + rare", family="binomial", errors="model"), client="site")
    constant, slope, level = np.asarray(fit.params)
    of_level = np.linalg.inv(fit.cov)[2]

    def apart(ages, deaths):
        chance = expit(constant + slope * ages + level)
        weight = chance * (1.0 - chance)
        return [chance.sum() - deaths, 10.0 * (weight.sum() - of_level[2]), 0.1 * (weight @ ages - of_level[1])]

    starts = [(rng.uniform(18.0, 90.0, 3), deaths) for deaths in (1.0, 2.0) for _ in range(30)]
    exactly = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    found = min(
        (least_squares(apart, ages, args=(deaths,), **exactly) for ages, deaths in starts), key=lambda f: f.cost
    )
    np.testing.assert_allclose(np.sort(found.x), np.sort(age[three]), atol=1e-3)


def test_three_honest_fits_of_a_level_of_six_rows_are_two_too_many():
    """They would tell all six, given which of them had which outcomes."""
    world = World(7, honest=3, rows=(300, 400))
    plant_level(world, 6)
    ends = [
        world.ask(model_of({**DIED, "target": target, "terms": [*CORE, "rare"], "errors": "HC0"}), "abc")
        for target in ("died", "sex", "smoker")
    ]
    assert ends[0] == "answered"
    assert all("three quarters as many numbers of rows that share a level" in end for end in ends[1:])
    assert read_levels(world, world.honest, "rare") == []


def test_counts_of_levels_over_two_rosters_tell_no_site():
    """They were told before the rule on rosters had seen more than ones."""
    world = World(5, honest=4)
    for roster in ("abcd", "abc"):
        model = model_of({"target": "cost", "family": "gaussian", "terms": ["age", "ward"], "pool_rare": 3})
        world.ask(model, roster)
    assert judge(world).sites == []
