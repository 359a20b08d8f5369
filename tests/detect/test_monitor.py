"""The monitor: online equals batch, restored equals uninterrupted, and nothing bad gets into its state."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

import fedgauss as fg
from fedgauss import Monitor
from fedgauss.detect import storage
from fedgauss.detect.runs import watch_runs
from fedgauss.detect.thresholds import boundary

STEPS = fg.step_sizes.polynomial(0.3, 0.75)


@pytest.fixture
def lin():
    hessians, noise, alike = np.stack([np.eye(2)] * 4), np.stack([4.0 * np.eye(2)] * 4), np.zeros((4, 2))
    return fg.linearization(hessians, noise, optimum=[2.0, -3.0], gradients=alike)


def linear_path(n_steps, seed=0, shift=0.0, change=10**9, noise=1.0):
    """Y_t of the linearised mean with V = I, one row a step; from `change` on the gradient moves by `shift`."""
    generator = np.random.default_rng(seed)
    y, path = np.array([2.0, -3.0]), []
    for t in range(1, n_steps + 1):
        z = generator.standard_normal(2) * (noise if t > change else 1.0)
        y = y - 0.3 * t**-0.75 * (y - [2.0, -3.0] - (t > change) * shift + z)
        path.append(y)
    return np.array(path)


def state_bytes(monitor):
    words, arrays = monitor.state()
    return repr(words), {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("tau", [1, 5, 20])
@pytest.mark.parametrize("horizon", [400, None])
def test_online_equals_batch(lin, tau, horizon):
    """The same path, alone in a monitor and as one of three runs watched together."""
    paths = np.stack([linear_path(400, r, shift=0.8 * (r == 1), change=200)[tau - 1 :: tau] for r in range(3)])
    batch = watch_runs(lin, STEPS, paths, tau, boundary(2, tau, 0.05, horizon))
    for r in range(3):
        monitor = Monitor(lin, STEPS, sync_every=tau, horizon=horizon)
        verdicts = [monitor.update(y) for y in paths[r]]
        assert [v.alarm for v in verdicts] == batch.alarms[:, r].tolist()
        assert [v.step for v in verdicts] == batch.steps.tolist()
        for j, v in enumerate(verdicts):
            wanted = batch.statistics[v.channel][j, r]
            assert v.statistic == pytest.approx(wanted, rel=1e-9, abs=1e-9)
            if v.alarm:
                assert v.onset == batch.onsets[j, r]
    assert batch.alarms[-1, 1]


def test_an_alarm_says_when_and_where_to_go_back_to(lin):
    monitor = Monitor(lin, STEPS, sync_every=20, horizon=500)
    verdicts = [monitor.update(y) for y in linear_path(500, shift=2.0, change=240)[19::20]]
    alarmed = [v for v in verdicts if v.alarm]
    assert alarmed[0].step in (260, 280)
    assert alarmed[-1].alarm  # it keeps watching
    assert abs(alarmed[-1].onset - 241) <= 20
    assert alarmed[0].onset == 241
    first, last = alarmed[0].onset_interval
    assert first <= 241 <= last
    assert alarmed[0].rollback == (first - 1) // 20 <= 12
    assert alarmed[0].rollback >= 9
    assert alarmed[-1].onset == 261  # round 12 is forgotten by then, and the estimate lies on the next that is left
    assert alarmed[-1].rollback <= alarmed[0].rollback
    assert alarmed[-1].onset_interval[0] <= first
    assert monitor.alarm == alarmed[0]
    assert alarmed[-1].channel == "mean"
    assert f"It began near step 241 ({first} to {last}): roll back to round {alarmed[0].rollback}." in str(alarmed[0])
    assert verdicts[3].onset_interval is None
    assert "no alarm" in str(verdicts[3])
    with pytest.raises(AttributeError):
        verdicts[0].alarm = True


def test_noise_injection_is_seen_by_the_spread_channel(lin):
    monitor = Monitor(lin, STEPS, sync_every=20, horizon=1000)
    verdicts = [monitor.update(y) for y in linear_path(1000, seed=4, noise=4.0, change=300)[19::20]]
    assert any(v.alarm and v.channel == "spread" for v in verdicts)
    last = verdicts[-1]
    if last.channel == "spread":
        assert abs(last.onset - 301) <= 60
        assert last.rollback <= (last.onset_interval[0] - 1) // 20 <= 15


def test_reset_watches_anew(lin):
    monitor = Monitor(lin, STEPS, sync_every=20, horizon=500)
    for y in linear_path(1000, shift=2.0, change=240)[19:500:20]:
        verdict = monitor.update(y)
    assert verdict.alarm
    assert monitor.alarm is not None
    monitor.reset()
    assert monitor.alarm is None
    after = [monitor.update(y) for y in linear_path(1000, shift=2.0, change=240)[519::20]]
    assert not any(v.alarm for v in after)
    assert after[-1].round == 50
    assert "horizon" not in after[-1].note


@pytest.mark.parametrize("cut", [0, 1, 2, 7, 40, 99])
@pytest.mark.parametrize("steps", [STEPS, fg.step_sizes.warm_start(0.1, 30, 0.3, 0.75), np.full(500, 0.1)])
def test_a_restored_monitor_gives_identical_verdicts(lin, tmp_path, cut, steps):
    path = linear_path(500, shift=1.0, change=250)[4::5]
    monitor = Monitor(lin, steps, sync_every=5, start=[2.0, -3.0] if cut == 2 else None)
    monitor.reweight([0.1, 0.2, 0.3, 0.4])
    for y in path[:cut]:
        monitor.update(y)
    monitor.save(tmp_path / "monitor.npz")
    restored = Monitor.load(tmp_path / "monitor.npz")
    assert state_bytes(restored) == state_bytes(monitor)
    for y in path[cut:]:
        assert restored.update(y) == monitor.update(y)  # every field, to the last bit
    assert state_bytes(restored) == state_bytes(monitor)
    assert restored.alarm == monitor.alarm


@pytest.fixture
def saved(lin, tmp_path):
    """A monitor in a file, after an alarm; gives its words and arrays, and how to load others in their place."""
    monitor, path = Monitor(lin, STEPS, sync_every=20, horizon=500), tmp_path / "monitor.npz"
    for y in linear_path(500, shift=2.0, change=240)[19::20]:
        monitor.update(y, clients=np.tile(y, (4, 1)))
    assert monitor.alarm is not None
    words, arrays = monitor.state()

    def load(words, arrays):
        storage.write(path, words, arrays)
        return Monitor.load(path)

    return words, arrays, load


def test_a_file_from_before_alarms_were_kept_still_loads(saved):
    words, arrays, load = saved
    old = {name: word for name, word in words.items() if name != "alarm"} | {"alarmed": True}
    restored = load(old, arrays)
    assert restored.alarm is None
    assert restored.update(linear_path(520, shift=2.0, change=240)[-1]).alarm  # and rings at once
    assert restored.alarm is not None


POLYNOMIAL = {"kind": "polynomial", "eta0": 0.3, "beta": 0.75, "shift": 0.0}
WRONG_WORDS = {
    "sync_every 0": {"sync_every": 0},
    "sync_every huge": {"sync_every": 10**12},
    "sync_every a word": {"sync_every": "20"},
    "alpha 5": {"alpha": 5},
    "alpha a word": {"alpha": "<b>"},
    "horizon 0": {"horizon": 0},
    "eta0 NaN": {"steps": POLYNOMIAL | {"eta0": float("nan")}},
    "eta0 a word": {"steps": POLYNOMIAL | {"eta0": "x"}},
    "a listed decay": {"steps": {"kind": "warm start", "constant": 0.1, "n_warm": 3, "decay": {"kind": "listed"}}},
    "negative counters": {"counters": [-1, -5, 0, 0]},
    "three counters": {"counters": [1, 20, 0]},
    "dof": {"dof": "x"},
    "an alarm that is none": {"alarm": {"round": 3}},
    "an alarm of words": {"alarm": "yes"},
}


@pytest.mark.parametrize("wrong", WRONG_WORDS.values(), ids=WRONG_WORDS)
def test_a_file_with_words_that_cannot_be_is_refused(saved, wrong):
    words, arrays, load = saved
    with pytest.raises(ValueError, match=r"must be a file that Monitor\.save wrote; a part is missing or wrong"):
        load(words | wrong, arrays)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("last", lambda array: array[:1]),
        ("last", lambda array: array * np.nan),
        ("ends", lambda array: array * 1.0),
        ("ends", lambda array: array[:0]),
        ("above.mean", lambda array: -array),
        ("above.spread", lambda array: array[:0]),
        ("lin.weights", lambda array: -array),
        ("lin.client_hessians", lambda array: array * np.nan),
        ("clients.sums", lambda array: array[:1]),
    ],
)
def test_a_file_with_arrays_that_cannot_be_is_refused(saved, name, change):
    words, arrays, load = saved
    with pytest.raises(ValueError, match=r"must be a file that Monitor\.save wrote; a part is missing or wrong"):
        load(words, arrays | {name: change(arrays[name])})


def test_a_damaged_file_is_refused_or_the_same(saved, tmp_path):
    """Bytes changed at 60 places: whatever the libraries raise, a ValueError comes out, or the monitor as it was."""
    words, arrays, load = saved
    whole = state_bytes(load(words, arrays))
    good, generator = (tmp_path / "monitor.npz").read_bytes(), np.random.default_rng(0)
    deep = np.frombuffer(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", dtype=np.uint8)
    np.savez(tmp_path / "deep.npz", header=deep)
    with pytest.raises(ValueError, match=r"must be a file that Monitor\.save wrote"):
        Monitor.load(tmp_path / "deep.npz")
    for _ in range(60):
        bad = bytearray(good)
        bad[generator.integers(len(bad))] ^= int(generator.integers(1, 256))
        (tmp_path / "bad.npz").write_bytes(bad)
        with contextlib.suppress(ValueError):
            assert state_bytes(Monitor.load(tmp_path / "bad.npz")) == whole


def test_a_file_that_is_no_monitor_is_refused(lin, tmp_path):
    (tmp_path / "text").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("text", "other.npz", "pickled.npy"):
        with pytest.raises(ValueError, match=r"must be a file that Monitor\.save wrote"):
            Monitor.load(tmp_path / name)


def test_bad_updates_are_alarms_or_refusals_and_leave_no_trace(lin):
    monitor = Monitor(lin, STEPS, sync_every=5)
    for y in linear_path(200)[4::5]:
        monitor.update(y)
    before = state_bytes(monitor)
    good = np.array([2.0, -3.0])
    clients = np.tile(good, (4, 1))
    for bad in ([np.nan, 0.0], [np.inf, 0.0], [1e300, 1e300], [-1e12, 0.0]):
        verdict = monitor.update(bad)
        assert verdict.alarm
        assert verdict.channel == "invalid update"
        assert "invalid update" in str(verdict)
        assert (verdict.rollback, verdict.onset) == (40, 201)
        assert state_bytes(monitor) == before
    broken = clients.copy()
    broken[2, 1] = np.nan
    verdict = monitor.update(good, clients=broken)
    assert verdict.alarm
    assert "client 2" in str(verdict)
    refused = [
        ({"y": [1.0, 2.0, 3.0]}, r"y must have shape \(2,\)"),
        ({"y": "poison"}, "y must be an array of real numbers"),
        ({"y": good, "clients": clients[:3]}, r"clients must have shape \(4, 2\)"),
        ({"y": good, "step": 200}, "step must grow from round to round; got 200 after 200. Use 205"),
        ({"y": good, "step": 7.5}, "step must be a whole number"),
        ({"y": good, "participants": [0, 9]}, r"participants must lie in 0..3"),
        ({"y": good, "participants": [1, 1]}, "named once"),
        ({"y": good, "participants": []}, "participants must be"),
        ({"y": good, "participants": [False] * 4}, "at least one client"),
        ({"y": good, "participants": [True] * 3}, "participants as booleans must be 4"),
    ]
    for arguments, message in refused:
        with pytest.raises(ValueError, match=message):
            monitor.update(**arguments)
        assert state_bytes(monitor) == before
    assert not monitor.update(linear_path(205)[-1]).alarm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1; got 0"),
        ({"alpha": 1.0}, "alpha must lie strictly between 0 and 1; got 1"),
        ({"alpha": np.nan}, "alpha must be finite"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"sync_every": 0}, "sync_every must be at least 1"),
        ({"start": [1.0]}, r"start must have shape \(2,\)"),
    ],
)
def test_bad_settings_are_named(lin, arguments, message):
    with pytest.raises(ValueError, match=message):
        Monitor(lin, STEPS, **arguments)


def test_missed_rounds_are_one_longer_block(lin):
    """A quiet run stays quiet when rounds go missing, and an attack is still seen; steps are counted right."""
    generator = np.random.default_rng(8)
    for seed, shift in ((1, 0.0), (2, 2.0)):
        path = linear_path(1000, seed, shift=shift, change=600)
        monitor = Monitor(lin, STEPS, sync_every=10, horizon=1000)
        alarms = [monitor.update(path[t - 1], step=t).alarm for t in range(10, 1001, 10) if generator.random() < 0.5]
        assert monitor.step > 900
        assert any(alarms) == (shift > 0)


def test_absent_clients_change_the_weight_of_a_round(lin):
    path = linear_path(200)[9::10]
    everybody, some = (Monitor(lin, STEPS, sync_every=10, horizon=200) for _ in range(2))
    named = Monitor(lin, STEPS, sync_every=10, horizon=200)
    for y in path:
        everybody.update(y)
        named.update(y, participants=[0, 1, 2, 3])
        some.update(y, participants=[True, True, False, False])
    ratio = everybody.watch.channels[0].mass / some.watch.channels[0].mass
    assert ratio == pytest.approx(2.0)  # half the clients, twice the variance
    assert named.watch.channels[0].mass == pytest.approx(everybody.watch.channels[0].mass)
    reweighted = Monitor(lin, STEPS, sync_every=10, horizon=200)
    reweighted.reweight([0.5, 0.5 - 2e-9, 1e-9, 1e-9])
    for y in path:
        reweighted.update(y)
    assert reweighted.watch.channels[0].mass == pytest.approx(some.watch.channels[0].mass, rel=1e-6)


def test_a_horizon_too_short_to_compare_anything_is_refused(lin):
    with pytest.raises(
        ValueError, match=r"horizon must be at least 150; got 60\. With sync_every = 50 nothing can be seen"
    ):
        Monitor(lin, STEPS, sync_every=50, horizon=60)
    assert np.isfinite(Monitor(lin, STEPS, sync_every=50, horizon=150).boundary.levels["mean"]).all()


def test_looking_more_often_than_said_is_refused(lin):
    """Thresholds are for rounds of sync_every steps or more: fed every step, .29 of honest runs alarmed."""
    monitor = Monitor(lin, STEPS, sync_every=20, start=[2.0, -3.0])
    for step in (5, 19):
        with pytest.raises(ValueError, match="step must lie at least sync_every = 20 steps after the last; got"):
            monitor.update([2.0, -3.0], step=step)
    assert monitor.update([2.0, -3.0], step=33).step == 33


@pytest.mark.parametrize("steps", [STEPS, fg.step_sizes.warm_start(0.1, 10**13, 0.3, 0.75)], ids=["formula", "none"])
def test_a_gap_too_long_to_compute_is_refused_also_before_the_first_update(lin, steps):
    """10^12 steps would be an array of as many numbers; `reset` says where a run is without one."""
    for start in (None, [2.0, -3.0]):
        monitor = Monitor(lin, steps, sync_every=20, start=start)
        before = state_bytes(monitor)
        with pytest.raises(ValueError, match=r"at most 1,000,000 steps after the last, 0; got .* Use reset\(step"):
            monitor.update([2.0, -3.0], step=10**12)
        assert state_bytes(monitor) == before
    monitor = Monitor(lin, STEPS, sync_every=20)
    monitor.reset(step=10**12)
    assert monitor.update([2.0, -3.0]).step == 10**12 + 20
    with pytest.raises(ValueError, match="sync_every must be at most 1000000"):
        Monitor(lin, STEPS, sync_every=10**7)


def test_after_a_rollback_the_monitor_goes_on_from_there(lin):
    """It must be as a new monitor of the rest of the run; counting on would use the step sizes of another time."""
    path = linear_path(500, shift=2.0, change=240)[19::20]
    monitor = Monitor(lin, STEPS, sync_every=20)
    for y in path:
        monitor.update(y)
    monitor.reset(step=100, y=path[4], round=5)
    fresh = Monitor(lin, fg.step_sizes.from_array(STEPS.eta(500)[100:]), sync_every=20, start=path[4])
    honest = linear_path(500, seed=9)[119::20]
    seen = [monitor.update(y) for y in honest]
    np.testing.assert_allclose([v.statistic for v in seen], [fresh.update(y).statistic for y in honest], rtol=1e-9)
    assert (seen[0].round, seen[0].step) == (6, 120)
    with pytest.raises(ValueError, match="y must be finite"):
        monitor.reset(step=100, y=[np.nan, 0.0])


def test_other_weights_without_client_gradients_are_warned_of_once(lin):
    monitor = Monitor(replace(lin, client_gradients=None), STEPS, sync_every=20, start=[2.0, -3.0])
    with pytest.warns(fg.FedgaussWarning, match="only where all clients have one optimum"):
        monitor.reweight([0.1, 0.2, 0.3, 0.4])
    monitor.update([2.0, -3.0], participants=[0, 1])  # nothing more is said


def test_a_schedule_that_has_ended_says_so_at_once(lin):
    with pytest.raises(ValueError, match="steps"):
        Monitor(lin, np.full(500, 0.1), sync_every=20).update([2.0, -3.0], step=600)


def test_a_journey_is_not_an_alarm():
    """The gradient y + 0.3 y^3, with A = 1 at the optimum and small steps: innovations drift, nobody attacks."""
    lin = fg.linearization(np.ones((1, 1, 1)), np.full((1, 1, 1), 0.04))
    steps = fg.step_sizes.polynomial(0.05, 0.75)
    monitor = Monitor(lin, steps, sync_every=20, horizon=500)
    generator = np.random.default_rng(0)
    y, verdicts = np.array([-2.0]), []
    for t in range(1, 501):
        y = y - 0.05 * t**-0.75 * (y + 0.3 * y**3 + 0.2 * generator.standard_normal(1))
        if t % 20 == 0:
            verdicts.append(monitor.update(y))
    assert not any(v.alarm for v in verdicts)
    assert verdicts[-1].travelling
    assert "still travelling, warm start first" in str(verdicts[-1])


def test_the_end_of_the_horizon_is_said(lin):
    monitor = Monitor(lin, STEPS, horizon=100)
    verdicts = [monitor.update(y) for y in linear_path(120)[19::20]]
    assert "horizon" not in str(verdicts[4])
    assert "horizon of 100 steps is over" in str(verdicts[5])
