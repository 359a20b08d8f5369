"""Twenty attacked and twenty honest runs of the example, and the server-only mode over many honest ones."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config
from flower_watch.client_app import app
from flower_watch.server_app import run

from fedgauss.integrations.flower import ServerOnly
from fedgauss.integrations.flower.rounds import TrainingRound

SEEDS = range(20)


def outcomes(**changes):
    found = []
    for seed in SEEDS:
        config = example_config(seed=seed, **changes)
        found.append(run(InProcessGrid(app, config["n-clients"], config), config))
    return found


@pytest.mark.study
def test_attacks_are_alarmed_on_by_the_round_that_the_example_predicts():
    """Seeds are fixed. With other ones, 18 of 20 at the predicted 95 % has a chance of .92."""
    found = outcomes()
    rounds = [(run["alarm_round"], run["predicted_round"]) for run in found]
    print(rounds)
    in_time = [alarm is not None and last is not None and 30 < alarm <= last for alarm, last in rounds]
    assert sum(in_time) >= 18
    assert np.median([last for _, last in rounds]) <= 40  # a prediction that is worth something


@pytest.mark.study
@pytest.mark.parametrize(("watch", "least"), [("reports", 19), ("chains", 17)])
def test_honest_runs_do_not_alarm(watch, least):
    """At alpha = .01 no alarm is what 82 of 100 such twenties show. Seeds are fixed, but for those of chains, which
    come from the operating system: four alarms there have a chance of 4e-5."""
    quiet = sum(run["alarm_round"] is None for run in outcomes(watch=watch, attack_after=60))
    print(quiet)
    assert quiet >= least


def judged(rows, watcher):
    """Whether a run whose arrays move by minus these rows (J, d) is alarmed on."""
    y = np.cumsum(np.concatenate([np.zeros((1, rows.shape[1])), -rows]), axis=0)
    verdicts = [watcher.judge(TrainingRound(j + 1, {"w": y[j]}, ()), {"w": y[j + 1]}) for j in range(len(rows))]
    return any(verdict is not None and verdict.alarm for verdict in verdicts)


@pytest.mark.study
@pytest.mark.parametrize("hovering", [0.0, 0.3], ids=["drifting", "hovering"])
def test_false_alarms_of_the_server_only_mode(hovering):
    """300 runs, independent updates or those of a run that returns by .3 a round. At a true rate of .05, 32 alarms or
    more have a chance of 1e-4; a monitor that takes the estimated covariance for the true one gives about 50."""
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(300):
        y, rows = np.zeros(3), []
        for noise in rng.standard_normal((60, 3)):
            rows.append(hovering * y + noise)
            y = y - rows[-1]
        alarms += judged(np.stack(rows), ServerOnly(20, sync_every=20, alpha=0.05, horizon=1200))
    print(alarms)
    assert alarms < 32
