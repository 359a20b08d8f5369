"""`group_sums_mod`: a client's replies as masked parts of its group's sum, which is all that the server can read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.trained import is_trained
from fedgauss.federated.group_sums import FEWEST, MOST_MEMBERS, Directions, Member, directions_of
from fedgauss.federated.keys import Key, fingerprint, is_hex, verify
from fedgauss.federated.refusal import Refused
from fedgauss.federated.wire import decode, encode
from fedgauss.integrations.flower.records import Views, log, numbers, odd_type, vector, viewed_like

RECORD = "fedgauss group sums"  # of all that the mod and the strategy tell each other
WORDS = "fedgauss masked words"
_STATE = "fedgauss group sums"


def group_sums_mod(
    size: int = 4,
    groups: int = 3,
    key_of: Callable[[Context], str | Path] | None = None,
    pinned: Collection[str] | None = None,
    weighted_by: str = "num-examples",
) -> Mod:
    """A mod that sends a client's arrays, metrics and number of examples under `GroupSums`, and in no other way.

    Parameters
    ----------
    size : int
        The fewest clients of a group, 3 to 64; the client refuses smaller ones.
    groups : int
        How many different groups the client joins in all. Each further one gives more of its own part away.
    key_of : callable, optional
        key_of(context) is the file of the client's key, made on first use; by default the key lies in Flower's state
        and ends with the node.
    pinned : collection of str, optional
        The public keys of all clients that may be in its groups, 64 hexadecimal digits each.
    weighted_by : str
        The metric that weighs this client: the only one that leaves without a mask.

    Returns
    -------
    flwr.clientapp.typing.Mod

    Notes
    -----
    The application's train function stays as it is: one ArrayRecord and one MetricRecord in its reply. What leaves the
    client are its arrays and metrics under masks, how many examples it has, and two numbers of each round: how far its
    change points along the model and along the model's last matrix. Training is refused unless a group was agreed on,
    so that a server without `GroupSums` gets nothing.

    Without `pinned` the client trusts the keys of the first roster that it is shown. A server that invents its other
    clients then reads everything: pin keys, or compare fingerprints, which the log prints.

    Place it last in `mods=[...]`: what a mod after it adds is not masked.
    """
    size = _checks.whole("size", size, at_least=FEWEST, fix="Of two clients each would know the other's part.")
    if size > MOST_MEMBERS:
        raise ValueError(f"size must be at most {MOST_MEMBERS}; got {size}.")
    groups = _checks.whole("groups", groups, at_least=1)
    if pinned is not None and (wrong := [key for key in pinned if not is_hex(key, 32)]):
        raise ValueError(f"pinned must be public keys of 64 hexadecimal digits; got {wrong[0]!r}.")

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train") or not message.has_content():
            return call_next(message, context)
        record = message.content.pop(RECORD, None)
        if not isinstance(record, ConfigRecord):
            raise Refused("the server must use GroupSums, or this client's arrays would leave without a mask.")
        member = Member(size, groups, pinned)
        kept = context.state.config_records.get(_STATE, ConfigRecord())
        if "state" in kept:
            member.restore(str(kept["state"]))
        secret = str(kept.get("key") or os.urandom(32).hex())
        key = Key(bytes.fromhex(secret)) if key_of is None else Key.read(Path(key_of(context)))
        order, content = str(record["order"]), decode(str(record["content"]))
        try:
            if order == "train":
                return _trained(message, context, call_next, member, key, int(content["round"]), weighted_by)
            return Message(_reply(_answer(order, content, member, key, context)), reply_to=message)
        finally:
            context.state[_STATE] = ConfigRecord({"state": member.state(), "key": secret})

    return mod


def _answer(order: str, content: dict[str, Any], member: Member, key: Key, context: Context) -> dict[str, Any]:
    """The reply to whatever is not training."""
    try:
        if order == "introduce":
            return {"entry": member.introduce(str(content["session"]), str(context.node_id), key)}
        if order == "agree":
            names = [str(name) for name in _listed(content["group"])]
            tags = member.agree(content["roster"], names, verify)
            who = ", ".join(
                f"{e['name']} {fingerprint(e['key'])}" for e in _listed(content["roster"]) if e["name"] in names
            )
            log.info("fedgauss: this client's sums are added up with those of: %s.", who)
            return {"tags": tags}
        if order == "look":
            return {"shared": member.look(int(str(content["round"])), str(content["seed"]), int(str(content["size"])))}
        if order == "show":
            return {"key": member.show(str(content["other"]), content["claim"], str(content["signature"]), verify)}
        raise Refused(f"an order must be introduce, agree, look, show or train; got {order[:40]!r}.")
    except Refused as refusal:
        log.warning("fedgauss: %s", refusal)
        return {"refused": str(refusal)}


def _trained(
    message: Message, context: Context, call_next: ClientAppCallable, member: Member, key: Key, number: int,
    weighted_by: str,
) -> Message:  # fmt: skip
    """The application's reply, masked."""
    member.ready(number)
    views = {name: view.copy() for name, view in sent_views(message).items()}
    config = digest_of_config(message)
    reply = call_next(message, context)
    if not reply.has_content():
        return reply
    arrays, metrics = _records(reply)
    after = viewed_like(arrays, views)
    weight = metrics.pop(weighted_by, 1.0)
    names = sorted(metrics)
    if odd := [name for name in names if type(metrics[name]) not in (int, float)]:
        raise Refused(f"metrics must be single numbers to be added up over a group; {odd[0]!r} is none.")
    layout = {"arrays": next(iter(reply.content.array_records)), "metrics": next(iter(reply.content.metric_records))}
    told = round_told(views, config, layout, names)
    values = np.array([float(str(metrics[name])) for name in names])
    change = vector(after, views) - vector(views, views)
    made = member.upload(number, told, change, float(str(weight)), values, round_directions(views), key)
    text = {"shared": made.shared, "examples": made.examples, "metrics": made.metrics, "signature": made.signature}
    content_of_reply = _reply({**text, "layout": layout, "names": names})
    content_of_reply[WORDS] = ArrayRecord({"words": Array(made.words)})
    reply.content = content_of_reply
    return reply


