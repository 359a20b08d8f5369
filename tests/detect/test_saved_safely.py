"""Files that are larger than they look, numbers that are none, and several threads: refused, told or made to wait."""

import copy
import io
import pickle
import threading
import tracemalloc
import zipfile

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect import Channel, EProcess, MeanChannel, Peak, watch_runs
from fedgauss.detect.array_file import ArrayFile
from fedgauss.detect.candidates import is_candidate, kept_at
from fedgauss.detect.clients import Compared
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.detect.thresholds import Boundary

STEPS, TAU = fg.step_sizes.constant(0.05), 20


def linearization():
    return fg.linearization([np.eye(2)] * 4, [np.eye(2)] * 4, optimum=np.zeros(2), gradients=np.zeros((4, 2)))


def watched(rounds=30, **settings):
    rng = np.random.default_rng(0)
    monitor = fg.Monitor(linearization(), STEPS, TAU, **({"horizon": 2_000, "start": np.zeros(2)} | settings))
    for _ in range(rounds):
        clients = 0.05 * rng.normal(size=(4, 2))
        monitor.update(clients.mean(axis=0), clients=clients)
    return monitor


def state(monitor):
    words, arrays = monitor.state()
    return words, {name: array.tobytes() for name, array in arrays.items()}


def moves(seed=0, rounds=20):
    rng = np.random.default_rng(seed)
    return [np.ones((6, 10)) + 0.3 * rng.normal(size=(6, 10)) for _ in range(rounds)]


def arrays_of(path):
    with np.load(path) as file:
        return dict(file)


