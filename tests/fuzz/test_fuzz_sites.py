"""What sites, coordinators and peers say to one another, and what they write down.

That a site answers mutated orders as if nothing had been is tested in inference/federated/test_mutated_messages.py;
here orders come in any order.
"""

import io
import json

import numpy as np
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.fields import ASKED, check_fields
from fedgauss.inference.federated.journal import Journal
from fedgauss.inference.federated.ledger import Ledger
from fedgauss.inference.federated.lines import decoded, encoded, lines_of, serve_lines
from fedgauss.inference.federated.masks import Keys, Mask, check_masked, total
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.integrations.gossip.messages import Message, Settings, fault, introduction, summary, unpacked
from fedgauss.integrations.gossip.sites import told_to_all
from fuzz.damaged import byte_mutants, fuzzed, json_mutants, nasty, refused_or
from site_rows import Channel, many_columns, own

ROWS = many_columns(3, {"a": 40, "b": 50, "c": 60})[["age", "dose", "visits", "h"]]
MODEL = {"family": "poisson", "formula": "visits ~ scale(age) + dose"}
OFTEN = Policy(most_rounds=10**6)
_channel = Channel(ROWS, OFTEN)
fit_sites(_channel.ask, _channel.names, "visits", masked=True, **MODEL)
ORDERS = [
    json.loads(encoded({"order": order, "content": contents[0]}))
    for order, contents in _channel.heard
    if contents[0] is not None
]
REPLIES = [json.loads(replies[0]) for _, replies in _channel.said if replies[0] is not None]


@fuzzed(st.one_of(json_mutants(*ORDERS, *REPLIES), byte_mutants(json.dumps(ORDERS[0]).encode()), st.binary()))
def test_a_message_is_decoded_or_refused(folder, line):
    message = refused_or(decoded, line)
    if message is not None:
        assert decoded(encoded(message)).keys() == message.keys()
        for fields in ASKED.values():
            refused_or(check_fields, fields, message, {"p": 2, "d": 3, "C": 1, "s": 0, "m": 1, "q": 1, "t": 3})


@fuzzed(st.lists(st.one_of(st.sampled_from(ORDERS).map(json.dumps), json_mutants(*ORDERS)), max_size=12), many=600)
def test_a_site_answers_orders_in_any_order(folder, orders):
    """Each line gets one reply, an error in words where it is refused."""
    lines = [order if isinstance(order, str) else order.decode("utf-8", "replace") for order in orders]
    replies, log = io.StringIO(), io.StringIO()
    site = Site(own(ROWS, "a"), OFTEN)
    sent = "".join(line + "\n" for line in lines).encode("utf-8", "replace")
    serve_lines(site, lines_of(io.BytesIO(sent)), replies, log)
    said = replies.getvalue().splitlines()
    assert len(said) == len(lines)
    assert all(isinstance(json.loads(line), dict) for line in said)
    assert len(log.getvalue().splitlines()) == len(lines)


def _masked():
    keys = [Keys.fresh(name) for name in "ab"]
    publics = {key.name: key.public for key in keys}
    return [
        Mask(key, publics, "run", 2, True).hide("sums", 1, {"x": np.array([1.0, 2.0])}, asked={}, attempt=0)
        for key in keys
    ]


MASKED = _masked()


@fuzzed(json_mutants(json.loads(encoded(MASKED[0]))))
def test_masked_sums_add_up_or_are_refused(folder, line):
    told = refused_or(decoded, line)
    if told is not None:
        refused_or(check_masked, told, {"x": (2,)})
        refused_or(total, [told, MASKED[1]])


@fuzzed(
    st.dictionaries(st.text(max_size=6), st.one_of(st.text(max_size=90), st.just(Keys.fresh("b").public)), max_size=4)
)
def test_public_keys_are_met_or_refused(folder, publics):
    keys = Keys.fresh("a")
    refused_or(Mask, keys, {"a": keys.public, **publics}, "run", 2, True)


def _journal(path, frame=ROWS):
    channel = Channel(frame)
    return fit_sites(channel.ask, channel.names, "visits", journal=Journal(path), **MODEL)


