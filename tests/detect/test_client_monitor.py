"""`ClientMonitor` as a user meets it."""

import numpy as np
import pytest

import fedgauss as fg

K, D = 10, 40


def rounds(n_rounds, bad=(), onset=10**9, seed=0, act=np.negative):
    """Moves (K, d) of clients with a common and an own direction."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(K, D)), rng.normal(size=D)
    for number in range(1, n_rounds + 1):
        u = 0.95**number * common + own + 0.5 * rng.normal(size=(K, D))
        if number >= onset:
            u[list(bad)] = act(u[list(bad)])
        yield u


def test_an_attack_is_seen_named_and_left_behind():
    monitor = fg.ClientMonitor(horizon=80)
    verdicts = []
    for u in rounds(60, bad=(2, 7), onset=31):
        verdict = monitor.update(u)
        verdicts.append(verdict)
        if verdict.alarm:
            assert monitor.alarm is verdict
            assert monitor.exclude() == verdict.suspects
    first = next(v for v in verdicts if v.alarm)
    assert sum(v.alarm for v in verdicts) == 1
    assert 31 <= first.round <= 33
    assert set(first.suspects) == {2, 7}
    assert first.onset_interval[0] <= first.onset <= first.onset_interval[1]
    assert first.rollback == first.onset_interval[0] - 1 < 31
    assert set(monitor.left_out) == {2, 7}
    assert monitor.round == 60
    words = str(first)
    assert f"ALARM at round {first.round}: clients" in words
    assert "false alarm" in words
    assert "go on without them" in words


def test_until_acted_on_an_alarm_lasts_and_names_no_later_rollback():
    monitor = fg.ClientMonitor(horizon=80)
    verdicts = [monitor.update(u) for u in rounds(40, bad=(2, 7), onset=31)]
    first = monitor.alarm
    assert verdicts[-1].alarm
    assert verdicts[-1].rollback == first.rollback
    assert "not acted on" in str(verdicts[-1])
    monitor.reset()
    assert monitor.alarm is None
    assert monitor.round == 0


def test_who_is_left_out_stays_out_and_cannot_stop_the_watch(tmp_path):
    monitor, moves = fg.ClientMonitor(), list(rounds(20))
    for u in moves[:5]:
        monitor.update(u)
    monitor.exclude([2])
    monitor.update({k: u if k != 2 else ["nonsense"] for k, u in enumerate(moves[5])})
    moves[6][2, 0] = np.nan
    monitor.update(moves[6])
    monitor.reset()
    assert monitor.left_out == (2,)
    monitor.save(tmp_path / "reset")
    again = fg.ClientMonitor.load(tmp_path / "reset")
    for u in moves[7:]:
        verdict = monitor.update(u)
        assert verdict == again.update(u)
    assert verdict.watched == K - 1
    assert again.left_out == (2,)


def test_before_anybody_can_be_judged_the_verdict_says_so():
    monitor = fg.ClientMonitor()
    verdicts = [monitor.update(u) for u in rounds(14)]
    assert not any(v.watched for v in verdicts[:11])
    assert "nobody is watched" in str(verdicts[5])
    assert verdicts[-1].watched == K
    assert "no alarm among 10 clients" in str(verdicts[-1])


def test_names_and_layers_are_what_rows_are():
    by_row, by_name = fg.ClientMonitor(horizon=60, seed=1), fg.ClientMonitor(horizon=60, seed=1)
    for u in rounds(36, bad=(2, 7), onset=31):
        a = by_row.update(u)
        b = by_name.update({f"site {k}": [u[k, :30].reshape(5, 6), u[k, 30:]] for k in range(K)})
        assert (a.alarm, a.statistic, a.onset) == (b.alarm, b.statistic, b.onset)
        assert b.suspects == tuple(f"site {k}" for k in a.suspects)


def test_clients_may_be_absent_and_join():
    monitor = fg.ClientMonitor(horizon=80)
    rng = np.random.default_rng(3)
    for number, u in enumerate(rounds(60, bad=(2,), onset=41), 1):
        here = [k for k in range(K) if rng.uniform() < 0.8 and (k != 9 or number > 15)]
        table = np.full_like(u, np.nan)
        table[here] = u[here]
        verdict = monitor.update(table, participants=here)
        assert verdict.watched <= len(here)
        if verdict.alarm:
            break
    assert verdict.suspects[0] == 2
    assert 41 <= verdict.round <= 50
    assert set(monitor.clients) == set(range(K))


def test_a_saved_monitor_goes_on_to_the_bit(tmp_path):
    moves = list(rounds(45, bad=(2, 7), onset=31, seed=4))
    plain = fg.ClientMonitor(horizon=60, seed=5)
    stored = fg.ClientMonitor(horizon=60, seed=5)
    for number, u in enumerate(moves):
        a, b = plain.update(u), stored.update(u)
        assert a == b
        if number in (0, 5, 20, 31, 33, 40):
            stored.save(tmp_path / "monitor")
            stored = fg.ClientMonitor.load(tmp_path / "monitor")
        if number == 36:
            assert plain.exclude() == stored.exclude()
    assert stored.left_out == plain.left_out


def test_a_large_model_is_sketched():
    rng = np.random.default_rng(6)
    own = rng.normal(size=(6, 30_000)).astype(np.float32)
    monitor = fg.ClientMonitor(horizon=60, seed=6)  # one sketch in seventy names an honest client, too
    for number in range(1, 36):
        u = own + rng.normal(size=own.shape).astype(np.float32)
        if number > 30:
            u[4] *= -1
        verdict = monitor.update(u)
        if verdict.alarm:
            break
    assert verdict.suspects == (4,)
    assert monitor._directions.table.shape == (6, 8192)


def test_too_few_clients_are_said_to_be():
    monitor = fg.ClientMonitor()
    verdict = monitor.update(np.ones((3, 5)))
    assert not verdict.watched
    assert "At least 4 clients must take part in a round; 3 did." in str(verdict)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda u: np.where(np.arange(D) == 3, np.nan, u), "the move of client 0 must be finite"),
        (lambda u: np.where(np.arange(D) == 3, np.inf, u), "the move of client 0 must be finite"),
        (lambda u: u[:, :-1], "all moves must have 40 parameters, as before; that of client 0 has 39"),
        (lambda u: u[0], "moves must be an array"),
        (lambda u: "abc", "moves must be an array"),
        (lambda u: {"a": ["x"]}, "must consist of real numbers"),
        (lambda u: {True: u[0]}, "a client's name must be a string or a whole number"),
        (lambda u: {0: [u[0, :20]]}, "all moves must have 40 parameters"),
    ],
)
def test_bad_moves_are_refused_and_change_nothing(change, words, tmp_path):
    moves = list(rounds(20))
    monitor = fg.ClientMonitor(seed=0)
    for u in moves[:15]:
        monitor.update(u)
    monitor.save(tmp_path / "before")
    with pytest.raises(ValueError, match=words):
        monitor.update(change(moves[15]))
    again = fg.ClientMonitor.load(tmp_path / "before")
    assert monitor.update(moves[15]) == again.update(moves[15])


def test_participants_that_do_not_fit_are_refused():
    u = next(rounds(1))
    monitor = fg.ClientMonitor()
    with pytest.raises(ValueError, match="client 9 has numbers"):
        monitor.update(u, participants=range(9))
    with pytest.raises(ValueError, match="each client once"):
        monitor.update(u, participants=[1, 1])
    with pytest.raises(ValueError, match="left out where moves are given by name"):
        monitor.update({"a": u[0]}, participants=[0])


def test_exclude_and_suspects_say_what_they_need():
    monitor = fg.ClientMonitor()
    with pytest.raises(ValueError, match="exclude needs names"):
        monitor.exclude()
    with pytest.raises(ValueError, match="suspects needs a round"):
        monitor.suspects()
    monitor.update(next(rounds(1)))
    with pytest.raises(ValueError, match="'x' was not"):
        monitor.exclude(["x"])
    assert monitor.suspects(rate=0.2) == ()


@pytest.mark.parametrize("name", ["values", "numbers", "directions", "recent.who", "recent.products", "sizes"])
def test_a_damaged_file_is_refused(name, tmp_path):
    monitor = fg.ClientMonitor()
    for u in rounds(14):
        monitor.update(u)
    monitor.save(tmp_path / "good")
    with np.load(tmp_path / "good") as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = arrays[name][..., :-1] if arrays[name].ndim else arrays[name]
    with (tmp_path / "bad").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ValueError, match="is not a whole client monitor"):
        fg.ClientMonitor.load(tmp_path / "bad")
    with pytest.raises(ValueError, match="must have the format"):
        fg.Monitor.load(tmp_path / "good")


def test_past_the_horizon_nothing_is_judged():
    monitor = fg.ClientMonitor(horizon=20)
    verdicts = [monitor.update(u) for u in rounds(40, bad=(2, 7), onset=31)]
    assert not any(v.alarm for v in verdicts)
    assert "The horizon of 20 rounds is over" in str(verdicts[-1])


def test_state_does_not_grow():
    monitor = fg.ClientMonitor()
    sizes = []
    for number, u in enumerate(rounds(150), 1):
        monitor.update(u)
        if number in (75, 150):
            sizes.append(sum(a.nbytes for a in monitor._watch.state().values()))
    assert sizes[0] == sizes[1]


def test_every_client_has_its_surprise():
    monitor = fg.ClientMonitor(horizon=80)
    for number, u in enumerate(rounds(31, bad=(2, 7), onset=31), start=1):
        if number == 31:
            u[4] = np.nan
        verdict = monitor.update(u)
    assert verdict.alarm
    assert set(verdict.surprises) == set(range(K)) - {4}
    assert {*sorted(verdict.surprises, key=verdict.surprises.get)[-2:]} == {2, 7}
    assert min(verdict.surprises.values()) >= 0
    assert hash(verdict) == hash(verdict)
    assert fg.ClientMonitor().update(u).surprises == {}


def test_rounds_with_few_clients_and_rounds_that_were_missed_count():
    """It would fail if onset and rollback counted only the rounds in which clients were compared."""
    monitor, moves = fg.ClientMonitor(horizon=80), list(rounds(45, bad=(2, 7), onset=31))
    for number, u in enumerate(moves, start=1):
        if 5 <= number < 8:
            monitor.update(dict(enumerate(u[:3])))
        elif not 8 <= number < 11:
            verdict = monitor.update(u, round=number)
    assert monitor.round == 45
    assert verdict.onset in (30, 31)
    with pytest.raises(ValueError, match="round must be"):
        monitor.update(moves[0], round=45)


def test_another_monitor_goes_on_from_what_clients_were_compared_by(tmp_path):
    """To the bit, and without anything that clients changed; who is left out there does not count."""
    monitor, other = fg.ClientMonitor(horizon=80), fg.ClientMonitor(horizon=80)
    for number, u in enumerate(rounds(40, bad=(2, 7), onset=31), start=1):
        verdict = monitor.update(u)
        assert other.update(monitor.compared) == verdict
        if number == 20:
            other.save(tmp_path / "other")
            other = fg.ClientMonitor.load(tmp_path / "other")
        if verdict.alarm:
            assert other.exclude() == monitor.exclude() == verdict.suspects
            monitor.save(tmp_path / "monitor")
            assert fg.ClientMonitor.load(tmp_path / "monitor").exclusions == monitor.exclusions
    assert monitor.exclusions == other.exclusions
    (out,) = monitor.exclusions
    assert (set(out.clients), out.back_to < 31 <= out.round) == ({2, 7}, True)
    without = fg.ClientMonitor(horizon=80)
    without.update(monitor.compared)
    without.exclude([0])
    assert without.update(monitor.compared).watched == 0
    assert without.compared.clients == monitor.compared.clients[1:]


def test_a_round_in_which_nobody_moves_is_a_jump_and_no_broken_number():
    """As at a rate of zero. Cosines of nothing with nothing were 0 / 0."""
    rng, monitor = np.random.default_rng(0), fg.ClientMonitor(horizon=100, seed=1)
    own = rng.normal(size=(6, 8))
    for number in range(1, 31):
        verdict = monitor.update(np.zeros_like(own) if number == 15 else own + 0.3 * rng.normal(size=own.shape))
        assert not verdict.alarm
        if number == 15:
            assert "watched anew" in verdict.note
    assert len(verdict.surprises) == 6
