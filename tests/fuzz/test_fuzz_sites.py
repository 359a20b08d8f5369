"""What sites, mailboxes and peers say to one another, and what they write down: each with something else in its place.

A site hears one order in the place of another, in the middle of a run: it answers, or says in words why the run is over
for it. A mailbox hears a reply that nobody sent: the run ends in words, or in the fit. What is damaged on disk is taken
up or refused. (Messages that one party alone checks: tests/federated/test_party.py.)
"""

import io
import json
import shutil
import time

import numpy as np
import pytest
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.federated.home import Home
from fedgauss.federated.journal import Journal
from fedgauss.federated.keys import Key, RunKey, verify
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.plan import Plan
from fedgauss.federated.roster import Roster
from fedgauss.federated.wire import decode, encode, order_line, read_order, serve_lines
from fedgauss.inference.model import Model
from fedgauss.integrations.gossip.messages import Message, Settings, fault, introduction, summary, unpacked
from fedgauss.integrations.gossip.sites import send_to_all
from fuzz.damaged import byte_mutants, fuzzed, json_mutants, nasty, refused_or
from memory_used import highest_memory
from site_rows import Sites, many_columns, own, site_of

ROWS = many_columns(3, {"a": 40, "b": 50, "c": 60})[["age", "dose", "visits", "h"]]
MODEL = Model("visits ~ scale(age) + dose", family="poisson")
VALUES = [repr(value) for name in ("age", "dose") for value in own(ROWS, "a")[name].tolist()]
KEY = Key.fresh()


def _recorded():
    """Orders and replies of an undisturbed run, as a site hears and says them."""
    with Sites(ROWS) as sites:
        federate(MODEL, sites, masked=True, key=KEY)
    orders = [json.loads(order_line(order, decode(contents["a"]))) for order, contents in sites.asked]
    return orders, [json.loads(replies["b"]) for _, replies in sites.said]


ORDERS, REPLIES = _recorded()
FIRST = [*ORDERS[:4], *REPLIES[:4]]  # one of each kind


@fuzzed(st.one_of(json_mutants(*FIRST), byte_mutants(json.dumps(ORDERS[0]).encode()), st.binary()))
def test_a_message_is_decoded_or_refused(folder, line):
    message = refused_or(decode, line)
    if message is not None:
        assert decode(encode(message)).keys() == message.keys()
    refused_or(read_order, line.decode("utf-8", "replace"))


@fuzzed(json_mutants(ORDERS[0]["content"]["plan"], {"roster": ORDERS[1]["content"]["roster"]}))
def test_plans_and_rosters_are_read_or_refused(folder, line):
    told = refused_or(decode, line)
    if told is not None:
        plan = refused_or(Plan.from_wire, told)
        assert plan is None or plan.about
        roster = refused_or(Roster.from_wire, "run", told.get("roster"), verify)
        assert roster is None or not roster.entries  # nobody is in it whose signature is not right


PASS = fg.SGD(network=fg.networks.ring(3), weights=[0.5, 0.3, 0.2])
PLAN_OF_A_PASS = json.loads(encode(Plan(Model("age"), ("a", "b", "c"), False, "asker", "1", None, PASS).to_wire()))


@fuzzed(json_mutants(PLAN_OF_A_PASS))
def test_plans_of_a_pass_are_read_or_refused(folder, line):
    told = refused_or(decode, line)
    plan = None if told is None else refused_or(Plan.from_wire, told)
    assert plan is None or plan.about


@fuzzed(
    st.lists(st.one_of(st.sampled_from(FIRST[:4]).map(json.dumps), json_mutants(*FIRST[:4])), max_size=8),
    few=10,
    many=500,
)
def test_a_site_answers_orders_in_any_order(folder, orders):
    """Each line gets one reply, an error in words where it is refused."""
    lines = [order if isinstance(order, str) else order.decode("utf-8", "replace") for order in orders]
    replies, log = io.StringIO(), io.StringIO()
    site = site_of(own(ROWS, "a"), say=lambda text: None)
    serve_lines(site.answer, [line + "\n" for line in lines], replies, log)
    said = replies.getvalue().splitlines()
    assert len(said) == len(lines)
    assert all(isinstance(json.loads(line), dict) for line in said)
    assert len(log.getvalue().splitlines()) == len(lines)
    site.close()


