"""What is measured of a detector on attacked runs, and how two of them compare on the same runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from rival_data import N_STEPS, Array
from rival_detectors import LEVEL, Alarms, exceeded_by


class Attack(NamedTuple):
    """Half of the clients shift by `shift` in each coordinate after step `after`."""

    shift: float
    after: int = 250

    @property
    def label(self) -> str:
        """As it stands in tables."""
        return f"mu = {self.shift:g}, t_0 = {self.after}"


class Mean(NamedTuple):
    """A mean over runs with its standard error."""

    value: float
    error: float


def mean_of(values: Array) -> Mean | None:
    """None where there is hardly a run to average over."""
    if len(values) < 2:
        return None
    return Mean(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))


def detected(alarms: Alarms, attack: Attack) -> Array:
    """Whether the first alarm comes after the attack; a run that had one before does not count, (R,)."""
    return alarms.step > attack.after


def restricted_delays(alarms: Alarms, attack: Attack) -> Array:
    """Steps from the attack to the first alarm, and to the end of the run where there is none, (R,)."""
    return np.where(detected(alarms, attack), alarms.step, N_STEPS) - attack.after


def onset_errors(onset: Array, attack: Attack) -> Array:
    """|first step named - first step attacked|."""
    return np.abs(onset - (attack.after + 1))


def measured(alarms: Alarms, attack: Attack) -> dict[str, Mean | None]:
    """Power, early alarms, delay among detected runs, delay up to the end over all runs, onset error."""
    hit = detected(alarms, attack)
    early = (alarms.step > 0) & ~hit
    onset = None if alarms.onset is None else mean_of(onset_errors(alarms.onset[hit], attack))
    return {
        "power": mean_of(hit),
        "early": mean_of(early),
        "delay": mean_of(alarms.step[hit] - attack.after),
        "restricted delay": mean_of(restricted_delays(alarms, attack)),
        "onset error": onset,
    }


def compared(default: Alarms, rival: Alarms, attack: Attack) -> dict[str, Mean | None]:
    """Default minus rival, run by run; `delay` over the runs that both detect."""
    ours, theirs = detected(default, attack), detected(rival, attack)
    both = ours & theirs
    early = [(alarms.step > 0) & (alarms.step <= attack.after) for alarms in (default, rival)]
    return {
        "power": mean_of(ours.astype(float) - theirs),
        "early": mean_of(early[0].astype(float) - early[1]),
        "delay": mean_of((default.step - rival.step)[both]),
        "restricted delay": mean_of(restricted_delays(default, attack) - restricted_delays(rival, attack)),
    }


def tuning_errors(null: list[Array], seen: list[Array], ends: Array, attack: Attack) -> dict[str, float]:
    """How far each comparison moves when the honest runs to tune on are drawn again: bootstrap standard deviations.

    `null` and `seen` hold the scores (R, J) of the default and of the rival, on honest and on attacked runs.
    """
    generator = np.random.default_rng(1)
    found: list[dict[str, Mean | None]] = []
    for _ in range(200):
        drawn = generator.integers(len(null[0]), size=len(null[0]))
        alarms = []
        for honest, attacked in zip(null, seen, strict=True):
            loud = attacked > exceeded_by(honest.max(axis=1)[drawn], LEVEL)
            alarms.append(Alarms(np.where(loud.any(axis=1), ends[loud.argmax(axis=1)], 0), None))
        found.append(compared(*alarms, attack))
    return {name: float(np.std([entry[name].value for entry in found if entry[name]])) for name in found[0]}


def widened(comparison: dict[str, Mean | None], errors: dict[str, float]) -> dict[str, Mean | None]:
    """Standard errors with those of tuning added in."""
    return {
        name: mean and Mean(mean.value, float(np.hypot(mean.error, errors[name]))) for name, mean in comparison.items()
    }


def standing(difference: Mean | None, smaller_is_better: bool) -> str:
    """Where the default stands: ahead, level or behind, by two standard errors."""
    if difference is None:
        return "not comparable"
    lead = -difference.value if smaller_is_better else difference.value
    if abs(lead) <= 2 * difference.error:
        return "level"
    return "ahead" if lead > 0 else "behind"


def standings(comparison: dict[str, Mean | None]) -> dict[str, str]:
    """In power, in delay over the runs that both detect, and in delay over all, up to the end of the run."""
    names = ("power", "delay", "restricted delay")
    return {name: standing(comparison[name], smaller_is_better=name != "power") for name in names}


def as_plain(value: Any) -> Any:
    """For JSON: means as pairs of numbers."""
    if isinstance(value, Mean):
        return {"mean": value.value, "se": value.error}
    if isinstance(value, dict):
        return {name: as_plain(entry) for name, entry in value.items()}
    return value
