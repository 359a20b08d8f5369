"""Watch a Flower run: `pip install 'fedgauss[flower]'`.

    from fedgauss.integrations.flower import Alarmed, Monitored

    strategy = Monitored(FedAvg(...), monitor, on_alarm="stop")
    try:
        result = strategy.start(grid, initial_arrays, num_rounds=100)
    except Alarmed as alarm:
        print(alarm)                            # when it began, and the round to go back to
        arrays = alarm.rollback.arrays

What watches is `Clients`, for any model and strategy, which can also go on without clients that turned bad:

    strategy = Monitored(FedAvg(...), Clients(alpha=0.05), on_alarm="exclude")

or a `fedgauss.Monitor`, or one of three that make their own after a warm-up:

    Reported    clients report Hessian and gradient covariance, by the mod `report_moments`
    Chained     clients run Gaussian chains, by the mod `run_chains`: no covariance leaves a client
    ServerOnly  clients report nothing; for many parameters, momentum, Adam, or a rate that is not known

Under secure aggregation, where the server reads sums over groups of clients alone and names who changes all the same:

    strategy = GroupSums(FedAvg(...), size=4)                         # and ClientApp(mods=[group_sums_mod(size=4)])

A run ends early, with its results, when a rule says so:

    strategy = Monitored(FedAvg(...), Clients(), stop_when=Plateau("accuracy", min_gain=0.01))
"""

from fedgauss.integrations.extras import needed

needed("flwr.serverapp", extra="flower")

from fedgauss.integrations.flower.alarmed import Alarmed  # noqa: E402
from fedgauss.integrations.flower.clients import Clients  # noqa: E402
from fedgauss.integrations.flower.group_sums import GroupSums  # noqa: E402
from fedgauss.integrations.flower.group_sums_mod import group_sums_mod  # noqa: E402
from fedgauss.integrations.flower.kept import GoodRound  # noqa: E402
from fedgauss.integrations.flower.mods import report_moments, report_partition, run_chains  # noqa: E402
from fedgauss.integrations.flower.monitored import Monitored  # noqa: E402
from fedgauss.integrations.flower.server_only import ServerOnly, coordinates, random_projection  # noqa: E402
from fedgauss.integrations.flower.warm_up import Chained, Reported  # noqa: E402

__all__ = [
    "Alarmed",
    "Chained",
    "Clients",
    "GoodRound",
    "GroupSums",
    "Monitored",
    "Reported",
    "ServerOnly",
    "coordinates",
    "group_sums_mod",
    "random_projection",
    "report_moments",
    "report_partition",
    "run_chains",
]
