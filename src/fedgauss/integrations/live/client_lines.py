"""One line of a log of clients: what `client_log` writes of a round, and what a watcher reads, checked."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients import ClientMonitor, Compared, Exclusion
from fedgauss.detect.clients.features import WIRE, Feature
from fedgauss.detect.clients.verdict import Name
from fedgauss.integrations.live.rounds import checked_names, count, numbers, object_from_json, short

MOST_CLIENTS = 1000  # in a run: products of all pairs are kept for 64 rounds
SHOWN = ("accuracy", "loss")  # that the page draws below the clients
_SETTINGS = ("alpha", "horizon", "rate")
_LARGEST = 1e38  # of a product: beyond float32
_ROUNDING = 1e-3  # of float32 sums of thousands
_TINY = 1e-37  # where float32 products vanish
_LONGEST = 1000  # characters of a reason


@dataclass(frozen=True)
class ClientLine:
    """What a line says.

    settings  alpha, horizon and rate of the run's monitor; there is nothing else in the line then
    number    of the round, counted from 1
    moves     what clients changed, by name (d,), or what they were compared by; None where neither is in the line
    left_out  who was left out since the last round, and the round whose model the run went on from
    shown     accuracy or loss of the round's model
    refused   why a round was not used
    """

    settings: Mapping[str, Any] | None = None
    number: int = 0
    moves: dict[Name, FloatArray] | Compared | None = None
    left_out: tuple[Exclusion, ...] = ()
    shown: Mapping[str, float] | None = None
    refused: str = ""


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
        said["left_out"] = [{"clients": list(out.clients), "back_to": out.back_to} for out in left_out]
    return json.dumps(said, allow_nan=False)


def client_line_from_json(text: bytes, features: Iterable[Feature] = WIRE) -> ClientLine:
    """The round in a line or body of JSON; a ValueError says what is wrong with it.

        {"round": 7, "moves": {"a": [0.1, -0.3], "b": [0.2, -0.1], ...}, "accuracy": 0.91}

    or, as `client_log` writes it, "clients" with "products" and the fields of features in place of "moves".
    """
    said = object_from_json(text)
    if "monitor" in said:
        return ClientLine(settings=_settings(said["monitor"]))
    if "round" not in said:
        raise ValueError(f"a round must have 'round'; this one has {short(sorted(said))}.")
    number = count("round", said["round"])
    shown = {name: _shown(name, said[name]) for name in SHOWN if said.get(name) is not None}
    refused = said.get("refused", "")
    if not isinstance(refused, str) or len(refused) > _LONGEST:
        raise ValueError(f"refused must be a reason of at most {_LONGEST} characters; got {short(refused)}.")
    moves: dict[Name, FloatArray] | Compared | None = None
    if "moves" in said:
        moves = _moves(said["moves"])
    elif "products" in said:
        moves = _compared(said, features)
    elif "parameters" in said:
        raise ValueError(
            "a round must have what clients changed, as 'moves'; this one has parameters. To watch those, use "
            "--monitor, or --hessian and --eta0?"
        )
    elif not shown and not refused:
        raise ValueError(f"a round must have 'moves' or 'products'; this one has {short(sorted(said))}.")
    return ClientLine(None, number, moves, _left_out(said.get("left_out"), number), shown or None, refused)


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
        found.append(Exclusion(_names("left_out", out["clients"]), number - 1, back_to))
    return tuple(found)