def sent_views(message: Message) -> Views:
    """The model in a message to a client."""
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise Refused(f"a message must have one ArrayRecord; it has {len(records)}.")
    views = {name: numbers(array) for name, array in records[0].items()}
    if odd := [words for name, view in views.items() if (words := odd_type(name, view))]:
        raise Refused(f"arrays must be numbers; there is {odd[0]}.")
    if not any(is_trained(name, view.dtype) for name, view in views.items()):
        raise Refused("arrays must hold floating-point numbers that are trained; there are none to judge.")
    return views


def digest_of_config(message: Message) -> str:
    """Of what the application is told beside the arrays: all of a group must be told the same."""
    parts = {
        name: {k: repr(v) for k, v in record.items()}
        for name, record in message.content.config_records.items()
        if name != RECORD
    }
    return hashlib.sha256(encode(parts).encode()).hexdigest()


def round_told(views: Views, config: str, layout: dict[str, str], names: list[str]) -> dict[str, Any]:
    """What the words of a round depend on, beside the group: whoever was told otherwise sends noise."""
    digest = hashlib.sha256()
    for name, view in views.items():
        digest.update(f"{name} {view.dtype.str} {view.shape} ".encode())
        digest.update(np.ascontiguousarray(view).tobytes())
    return {"arrays": digest.hexdigest(), "config": config, "layout": layout, "names": names}


def round_directions(views: Views) -> Directions:
    """Along the model, and along its last matrix; what is not trained counts for nothing."""
    trained: list[FloatArray] = [
        np.asarray(view, dtype=np.float64) for name, view in views.items() if is_trained(name, view.dtype)
    ]
    found = directions_of(trained)
    rows, start = np.zeros((len(found), sum(view.size for view in views.values())), dtype=np.int64), 0
    taken = 0
    for name, view in views.items():
        if is_trained(name, view.dtype):
            rows[:, start : start + view.size] = found[:, taken : taken + view.size]
            taken += view.size
        start += view.size
    return rows


def _records(reply: Message) -> tuple[ArrayRecord, MetricRecord]:
    arrays, metrics = list(reply.content.array_records.values()), list(reply.content.metric_records.values())
    if len(arrays) != 1 or len(metrics) != 1:
        raise Refused(
            f"a reply must have one ArrayRecord and one MetricRecord; it has {len(arrays)} and {len(metrics)}."
        )
    return arrays[0], MetricRecord(dict(metrics[0].items()))


def order_record(order: str, content: Mapping[str, Any]) -> ConfigRecord:
    """What the server asks of a mod."""
    return ConfigRecord({"order": order, "content": encode(dict(content))})


def _reply(content: dict[str, Any]) -> RecordDict:
    return RecordDict({RECORD: ConfigRecord({"content": encode(content)})})


def _listed(value: Any) -> list[dict[str, str]]:
    if not isinstance(value, list):
        raise Refused("a roster and a group must be lists; one is not.")
    return value
