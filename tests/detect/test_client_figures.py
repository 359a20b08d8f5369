"""What a client monitor remembers and draws: surprises by client and round, alarms, and who was left out."""

import re
from dataclasses import replace

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.clients.seen import ABSENT, NOT_JUDGED


def moves(rng, names, bad=()):
    """What clients change: their own direction and noise; bad ones turn round."""
    own = {name: np.random.default_rng(k).normal(size=40) for k, name in enumerate(names)}
    return {name: (-2 if name in bad else 1) * (own[name] + 0.5 * rng.normal(size=40)) for name in names}


@pytest.fixture(scope="module")
def attacked():
    """Two of eight turn in round 21, are left out, and the run goes on to round 30; one is away in round 25."""
    names, rng = [f"site {k}" for k in range(8)], np.random.default_rng(0)
    monitor = fg.ClientMonitor(horizon=40)
    for round in range(1, 31):
        here = [name for name in names if name not in monitor.left_out and not (round == 25 and name == "site 5")]
        verdict = monitor.update(moves(rng, here, bad=("site 2", "site 6") if round > 20 else ()))
        if verdict.alarm:
            monitor.exclude()
    return monitor


def test_what_is_remembered_is_what_verdicts_said(attacked):
    rng, names = np.random.default_rng(3), list("abcd")
    monitor = fg.ClientMonitor()
    said = [monitor.update(moves(rng, names)).surprises for _ in range(20)]
    table = monitor.seen.tenths(4)
    assert monitor.seen.rounds.tolist() == list(range(1, 21))
    for row, surprises in zip(table, said, strict=True):
        assert row.tolist() == [round(10 * surprises[name]) if name in surprises else NOT_JUDGED for name in names]
    seen = attacked.seen.tenths(8)
    assert (seen[24, 5], seen[24, 4] >= 0) == (ABSENT, True)
    assert (seen[21:, [2, 6]] == ABSENT).all()


def test_the_alarm_is_drawn_where_it_was(attacked):
    assert [set(alarm.clients) for alarm in attacked.seen.alarms] == [{"site 2", "site 6"}]
    figure = attacked.plot(accuracy=np.linspace(0.1, 0.9, 30))
    heat, below = figure.axes
    deep = np.reshape(heat.collections[1].get_array(), (8, 30, 4))[..., 3]
    alarm = attacked.seen.alarms[0].round
    assert {np.unravel_index(deep.argmax(), deep.shape)[0]} <= {2, 6}
    assert deep[[2, 6], alarm - 1].min() > 2 * deep[[0, 1, 3, 4, 5, 7]].max()
    assert {round(patch.get_y() + 0.5) for patch in heat.patches} == {2, 6}
    assert [text.get_text() for text in heat.texts] == [f"alarm, round {alarm}"]
    assert [label.get_text() for label in heat.get_yticklabels()] == list(attacked.clients)
    assert below.lines[0].get_xdata().tolist() == list(range(1, 31))
    assert (
        figure.get_suptitle()
        == f"Alarm in round {alarm}: clients {' and '.join(attacked.seen.alarms[0].clients)} named"
    )


def test_a_notebook_has_a_table_of_clients(attacked):
    page = attacked._repr_html_()
    rows = dict(re.findall(r'scope="row">(site \d)</th>(?:<td>[^<]*</td>){2}<td>([^<]*)</td>', page))
    alarm = attacked.seen.alarms[0].round
    assert list(rows) == list(attacked.clients)
    assert {name for name, state in rows.items() if state == f"left out after round {alarm}"} == {"site 2", "site 6"}
    assert "No alarm in 0 rounds." in fg.ClientMonitor()._repr_html_()


def test_what_was_seen_is_in_the_file_and_gone_after_a_reset(attacked, tmp_path):
    attacked.save(tmp_path / "monitor")
    again = fg.ClientMonitor.load(tmp_path / "monitor")
    assert np.array_equal(again.seen.tenths(8), attacked.seen.tenths(8))
    assert (again.seen.rounds.tolist(), again.seen.alarms) == (attacked.seen.rounds.tolist(), attacked.seen.alarms)
    again.reset()
    with pytest.raises(ValueError, match="plot needs a round"):
        again.plot()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seen.tenths", lambda table: table[:, :-1]),
        ("seen.tenths", lambda table: table - 9),
        ("seen.tenths", lambda table: table.astype(float)),
        ("seen.rounds", lambda rounds: rounds[::-1]),
    ],
    ids=["narrow", "too small", "not whole", "out of order"],
)
def test_a_damaged_memory_is_refused(attacked, tmp_path, name, change):
    attacked.save(tmp_path / "good")
    with np.load(tmp_path / "good") as file:
        arrays = {key: file[key] for key in file.files}
    arrays[name] = change(arrays[name])
    with (tmp_path / "bad").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(ValueError, match="is not a whole client monitor"):
        fg.ClientMonitor.load(tmp_path / "bad")


def test_files_from_before_it_was_kept_load(attacked, tmp_path):
    attacked.save(tmp_path / "new")
    with np.load(tmp_path / "new") as file:
        arrays = {key: file[key] for key in file.files if not key.startswith("seen.")}
    with (tmp_path / "old").open("wb") as file:
        np.savez(file, **arrays)
    assert len(fg.ClientMonitor.load(tmp_path / "old").seen.rounds) == 0


def test_of_many_rounds_and_clients_those_that_matter_are_drawn():
    """1,200 rounds of 70 clients: 1,000 rounds are kept; 160 columns are drawn, and the 60 most surprising clients."""
    many = fg.ClientMonitor()
    verdict = many.update({f"client {k}": np.ones(3) for k in range(70)})
    numbers = {name: k for k, name in enumerate(many.clients)}
    surprises = {name: 0.1 + k / 10 for name, k in numbers.items()}
    for number in range(2, 1201):
        many.seen.add(replace(verdict, round=number, surprises=surprises), numbers)
    heat = many.plot().axes[0]
    assert many.seen.rounds.tolist() == list(range(201, 1201))
    assert [label.get_text() for label in heat.get_yticklabels()] == [f"client {k}" for k in range(10, 70)]
    assert heat.collections[0].get_array().size == 60 * 160 * 4
