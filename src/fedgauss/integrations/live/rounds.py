"""One round of a run as its log tells of it, checked before anybody uses it, and which client a name means."""

import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray

MOST_BYTES = 8 * 2**20  # of one round as JSON
_LONGEST = 200  # characters of a name
MOST_NAMES = 10_000  # in a run, so that a hostile log cannot fill the memory
_LAST = 10**12  # rounds and steps count up to here


class LoggedRound(NamedTuple):  # made in a third of the time of a dataclass, and there may be millions
    """What is known after a synchronisation.

    number        the round, counted from 1
    parameters    Y, the clients' mean after it                                         (d,)
    step          the step of SGD after which it was taken; number * sync_every if None
    participants  names of those who took part; everybody if None
    clients       what they uploaded, before any averaging, by name                     (d,) each
    all_clients   the names of all clients, in the monitor's order
    """

    number: int
    parameters: FloatArray
    step: int | None = None
    participants: tuple[str, ...] | None = None
    clients: Mapping[str, FloatArray] | None = None
    all_clients: tuple[str, ...] | None = None

    def is_plain(self, number: int, step: int, sync_every: int) -> bool:
        """Whether it is this round, after this step, and tells of nothing but parameters."""
        if self.number != number or (number * sync_every if self.step is None else self.step) != step:
            return False
        return self.participants is None and self.clients is None and self.all_clients is None


def round_from_json(text: bytes) -> LoggedRound:
    """The round in a line or body of JSON; a ValueError says what is wrong with it.

        {"round": 7, "parameters": [0.1, -0.3], "participants": ["a", "b"], "clients": {"a": [0.2, -0.1], ...}}

    NaN and Infinity are numbers here: whether such an update may count is for the monitor to say.
    """
    if text.count(b'"') == 4 and (plain := _plain(text)) is not None:  # most rounds: two names, and no other words
        return plain
    said = object_from_json(text)
    for name in ("round", "parameters"):
        if name not in said:
            raise ValueError(f"a round must have {name!r}; this one has {short(sorted(said))}.")
    return LoggedRound(
        count("round", said["round"]),
        numbers("parameters", said["parameters"]),
        None if said.get("step") is None else count("step", said["step"]),
        _named(said, "participants"),
        _uploads(said.get("clients")),
        _named(said, "all_clients"),
    )


def _plain(text: bytes) -> LoggedRound | None:
    """A round that tells of nothing but parameters, in half the time; None where it must be read with more care.

    With four quotation marks an object has two names at most, and none twice where two are left.
    """
    try:
        said, end = _scanned(text.decode(), 0)
        if end != len(text) or len(said) != 2 or len(text) > MOST_BYTES:
            return None
        return LoggedRound(count("round", said["round"]), numbers("parameters", said["parameters"]))
    except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
        return None


def object_from_json(text: bytes) -> dict[str, Any]:
    """The JSON object in a line or body, in which every name occurs once; a ValueError says what is wrong with it."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"a round must have at most {MOST_BYTES:,} bytes; this one has more. Log fewer parameters?")
    try:
        said = _decoded(text.decode("utf-8-sig" if text.startswith(b"\xef\xbb\xbf") else "utf-8"))
    except _Repeated:
        raise
    except RecursionError:
        raise ValueError("a round must not be nested this deeply; it holds lists of numbers by name.") from None
    except ValueError as error:  # not UTF-8, not JSON, or an integer with thousands of digits
        raise ValueError(f"a round must be one JSON object; {error}.") from None
    if not isinstance(said, dict):
        raise ValueError(f"a round must be a JSON object; got {short(said)}.")
    return said


class _Repeated(ValueError):
    pass


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) != len(pairs):
        raise _Repeated("a name must occur once in an object; one is there twice.")
    return held


_scanned: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_DECODER = json.JSONDecoder(object_pairs_hook=_once_each)  # making one takes as long as reading a short line


def _decoded(text: str) -> Any:
    """What `json.loads` says, without looking for spaces around it where there are none."""
    if text[:1] != "{":
        return _DECODER.decode(text)
    said, end = _DECODER.raw_decode(text)
    return said if end == len(text) else _DECODER.decode(text)


def count(name: str, value: Any) -> int:
    """A number of a round or step."""
    if type(value) is not int or not 1 <= value <= _LAST:
        raise ValueError(f"{name} must be a whole number from 1 to {_LAST:.0e}; got {short(value)}.")
    return value


_NUMBERS = frozenset((float, int))


def numbers(name: str, value: Any) -> FloatArray:
    """A list of numbers as an array."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} must be a list of numbers; got {short(value)}.")
    if not _NUMBERS.issuperset(map(type, value)):
        wrong = next(x for x in value if type(x) not in _NUMBERS)
        raise ValueError(f"{name} must be a list of numbers; {short(wrong)} is none.")
    try:
        return np.array(value, dtype=np.float64)
    except OverflowError:
        raise ValueError(f"{name} must be numbers below 1e308; one is larger.") from None