class Doubled(Sites):
    """Before site a hears an order, doubles of it hear mutants; it goes on as if nothing had been."""

    def __init__(self, folder, mutants, seed):
        super().__init__(ROWS)
        self.folder, self.mutants, self.rng = folder, mutants, np.random.default_rng(seed)
        self.counts, self.slowest, self.home = {"refused": 0, "answered": 0}, 0.0, self.sites["a"].home

    def ask(self, order, contents):
        before = encode(self.sites["a"].state())
        for _ in range(self.mutants):
            self.hear(mutant(self.rng, order_line(order, contents["a"])), before)
        assert encode(self.sites["a"].state()) == before
        return super().ask(order, contents)

    def hear(self, line, state):
        """One mutant, at a site with the same rows, key, ledger and past."""
        for file in self.home.ledger.path.parent.glob(self.home.ledger.path.name + "*"):
            shutil.copy(file, self.folder / file.name.replace(self.home.ledger.path.name, "double"))
        lines = self.home.ledger.path.read_bytes()
        double, words = Home(self.home.key, Ledger(self.folder / "double")), []
        site = site_of(own(ROWS, "a"), where=double, say=words.append)
        site.restore(decode(state))
        replies, began = io.StringIO(), time.perf_counter()
        serve_lines(site.answer, [line], replies)
        self.slowest = max(self.slowest, time.perf_counter() - began)
        reply = json.loads(replies.getvalue())
        assert not any(value in text for text in (replies.getvalue(), *words) for value in VALUES)
        if "error" in reply:
            self.counts["refused"] += 1
            assert len(reply["error"]) <= 1000
            assert "Traceback" not in "".join(words), (line[:300], words)
        else:
            self.counts["answered"] += 1
        site.close()
        assert (self.folder / "double").read_bytes().startswith(lines)  # what was written down stays
        assert site.answer("meet", {})["error"].startswith("orders must come in turn, once each; 'join' is due")


STRANGE = [
    None, True, False, 0, -1, 1, 0.5, 1e308, -1e150, 10**400, "", "x", "north", "\x1b[31m", "\ud800", [], {}, [[]],
    [1, "x"], {"$array": [[1], [0.0]]}, {"$array": [[3], [0.0, 1e200, 0.0]]}, {"$array": [[0], []]},
    {"$array": [[10**9, 10**9], []]}, {"$words": [[1], "AAAAAAAAAAA="]}, {"$array": [[], [1.0]]}, {"$array": None},
    {"$array": [[-1], [1.0]]}, {"$array": [1], "$words": [2]}, {"$x": 1}, {"$$array": [[1], [0.0]]}, "0" * 64,
]  # fmt: skip
NAMES = ["join", "meet", "open", "hear", "sums", "answer", "_join", "__class__", "state", ""]