def refused(kind, path):
    """What is said, and how many MB it took to say it."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"must be a file that \w+\.save wrote") as caught:
            kind.load(path)
        return str(caught.value), tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [fg.Monitor, fg.ClientMonitor])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused_without_the_memory(kind, tmp_path):
    monitor = watched(5) if kind is fg.Monitor else fg.ClientMonitor(seed=1)
    monitor.save(tmp_path / "good")
    arrays = arrays_of(tmp_path / "good") | {"watch.mean.total": np.zeros((8_000_000, 1)), "values": np.zeros(8)}
    with (tmp_path / "bomb").open("wb") as file:
        np.savez_compressed(file, **arrays)
    assert (tmp_path / "bomb").stat().st_size < 1_000_000
    words, memory = refused(kind, tmp_path / "bomb")
    assert "must not be compressed" in words
    assert memory < 5  # of 64


def test_an_array_that_is_promised_but_not_there_is_refused_without_the_memory(tmp_path):
    promise = io.BytesIO()
    np.lib.format.write_array_header_1_0(promise, {"descr": "<f8", "fortran_order": False, "shape": (10**9,)})
    with zipfile.ZipFile(tmp_path / "promise", "w") as file:
        file.writestr("header.npy", promise.getvalue())
    words, memory = refused(fg.Monitor, tmp_path / "promise")
    assert "as many numbers as its shape says" in words
    assert memory < 5


def test_a_long_directory_and_arrays_that_share_their_bytes_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "many", "w") as file:
        for number in range(20_000):
            file.writestr(f"{number}{'x' * 40}.npy", b"")
    assert "short directory" in refused(fg.Monitor, tmp_path / "many")[0]
    content = io.BytesIO()
    np.savez(content, header=np.zeros(1000), other=np.zeros(1000))
    shared = zipfile.ZipFile(content)
    first, second = shared.infolist()
    size = len(content.getvalue())
    with zipfile.ZipFile(tmp_path / "shared", "w") as file:  # the directory says of both that they are the whole file
        file.writestr("header.npy", bytes(size))
        file.infolist()[0].file_size = file.infolist()[0].compress_size = 2 * size
    assert "must not be larger than the file" in refused(fg.Monitor, tmp_path / "shared")[0]
    assert {first.compress_type, second.compress_type} == {zipfile.ZIP_STORED}


def test_what_numpy_saved_is_what_is_read():
    arrays = {"a": np.arange(6.0).reshape(2, 3), "f": np.asfortranarray(np.arange(6).reshape(2, 3)), "s": np.array(3)}
    arrays |= {"none": np.zeros((0, 4)), "big": np.arange(3, dtype=">f8"), "truth": np.array([True, False])}
    content = io.BytesIO()
    np.savez(content, **arrays)
    file = ArrayFile(content)
    assert set(file.sizes) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(file[name], array)
        assert file[name].shape == array.shape
        assert file[name].flags.writeable


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "name",
    ["watch.mean.candidates.sums", "watch.mean.total", "watch.spread.size", "watch.clients.sum", "clients.sums",
     "watch.mean.travel.places.sums", "watch.spread.statistic", "clients.kept.sums"],
)  # fmt: skip
def test_a_prefix_sum_that_is_no_number_is_refused(name, value, tmp_path):
    watched().save(tmp_path / "good")
    arrays = arrays_of(tmp_path / "good")
    arrays[name].flat[-1] = value
    with (tmp_path / "bad").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ValueError, match="must be finite"):
        fg.Monitor.load(tmp_path / "bad")


def test_a_monitor_whose_run_is_too_short_for_a_channel_can_be_loaded(tmp_path):
    """Where it can see nothing its threshold is infinite, also in the alarm of another channel."""
    monitor = fg.Monitor(linearization(), STEPS, TAU, horizon=200, start=np.zeros(2))
    levels = monitor.boundary.levels | {"spread": np.full(1, np.inf)}
    monitor.boundary = Boundary(monitor.boundary.ends, levels)
    for y in [0.0, 0.0, 0.1, 0.0, -0.1, 5.0]:
        monitor.update([y, 0.0])
    assert monitor.alarm is not None
    monitor.save(tmp_path / "monitor")
    assert state(fg.Monitor.load(tmp_path / "monitor")) == state(monitor)


class Breaking(Channel):
    """The newest round, and something that is no number, or an error, where x is large."""

    name, share, alarm_words, saved = "breaking", 0.1, "newest round stands out", ("rounds",)

    def begin(self, conditions):
        self.rounds = 0

    def update(self, seen):
        self.rounds += 1
        norm = np.sqrt(seen.weight * (seen.x**2).sum(axis=0))
        if (norm > 1e6).any():
            raise RuntimeError("too large")
        return Peak(np.where(norm > 1e4, np.nan, norm), *np.full((2, len(norm)), (self.rounds - 1)))


def test_a_statistic_that_is_no_number_is_an_invalid_update_and_changes_nothing():
    monitor = watched(5, channels=(MeanChannel(), Breaking()))
    before = state(monitor)
    verdict = monitor.update([1e3, 0.0])
    assert verdict.alarm
    assert verdict.invalid
    assert "The statistic of the channel breaking would not be a finite number." in str(verdict)
    assert state(monitor) == before
    with pytest.raises(RuntimeError, match="too large"):
        monitor.update([1e5, 0.0])
    assert state(monitor) == before
    assert not monitor.update([0.0, 0.0]).alarm


@pytest.mark.parametrize("uploads", [None, np.full((4, 2), 0.1)], ids=["mean", "uploads"])
def test_an_innovation_that_is_no_number_is_an_invalid_update_and_changes_nothing(uploads, tmp_path):
    """Where the optimum is absurd, the first round taken in made a prefix sum infinite, before there is a statistic."""
    lin = fg.linearization([np.eye(2)] * 4, [np.eye(2)] * 4, optimum=np.full(2, 1e308), gradients=np.zeros((4, 2)))
    monitor = fg.Monitor(lin, STEPS, TAU, horizon=2_000, start=np.zeros(2))
    before = state(monitor)
    with np.errstate(over="ignore", invalid="ignore"):
        verdict = monitor.update(np.full(2, 0.1), clients=uploads)
    assert verdict.alarm
    assert verdict.invalid
    assert "The innovation of the round would not be of finite numbers." in str(verdict)
    assert state(monitor) == before
    monitor.save(tmp_path / "monitor")
    assert state(fg.Monitor.load(tmp_path / "monitor")) == before


def test_of_many_runs_too_no_number_is_an_alarm():
    means = 0.05 * np.random.default_rng(0).normal(size=(3, 20, 2))
    means[1, 12:] += 1e3
    seen = watch_runs(linearization(), STEPS, means, TAU, horizon=400, channels=(Breaking(),))
    assert seen.alarms[12, 1]
    assert np.isnan(seen.statistics["breaking"][12, 1])


def test_an_e_value_that_is_no_number_is_an_alarm(monkeypatch):
    watch = EProcess(2)
    assert not watch.update([0.0, 0.0]).alarm
    monkeypatch.setattr(watch._capital, "update", lambda x, w: np.array([np.nan]))
    assert watch.update([0.0, 0.0]).alarm


def test_a_surprise_that_is_no_number_is_an_invalid_update_and_changes_nothing(monkeypatch, tmp_path):
    monitor = fg.ClientMonitor(horizon=100, seed=1)
    for each in moves():
        monitor.update(each)
    monitor.save(tmp_path / "before")
    real = monitor._watch.update.__func__

    def update(self, round):
        p, jumped = real(self, round)
        p[0, 3] = np.nan
        return p, jumped

    monkeypatch.setattr(type(monitor._watch), "update", update)
    verdict = monitor.update(moves()[0])
    assert verdict.alarm
    assert verdict.invalid
    assert verdict.rollback == monitor.round == 20
    assert "The surprise of client 3 would not be a finite number." in str(verdict)
    monitor.save(tmp_path / "after")
    assert (tmp_path / "after").read_bytes() == (tmp_path / "before").read_bytes()


@pytest.mark.parametrize("part", ["products", "along_own", "evenness"])
def test_a_round_that_was_compared_elsewhere_must_be_finite(part):
    monitor = fg.ClientMonitor(seed=1)
    for each in moves()[:2]:
        monitor.update(each)
    clients, products, fields = monitor.compared
    wrong = (products * np.inf, fields) if part == "products" else (products, {**fields, part: fields[part] * np.inf})
    with pytest.raises(ValueError, match="products of moves must be finite"):
        fg.ClientMonitor(seed=1).update(Compared(clients, *wrong))
    with pytest.raises(ValueError, match="6 clients must each have a row"):
        fg.ClientMonitor(seed=1).update(Compared(clients, products, {**fields, "evenness": np.ones(5)}))
    with pytest.raises(ValueError, match="must be compared by along_own, evenness beside products; got along_own"):
        fg.ClientMonitor(seed=1).update(Compared(clients, products, {"along_own": fields["along_own"]}))


@pytest.mark.parametrize("kind", ["model", "clients"])
def test_four_threads_may_update_one_monitor(kind, tmp_path):
    """A round waits for the one before it: none fails, none is lost."""
    monitor = watched(0) if kind == "model" else fg.ClientMonitor(seed=1)
    given = np.zeros((4, 2)) if kind == "model" else moves()[0]
    failures = []

    def work(number):
        rng = np.random.default_rng(number)
        try:
            for _ in range(40):
                each = given + 0.02 * rng.normal(size=given.shape)
                if kind == "model":
                    monitor.update(each.mean(axis=0), clients=each)
                else:
                    monitor.update(each)
            monitor.save(tmp_path / "monitor")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert monitor.round == 160
    monitor.save(tmp_path / "monitor")
    assert type(monitor).load(tmp_path / "monitor").round == 160


@pytest.mark.parametrize("again", [copy.deepcopy, lambda monitor: pickle.loads(pickle.dumps(monitor))])
@pytest.mark.parametrize("monitor", [watched(3), fg.ClientMonitor(seed=1)])
def test_a_copy_has_a_lock_of_its_own(monitor, again):
    done = []
    with monitor._lock:
        other = again(monitor)
        thread = threading.Thread(target=lambda: done.append(other.reset()))
        thread.start()
        thread.join(20)
    assert done == [None]


def test_candidates_are_those_that_the_rule_keeps():
    for now in [*range(60), 500, 1023, 1024, 1025]:
        for first in (1, 2, 7):
            wanted = [s for s in range(first, now) if is_candidate(s, now)]
            assert kept_at(now, first).tolist() == wanted
    assert len(kept_at(10**15, 1)) < 400


@pytest.mark.parametrize(("after", "last"), [(0, 3), (2, 5), (4, 9), (5, 6), (7, 30)])
def test_steps_of_a_warm_start_are_those_of_the_whole_schedule(after, last):
    steps = fg.step_sizes.warm_start(0.1, 5, 0.3, 0.75)
    np.testing.assert_array_equal(step_sizes_between(steps, after, last), steps.eta(last)[after:])
    late = fg.step_sizes.warm_start(0.1, 10**14, 0.3, 0.75)
    np.testing.assert_array_equal(step_sizes_between(late, 10**13 + after, 10**13 + last), np.full(last - after, 0.1))


@pytest.mark.parametrize(
    ("name", "value"), [("clients.reference", 1e308), ("watch.spread.weight", -1e308), ("watch.clients.weight", -1.0)]
)
def test_what_would_make_a_later_save_unreadable_is_refused_at_once(name, value, tmp_path):
    """A reference that no round may have shown makes sums overflow; a negative weight, groups that never fill."""
    watched().save(tmp_path / "good")
    arrays = arrays_of(tmp_path / "good")
    arrays[name] = np.full_like(arrays[name], value)
    with (tmp_path / "other").open("wb") as file:
        np.savez(file, **arrays)
    refused(fg.Monitor, tmp_path / "other")
