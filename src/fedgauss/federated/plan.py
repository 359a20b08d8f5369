"""What a run is: a model, the names of the sites, and whether their sums are masked. Nobody chooses anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from fedgauss._types import FloatArray
from fedgauss.federated.layout import Shapes
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import MOST_SITES, is_name
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.model import Model


@dataclass(frozen=True)
class Plan:
    """A run before anybody has signed it.

    Attributes
    ----------
    model : Model
        The regression.
    sites : tuple of str
        Names of the sites, sorted.
    masked : bool
        Whether sums leave sites masked.
    asker : str
        The name of who asks.
    nonce : str
        Different in every run.
    """

    model: Model
    sites: tuple[str, ...]
    masked: bool
    asker: str
    nonce: str

    def to_wire(self) -> Message:
        """As plain fields."""
        return {
            "model": self.model.wire(), "sites": list(self.sites), "masked": self.masked, "asker": self.asker,
            "nonce": self.nonce,
        }  # fmt: skip

    @classmethod
    def from_wire(cls, fields: Any) -> Self:
        """From plain fields that somebody else sent."""
        kinds = {"model": dict, "sites": list, "masked": bool, "asker": str, "nonce": str}
        if not isinstance(fields, dict) or fields.keys() != kinds.keys():
            raise Refused(
                f"a plan must have {', '.join(kinds)}; this one has other fields. Is fedgauss the same everywhere?"
            )
        for name, kind in kinds.items():
            if type(fields[name]) is not kind:
                raise Refused(f"{name!r} of a plan must be {kind.__name__}; got {type(fields[name]).__name__}.")
        for name in ("asker", "nonce"):
            if not is_name(fields[name]):
                raise Refused(f"{name!r} of a plan must be short text that can be printed; this one is not.")
        try:
            model = Model.from_wire(fields["model"])
        except ValueError as error:
            raise Refused(str(error)) from error
        return cls(model, _names(fields["sites"]), fields["masked"], fields["asker"], fields["nonce"])

    @property
    def run(self) -> str:
        """The name of the run, which every entry of its roster is signed for."""
        return digest({"what": "fedgauss plan 1", **self.to_wire()})

    @property
    def statement(self) -> bytes:
        """What who asks signs."""
        return f"fedgauss plan {self.run}".encode()

    @property
    def about(self) -> str:
        """A digest of what is asked of whom: a run that goes on from another has the same."""
        return digest({name: value for name, value in self.to_wire().items() if name not in ("nonce", "asker")})


class Question(NamedTuple):
    """What the program of a run asks of every site, as it follows from all that was told so far."""

    kind: str
    content: dict[str, Any]
    shapes: Shapes  # of the numbers in the answer; without any it is in words


class Heard(NamedTuple):
    """What all sites answered."""

    total: dict[str, FloatArray] | None  # None where a site could not answer
    words: dict[str, Message]  # of each site what is in words
    each: list[dict[str, FloatArray]]  # of each site its own numbers; empty where they are masked


def _names(sites: Sequence[Any]) -> tuple[str, ...]:
    if not 1 <= len(sites) <= MOST_SITES or not all(is_name(name) for name in sites):
        raise Refused(f"a run must have 1 to {MOST_SITES:,} sites, by short names that can be printed.")
    if list(sites) != sorted(set(sites)):
        raise Refused("the sites of a run must be sorted by name, each there once; these are not.")
    return tuple(sites)
