"""A population of which few are seen a round: bets against the order of rounds, what share acts, and who."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.clients.population import LEAST, LEFT_OUT, MOST, Population, are_many, strangers
from fedgauss.detect.clients.sightings import Sightings, names_behind
from fedgauss.detect.spending import spent

BETS = [(0.05, 0.5), (0.1, 0.85), (0.1, 0.25), (0.2, 0.5)]


def cohorts(rng, rounds, onset=None, bad=0.2, clients=1_000, present=10, features=2, shift=8.0):
    """Names and rows of rounds; the first clients are bad from `onset` on, in the last feature."""
    for number in range(1, rounds + 1):
        names = rng.choice(clients, size=present, replace=False).tolist()
        rows = rng.standard_t(5, size=(present, features)) + rng.normal(size=features)
        acts = np.array(names) < bad * clients
        if onset is not None and number >= onset:
            rows[acts, -1] -= shift
        yield names, rows


def slow_chances(rounds, tolerance, horizon):
    """The equations of the docstring, one after the other, with loops."""
    spreads, table, chances = [], [], []
    count = len(tolerance)
    stakes = np.zeros((count, 2, len(BETS)))
    for number, (_, rows) in enumerate(rounds, 1):
        stakes += spent(1.0, horizon, number)
        centred = rows - np.median(rows, axis=0)
        spreads.append(np.median(np.abs(centred), axis=0))
        usual = np.sqrt(np.mean(spreads[-10:], axis=0) ** 2 + (0.6745 * np.array(tolerance)) ** 2)
        if number > LEFT_OUT:
            table = [*table, (centred / usual).astype(np.float32)][-MOST:]
        if len(table) > LEAST:
            for f in range(count):
                for side, sign in enumerate((1, -1)):
                    values = [sign * cohort[:, f] for cohort in table]
                    everyone = np.concatenate(values)
                    totals = []
                    for cohort in values:
                        p = np.array([(everyone >= x).mean() for x in cohort])
                        totals.append(np.log(0.95 + 0.05 * 0.3 * p**-0.7).sum())
                    n = len(totals)
                    place = sum(total >= totals[-1] - 1e-9 for total in totals)
                    for i, (a, b) in enumerate(BETS):
                        m = max(1, int(a * n))
                        stakes[f, side, i] *= b * n / m if place <= m else (1 - b) / (1 - m / n)
        chances.append(min(1.0, 2.0 / stakes.mean()))
    return np.array(chances)


def test_equals_the_equations_written_with_loops():
    rounds = list(cohorts(np.random.default_rng(1), 60, onset=50, bad=0.5, present=6))
    population = Population([0.02, 0.05], alpha=1e-12, horizon=60)
    chances = [population.update(names, rows).chance for names, rows in rounds]
    assert min(chances) < 0.5
    assert chances == pytest.approx(slow_chances(rounds, [0.02, 0.05], 60), rel=1e-9)


@pytest.mark.parametrize("count", [21, 40, 50, 99, 100])
def test_no_bet_wins_on_average_over_places(count):
    for part, share in BETS:
        highest = max(1, int(part * count))
        won = [
            share * count / highest if k <= highest else (1 - share) / (1 - highest / count)
            for k in range(1, count + 1)
        ]
        assert np.mean(won) == pytest.approx(1.0)
        assert np.all(np.diff(won) <= 0)  # ties, which make places later, win no more


@pytest.mark.parametrize("kind", ["alike in a round", "few values"])
def test_honest_rounds_that_can_be_exchanged_keep_the_level(kind):
    """Clients of a round depend on each other, or have many ties; 30 runs at alpha .5.

    Level at most .25, so 18 alarms or more have a chance below 1e-4. Ties that counted for the bet, or ranks among
    earlier clients alone, would make alarms of most runs.
    """
    alarms = 0
    for seed in range(30):
        rng = np.random.default_rng([seed, 7])
        population = Population([0.0], alpha=0.5, horizon=60)
        for _ in range(60):
            if kind == "few values":
                rows = rng.integers(-2, 3, size=(6, 1)).astype(float)
            else:
                shared = 3 * rng.normal() * rng.integers(0, 2, size=(6, 1))
                rows = rng.normal(size=(6, 1)) * np.exp(0.3 * rng.normal()) + shared
            verdict = population.update(range(6), rows)
        alarms += verdict.alarm
    assert alarms < 18


def test_a_fifth_that_turns_is_seen_and_named():
    rng = np.random.default_rng(3)
    population = Population([0.02, 0.02], horizon=150)
    verdicts = [population.update(names, rows) for names, rows in cohorts(rng, 110, onset=91)]
    first = next(v for v in verdicts if v.alarm)
    last = verdicts[-1]
    assert 91 <= first.round <= 100
    assert (first.feature, first.direction) == (1, -1)
    assert 85 <= first.onset <= 95
    assert 0.08 <= last.share <= 0.25
    wrong = sum(name >= 200 for name in last.suspects)
    assert len(last.suspects) >= 10
    assert wrong <= 0.2 * len(last.suspects)
    assert "ALARM" in str(last)
    assert len(last.suspects) > len(first.suspects)  # names come as clients are seen


def test_goes_on_from_its_state_to_the_bit():
    rounds = list(cohorts(np.random.default_rng(4), 115, onset=91))
    straight, stored = (Population([0.02, 0.02], seed=5) for _ in range(2))
    for number, one in enumerate(rounds, 1):
        assert stored.update(*one) == straight.update(*one)
        if number in (5, 60, 112):
            words, arrays = stored.state()
            stored = Population([0.02, 0.02], seed=5)
            stored.fill(json.loads(json.dumps(words)), arrays)
    assert straight.alarm is not None


@pytest.mark.parametrize("name", ["stakes", "onsets", "sightings.keys", "cohorts.rows"])
def test_a_damaged_state_is_refused(name):
    population = Population([0.02])
    for names, rows in cohorts(np.random.default_rng(6), 30, features=1):
        population.update(names, rows)
    words, arrays = population.state()
    arrays[name] = arrays[name][..., :1].astype(np.complex64)
    with pytest.raises(ValueError, match="must be"):
        Population([0.02]).fill(words, arrays)


def test_features_in_which_clients_are_alike_are_not_looked_at():
    rng = np.random.default_rng(8)
    population = Population([0.03], horizon=100)
    for number in range(100):
        rows = 0.001 * rng.normal(size=(10, 1))
        rows[0] += 0.02 * (number > 60)  # two per cent
        verdict = population.update(range(10), rows)
    assert not verdict.alarm
    assert verdict.judged == 0


def test_a_name_costs_eight_bytes_and_one_for_each_feature():
    rng, sightings = np.random.default_rng(9), Sightings(6, 0)
    for number in range(20):
        sightings.add([f"{number}-{k}" for k in range(50)], rng.normal(size=(50, 6)).astype(np.float32))
    assert len(sightings) == 1_000
    assert sightings.keys.nbytes + sightings.last.nbytes == 14 * 1_000
    assert [sightings.knows(name) for name in ("3-7", "3-50", 3)] == [True, False, False]


def test_likeness_is_the_share_of_variance_that_is_a_clients_own():
    rng, sightings = np.random.default_rng(10), Sightings(3, 0)
    own = rng.normal(size=(500, 1))
    for _ in range(4):
        noise = rng.normal(size=(500, 3))
        share = np.array([0.0, 0.5, 1.0])
        rows = np.sqrt(share) * own + np.sqrt(1 - share) * noise
        sightings.add(range(500), rows.astype(np.float32))
    assert [sightings.likeness(k) for k in range(3)] == pytest.approx([0.0, 0.5, 1.0], abs=0.08)


def test_names_need_more_sightings_where_clients_are_alike_to_themselves():
    before = np.sort(np.random.default_rng(11).normal(size=2_000))
    seen = [([f"c{k}" for k in range(40)], np.where(np.arange(40) < 4, 2.2, 0.0)) for _ in range(3)]
    assert set(names_behind(seen, before, 0.0, 0.05)) == {"c0", "c1", "c2", "c3"}
    assert names_behind(seen, before, 1.0, 0.05) == ()


def test_clients_are_many_where_most_are_strangers_for_rounds():
    assert strangers(["a", "b"], {"a"}) == 0.5
    assert are_many(10, (0.9, 0.6, 0.6, 0.6))
    assert not are_many(9, (1.0,) * 4)
    assert not are_many(30, (1.0, 0.5, 1.0, 1.0))
    assert not are_many(30, (1.0,) * 3)


def moves_of(rng, names, own):
    """Of a model with 30 parameters."""
    return {f"c{k}": own[k] + rng.normal(size=30) for k in names}


def test_a_monitor_of_a_thousand_clients_says_that_it_judges_them_together(tmp_path):
    rng = np.random.default_rng(12)
    own = 1.0 + 0.3 * rng.normal(size=(1_000, 30))
    monitor, loaded = fg.ClientMonitor(horizon=150, seed=1, population=True), None
    for number in range(1, 111):
        names = rng.choice(1_000, size=10, replace=False)
        moves = moves_of(rng, names, own)
        if number > 90:
            moves = {name: -move if int(name[1:]) < 200 else move for name, move in moves.items()}
        verdict = monitor.update(moves)
        if loaded is not None:
            assert loaded.update(moves) == verdict
        if number in (30, 105):
            monitor.save(tmp_path / "monitor")
            loaded = fg.ClientMonitor.load(tmp_path / "monitor")
        if number == 9:
            assert verdict.population is None
        if number == 20:
            assert "judged together, from round 41 on; by name, nobody before an alarm" in verdict.note
        if number == 60:
            assert "cannot be seen" in str(verdict)
            assert not verdict.alarm
    assert verdict.alarm
    assert verdict.channel == "population"
    assert verdict.population.share > 0.05
    assert np.mean([int(name[1:]) < 200 for name in verdict.suspects]) >= 0.8
    out = monitor.exclude()
    assert set(monitor.left_out) == set(out)
    assert not monitor.update(moves_of(rng, range(500, 510), own)).alarm


def test_a_log_of_many_clients_is_judged_as_the_run_was():
    rng = np.random.default_rng(13)
    own = 1.0 + 0.3 * rng.normal(size=(400, 30))
    monitor, follower = (fg.ClientMonitor(seed=1, population=True) for _ in range(2))
    for _ in range(50):
        verdict = monitor.update(moves_of(rng, rng.choice(400, size=8, replace=False), own))
        assert follower.update(monitor.compared) == verdict
    assert verdict.population is not None
    assert monitor.compared.fields.keys() == {"along_own", "evenness", "along_course", "along_journey"}


def test_one_client_with_ever_new_names_does_not_end_the_watch_by_name():
    rng = np.random.default_rng(14)
    own = 1.0 + 0.3 * rng.normal(size=(100, 30))
    monitor = fg.ClientMonitor(seed=1, population=True)
    for number in range(40):
        verdict = monitor.update(moves_of(rng, [*range(7), 20 + number], own))
    assert verdict.population is None
    assert verdict.watched >= 7


def test_with_the_model_the_journey_is_the_way_from_zero():
    rng = np.random.default_rng(15)
    model, own = 5.0 * rng.normal(size=30), 1.0 + 0.3 * rng.normal(size=(1_000, 30))
    plain, told = fg.ClientMonitor(seed=1, population=True), fg.ClientMonitor(seed=1, population=True)
    journey = np.zeros(30)
    for number in range(1, 16):
        moves = moves_of(rng, rng.choice(1_000, size=10, replace=False), own)
        plain.update(moves)
        told.update(moves, model=model)
        rows = np.stack([*moves.values()])
        if number > 10:  # the first round of which the way is kept is the tenth
            assert told.compared.fields["along_journey"] == pytest.approx(
                rows @ model / np.linalg.norm(model), rel=1e-4
            )
            along = rows @ journey / np.linalg.norm(journey)
            assert plain.compared.fields["along_journey"] == pytest.approx(along, rel=1e-4)
        journey += (number >= 10) * rows.mean(axis=0)
    with pytest.raises(ValueError, match="model must have the 30 parameters"):
        told.update(moves, model=model[:-1])


def test_who_is_in_quarantine_is_no_part_of_what_counts(tmp_path):
    rng = np.random.default_rng(16)
    own = 1.0 + 0.3 * rng.normal(size=(1_000, 30))
    monitor = fg.ClientMonitor(seed=1, population=True)
    for number in range(1, 61):  # clients 0 to 9 have a past before strangers come
        names = range(10) if number <= 20 else rng.choice(np.arange(10, 1_000), size=10, replace=False)
        if number == 21:
            monitor.quarantine(["c3"])
        monitor.update(moves_of(rng, names, own))
    assert monitor.update(moves_of(rng, range(500, 510), own)).population is not None
    monitor.quarantine(["c3", "c500"])
    monitor.save(tmp_path / "monitor")
    without, beside = (fg.ClientMonitor.load(tmp_path / "monitor") for _ in range(2))
    for _ in range(3):
        moves = moves_of(rng, range(600, 610), own)
        assert beside.update(moves | {"c3": -1e3 * own[3], "c500": 9.0 * own[500]}) == without.update(moves)
    assert beside.quarantined == ("c3", "c500")
    beside.accept("c500")
    assert beside.quarantined == ("c3",)
    assert "too rarely" in beside.update(moves).would_see.why


def test_clients_that_come_once_are_judged_where_that_is_asked_for_and_else_the_note_says_that_nobody_is():
    with pytest.raises(ValueError, match="population must be True or False; got 'yes'"):
        fg.ClientMonitor(population="yes")
    rng, plain = np.random.default_rng(0), fg.ClientMonitor(seed=1)
    for number in range(25):
        verdict = plain.update({f"client {number} {k}": rng.normal(size=20) for k in range(8)})
    assert verdict.population is None
    assert verdict.watched == 0
    assert "ClientMonitor(population=True) judges all of them together" in verdict.note
