"""A channel of a user's own, defined here and nowhere else: calibrated, watched, saved, restored and shown."""

import json
import threading
import urllib.request

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect import Channel, MeanChannel, Peak, SpreadChannel, boundary, watch_runs
from fedgauss.detect.thresholds import margin, null_maxima
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.lines import Line
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.server import LiveServer
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.sinks.base import readings

TAU, STEPS, OPTIMUM = 20, fg.step_sizes.polynomial(0.3, 0.75), np.array([2.0, -3.0])


class EwmaChannel(Channel):
    """An EWMA chart: |z_j|, z_j = .8 z_{j-1} + .2 sqrt(w_j) (x_j - the mean of x before), over its standard error."""

    name, share, alarm_words = "ewma", 0.1, "average of recent rounds left its past"
    saved = ("count", "mass", "total", "smooth", "uploads_seen")

    def __init__(self, memory=0.8, share=None):
        super().__init__(share)
        self.memory = memory

    def begin(self, conditions):
        self.count, self.mass, self.uploads_seen = 0, 0.0, 0
        self.total = np.zeros((conditions.dim, conditions.replicates))
        self.smooth = np.zeros_like(self.total)

    def update(self, seen):
        if self.mass:
            residual = (seen.x - self.total / self.mass) * np.sqrt(seen.weight * self.mass / (seen.weight + self.mass))
            self.smooth = self.memory * self.smooth + (1.0 - self.memory) * residual
        self.count += 1
        self.mass += seen.weight
        self.total = self.total + seen.weight * seen.x
        self.uploads_seen += seen.uploads is not None
        error = np.sqrt((1.0 - self.memory) / (1.0 + self.memory))
        statistic = np.sqrt((self.smooth**2).sum(axis=0)) / error
        runs = len(statistic)
        return Peak(statistic, np.full(runs, seen.before), np.full(runs, self.count - 1))


CHANNELS = (MeanChannel(), SpreadChannel(), EwmaChannel())
ALONE = (EwmaChannel(),)


@pytest.fixture(scope="module")
def lin():
    hessians, noise, alike = np.stack([np.eye(2)] * 4), np.stack([4.0 * np.eye(2)] * 4), np.zeros((4, 2))
    return fg.linearization(hessians, noise, optimum=OPTIMUM, gradients=alike)


def paths(runs, n_rounds=25, shift=0.0, change=10**9, seed=0):
    """Y after each round of R runs of the linearised mean with V = I, (R, J, 2)."""
    generator, y, rows = np.random.default_rng(seed), np.tile(OPTIMUM, (runs, 1)), []
    for t in range(1, n_rounds * TAU + 1):
        y = y - 0.3 * t**-0.75 * (y - OPTIMUM - (t > change) * shift + generator.standard_normal((runs, 2)))
        if t % TAU == 0:
            rows.append(y)
    return np.stack(rows, axis=1)


def test_alpha_is_divided_by_the_shares(lin):
    """In three channels of shares .9, .05 and .1, the mean channel has the threshold that alpha .9 / 1.05 gives it."""
    together, default = boundary(2, TAU, 0.0525, 500, channels=CHANNELS), boundary(2, TAU, 0.05, 500)
    assert list(together.levels) == ["mean", "spread", "ewma"]
    np.testing.assert_allclose(together.levels["mean"], default.levels["mean"])
    np.testing.assert_allclose(together.levels["spread"], default.levels["spread"])
    louder = boundary(2, TAU, 0.05, 500, channels=(MeanChannel(), EwmaChannel(share=9.0)))
    assert louder.levels["ewma"] < together.levels["ewma"]


def test_it_is_calibrated_without_a_table():
    """4,000 fresh Gaussian paths against .05; the simulated quantile rests on 2,000: .035 to .068 fails wrongly
    below 1e-3 of the time."""
    limits = boundary(2, TAU, 0.05, 500, channels=ALONE)
    maxima = null_maxima(2, TAU, [(0, 500)], 4000, seed=99, channels=ALONE)
    assert 0.035 < (maxima["ewma"][0] > limits.levels["ewma"][0] / margin(TAU)).mean() < 0.068
    endless = boundary(2, TAU, 0.05, None, channels=ALONE).levels["ewma"]
    assert np.all(np.diff(endless) > 0)
    assert np.isfinite(endless).all()


@pytest.mark.parametrize("horizon", [500, None])
def test_one_monitor_and_thousands_of_runs_agree(lin, horizon):
    means = np.concatenate([paths(1990, seed=1), paths(10, shift=1.0, change=250, seed=2)])
    seen = watch_runs(lin, STEPS, means, TAU, horizon=horizon, channels=CHANNELS)
    for r in (0, 1, 1990, 1995, 1999):
        monitor = fg.Monitor(lin, STEPS, TAU, horizon=horizon, channels=CHANNELS)
        verdicts = [monitor.update(y) for y in means[r]]
        assert [v.alarm for v in verdicts] == seen.alarms[:, r].tolist()
        for j, verdict in enumerate(verdicts):
            for name, statistic, _ in verdict.readings:
                assert statistic == pytest.approx(seen.statistics[name][j, r], rel=1e-9, abs=1e-9)
            if verdict.alarm:
                assert verdict.onset == seen.onsets[j, r]
    assert (seen.alarm_step[:1990] > 0).mean() < 0.08  # .05, margin included; 6 standard errors
    assert (seen.alarm_step[1990:] > 0).all()


