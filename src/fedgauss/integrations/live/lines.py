"""One line of a log, checked before anybody uses it: parameters, or what clients changed, and what goes with them."""

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients import ClientMonitor, Compared, Exclusion
from fedgauss.detect.clients.compared import HOW
from fedgauss.detect.clients.features import WIRE, Feature
from fedgauss.detect.clients.verdict import Name

MOST_BYTES = 8 * 2**20  # of one round as JSON
_LONGEST = 200  # characters of a name
MOST_NAMES = 10_000  # in a run, so that a hostile log cannot fill the memory
MOST_CLIENTS = 1000  # in a run that is watched client by client: products of all pairs are kept for 64 rounds
_LAST = 10**12  # rounds and steps count up to here
_SHOWN = ("accuracy", "loss")  # that the page draws below the clients
_SETTINGS = ("alpha", "horizon", "rate", "population")
_LARGEST = 1e38  # of a product: beyond float32
_ROUNDING = 1e-3  # of float32 sums of thousands
_TINY = 1e-37  # where float32 products vanish
_LONGEST_REASON = 1000  # characters


class Line(NamedTuple):  # made in a third of the time of a dataclass, and there may be millions
    """What a line says, in parts; a part that is not there is None or empty.

    number        of the round, counted from 1
    parameters    Y, the clients' mean after it                                         (d,)
    step          the step of SGD after which it was taken; number * sync_every if None
    participants  names of those who took part; everybody if None
    clients       what they uploaded, before any averaging, by name                     (d,) each
    all_clients   the names of all clients, in the monitor's order
    moves         what clients changed, by name (d,), or what they were compared by
    left_out      who was left out since the last round, and the round whose model the run went on from
    shown         accuracy or loss of the round's model
    refused       why the run itself did not use the round
    settings      alpha, horizon and rate of the run's monitor; there is nothing else in the line then
    """

    number: int = 0
    parameters: FloatArray | None = None
    step: int | None = None
    participants: tuple[str, ...] | None = None
    clients: Mapping[str, FloatArray] | None = None
    all_clients: tuple[str, ...] | None = None
    moves: Mapping[Name, FloatArray] | Compared | None = None
    left_out: tuple[Exclusion, ...] = ()
    shown: Mapping[str, float] | None = None
    refused: str = ""
    settings: Mapping[str, Any] | None = None

    @property
    def tells_of_a_round(self) -> bool:
        """Whether it is a round, or one that was refused, and not a setting or what is shown beside rounds."""
        return self.parameters is not None or self.moves is not None or self.refused != ""

    def is_plain(self, number: int, step: int, sync_every: int) -> bool:
        """Whether it is this round, after this step, and tells of nothing but parameters."""
        if self.number != number or (number * sync_every if self.step is None else self.step) != step:
            return False
        return self.parameters is not None and self[3:] == _NOTHING


_NOTHING = Line()[3:]


def settings_to_json(monitor: ClientMonitor) -> str:
    """The first line of a log, so that whoever follows it judges as the run itself does."""
    return json.dumps({"monitor": {name: getattr(monitor, name) for name in _SETTINGS}})


def round_to_json(number: int, compared: Compared, left_out: tuple[Exclusion, ...]) -> str:
    """A round as one line, exact to the bit; of the products, which are symmetric, the lower half."""
    said: dict[str, Any] = {
        "round": number,
        "clients": list(compared.clients),
        "products": [row[: k + 1].tolist() for k, row in enumerate(compared.products)],
        **{name: [None if math.isnan(x) else x for x in values.tolist()] for name, values in compared.fields.items()},
    }
    if left_out:
        said["left_out"] = [
            {"clients": list(out.clients), "back_to": out.back_to} | ({} if out.how == "excluded" else {"how": out.how})
            for out in left_out
        ]
    return json.dumps(said, allow_nan=False)


def line_from_json(text: bytes, features: Iterable[Feature] = WIRE) -> Line:
    """What a line or body of JSON says; a ValueError says what is wrong with it.

        {"round": 7, "parameters": [0.1, -0.3], "participants": ["a", "b"], "clients": {"a": [0.2, -0.1], ...}}
        {"round": 7, "moves": {"a": [0.1, -0.3], "b": [0.2, -0.1], ...}, "accuracy": 0.91}

    or, as `client_log` writes it, "clients" with "products" and the fields of features in place of "moves". NaN and
    Infinity are numbers here: whether such an update may count is for the monitor to say.
    """
    if text.count(b'"') == 4 and (plain := _plain(text)) is not None:  # most rounds: two names, and no other words
        return plain
    said = object_from_json(text)
    if "monitor" in said:
        return Line(settings=_settings(said["monitor"]))
    if "round" not in said:
        raise ValueError(f"a round must have 'round'; this one has {short(sorted(said))}.")
    number, parts = count("round", said["round"]), dict[str, Any]()
    if "parameters" in said:
        parts = {
            "parameters": numbers("parameters", said["parameters"]),
            "step": None if said.get("step") is None else count("step", said["step"]),
            "participants": _named(said, "participants"),
            "clients": _uploads(said.get("clients")),
            "all_clients": _named(said, "all_clients"),
        }
    if "moves" in said:
        parts["moves"] = _moves(said["moves"])
    elif "products" in said:
        parts |= {"moves": _compared(said, features), "clients": None}
    shown = {name: _shown(name, said[name]) for name in _SHOWN if said.get(name) is not None}
    refused = said.get("refused", "")
    if not isinstance(refused, str) or len(refused) > _LONGEST_REASON:
        raise ValueError(f"refused must be a reason of at most {_LONGEST_REASON} characters; got {short(refused)}.")
    if not (parts or shown or refused):
        raise ValueError(f"a round must have 'parameters', 'moves' or 'products'; this one has {short(sorted(said))}.")
    left_out = _left_out(said.get("left_out"), number)
    return Line(number, **parts, left_out=left_out, shown=shown or None, refused=refused)


