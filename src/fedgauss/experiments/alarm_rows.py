r"""From first alarms to rows: how often, how late, and which onset they name.

The paper's probability of detection counts every run with an alarm, whenever it comes, and its means are over those
runs. So do the measures of `PRINTED`. Of an attack after step t_0 there are four more: an alarm at or before t_0 cannot
be due to it, so power counts runs whose first alarm comes after t_0, and delay T - t_0 and miss |s - t_0| are means
over these. T is the step of the alarm, s the onset it names: the last step before the change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedgauss.detect.paper_rule import Alarms
from fedgauss.sweep.cell import Row

DETECTED = "P(detect)"
ONSET = ("s_hat mean", "s_hat low", "s_hat high")
ALARM = ("T_hat mean", "T_hat low", "T_hat high")
PRINTED = (DETECTED, *ONSET, *ALARM)
EARLY, POWER, DELAY, MISS = "early alarms", "power", "delay", "onset miss"
TRACE = "trace"  # of one run over time, a row for each step: it is for pictures

_POINTS = (2.5, 97.5)  # per cent, between which the paper's intervals lie
_RESAMPLED = 200  # times, for the error of these points
_FEWEST = 2  # alarms from which a mean has an error


def alarm_rows(base: Row, alarms: Alarms, attacked_after: int | None) -> list[Row]:
    """Rows of one rule on one set of runs; `base` says which. `attacked_after` is t_0, None for honest runs.

    A mean over too few runs to have an error is left out.
    """
    step, onset = alarms
    alarmed = step > 0
    rows = [_row(base, DETECTED, *_share(alarmed))]
    for names, values in ((ONSET, onset[alarmed]), (ALARM, step[alarmed])):
        if len(values) >= _FEWEST:
            found = (_mean(values), *_points(values))
            rows += [_row(base, name, *pair) for name, pair in zip(names, found, strict=True)]
    if attacked_after is None:
        return rows
    hit = step > attacked_after
    rows += [_row(base, EARLY, *_share(alarmed & ~hit)), _row(base, POWER, *_share(hit))]
    if hit.sum() >= _FEWEST:
        rows.append(_row(base, DELAY, *_mean(step[hit] - attacked_after)))
        rows.append(_row(base, MISS, *_mean(np.abs(onset[hit] - attacked_after))))
    return rows


def _row(base: Row, measure: str, estimate: float, error: float) -> Row:
    return base | {"measure": measure, "estimate": estimate, "error": error}


def _share(runs: npt.NDArray[np.bool_]) -> tuple[float, float]:
    share = float(runs.mean())
    return share, float(np.sqrt(share * (1.0 - share) / len(runs)))


def _mean(values: npt.NDArray[np.int64]) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _points(values: npt.NDArray[np.int64]) -> list[tuple[float, float]]:
    """Both percentiles, with standard errors over resampled runs; the choice of these is always the same."""
    chosen = np.random.default_rng(0).integers(len(values), size=(_RESAMPLED, len(values)))
    errors = np.percentile(values[chosen], _POINTS, axis=1).std(axis=1, ddof=1)
    return [(float(point), float(error)) for point, error in zip(np.percentile(values, _POINTS), errors, strict=True)]
