"""Conformance batteries: whether a part of your own keeps the rules that the package relies on.

    from fedgauss.testing import check_problem

    print(check_problem(MyProblem(...)))

Each kind of part has a `check_...` that runs every rule and raises one `ConformanceError` listing all that are broken,
and a `checks_for_...` that returns the rules one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauss._lazy import lazy
from fedgauss.testing.battery import Check, CheckOutcome, ConformanceError, Report

if TYPE_CHECKING:
    from fedgauss.testing.attack import check_attack, checks_for_attack
    from fedgauss.testing.channel import check_channel, checks_for_channel
    from fedgauss.testing.family import check_family, checks_for_family
    from fedgauss.testing.network import check_network, checks_for_network
    from fedgauss.testing.observer import check_observer, checks_for_observer
    from fedgauss.testing.problem import check_problem, checks_for_problem
    from fedgauss.testing.sink import check_sink, checks_for_sink

__all__ = [
    "Check",
    "CheckOutcome",
    "ConformanceError",
    "Report",
    "check_attack",
    "check_channel",
    "check_family",
    "check_network",
    "check_observer",
    "check_problem",
    "check_sink",
    "checks_for_attack",
    "checks_for_channel",
    "checks_for_family",
    "checks_for_network",
    "checks_for_observer",
    "checks_for_problem",
    "checks_for_sink",
]

_KINDS = ("attack", "channel", "family", "network", "observer", "problem", "sink")
_MODULES = {kind: f"check_{kind} checks_for_{kind}" for kind in _KINDS}
if not TYPE_CHECKING:  # for which all names are above
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
