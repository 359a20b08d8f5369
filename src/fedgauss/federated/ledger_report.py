"""What `fedgauss site ledger FILE` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from fedgauss.federated.budget import Budget
from fedgauss.federated.history import History
from fedgauss.federated.keys import fingerprint
from fedgauss.federated.privacy import Cost, Privacy, compose, remaining


def report_lines(history: History, budget: Budget, privacy: Privacy | None) -> list[str]:
    """What was answered, and what is left of the budgets, a line each."""
    lines = [f"{'time':<25}  {'run':<12}  {'result':<14}  {'sites':>5}  {'parameters':>10}  {'matrices':>8}  columns"]
    for run in history.runs:
        names = ", ".join(dict.fromkeys(one.name for one in run.told)) or run.privacy
        result = run.result if run.counts else f"{run.result} again"
        lines.append(
            f"{run.time:<25}  {run.name[:12]:<12}  {result:<14}  {len(run.sites):>5}  {run.parameters:>10}  "
            f"{run.matrices:>8}  {names}".rstrip()
        )
        lines += [f"{'':<27}{reason}" for reason in run.reasons]
    for name, most in asdict(budget).items():
        lines.append(f"{name}: {history.spent[name]} of {most}, {max(0, most - history.spent[name])} left")
    if privacy is not None:
        told = f"{compose(history.costs, (), privacy.delta).epsilon:.3g}" if history.costs else "0"
        left = left_words(privacy, history.costs) if history.costs else "all left"
        lines.append(f"epsilon: {told} of {privacy.epsilon:g} at delta {privacy.delta:g}. {left}")
    for name, key in history.askers.items():
        lines.append(f"asks     {name:<20} {fingerprint(key)}")
    for key, (name, _, length) in history.peers.items():
        lines.append(f"site     {name:<20} {fingerprint(key)}  its ledger had {length} lines")
    if not history.consents:
        lines.append("Consent is withdrawn: this table answers nothing.")
    return lines


def left_words(budget: Privacy, spent: Sequence[Cost]) -> str:
    """The epsilon of one more run, in words."""
    left = remaining(budget, spent)
    if left is None:
        return "Nothing is left for another run"
    return f"Another run may have epsilon {math.floor(100.0 * left.epsilon) / 100.0:g} at that delta"
