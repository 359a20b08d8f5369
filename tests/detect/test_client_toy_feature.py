"""A feature that the package does not know is one class: watched, named by, saved, logged and calibrated."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_feature import Peak

import fedgauss as fg
from fedgauss.detect.clients.features import FEATURES
from fedgauss.integrations.live.lines import line_from_json, round_to_json

WITH_TOY = (*FEATURES, Peak())
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


def rounds(onset=31, seed=3):
    """Clients 2 and 7 treble one coordinate of 4,000, which changes nothing else much."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(10, 4000))
    for number in range(1, 41):
        u = own + 0.5 * rng.normal(size=own.shape)
        u[:, 0] = 5.0 + 0.2 * rng.normal(size=10)
        if number >= onset:
            u[[2, 7], 0] *= 3.0
        yield u


def test_it_is_watched_and_names_whom_the_others_do_not_see(tmp_path):
    plain, toy = fg.ClientMonitor(horizon=60, seed=1), fg.ClientMonitor(horizon=60, seed=1, features=WITH_TOY)
    for number, u in enumerate(rounds(), start=1):
        before, with_toy = plain.update(u), toy.update(u)
        if number == 20:
            toy.save(tmp_path / "toy")
            toy = fg.ClientMonitor.load(tmp_path / "toy", features=WITH_TOY)
        if with_toy.alarm:
            break
        assert not before.alarm
    assert set(with_toy.suspects) == {2, 7}
    assert 31 <= with_toy.round <= 33


def test_it_travels_in_logs_and_files_and_is_missed_where_it_is_not_known(tmp_path):
    monitor, other = (fg.ClientMonitor(horizon=60, seed=1, features=WITH_TOY) for _ in range(2))
    for number, u in enumerate(rounds(), start=1):
        verdict = monitor.update(u)
        line = round_to_json(number, monitor.compared, ())
        assert json.loads(line)["peak"] == monitor.compared.fields["peak"].tolist()
        assert other.update(line_from_json(line.encode(), WITH_TOY).moves) == verdict
    monitor.save(tmp_path / "toy")
    with pytest.raises(ValueError, match="was saved with the features"):
        fg.ClientMonitor.load(tmp_path / "toy")
    wrong = json.dumps(json.loads(line) | {"peak": [2.0] * 10}).encode()
    with pytest.raises(ValueError, match="peak must lie between 0 and 1"):
        line_from_json(wrong, WITH_TOY)
    with pytest.raises(ValueError, match=r"must be compared by .* peak"):
        other.update(line_from_json(line.encode()).moves, round=99)


def test_the_script_calibrates_it():
    """With a tolerance of next to nothing a feature without noise would alarm in honest runs."""
    from watch_calibration import calibrated, least
    from watch_settings import cells

    (cell,) = (cell for cell in cells() if cell.name == "directions, noise 0.001")
    short = replace(cell, federation=replace(cell.federation, rounds=20))
    ((level, words),) = calibrated(Peak(), [short], (0.1,), n_runs=3)
    assert (level.tolerance, level.alarms, level.runs) == (0.1, 0, 3)
    assert "0 of 3 alarm" in words[0]
    assert least([level, level._replace(tolerance=0.01, alarms=2)]) == 0.1
    assert least([level._replace(alarms=2)]) is None