def mutant(rng, line):
    """A line of JSON with one thing or two changed."""
    message = json.loads(line)
    for _ in range(rng.integers(1, 3)):
        paths = [path for path in paths_of(message) if path]
        if not paths:
            message["extra"] = 1
            continue
        *way, last = paths[rng.integers(len(paths))]
        place = message
        for key in way:
            place = place[key]
        what = rng.integers(8)
        if what == 0 and isinstance(place, dict):
            place[str(rng.choice(["extra", "error", "numbers", "refused", "$array", "a", "b"]))] = 1
        elif what == 1:
            place.pop(last)
        elif what == 2 and isinstance(place[last], float | int):
            place[last] *= float(rng.choice([-1.0, 1.0 + 1e-6, 1e3, 1e-300, 0.0, 1e120]))
        elif what == 3 and isinstance(place[last], list):
            place[last] = place[last] * 2 or [1]
        elif what == 4 and isinstance(place[last], str) and place[last]:
            at = int(rng.integers(len(place[last])))
            place[last] = place[last][:at] + str(rng.choice(list("0aZ="))) + place[last][at + 1 :]
        elif what == 5 and "order" in message:
            message["order"] = str(rng.choice(NAMES))
        else:
            place[last] = json.loads(json.dumps(STRANGE[rng.integers(len(STRANGE))]))
    text = json.dumps(message, separators=(",", ":"))
    if rng.random() < 0.1:
        cut = int(rng.integers(len(text)))
        text = text[:cut] + str(rng.choice(["", "NaN", "Infinity", "1e999", "\x00", '"', "}", "{", "[" * 3000])) + (
            text[cut + 1 :] if rng.random() < 0.5 else ""
        )  # fmt: skip
    return text


def paths_of(value, path=()):
    """Where a mutation can be, from the top to the last leaf."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in paths_of(part, (*path, key)))]


@pytest.mark.parametrize("mutants", [2, pytest.param(150, marks=pytest.mark.study)])
@pytest.mark.parametrize("masked", [False, True])
def test_a_site_refuses_mutated_orders_in_words(tmp_path, masked, mutants):
    """Some mutants are orders that somebody might send, such as one with another salt of another site's message."""
    before_all = highest_memory(reset=True)
    with Doubled(tmp_path, mutants, 14 + masked) as sites:
        found = federate(MODEL, sites, masked=masked, key=KEY)
    np.testing.assert_allclose(found.params, fg.fit(ROWS, MODEL, client="h").params, rtol=1e-10)
    grown = highest_memory() - before_all
    print(f"\n{sites.counts}, the slowest took {sites.slowest:.2f} s, {grown:.1f} MB more")
    assert sites.counts["refused"] > 0.8 * sum(sites.counts.values()) > 0
    assert sites.slowest < 5.0
    assert grown < 100


class Forged(Sites):
    """Sites of whose replies one of b is another."""

    def __init__(self, at, rng):
        super().__init__(ROWS)
        self.at, self.rng = at, rng

    def ask(self, order, contents):
        replies = super().ask(order, contents)
        self.at -= 1
        if self.at == 0:
            try:
                replies["b"] = decode(mutant(self.rng, encode(replies["b"])))
            except ValueError as error:
                raise ValueError(f"site 'b' sent something other than a reply: {error}") from error
        return replies


@pytest.mark.parametrize("mutants", [12, pytest.param(2_000, marks=pytest.mark.study)])
def test_a_mailbox_refuses_mutated_replies_in_words(mutants):
    """It ends in words, of the site that sent it or of all that noticed, or in the fit of all rows."""
    rng, wanted = np.random.default_rng(40), fg.fit(ROWS, MODEL, client="h").params
    counts = {"refused": 0, "named": 0, "fitted": 0}
    for _ in range(mutants):
        words = ""
        try:
            with Forged(int(rng.integers(1, len(REPLIES) + 1)), rng) as sites:
                found = federate(MODEL, sites, masked=bool(rng.integers(2)), key=KEY)
            np.testing.assert_allclose(found.params, wanted, rtol=1e-10)
            counts["fitted"] += 1
        except RunRefused as refused:
            words = str(refused)
        except ValueError as error:
            words = str(error)
        counts["refused"] += bool(words)
        counts["named"] += "'b'" in words
        assert words.isprintable()
        assert len(words) <= 4000
    print(f"\n{counts}")
    assert counts["refused"] > 0.5 * mutants
    assert counts["named"] > 0.6 * counts["refused"]


class Stopped(Exception):
    """The end of a mailbox."""


