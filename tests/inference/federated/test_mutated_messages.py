"""10,000 mutated messages each way, masked and not: refused in words, and nothing is left of them.

Seeds are fixed. Some mutants are messages that somebody might send (another parameter, another sum); they are answered,
or taken for what they say.
"""

import copy
import json
import time

import numpy as np
import pytest
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import decoded, encoded, order_line, serve_lines
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site

from fedgauss.inference.fit_result import Fit
from memory_used import highest_memory
from site_rows import Channel, many_columns, own

SIZES = {"a": 40, "b": 50, "c": 60}
ROWS = many_columns(3, SIZES)[["age", "dose", "ward", "visits", "years", "h"]]
MODEL = {"family": "poisson", "formula": "visits ~ scale(age) + dose", "exposure": "years"}
OFTEN = Policy(most_rounds=10**6)
# Messages of one kind; make test has a tenth of what the studies have.
HOW_MANY = pytest.mark.parametrize("each_way", [100, pytest.param(5_000, marks=pytest.mark.study)])

STRANGE = [
    None, True, False, 0, -1, 1, 0.5, 1e308, -1e150, 10**400, "", "x", "north", "\x1b[31m", "\ud800", [], {}, [[]],
    [1, "x"], {"$array": [[1], [0.0]]}, {"$array": [[3], [0.0, 1e200, 0.0]]}, {"$array": [[0], []]},
    {"$array": [[2, 2], [1.0, 0.0, 0.0, -1.0]]}, {"$array": [[10**9, 10**9], []]}, {"$words": [[1], "AAAAAAAAAAA="]},
    {"$array": [[], [1.0]]}, {"$array": [[-1], [1.0]]}, {"$array": None}, {"$array": [1], "$words": [2]}, {"$x": 1},
    {"$$array": [[1], [0.0]]}, {"shape": [1], "values": [0.0]},
]  # fmt: skip
ORDERS = ["keys", "meet", "describe", "levels", "spread", "design", "squares", "shape", "begin", "advance", "report",
          "units", "sums", "final", "goodness", "own", "name", "_describe", "__class__", ""]  # fmt: skip


def paths_of(value, path=()):
    """Where a mutation can be, from the top to the last leaf."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in paths_of(part, (*path, key)))]


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
            place[str(rng.choice(["extra", "theta", "error", "masking", "masked", "shape", "values", "$array"]))] = (
                STRANGE[0]
            )
        elif what == 1:
            place.pop(last)
        elif what == 2 and isinstance(place[last], float):
            place[last] *= float(rng.choice([-1.0, 1.0 + 1e-6, 1e3, 1e-300, 0.0, 1e120]))
        elif what == 3 and isinstance(place[last], list):
            place[last] = place[last] * 2 or [1]
        elif what == 4 and "order" in message:
            message["order"] = str(rng.choice(ORDERS))
        else:
            place[last] = copy.deepcopy(STRANGE[rng.integers(len(STRANGE))])
    text = json.dumps(message, separators=(",", ":"))
    if rng.random() < 0.15:
        cut = int(rng.integers(len(text)))
        text = text[:cut] + str(rng.choice(["", "NaN", "Infinity", "1e999", "\x00", '"', "}", "{", "[" * 3000])) + (
            text[cut + 1 :] if rng.random() < 0.5 else ""
        )  # fmt: skip
    return text


def said_by(site, line):
    """What a site answers to a line, as its process would."""

    class Replies:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    replies = Replies()
    serve_lines(site, [line], replies)
    return json.loads(replies.text)


def kept(site):
    """A site's state but for how often it was asked, which counts what is refused as well."""
    state = site.state()
    return encoded(state | {"run": state["run"] is not None})