def _plain(text: bytes) -> Line | None:
    """A round that tells of nothing but parameters, in half the time; None where it must be read with more care.

    With four quotation marks an object has two names at most, and none twice where two are left.
    """
    try:
        said, end = _scanned(text.decode(), 0)
        if end != len(text) or len(said) != 2 or len(text) > MOST_BYTES:
            return None
        return Line(count("round", said["round"]), numbers("parameters", said["parameters"]))
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


def _settings(value: Any) -> dict[str, Any]:
    """Checked by the monitor that is made of them."""
    if not isinstance(value, dict) or not value.keys() <= set(_SETTINGS):
        raise ValueError(f"monitor must be an object with {', '.join(_SETTINGS)}; got {short(value)}.")
    return value


def _shown(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= _LARGEST:  # NaN is not
        raise ValueError(f"{name} must be a finite number; got {short(value)}.")
    return float(value)


def _names(field: str, value: Any) -> tuple[Name, ...]:
    """As they were written, whole numbers too: verdicts name clients as the run does."""
    called = checked_names(field, value)
    if len(called) > MOST_CLIENTS:
        raise ValueError(f"{field} must be at most {MOST_CLIENTS:,} clients; got {len(called):,}.")
    return tuple(value)


def _moves(value: Any) -> dict[Name, FloatArray]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"moves must be an object of lists of numbers by name; got {short(value)}.")
    _names("moves", [*value])
    return {name: numbers("a client's move", move) for name, move in value.items()}


def _compared(said: Mapping[str, Any], features: Iterable[Feature]) -> Compared:
    names = _names("clients", said.get("clients"))
    rows = said["products"]
    if not isinstance(rows, list) or len(rows) != len(names):
        raise ValueError(f"products must have {len(names)} rows, one a client; got {short(rows)}.")
    products = np.zeros((len(names), len(names)))
    for k, given in enumerate(rows):
        row = _array("products", given, k + 1)
        products[k, : k + 1] = products[: k + 1, k] = row
    size = np.sqrt(np.maximum(np.diag(products), 0.0))
    if not np.all(np.abs(products) <= np.minimum((1 + _ROUNDING) * np.outer(size, size) + _TINY, _LARGEST)):
        raise ValueError("products must be inner products: finite, none beyond the lengths of its clients' moves.")
    fields = {}
    for feature in features:
        if feature.field and not (feature.optional and feature.field not in said):
            fields[feature.field] = _field(feature.field, said.get(feature.field), len(names))
            known = [x is not None for x in said[feature.field]]
            if np.isnan(fields[feature.field][known]).any() or not feature.allowed(fields[feature.field], size).all():
                raise ValueError(feature.rule)
    return Compared(names, products, fields)


def _field(name: str, value: Any, length: int) -> FloatArray:
    """A number for each client; null, which is NaN, where there is none."""
    if not isinstance(value, list) or len(value) != length:
        raise ValueError(f"{name} must have {length} numbers or null, one a client; got {short(value)}.")
    known = np.array([x is not None for x in value], dtype=np.bool_)
    row = np.full(length, np.nan)
    row[known] = numbers(name, [x for x in value if x is not None]) if known.any() else 0.0
    return row


def _array(name: str, value: Any, length: int) -> FloatArray:
    row = numbers(name, value)
    if len(row) != length:
        raise ValueError(f"{name} must have {length} numbers here; got {len(row)}.")
    return row


def _left_out(value: Any, number: int) -> tuple[Exclusion, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(out, dict) and "clients" in out for out in value):
        raise ValueError(f"left_out must be a list of objects with clients and back_to; got {short(value)}.")
    found = []
    for out in value:
        back_to = out.get("back_to", number - 1)
        if type(back_to) is not int or not 0 <= back_to < number:
            raise ValueError(f"back_to must be a round before {number}, or 0; got {short(back_to)}.")
        if (how := out.get("how", "excluded")) not in HOW:
            raise ValueError(f"how must be one of {', '.join(HOW)}; got {short(how)}.")
        found.append(Exclusion(_names("left_out", out["clients"]), number - 1, back_to, how))
    return tuple(found)
