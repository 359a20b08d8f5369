"""A fit between peers without a server, each a thread with a table of its own."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gossip_threads import Hung, Threads

import fedgauss as fg
from fedgauss.federated.policy import Policy
from fedgauss.inference.model import Model
from fedgauss.integrations.gossip.sites import fit_peers, send_to_all
from site_rows import site_of

RNG = np.random.default_rng(5)
X = RNG.normal(size=(240, 2))
NAMES = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(
    {
        "dose": X[:, 0],
        "age": 50 + 10 * X[:, 1],
        "died": (RNG.random(240) < 1 / (1 + np.exp(-X[:, 0]))).astype(int),
        "site": np.repeat(NAMES, 60),
    }
)


@pytest.mark.parametrize("network", [fg.networks.ring(5), fg.networks.path(4), fg.networks.complete(3)], ids=str)
def test_everybody_hears_what_everybody_says(network):
    said = [f"peer {k} says é{'x' * 100 * k}" for k in range(network.n_clients)]
    heard = Threads(network.n_clients).run(lambda k, exchange: send_to_all(said[k], k, network, exchange))
    assert all(texts == said for texts in heard)


def test_a_lost_peer_ends_the_fit_with_its_name():
    def program(peer, exchange):
        if peer == 1:
            raise Hung
        return send_to_all("here", peer, fg.networks.path(3), exchange)

    with pytest.raises(ValueError, match="a fit needs every site to the end; peer 1 is lost"):
        Threads(3).run(program)


@pytest.mark.parametrize(("links", "size", "dead"), [("ring", 6, 2), ("path", 5, 1), ("ring", 4, 0)])
@pytest.mark.parametrize("exchanges", [0, 1, 2, 3, 4, 5])
def test_all_name_the_peer_that_died_and_none_that_heard_of_it(links, size, dead, exchanges):
    """Who hears of a death ends too. Catches peers that take such a neighbour for the dead one."""
    network, words = getattr(fg.networks, links)(size), {}

    def program(peer, exchange):
        asked = [0]

        def mortal(messages):
            asked[0] += 1
            if peer == dead and asked[0] > exchanges:
                raise Hung
            return exchange(messages)

        try:
            for turn in range(10):
                send_to_all(f"turn {turn}", peer, network, mortal)
        except ValueError as error:
            words[peer] = str(error)
            raise Hung from error

    Threads(size, patience=5.0).run(program)
    assert words.keys() == set(range(size)) - {dead}
    for said in words.values():
        assert said.startswith(f"a fit needs every site to the end; peer {dead} is lost"), words


@pytest.mark.parametrize(
    ("text", "length", "words"),
    [
        (b"{}", np.inf, "must have 1 to 4,[0-9,]+ bytes here; peer 0 says inf"),
        (b"{}", np.nan, "must have 1 to 4,[0-9,]+ bytes here; peer 0 says nan"),
        (b"{}", 1.5, "must have 1 to 4,[0-9,]+ bytes here; peer 0 says 1.5"),
        (b'{"2": "forged"}', None, r"peer 0 must send its own reply; it sent those of \['2'\]"),
        (b'{"0": "zero", "77": "x"}', None, "peer 0 must send the replies of peers 0 to 3, as text"),
        (b'["zero"]', None, "peer 0 must send the replies of peers 0 to 3, as text"),
        (b"zero", None, "peer 0 must send replies as JSON"),
        (b'{"0": "zero", "1": "forged"}', None, "that of peer 1 came in two versions, one of them by peer 0"),
        (b'{"0": "zero", "2": "forged"}', None, "that of peer 2 came in two versions"),  # the other from peer 2 itself
    ],
)
def test_who_forges_replies_is_refused(text, length, words):
    errors = []

    def program(peer, exchange):
        if peer == 0:
            theirs = exchange({j: np.array([len(text) if length is None else length]) for j in (1, 3)})
            padded = {j: text.ljust(-(-max(len(text), int(size[0])) // 8) * 8) for j, size in theirs.items()}
            exchange({j: np.frombuffer(message, dtype=float) for j, message in padded.items()})
            raise Hung
        try:
            send_to_all(f"peer {peer}", peer, fg.networks.ring(4), exchange)
        except ValueError as error:
            errors.append(str(error))
            raise Hung from error

    Threads(4).run(program)
    assert any(re.search(words, error) for error in errors)


@pytest.mark.parametrize("claimed", [4_000_000, 60_000_000])
def test_a_neighbour_that_claims_more_than_replies_can_have_makes_nobody_reserve_memory(claimed):
    """Replies here have some bytes. A peer that took the claim would send as many numbers itself, and wait for them."""
    sizes = []

    def exchange(messages):
        sizes.extend(message.nbytes for message in messages.values())
        return {j: np.array([float(claimed)]) for j in messages}

    with pytest.raises(ValueError, match=r"must have 1 to 3,[0-9,]+ bytes here; peer 0 says"):
        send_to_all('{"sum": 1.0}', 1, fg.networks.path(3), exchange)
    assert sizes == [8, 8]


@pytest.mark.parametrize("masked", [False, True])
def test_every_peer_comes_to_the_pooled_fit_to_the_bit(masked):
    logs = [io.StringIO() for _ in NAMES]
    model = Model("died ~ scale(age) + dose", family="logistic")
    sites = [site_of(FRAME[FRAME.site == name].drop(columns="site")) for name in NAMES]

    def program(peer, exchange):
        return fit_peers(sites[peer], peer, fg.networks.ring(4), exchange, NAMES, model, logs[peer], masked=masked)

    pooled = fg.fit(FRAME, model, client="site")
    found = Threads(4).run(program)
    orders = [json.loads(line)["order"] for line in logs[2].getvalue().splitlines()]
    assert orders[:4] == ["join", "meet", "open", "hear"]
    np.testing.assert_allclose(found[0].params, pooled.params, rtol=1e-9)  # sites round their sums
    np.testing.assert_allclose(found[0].cov, pooled.cov, rtol=1e-9)
    for other in found[1:]:
        np.testing.assert_array_equal(other.params, found[0].params)


WILLING = Policy(passes=1)
DIED = Model("died ~ age + dose", family="logistic")
SGD = fg.SGD(sync_every=12)


def peers_of(names, policy=WILLING):
    return [site_of(FRAME[FRAME.site == name].drop(columns="site"), policy) for name in names]


@pytest.mark.parametrize(
    ("links", "masked", "names"),
    [("ring", False, "cadb"), ("path", False, "abcd"), ("complete", False, "abcd"), ("ring", True, "cadb")],
)
def test_every_peer_comes_to_the_pass_of_sgd_of_one_process(links, masked, names):
    """To single precision, with the peers' network, which names need not follow; under masks with all."""
    network, sites = getattr(fg.networks, links)(4), peers_of(names)

    def program(peer, exchange):
        return fit_peers(sites[peer], peer, network, exchange, list(names), DIED, solver=SGD, masked=masked)

    order = np.argsort(list(names))
    mixing = fg.networks.complete(4) if masked else fg.networks.from_matrix(network.matrix[np.ix_(order, order)])
    pooled = fg.fit(FRAME, DIED, client="site", solver=replace(SGD, network=mixing))
    found = Threads(4).run(program)
    np.testing.assert_array_less(np.abs(found[0].params - pooled.params) / pooled.std_errors, 1e-4)
    np.testing.assert_allclose(found[0].cov, pooled.cov, rtol=1e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(other.params, found[0].params)
    apart = {"Clients", "Rows per client"} if masked else {"Clients"}
    assert {k: v for k, v in found[0].facts.items() if k not in apart} == {
        k: v for k, v in pooled.facts.items() if k not in apart
    }
    assert found[0].facts["Clients"] == f"4 ({'complete' if masked else network.name})"
    if masked:
        assert found[0].heterogeneity is None
    else:
        np.testing.assert_allclose(found[0].heterogeneity.statistic, pooled.heterogeneity.statistic, rtol=1e-4)


def test_a_peer_whose_policy_has_no_passes_refuses_sgd():
    sites = [*peers_of("abc"), *peers_of("d", Policy())]

    def program(peer, exchange):
        return fit_peers(sites[peer], peer, fg.networks.ring(4), exchange, NAMES, DIED, solver=SGD)

    with pytest.raises(ValueError, match="site 'd': this site's policy has passes = 0: it makes no pass of SGD"):
        Threads(4).run(program)


def test_a_peer_that_is_lost_in_a_pass_ends_it_with_its_name():
    sites, asked = peers_of(NAMES), [0]

    def program(peer, exchange):
        def until_the_pass(messages):
            asked[0] += peer == 2
            if asked[0] > 70:  # exchanges: the pass takes those from 45 to 100
                raise Hung
            return exchange(messages)

        own = until_the_pass if peer == 2 else exchange
        return fit_peers(sites[peer], peer, fg.networks.ring(4), own, NAMES, DIED, solver=SGD)

    with pytest.raises(ValueError, match="a fit needs every site to the end; peer 2 is lost"):
        Threads(4).run(program)


PROCESS = """
import json, sys
import fedgauss as fg
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Site
from fedgauss.inference.model import Model
from fedgauss.integrations.gossip.sites import fit_peers
from fedgauss.integrations.gossip.torch_links import TorchLinks

rank, rows = int(sys.argv[1]), json.load(open(sys.argv[3]))
site, model = Site(rows, sys.argv[3], Policy(passes=1)), Model("died", family="logistic")
solver = fg.SGD(sync_every=12) if sys.argv[4] == "sgd" else "scoring"
with TorchLinks(rank, 4, sys.argv[2]) as links:
    found = fit_peers(site, rank, fg.networks.ring(4), links.exchange, list("abcd"), model, solver=solver)
print(json.dumps({"params": found.params.tolist(), "errors": found.std_errors.tolist()}))
"""


@pytest.mark.study
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: fedgauss[gossip]")
@pytest.mark.parametrize(("solver", "close"), [("scoring", 1e-9), ("sgd", 1e-5)])
def test_processes_come_to_the_pooled_fit(tmp_path, solver, close):
    peers, meeting = [], (tmp_path / "meeting").as_uri()
    environment = os.environ | {"PYTHONPATH": str(Path(fg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    try:
        for rank, name in enumerate(NAMES):
            own = FRAME[FRAME.site == name].drop(columns="site")
            (tmp_path / f"{name}.json").write_text(json.dumps(own.to_dict("list")))
            command = [sys.executable, "-c", PROCESS, str(rank), meeting, str(tmp_path / f"{name}.json"), solver]
            peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        found = [json.loads(peer.communicate(timeout=300)[0].splitlines()[-1]) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    in_one = SGD if solver == "sgd" else solver
    pooled = fg.fit(FRAME, "died", client="site", family="logistic", solver=in_one)
    for peer in found:
        np.testing.assert_allclose(peer["params"], pooled.params, rtol=close)
        np.testing.assert_allclose(peer["errors"], pooled.std_errors, rtol=close)
