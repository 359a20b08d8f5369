"""Watch a Flower run: `pip install 'fedgauss[flower]'`.

    from fedgauss.integrations.flower import Alarmed, Monitored

    strategy = Monitored(FedAvg(...), monitor, on_alarm="stop")
    try:
        result = strategy.start(grid, initial_arrays, num_rounds=100)
    except Alarmed as alarm:
        print(alarm)                            # when it began, and the round to go back to
        arrays = alarm.rollback.arrays

What watches is a `fedgauss.Monitor`, or one of three that make their own after a warm-up:

    Reported    clients report Hessian and gradient covariance, by the mod `report_moments`
    Chained     clients run Gaussian chains, by the mod `run_chains`: no covariance leaves a client
    ServerOnly  clients report nothing; for many parameters, momentum, Adam, or a rate that is not known
"""

from __future__ import annotations

from fedgauss._deprecated import warn_renamed
from fedgauss.integrations.extras import needed

needed("flwr.serverapp", extra="flower")

from fedgauss.integrations.flower.chains import Chained  # noqa: E402
from fedgauss.integrations.flower.mods import report_moments, report_partition, run_chains  # noqa: E402
from fedgauss.integrations.flower.monitored import Monitored  # noqa: E402
from fedgauss.integrations.flower.reports import Reported  # noqa: E402
from fedgauss.integrations.flower.rollback import Alarmed, GoodRound  # noqa: E402
from fedgauss.integrations.flower.server_only import ServerOnly, coordinates, random_projection  # noqa: E402

__all__ = [
    "Alarmed",
    "Chained",
    "GoodRound",
    "Monitored",
    "Reported",
    "ServerOnly",
    "coordinates",
    "random_projection",
    "report_moments",
    "report_partition",
    "run_chains",
]


def __getattr__(name: str) -> type:
    if name != "Good":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_renamed(f"{__name__}.Good", "GoodRound")
    return GoodRound