@fuzzed(st.data(), few=3, many=100)
def test_a_damaged_journal_changes_no_fit(folder, data):
    """Rounds that cannot be used are asked again; the estimate is the same to rounding, or the fit says why not."""
    path = folder / "rounds.jsonl"
    path.unlink(missing_ok=True)
    wanted = _journal(path)
    lines = path.read_bytes().splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = data.draw(st.one_of(json_mutants(json.loads(lines[place])), byte_mutants(lines[place])))
    path.write_bytes(b"\n".join(lines) + b"\n")
    found = refused_or(_journal, path)
    if found is not None:
        np.testing.assert_allclose(found.params, wanted.params, rtol=1e-5, atol=1e-8)


TABLE = {"x": np.arange(40.0), "y": (np.arange(40) % 2).astype(float)}


def _admit(path):
    ledger = Ledger(path)
    ledger.admit("next", TABLE, ledger.signs(TABLE))
    return len(ledger)


@fuzzed(st.data(), few=20, many=500)
def test_a_damaged_ledger_is_refused(folder, data):
    path = folder / "answered.jsonl"
    path.unlink(missing_ok=True)
    _admit(path)
    lines = path.read_bytes().splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = data.draw(
        st.one_of(json_mutants(json.loads(lines[place])).map(lambda line: line + b"\n"), byte_mutants(lines[place]))
    )
    path.write_bytes(b"".join(lines))
    refused_or(_admit, path)


LIN = fg.linearization([np.eye(2)] * 3, [np.eye(2)] * 3)
SETTINGS = Settings(3, 2, 4, 40, 20)
OURS = introduction(SETTINGS, summary(LIN, 0))
PACKED = Message(2, np.zeros(2), np.zeros(2), np.zeros((2, 4))).packed()
numbers = st.one_of(st.floats(), st.sampled_from([0.0, -1.0, 1e99, 1e101, 1e308, np.nan, np.inf, 2.0, 2.5]))


@st.composite
def changed(draw, whole):
    values = whole.copy()
    for _ in range(draw(st.integers(1, 3))):
        values[draw(st.integers(0, len(values) - 1))] = draw(numbers)
    return values[: draw(st.integers(0, len(values)))] if draw(st.integers(0, 9)) == 0 else values


@fuzzed(changed(PACKED))
def test_a_message_of_a_peer_is_unpacked_or_nobody_s(folder, values):
    found = unpacked(values, 2, 4, 3)
    assert found is None or np.all(np.abs(found.packed()) < 1e100)


@fuzzed(changed(OURS))
def test_an_introduction_is_accepted_or_refused_in_words(folder, values):
    with np.errstate(all="ignore"):
        said = fault(values, OURS, SETTINGS, np.full(40, 0.1))
    assert len(said) < 1000


@fuzzed(
    st.one_of(json_mutants({"0": "zero"}), json_mutants({"0": "zero", "2": "two"}), st.binary(min_size=1)),
    numbers,
    many=1000,
)
def test_what_a_neighbour_passes_on_is_heard_or_refused(folder, text, length):
    """Peer 1 of a path of three; both neighbours say the same nonsense."""

    def exchange(sent):
        asked = next(iter(sent.values()))
        if asked.shape == (1,):
            return {j: np.array([length if length > 100 else float(len(text))]) for j in sent}
        padded = text.ljust(max(asked.nbytes, -(-len(text) // 8) * 8))
        return dict.fromkeys(sent, np.frombuffer(padded, dtype=float))

    heard = refused_or(told_to_all, "one", 1, fg.networks.path(3), exchange)
    assert heard is None or all(isinstance(said, str) for said in heard)


@fuzzed(st.recursive(nasty, lambda inside: st.lists(inside, min_size=1, max_size=4), max_leaves=12))
def test_a_network_of_anything_is_one_or_refused(folder, value):
    with np.errstate(all="ignore"):
        network = refused_or(fg.networks.from_matrix, value)
        if network is not None:
            assert network.n_clients >= 1
        refused_or(fg.step_sizes.from_array, value)
