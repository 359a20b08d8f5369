"""What a run is: a model, the names of the sites, whether their sums are masked, and noisy. Nobody chooses more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

from fedgauss._types import FloatArray
from fedgauss.federated.fixed_point import Shapes
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_families import private_name
from fedgauss.federated.refusal import Refused
from fedgauss.federated.roster import MOST_SITES, is_name
from fedgauss.federated.wire import Message, digest
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD

_PRIVATE = ("target", "features", "formula", "family", "merged", "errors")  # what a private fit may choose


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
    privacy : Privacy, optional
        What the run may tell of any one row; totals are then noisy.
    sgd : SGD, optional
        Settings of a pass of SGD, which sites make in place of scoring.
    """

    model: Model
    sites: tuple[str, ...]
    masked: bool
    asker: str
    nonce: str
    privacy: Privacy | None = None
    sgd: SGD | None = None

    def __post_init__(self) -> None:
        if self.sgd is not None:
            _check_sgd(self.sgd, self)
        if self.privacy is not None:
            _check_private(self.model, self.masked)

    def to_wire(self) -> Message:
        """As plain fields."""
        return {
            "model": self.model.wire(), "sites": list(self.sites), "masked": self.masked, "asker": self.asker,
            "nonce": self.nonce, "privacy": None if self.privacy is None else self.privacy.to_wire(),
            "sgd": None if self.sgd is None else self.sgd.to_wire(len(self.sites)),
        }  # fmt: skip

    @classmethod
    def from_wire(cls, held: Any) -> Self:
        """From plain fields that somebody else sent."""
        kinds = {"model": dict, "sites": list, "masked": bool, "asker": str, "nonce": str, "privacy": dict, "sgd": dict}
        if not isinstance(held, dict) or held.keys() != kinds.keys():
            raise Refused(
                f"a plan must have {', '.join(kinds)}; this one has other fields. Is fedgauss the same everywhere?"
            )
        for name, kind in kinds.items():
            if type(held[name]) is not kind and not (name in ("privacy", "sgd") and held[name] is None):
                raise Refused(f"{name!r} of a plan must be {kind.__name__}; got {type(held[name]).__name__}.")
        for name in ("asker", "nonce"):
            if not is_name(held[name]):
                raise Refused(f"{name!r} of a plan must be short text that can be printed; this one is not.")
        try:
            model = Model.from_wire(held["model"])
            privacy = None if held["privacy"] is None else Privacy.from_wire(held["privacy"])
            sgd = None if held["sgd"] is None else SGD.from_wire(held["sgd"])
        except ValueError as error:
            raise Refused(str(error)) from error
        except (TypeError, AttributeError, OverflowError, KeyError) as error:  # a part of another kind than any has
            raise Refused("the parts of a plan must be as fedgauss sends them; those of this one are not.") from error
        return cls(model, _names(held["sites"]), held["masked"], held["asker"], held["nonce"], privacy, sgd)

    @cached_property
    def run(self) -> str:
        """The name of the run, which every entry of its roster is signed for."""
        return digest({"what": "fedgauss plan 1", **self.to_wire()})

    @property
    def statement(self) -> bytes:
        """What who asks signs."""
        return f"fedgauss plan {self.run}".encode()

    @cached_property
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


def total_of(heard: Heard) -> dict[str, FloatArray]:
    """The totals, which there must be."""
    if heard.total is None:
        raise ValueError("a site could not add up its columns: numbers must be finite and below 2^96 (7.9e28).")
    return heard.total


def _names(sites: Sequence[Any]) -> tuple[str, ...]:
    if not 1 <= len(sites) <= MOST_SITES or not all(is_name(name) for name in sites):
        raise Refused(f"a run must have 1 to {MOST_SITES:,} sites, by short names that can be printed.")
    if list(sites) != sorted(set(sites)):
        raise Refused("the sites of a run must be sorted by name, each there once; these are not.")
    return tuple(sites)


def _check_sgd(sgd: SGD, plan: Plan) -> None:
    """Refuse what a pass between sites cannot have."""
    if plan.privacy is not None:
        raise Refused("a private fit is by scoring. Leave the solver, or privacy, out.")
    try:
        sgd.check_model(plan.model)
        sgd.check_between(len(plan.sites), plan.masked)
    except ValueError as error:
        raise Refused(str(error)) from error


def _check_private(model: Model, masked: bool) -> None:
    """Refuse what cannot be private yet."""
    if not masked:
        raise Refused("privacy needs masks, inside which sites share out the noise. Use --masked (masked=True).")
    if private_name(model.family) is None:
        raise Refused(
            "a private fit must be of family gaussian, binomial or poisson, by name; this one is not. Use "
            "family='gaussian', or leave --epsilon (privacy) out."
        )
    for part in fields(Model):
        default = part.default if part.default_factory is MISSING else part.default_factory()
        if part.name not in _PRIVATE and getattr(model, part.name) != default:
            raise Refused(f"a private fit cannot have {part.name} yet. Leave it out, or leave --epsilon (privacy) out.")
    if model.errors not in ("HC0", "model"):
        raise Refused(f"errors of a private fit must be those of the model; got {model.errors!r}. Leave errors out.")
