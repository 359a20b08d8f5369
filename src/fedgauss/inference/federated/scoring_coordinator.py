"""The coordinator of an exact fit: totals over sites, a round each, until the estimate is found."""

import hashlib
from dataclasses import replace
from typing import Literal

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.rows import Goodness, Sums
from fedgauss.inference.errors import Errors
from fedgauss.inference.exact import Added, Final, Own
from fedgauss.inference.federated.conversation import Conversation, LostSite, Tick
from fedgauss.inference.federated.lines import Message, encoded
from fedgauss.inference.federated.scoring_site import from_message
from fedgauss.inference.fit import Fit
from fedgauss.inference.fit_exact import fit_of_sites
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.preparation import Location

_UNLIKELY = -(2.0**94)  # a log-likelihood that says no more than that


class RemoteSites:
    """Sites that keep their rows, as `exact_fit` sees them."""

    def __init__(self, talk: Conversation, tick: Tick) -> None:
        self._talk, self._tick, self._rounds = talk, tick, 0

    def sums(self, theta: FloatArray) -> Sums:
        """For scoring."""
        told = self._total("sums", {"theta": theta}, Sums)
        if self._rounds == 1 and not np.any(told.information) and told.log_likelihood < _UNLIKELY:
            raise ValueError(
                "sites do not tell their sums where this fit starts, since few of their rows would count there. Is the "
                "outcome rare at every site? Merge small sites, or use fewer columns."
            )
        return told

    def final(self, theta: FloatArray) -> Final:
        """At the estimate."""
        return self._total("final", {"theta": theta}, Final)

    def goodness(self, theta: FloatArray, dispersion: float) -> Goodness:
        """With this dispersion."""
        return self._total("goodness", {"theta": theta, "dispersion": dispersion}, Goodness)

    def own(self, start: FloatArray) -> list[Own]:
        """Each site's own estimate; none in a masked fit."""
        if self._talk.masked:
            return []
        return [from_message(Own, reply) for reply in self._talk.all("own", {"theta": start})]

    def _total(self, order: str, content: Message, kind: type[Added]) -> Added:
        self._rounds += 1
        self._tick("rounds", self._rounds, max(12, self._rounds + 1))
        return from_message(kind, self._talk.total(order, content))


def fit_remotely(
    talk: Conversation, spec: Model, data: ModelData, columns: Location, start: FloatArray, errors: Errors,
    level: float, ridge: float, lost: Literal["stop", "leave"], tick: Tick,
) -> Fit:  # fmt: skip
    """The exact fit of sites that have agreed on their columns.

    When a site is left behind, the others begin again: sums with and without it do not compare.
    """
    notes: list[str] = []
    began = False
    while True:
        try:
            if not began:
                began = True  # those that are left have their units when one is lost here
                talk.all("units", {"means": columns.mean, "scales": columns.scale})
            talk.about(_model(spec, data, columns))
            found = fit_of_sites(RemoteSites(talk, tick), data, columns, start, errors, level, ridge)
        except LostSite as gone:
            if lost == "stop" or len(talk.sites) <= 2:
                raise
            if spec.site_effects:
                raise LostSite(gone.site, f"{gone} Its own effect cannot be fitted without it: start again.") from gone
            notes.append(f"{gone} The fit is of the other sites.")
            data = _without(data, gone.site)
            talk.leave(gone.site)
        else:
            return found.with_notes(*notes)


def _without(data: ModelData, site: str) -> ModelData:
    """The model of all sites but one."""
    kept = [k for k, name in enumerate(data.clients) if name != site]
    clients = tuple(data.clients[k] for k in kept)
    return replace(data, clients=clients, counts=data.counts[kept], dropped=data.dropped[kept])


def _model(spec: Model, data: ModelData, columns: Location) -> str:
    """What is fitted to whose rows, as a hash: rounds of another model are no use."""
    said = {
        **spec.wire(), "family": repr(data.family), "names": list(data.all_names), "sites": list(data.clients),
        "rows": np.asarray(data.counts, dtype=float), "means": columns.mean, "scales": columns.scale,
    }  # fmt: skip
    return hashlib.sha256(encoded(said).encode()).hexdigest()
