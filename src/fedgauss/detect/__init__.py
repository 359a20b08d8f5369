"""Tell when clients turned malicious, at a false-alarm rate that holds: statistics, thresholds and the monitor.

`Monitor` is the default. Beside it stand the paper's rule and its repair (`Bootstrap`, `paper_boundary`,
`studentised_boundary`, `CusumRule`), the exact R_t (`Cusum`, `cusum_paths`), a mixture e-process (`EProcess`), and
`attribute` for the clients behind an alarm. `watch_runs` is the monitor over many finished runs.
"""

from __future__ import annotations

import importlib
from typing import Any

# Loaded on first use: the bootstrap needs JAX, which nothing else here does.
_LAZY = {
    "Attribution": "attribution",
    "Bootstrap": "paper_rule",
    "Boundary": "thresholds",
    "Cusum": "cusum",
    "CusumRule": "paper_rule",
    "EProcess": "eprocess",
    "Monitor": "monitor",
    "Verdict": "verdict",
    "WatchedRuns": "runs",
    "attribute": "attribution",
    "boundary": "thresholds",
    "client_innovations": "client_innovations",
    "cusum_paths": "cusum",
    "e_process_paths": "eprocess",
    "family_wise_rate": "paper_rule",
    "first_alarms": "paper_rule",
    "paper_boundary": "paper_rule",
    "server_only": "server_only",
    "studentised_boundary": "paper_rule",
    "watch_runs": "runs",
}

__all__ = [
    "Attribution",
    "Bootstrap",
    "Boundary",
    "Cusum",
    "CusumRule",
    "EProcess",
    "Monitor",
    "Verdict",
    "WatchedRuns",
    "attribute",
    "boundary",
    "client_innovations",
    "cusum_paths",
    "e_process_paths",
    "family_wise_rate",
    "first_alarms",
    "paper_boundary",
    "server_only",
    "studentised_boundary",
    "watch_runs",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fedgauss.detect' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedgauss.detect.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
