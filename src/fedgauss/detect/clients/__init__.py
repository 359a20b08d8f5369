"""Watch every client of a run, whatever the model: each against the others in the round and against its own past.

A round is reduced to inner products of what clients changed (`sketch`, `features`); the last rounds of a client are
compared with those before them (`surprise`, `watch`); an alarm names clients and an onset (`naming`). `ClientMonitor`
puts it together, at a level that holds over the run.
"""

from fedgauss.detect.clients.compared import Compared, Exclusion
from fedgauss.detect.clients.monitor import ClientMonitor
from fedgauss.detect.clients.verdict import ClientVerdict

__all__ = ["ClientMonitor", "ClientVerdict", "Compared", "Exclusion"]
