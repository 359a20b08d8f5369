"""The default monitor on real local SGD: false alarms, power and delay, 2,000 runs a cell at a nominal .05.

131 of 2,000 is the 99.9 % point of Binomial(2000, .05), so a cell whose true rate is .05 fails wrongly once in a
thousand seeds; the seeds are fixed, and the rates measured lie between .024 and .053.
"""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.innovations import innovations
from fedgauss.detect.runs import watch_runs
from fedgauss.detect.thresholds import boundary

RUNS, LIMIT = 2000, 131
SLOW, FAST = fg.step_sizes.polynomial(0.3, 0.75), fg.step_sizes.polynomial(0.7, 0.85)
NEAR = fg.near_optimum(0.25)


def coefficients(n_clients):
    return np.array([2.0, -3.0]) + np.random.default_rng(1907).standard_normal((n_clients, 2))


def linear(n_clients=10, shift=0.0, **options):
    """Half of the clients shifted, the first ones, by `shift` in each coordinate."""
    half = np.arange(n_clients) < n_clients // 2
    noise_var = np.resize([1.0, 2.0, 3.0, 4.0, 5.0], n_clients) ** 2
    return fg.problems.linear(coefficients(n_clients) + shift * half[:, None], noise_var, **options)


def paths(problem, steps=SLOW, n_steps=500, tau=20, start=NEAR, seed=1):
    ring = fg.networks.ring(problem.n_clients)
    look = [fg.observers.Path(tau)]
    options = {"sync_every": tau, "replicates": RUNS, "seed": seed, "start": start, "observe": look}
    return fg.simulate(problem, ring, steps, n_steps, **options).path


def watched(problem, honest=None, steps=SLOW, n_steps=500, tau=20, start=NEAR, horizon=500, seed=1):
    path = paths(problem, steps, n_steps, tau, start, seed)
    lin = fg.linearize(honest or problem)
    return watch_runs(lin, steps, path, tau, boundary(lin.dim, tau, 0.05, horizon))


def within(alarm_step, limit=LIMIT):
    """`pytest -s` shows the figure."""
    alarms = int((np.asarray(alarm_step) > 0).sum())
    print(f"{alarms} false alarms of {len(alarm_step)}")
    assert alarms <= limit


def attacked(shift, after=250, horizon=500):
    """Share of runs with their first alarm after the attack began, and its mean delay."""
    problem = fg.problems.change_at(linear(), linear(shift=shift), after + 1)
    alarms = watched(problem, honest=linear(), horizon=horizon).alarm_step
    hit = alarms > after
    early = ((alarms > 0) & ~hit).mean()
    delay = (alarms[hit] - after).mean()
    print(f"mu = {shift}: power {hit.mean():.3f}, earlier alarms {early:.3f}, delay {delay:.1f}")
    return hit.mean(), delay


@pytest.mark.study
@pytest.mark.parametrize("n_clients", [5, 10, 25])
@pytest.mark.parametrize("tau", [1, 5, 20])
@pytest.mark.parametrize("steps", [SLOW, FAST], ids=["slow", "fast"])
@pytest.mark.parametrize("start", ["optimum", "zeros"])
def test_false_alarms(n_clients, tau, steps, start):
    """Measured: 49 to 105 of 2,000 over the 36 cells."""
    within(watched(linear(n_clients), steps=steps, tau=tau, start=start).alarm_step)


def unequal(order):
    """Hessians between I / 2 and 3 I / 2, given to the clients in this order."""
    sizes = np.empty(10)
    sizes[order] = np.linspace(0.5, 1.5, 10)
    return linear(design_cov=sizes[:, None, None] * np.eye(2))


@pytest.mark.study
@pytest.mark.parametrize(
    ("problem", "options"),
    [
        (linear(df=5), {}),
        (linear(design_cov=np.stack([np.diag([1 + 0.5 * (k % 3), 1 - 0.2 * (k % 3)]) for k in range(10)])), {}),
        (unequal(np.random.default_rng(7).permutation(10)), {}),
        (unequal(np.argsort(coefficients(10)[:, 0])), {}),
        (fg.problems.logistic(coefficients(10)), {"start": "optimum"}),
        (fg.problems.logistic(coefficients(10)), {"start": "zeros", "steps": fg.step_sizes.polynomial(1.5, 0.6)}),
        (linear(), {"n_steps": 5000, "horizon": None}),
    ],
    ids=[
        "t(5)",
        "unequal Hessians",
        "sizes at random",
        "sizes that follow the optima",
        "logistic from the optimum",
        "logistic with large steps",
        "no horizon",
    ],
)
def test_false_alarms_one_change_at_a_time(problem, options):
    within(watched(problem, **options).alarm_step)


