"""A check of the table of thresholds that ships with the package."""

from __future__ import annotations

import numpy as np

from fedgauss.detect.thresholds import TABLE_FORMAT, threshold_table
from fedgauss.detect.watch import DEFAULT_CHANNELS
from fedgauss.doctor.finding import Finding

_FIX = "The file detect/thresholds.json is damaged or from another version: reinstall fedgauss."


def thresholds() -> Finding:
    """Whether the table can be read, is of this version, and has rising levels for every channel."""
    name = "thresholds"
    try:
        table = threshold_table()
        if table.get("format") != TABLE_FORMAT:
            return Finding("problem", name, f"format {table.get('format')!r}; needed: {TABLE_FORMAT!r}", _FIX)
        windows = len(table["horizons"]) + len(table["epochs"])
        shape = (len(table["dims"]), len(table["taus"]), windows, len(table["tails"]))
        for channel in [channel.name for channel in DEFAULT_CHANNELS if channel.tabulated]:
            levels = np.array(table[channel], dtype=float)
            if levels.shape != shape or not (np.all(np.diff(levels) >= 0) and np.all(levels >= 0) and levels.any()):
                return Finding("problem", name, f"levels of the channel {channel!r} are not those of a table", _FIX)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Finding("problem", name, f"cannot be read: {error!r}", _FIX)
    dims, taus = table["dims"], table["taus"]
    return Finding("ok", name, f"{TABLE_FORMAT}: up to {dims[-1]} parameters, {taus[0]} to {taus[-1]} steps a round")
