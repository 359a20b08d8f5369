"""Small runs whose outcome is known: an attack that must be seen, an honest twin, and a fit with a closed form.

Noise comes from a hash, so that every NumPy draws the same numbers and alarms come in the same round everywhere.
"""

from __future__ import annotations

import hashlib
import math
from itertools import count

import numpy as np
from scipy import special

from fedgauss._linearization import linearization
from fedgauss._types import FloatArray
from fedgauss.detect.clients.monitor import ClientMonitor
from fedgauss.detect.monitor import Monitor
from fedgauss.doctor.finding import Finding
from fedgauss.step_sizes import constant

_REINSTALL = (
    "Do not rely on this installation. Reinstall fedgauss, NumPy and SciPy (pip install --force-reinstall); if this "
    "remains, report it with the output of fedgauss doctor --json."
)
_CLIENTS, _BAD = 10, (3, 8)  # how many there are, and who turns bad


def monitor_test() -> Finding:
    """A Monitor of parameters: two of ten clients are drawn elsewhere from round 41 on."""
    return _judged("self-test: Monitor", _monitor_run(attacked=True), (42, _BAD), _monitor_run(attacked=False))


def client_monitor_test() -> Finding:
    """A ClientMonitor: two of ten clients send three times the opposite of what they learnt, from round 21 on."""
    seen, quiet = _client_run(attacked=True), _client_run(attacked=False)
    return _judged("self-test: ClientMonitor", seen, (21, _BAD), quiet)


def fit_test() -> Finding:
    """A logistic regression on one 0-1 covariate: its coefficients are log odds, with errors from the four counts."""
    from fedgauss.inference.fit import fit

    counts = {(0, 0): 31, (0, 1): 12, (1, 0): 17, (1, 1): 25}  # rows by covariate and outcome
    rows = [pair for pair, number in counts.items() for _ in range(number)]
    frame = {
        "x": np.array([x for x, _ in rows], dtype=float),
        "y": np.array([y for _, y in rows]),
        "site": np.array([f"site {i % 3}" for i in range(len(rows))]),
    }
    found = fit(frame, target="y", client="site", family="binomial", errors="model")
    const = math.log(counts[0, 1] / counts[0, 0])
    known = [const, math.log(counts[1, 1] / counts[1, 0]) - const]
    errors = [math.sqrt(sum(1 / counts[0, y] for y in (0, 1))), math.sqrt(sum(1 / n for n in counts.values()))]
    gap = float(np.abs(np.r_[found.params, found.std_errors] - np.r_[known, errors]).max())
    name = "self-test: exact fit"
    if gap < 1e-8:  # NaN is not
        return Finding("ok", name, f"a logistic fit over three sites equals its closed form within {gap:.0e}")
    return Finding("problem", name, f"a logistic fit over three sites is {gap:.3g} off its closed form", _REINSTALL)


_Alarm = tuple[int, tuple[int, ...]] | None  # in which round, and whom it named


def _judged(name: str, seen: _Alarm, known: _Alarm, quiet: _Alarm) -> Finding:
    if quiet is not None:
        return Finding("problem", name, f"an honest run raised an alarm in round {quiet[0]}", _REINSTALL)
    if seen != known:
        said = "no alarm" if seen is None else f"an alarm in round {seen[0]} that named {_listed(seen[1])}"
        wanted = "" if known is None else f"; known are round {known[0]} and {_listed(known[1])}"
        return Finding("problem", name, f"a seeded attack gave {said}{wanted}", _REINSTALL)
    words = f"alarm in round {seen[0]} naming {_listed(seen[1])}, as known" if seen else ""
    return Finding("ok", name, f"{words}; no alarm in the honest twin")


def _monitor_run(attacked: bool) -> _Alarm:
    dim, tau, eta = 3, 10, 0.05
    lin = linearization(hessians=[np.eye(dim)] * _CLIENTS, covariances=[np.eye(dim)] * _CLIENTS)
    monitor = Monitor(lin, constant(eta), sync_every=tau, start=np.zeros(dim))
    noise, mean = _normals("monitor", 60, tau, _CLIENTS, dim), np.zeros(dim)
    for number, steps in zip(count(1), noise, strict=False):
        target = np.zeros((_CLIENTS, dim))
        if attacked and number > 40:
            target[list(_BAD)] = 1.0
        uploads = np.tile(mean, (_CLIENTS, 1))
        for step in steps:
            uploads = uploads - eta * (uploads - target + step)
        mean = uploads.mean(axis=0)
        monitor.update(mean, clients=uploads)
    if monitor.alarm is None:
        return None
    return monitor.alarm.round, monitor.suspects().malicious


def _client_run(attacked: bool) -> _Alarm:
    dim, rounds = 40, 30
    own, noise = _normals("own", _CLIENTS, dim), _normals("clients", rounds, _CLIENTS, dim)
    monitor = ClientMonitor(horizon=100, seed=0)
    for number, drawn in zip(count(1), noise, strict=False):
        moves = own + 0.5 * drawn
        if attacked and number > 20:
            moves[list(_BAD)] *= -3.0
        verdict = monitor.update(moves)
        if verdict.alarm:
            return verdict.round, tuple(sorted(int(name) for name in verdict.suspects))
    return None


def _normals(seed: str, *shape: int) -> FloatArray:
    """Standard normal numbers."""
    drawn = np.frombuffer(hashlib.shake_256(seed.encode()).digest(8 * math.prod(shape)), dtype="<u8")
    return np.asarray(special.ndtri(((drawn >> 11) + 0.5) * 2.0**-53)).reshape(shape)


def _listed(clients: tuple[int, ...]) -> str:
    return "nobody" if not clients else "clients " + " and ".join(map(str, clients))
