"""The coordinator of an exact fit: sums of sites added up, a round each."""

from fedgauss._types import FloatArray
from fedgauss.families.rows import Goodness, Sums
from fedgauss.inference.exact import Added, Final, total, total_final
from fedgauss.inference.federated.conversation import Conversation, Tick
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.scoring_site import from_message
from fedgauss.inference.preparation import Location


class RemoteSites:
    """Sites that keep their rows, as `exact_fit` sees them."""

    def __init__(self, talk: Conversation, columns: Location, tick: Tick) -> None:
        self._talk, self._tick, self._rounds = talk, tick, 0
        talk.all("units", {"means": columns.mean, "scales": columns.scale})

    def sums(self, theta: FloatArray) -> Sums:
        """For scoring."""
        return total(self._told("sums", {"theta": theta}, Sums))

    def final(self, theta: FloatArray) -> Final:
        """At the estimate."""
        return total_final(self._told("final", {"theta": theta}, Final))

    def goodness(self, theta: FloatArray, dispersion: float) -> Goodness:
        """With this dispersion."""
        return total(self._told("goodness", {"theta": theta, "dispersion": dispersion}, Goodness))

    def _told(self, order: str, content: Message, kind: type[Added]) -> list[Added]:
        self._rounds += 1
        self._tick("rounds", self._rounds, max(12, self._rounds + 1))
        return [from_message(kind, reply) for reply in self._talk.all(order, content)]
