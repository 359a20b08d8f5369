"""Tell when clients turned malicious, at a false-alarm rate that holds: statistics, thresholds and the monitor.

`ClientMonitor` watches the clients of any model while it learns. `Monitor` is sharp for convex models near their
optimum; what it looks for are channels (`MeanChannel`, `SpreadChannel`, `QuietChannel`, `ClientChannel`, or your own
`Channel`), and `watch_runs` is the monitor over many finished runs. There are also the paper's rule and its repair
(`Bootstrap`, `paper_boundary`, `studentised_boundary`, `CusumRule`), the exact R_t (`Cusum`, `cusum_paths`), a mixture
e-process (`EProcess`), and `attribute` for the clients behind an alarm.
"""

from fedgauss.detect.attribution import Attribution, attribute
from fedgauss.detect.channel import Channel, Conditions, Peak, RoundSeen
from fedgauss.detect.client_channel import ClientChannel
from fedgauss.detect.client_rounds import client_innovations
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.cusum import Cusum, cusum_paths
from fedgauss.detect.eprocess import EProcess, e_process_paths
from fedgauss.detect.group_sums import GroupMonitor
from fedgauss.detect.innovations import server_only
from fedgauss.detect.mean_channel import MeanChannel
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.paper_rule import (
    Bootstrap,
    CusumRule,
    family_wise_rate,
    first_alarms,
    paper_boundary,
    studentised_boundary,
)
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.spread_channel import QuietChannel, SpreadChannel
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watch import CHANNELS_WITH_UPLOADS, DEFAULT_CHANNELS

__all__ = [
    "CHANNELS_WITH_UPLOADS",
    "DEFAULT_CHANNELS",
    "Attribution",
    "Bootstrap",
    "Boundary",
    "Channel",
    "ClientChannel",
    "ClientMonitor",
    "ClientVerdict",
    "Conditions",
    "Cusum",
    "CusumRule",
    "EProcess",
    "GroupMonitor",
    "MeanChannel",
    "Monitor",
    "Peak",
    "QuietChannel",
    "RoundSeen",
    "SpreadChannel",
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