class UpTo(Sites):
    """Sites whose mailbox ends before this order is sent."""

    def __init__(self, orders, homes=None):
        super().__init__(ROWS, homes=homes)
        self.orders = orders

    def ask(self, order, contents):
        if self.orders == 0:
            raise Stopped
        self.orders -= 1
        return super().ask(order, contents)


@fuzzed(st.data(), few=4, many=200)
def test_a_damaged_journal_changes_no_fit(folder, data):
    """Rounds that cannot be used are asked again, or the run says why it ends."""
    path = folder / "rounds.jsonl"
    path.unlink(missing_ok=True)
    sites = UpTo(data.draw(st.integers(6, len(ORDERS) - 2)))
    homes = {name: site.home for name, site in sites.sites.items()}
    with pytest.raises(Stopped), sites:
        federate(MODEL, sites, key=KEY, journal=Journal(path))
    lines = path.read_bytes().splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    lines[place] = data.draw(st.one_of(json_mutants(json.loads(lines[place])), byte_mutants(lines[place])))
    path.write_bytes(b"\n".join(lines) + b"\n")

    def again():
        with Sites(ROWS, homes=homes) as others:
            return federate(MODEL, others, key=KEY, journal=Journal(path))

    found = refused_or(again)
    if found is not None:
        np.testing.assert_allclose(found.params, fg.fit(ROWS, MODEL, client="h").params, rtol=1e-10)


def _ledger(folder):
    """A ledger with a run in it, and all of its files."""
    with Sites(ROWS) as sites:
        federate(MODEL, sites, key=KEY)
    path = sites.sites["a"].home.ledger.path
    for file in path.parent.glob(path.name + "*"):
        shutil.copy(file, folder / file.name.replace(path.name, "whole"))
    return sorted(file.name for file in folder.glob("whole*"))


@fuzzed(st.data(), few=15, many=500)
def test_a_damaged_ledger_is_used_or_refused(folder, data):
    """Byte by byte, its lines and its columns; the table then answers as before, or says why not."""
    names = [name for name in _FILES if (folder / name).exists()] or _ledger(folder)
    for name in names:
        shutil.copy(folder / name, folder / name.replace("whole", "damaged"))
    name = data.draw(st.sampled_from(names)).replace("whole", "damaged")
    (folder / name).write_bytes(data.draw(byte_mutants((folder / name).read_bytes())))

    def answered():
        book = Ledger(folder / "damaged")
        homes = {"a": Home(Key.fresh(), book)}
        try:
            assert book.report()
            with Sites(ROWS, homes=homes) as sites:
                return federate(Model("visits ~ age", family="poisson"), sites, key=KEY)
        finally:
            book.close()

    found = refused_or(answered)
    if found is not None:
        wanted = fg.fit(ROWS, Model("visits ~ age", family="poisson"), client="h").params
        np.testing.assert_allclose(found.params, wanted, rtol=1e-10)


_FILES = ("whole", "whole.columns")


@fuzzed(st.one_of(byte_mutants(b"0f" * 32 + b"\n"), st.binary(max_size=200)), st.text(max_size=80))
def test_keys_are_read_or_refused(folder, content, text):
    (folder / "table.key").write_bytes(content)
    key = refused_or(Key.read, folder / "table.key")
    if key is not None:
        assert verify(key.public, b"words", key.sign(b"words"))
    assert not verify(text, b"words", text)
    refused_or(RunKey, text)


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

    heard = refused_or(send_to_all, "one", 1, fg.networks.path(3), exchange)
    assert heard is None or all(isinstance(said, str) for said in heard)


@fuzzed(st.recursive(nasty, lambda inside: st.lists(inside, min_size=1, max_size=4), max_leaves=12))
def test_a_network_of_anything_is_one_or_refused(folder, value):
    with np.errstate(all="ignore"):
        network = refused_or(fg.networks.from_matrix, value)
        if network is not None:
            assert network.n_clients >= 1
        refused_or(fg.step_sizes.from_array, value)