@pytest.mark.study
@pytest.mark.parametrize("tau", [1, 5, 20])
def test_false_alarms_of_five_clients_with_heavy_tails(tau):
    within(watched(linear(5, df=5), tau=tau).alarm_step)


@pytest.mark.study
@pytest.mark.parametrize(("n_clients", "tau"), [(10, 20), (5, 5)])
def test_false_alarms_with_a_warm_up_of_100_steps(n_clients, tau):
    """Every run has its own A and V, from 100 draws of each client near its optimum. Measured: 59 and 108 of 2,000."""
    problem = linear(n_clients)
    path = paths(problem, tau=tau, seed=3)
    ends = fg.linearize(problem).optimum + 0.05 * np.random.default_rng(3).standard_normal((RUNS, 2))
    alarms = []
    for r in range(RUNS):
        lin = fg.warm_up(problem, 100, ends[r], seed=r)
        limits = boundary(2, tau, 0.05, 500, 0, innovations(lin, SLOW).whitening)
        alarms.append(watch_runs(lin, SLOW, path[r : r + 1], tau, limits).alarm_step[0])
    within(alarms)


@pytest.mark.study
def test_false_alarms_of_a_server_alone():
    """V from 25 rounds, then 500 steps watched. No demand: at a true rate of .06, 163 of 2,000 has a chance of 1e-4."""
    problem, tau, rounds = linear(), 20, 25
    path = paths(problem, n_steps=1000, seed=3).astype(float)
    later = fg.step_sizes.from_array(SLOW.eta(1000)[500:])
    hessian = fg.linearize(problem).hessian
    alarms = []
    for y in path:
        lin = fg.server_only(hessian, y[:rounds], SLOW, tau, after=tau)
        limits = boundary(2, tau, 0.05, 500, 0, innovations(lin, later).whitening)
        alarms.append(watch_runs(lin, later, y[None, rounds:], tau, limits, y[rounds - 1]).alarm_step[0])
    within(alarms, 163)


def test_false_alarms_in_the_base_setting():
    """About 60 of 2,000; a true rate of .03 passes 131 except with chance 1e-14. A wrong table gives far more."""
    within(watched(linear()).alarm_step)


@pytest.mark.study
def test_power_in_the_base_setting():
    """At mu = 1 a power of .991 and a delay of 67 were measured, the standard error of the delay 0.5: eight of them."""
    power, delay = attacked(1.0)
    assert power >= 0.98
    assert delay <= 71


@pytest.mark.study
@pytest.mark.parametrize(
    ("shift", "horizon", "least", "longest"),
    [
        (0.5, 500, 0.50, None),
        (2.0, 500, 0.98, 30),
        (0.5, None, 0.40, None),
        (1.0, None, 0.97, 75),
        (2.0, None, 0.97, 32),
    ],
)
def test_power_and_delay(shift, horizon, least, longest):
    power, delay = attacked(shift, horizon=horizon)
    assert power >= least
    assert longest is None or delay <= longest


@pytest.mark.study
def test_late_attacks_are_seen():
    assert attacked(1.0, after=400)[0] >= 0.90


@pytest.mark.study
def test_a_run_far_from_its_optimum_is_said_to_travel_and_not_alarmed_on():
    """Logistic from zero with the paper's steps: the statistic exceeds its threshold in 19 runs of 20."""
    seen = watched(fg.problems.logistic(coefficients(10)), start="zeros")
    assert seen.travelling.any(axis=0).mean() > 0.8
    assert seen.alarms.any(axis=0).sum() <= LIMIT


@pytest.mark.study
def test_the_travelling_check_silences_no_attack_on_a_run_that_has_arrived():
    """Nor one on a linear run that started at zero: not one run in 2,000 was silenced at any of these."""
    for shift in (1.0, 2.0):
        problem = fg.problems.change_at(linear(), linear(shift=shift), 251)
        for start in (NEAR, "zeros"):
            seen = watched(problem, honest=linear(), start=start)
            silenced = seen.travelling.any(axis=0) & ~seen.alarms.any(axis=0)
            assert silenced.sum() <= 2
