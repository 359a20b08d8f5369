"""Short campaigns: what an attacker does not read, what it finds where a rule is missing, and what it still reads.

The campaigns themselves are run by `benchmarks/adversaries.py` and recorded in benchmarks/recorded. A reader takes for
luck what guesses of no merit hit with a chance of 1e-4 or more, so that each world here fails wrongly with 1e-4 at
most.
"""

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
    read_in_tails,
)

from fedgauss.families.rows import Sums
from fedgauss.families.same_bits import factor, solve
from fedgauss.inference.scoring import mended

WANTED = {"target": "cost", "family": "gaussian", "terms": list(CORE)}
DIED = {"target": "died", "family": "binomial", "terms": list(CORE)}


def test_a_mailbox_reads_nothing():
    world = World(1, honest=3)
    attack_as_mailbox(world, most=20)
    found = judge(world)
    assert world.answered > 5
    assert (found.rows, found.sites, found.masks) == ([], [], [])


@pytest.mark.parametrize("masked", [True, False])
def test_without_the_rule_on_spans_a_mailbox_reads_the_row_in_which_two_columns_differ(monkeypatch, masked):
    monkeypatch.setattr("fedgauss.federated.ledger.check_spans", lambda known, new, few, read: known.add(new, read))
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


def test_a_dishonest_site_that_leads_a_run_reads_rows():
    """As docs/limits.md says: rows between two steep thresholds; at mild parameters, one far from all others."""
    world = World(1, honest=2, dishonest=1, liar=Steers)
    attack_as_site(world, "steep", ["abx"], most=2)
    assert len(judge(world).rows) >= 5
    world = World(1, honest=2, dishonest=1, liar=Steers)
    attack_as_site(world, "near", ["abx"], most=1)
    assert len(read_in_tails(world, world.honest, world.steer)) == 1


def test_counts_of_levels_over_two_rosters_tell_no_site():
    """They were told before the rule on rosters had seen more than ones."""
    world = World(5, honest=4)
    for roster in ("abcd", "abc"):
        model = model_of({"target": "cost", "family": "gaussian", "terms": ["age", "ward"], "pool_rare": 3})
        world.ask(model, roster)
    assert judge(world).sites == []