@pytest.fixture
def alarmed(lin):
    """A monitor with this channel alone, after its alarm; and the rounds that follow."""
    monitor, rounds = fg.Monitor(lin, STEPS, TAU, horizon=500, channels=ALONE), paths(1, shift=2.0, change=240)[0]
    for y in rounds[:20]:
        monitor.update(y, clients=np.tile(y, (4, 1)))
    return monitor, rounds[20:]


def test_its_alarm_speaks_for_itself(alarmed):
    verdict = alarmed[0].alarm
    assert verdict.channel == "ewma"
    assert "ALARM at round" in str(verdict)
    assert "the average of recent rounds left its past" in str(verdict)
    assert verdict.rollback == (verdict.onset - 1) // TAU
    assert readings(verdict)["ratio_ewma"] == verdict.statistic / verdict.threshold


def test_it_is_told_of_uploads(alarmed):
    assert alarmed[0].watch.channels[0].uploads_seen == 20 - 1  # the first says where the run begins


def test_saved_and_restored_it_goes_on_to_the_bit(alarmed, tmp_path):
    monitor, rest = alarmed
    path = tmp_path / "monitor.npz"
    monitor.save(path)
    with pytest.raises(ValueError, match=r"saved with the channels \['ewma'\]; \['ewma'\] must be given"):
        fg.Monitor.load(path)
    restored = fg.Monitor.load(path, channels=(*CHANNELS,))
    assert restored.alarm == monitor.alarm
    assert [c.name for c in restored.channels] == ["ewma"]
    for y in rest:
        assert restored.update(y, clients=np.tile(y, (4, 1))) == monitor.update(y, clients=np.tile(y, (4, 1)))
    first, second = monitor.state(), restored.state()
    assert first[0] == second[0]
    assert {k: a.tobytes() for k, a in first[1].items()} == {k: a.tobytes() for k, a in second[1].items()}


def test_the_live_page_shows_it_by_name(lin):
    run = Run(fg.Monitor(lin, STEPS, TAU, horizon=500, channels=CHANNELS))
    for j, y in enumerate(paths(1, shift=2.0, change=240)[0]):
        run.take(Line(j + 1, y))
    state = state_of(run)
    assert [row[0] for row in state["parts"]["Channels"]["rows"]] == ["mean", "spread", "ewma"]
    assert all(statistic >= 0 and threshold > 0 for _, statistic, threshold, _ in state["parts"]["Channels"]["rows"])
    reasons = {channel.name: channel.alarm_words for channel in CHANNELS}
    assert state["alarm"]["reason"] == reasons[state["alarm"]["channel"]]
    server = LiveServer(run, "toy", Guard("127.0.0.1", None), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with urllib.request.urlopen(f"{server.address}state") as reply:
            assert "ewma" in [row[0] for row in json.loads(reply.read())["parts"]["Channels"]["rows"]]
        with urllib.request.urlopen(server.address) as reply:
            page = reply.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    assert "showParts(state.parts)" in page  # whatever they are called
    assert '"spread"' not in page


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        ((), "channels must be at least one, each with a name of its own"),
        ((MeanChannel(), MeanChannel()), "channels must be at least one, each with a name of its own"),
        ((MeanChannel,), "channels must be instances of fedgauss.detect.Channel"),
        (("mean",), "channels must be instances of fedgauss.detect.Channel"),
    ],
)
def test_channels_that_cannot_be_watched_together_are_refused(lin, channels, message):
    with pytest.raises(ValueError, match=message):
        fg.Monitor(lin, STEPS, TAU, channels=channels)


def test_shares_are_positive():
    with pytest.raises(ValueError, match="share must be"):
        EwmaChannel(share=0.0)


def test_limits_of_other_channels_are_refused(lin):
    with pytest.raises(ValueError, match="limits must have thresholds of the channels"):
        watch_runs(lin, STEPS, paths(2), TAU, boundary(2, TAU, 0.05, 500), channels=CHANNELS)


def test_a_subclass_of_a_tabulated_channel_is_simulated():
    """Its statistic may be another: the table is not its own."""

    class Doubled(MeanChannel):
        def update(self, seen):
            peak = super().update(seen)
            return peak._replace(statistic=2.0 * peak.statistic)

    assert not Doubled.tabulated
    own, shipped = (boundary(2, TAU, 0.05, 200, channels=(c,)).levels["mean"][0] for c in (Doubled(), MeanChannel()))
    assert own == pytest.approx(2.0 * shipped, rel=0.05)