@HOW_MANY
@pytest.mark.parametrize("masked", [False, True])
def test_a_site_refuses_mutated_orders_and_goes_on_as_if_nothing_had_been(masked, each_way):
    rng = np.random.default_rng(14 + masked)
    values = [repr(value) for name in ("age", "dose", "years") for value in own(ROWS, "a")[name].tolist()]
    clean = Channel(ROWS, OFTEN)
    wanted = fit_sites(clean.ask, clean.names, "visits", masked=masked, **MODEL)
    channel, counts, slowest = Channel(ROWS, OFTEN), {"refused": 0, "answered": 0}, 0.0
    before_all = highest_memory(reset=True)
    each = -(-each_way // len(clean.said))

    def ask(order, contents):
        nonlocal slowest
        for _ in range(each):
            site = channel.sites[0]
            before, state = kept(site), encoded(site.state())
            began = time.perf_counter()
            reply = said_by(site, mutant(rng, order_line(order, contents[0])))
            slowest = max(slowest, time.perf_counter() - began)
            if "error" in reply:
                counts["refused"] += 1
                assert kept(site) == before, reply
                assert not [value for value in values if value in reply["error"]]
                assert len(reply["error"]) <= 1000
            else:
                counts["answered"] += 1
            if encoded(site.state()) != state:
                channel.sites[0] = Site.restored(own(ROWS, "a"), decoded(state), OFTEN)
        return channel.ask(order, contents)

    found = fit_sites(ask, channel.names, "visits", masked=masked, **MODEL)
    np.testing.assert_array_equal(found.params, wanted.params)
    np.testing.assert_array_equal(found.cov, wanted.cov)
    assert counts["refused"] > 0.8 * (counts["refused"] + counts["answered"]) >= 0.8 * each_way
    assert slowest < 5.0
    grown = highest_memory() - before_all
    print(f"\n{sum(counts.values())} orders: {counts}, {grown:.1f} MB more")
    assert grown < 50


@HOW_MANY
@pytest.mark.parametrize("masked", [False, True])
def test_the_coordinator_refuses_mutated_replies_in_words(masked, each_way):
    """What sites said is said again, with one reply of b changed; where the fit goes another way, sites are asked."""
    rng = np.random.default_rng(40 + masked)
    told = Channel(ROWS, OFTEN)
    states = []

    def asked(order, contents):
        states[:] = [encoded(site.state()) for site in told.sites] if order == "sums" and not states else states
        return told.ask(order, contents)

    fit_sites(asked, told.names, "visits", masked=masked, **MODEL)
    texts = {encoded({"order": order, "asked": told.heard[i][1]}): said for i, (order, said) in enumerate(told.said)}
    counts, before_all = {"refused": 0, "named": 0, "taken": 0}, highest_memory(reset=True)
    for _ in range(each_way):
        at, live = int(rng.integers(len(told.said))), None
        place = iter(range(10**6))

        def ask(order, contents, at=at, place=place):
            nonlocal live
            said = texts.get(encoded({"order": order, "asked": list(contents)})) if live is None else None
            if said is None:
                live = live or [
                    Site.restored(own(ROWS, n), decoded(s), OFTEN) for n, s in zip("abc", states, strict=True)
                ]
                pairs = zip(live, contents, strict=True)
                said = [encoded(site.answer(order, decoded(encoded(content)))) for site, content in pairs]
            replies = list(said)
            if next(place) == at:
                replies[1] = mutant(rng, replies[1])
            found = []
            for name, reply in zip(told.names, replies, strict=True):
                try:
                    found.append(decoded(reply))
                except ValueError as error:
                    raise ValueError(f"site {name!r} sent something other than a reply: {error}") from error
            return found

        began, words = time.perf_counter(), ""
        try:
            assert isinstance(fit_sites(ask, told.names, "visits", masked=masked, **MODEL), Fit)
            counts["taken"] += 1
        except ValueError as error:
            words = str(error)
            counts["refused"] += 1
        counts["named"] += "site 'b'" in words  # others are about totals: masks that do not cancel, say
        assert words.isprintable()
        assert len(words) <= 1200
        assert time.perf_counter() - began < 10.0
    grown = highest_memory() - before_all
    print(f"\n{each_way} replies: {counts}, {grown:.1f} MB more")
    assert counts["refused"] > 0.6 * each_way
    assert grown < 50
    assert counts["named"] > 0.8 * counts["refused"]