def _named(said: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    return None if said.get(field) is None else checked_names(field, said[field])


def _uploads(value: Any) -> dict[str, FloatArray] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise ValueError(f"clients must be an object of lists of numbers by name; got {short(value)}.")
    return {name: numbers("what a client uploaded", value[name]) for name in checked_names("clients", [*value])}


def short(value: Any) -> str:
    """A foreign value in few plain characters, for a message."""
    return ascii(_SHORT.repr(value))[1:-1]


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 3, 3


def checked_names(field: str, value: Any) -> tuple[str, ...]:
    """Names from a list of words or whole numbers, each there once. Anything printable may be a name."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{field} must be a list of client names, at least one; got {short(value)}.")
    if len(value) > MOST_NAMES:
        raise ValueError(f"{field} must be at most {MOST_NAMES:,} clients; got {len(value):,}.")
    names = tuple(_name(field, name) for name in value)
    if len(set(names)) != len(names):
        raise ValueError(f"{field} must name each client once; one is there twice.")
    return names


def _name(field: str, value: Any) -> str:
    if type(value) is int and abs(value) < 2**64:
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise ValueError(f"{field} must be words of 1 to {_LONGEST} printable characters; got {short(value)}.")
    return value


def with_name(note: str, everybody: Sequence[str] | None) -> str:
    """The monitor's words with a client's name in place of its number."""
    if everybody is None:
        return note
    return re.sub(r"(?<=client )\d+", lambda found: short(everybody[int(found[0])]), note)


class ClientNames:
    """Which name is which of the monitor's K clients: the order of all_clients, or of the first complete uploads.

    Who took part may be written in any order, and says nothing of it.
    """

    def __init__(self, n_clients: int) -> None:
        self.n_clients = n_clients
        self.names: tuple[str, ...] | None = None

    def called(self, *lists: Sequence[str] | None) -> tuple[str, ...] | None:
        """The names of all clients as known after these lists; nothing is remembered."""
        if self.names is not None:
            return self.names
        return next((tuple(names) for names in lists if names is not None and len(names) == self.n_clients), None)

    def places(self, everybody: tuple[str, ...] | None, names: Sequence[str]) -> list[int]:
        """Where these clients stand in the monitor's order."""
        if len(names) > self.n_clients:
            raise ValueError(f"a round must name at most the monitor's {self.n_clients} clients; got {len(names)}.")
        if everybody is None:
            raise ValueError(
                f"who is who must be known before a round names some clients only; this one names {len(names)} of "
                f"{self.n_clients}. Give all_clients, in the monitor's order, with the first round."
            )
        known = {name: k for k, name in enumerate(everybody)}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"clients must be among the {self.n_clients} known ones; {short(unknown[0])} is not.")
        return [known[name] for name in names]

    def table(self, everybody: tuple[str, ...] | None, rows: dict[str, FloatArray], dim: int) -> FloatArray:
        """What clients uploaded, (K, d), NaN for those who did not."""
        held = np.full((self.n_clients, dim), np.nan)
        for k, (name, row) in zip(self.places(everybody, [*rows]), rows.items(), strict=True):
            if row.shape != (dim,):
                raise ValueError(f"client {short(name)} must upload {dim} numbers, one a parameter; got {len(row)}.")
            held[k] = row
        return held
