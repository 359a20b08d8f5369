"""A fit between peers without a server, each a thread with a table of its own."""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gossip_threads import Hung, Threads

import fedgauss as fg
from fedgauss.inference.federated.site import Site
from fedgauss.integrations.gossip.sites import fit_peers, told_to_all

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
    heard = Threads(network.n_clients).run(lambda k, exchange: told_to_all(said[k], k, network, exchange))
    assert all(texts == said for texts in heard)


def test_a_lost_peer_ends_the_fit_with_its_name():
    def program(peer, exchange):
        if peer == 1:
            raise Hung
        return told_to_all("here", peer, fg.networks.path(3), exchange)

    with pytest.raises(ValueError, match="a fit needs every site to the end; peer 1 is lost"):
        Threads(3).run(program)


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
            told_to_all(f"peer {peer}", peer, fg.networks.ring(4), exchange)
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
        told_to_all('{"sum": 1.0}', 1, fg.networks.path(3), exchange)
    assert sizes == [8, 8]


@pytest.mark.parametrize("masked", [False, True])
def test_every_peer_comes_to_the_pooled_fit_to_the_bit(masked):
    logs = [io.StringIO() for _ in NAMES]

    def program(peer, exchange):
        site = Site(FRAME[FRAME.site == NAMES[peer]].drop(columns="site"))
        ring = fg.networks.ring(4)
        options = {"formula": "died ~ scale(age) + dose", "family": "logistic", "masked": masked}
        return fit_peers(site, peer, ring, exchange, NAMES, "died", logs[peer], **options)

    pooled = fg.fit(FRAME, "died", "site", "logistic", formula="died ~ scale(age) + dose")
    found = Threads(4).run(program)
    orders = [json.loads(line)["order"] for line in logs[2].getvalue().splitlines()]
    met = ["keys", "meet"] if masked else []
    prepared = [*met, "describe", "levels", "spread", "design", "squares", "units", "sums"]
    assert orders[: len(prepared)] == prepared
    assert ("own" in orders) != masked
    np.testing.assert_allclose(found[0].params, pooled.params, rtol=1e-12)
    np.testing.assert_allclose(found[0].cov, pooled.cov, rtol=1e-11)
    for other in found[1:]:
        np.testing.assert_array_equal(other.params, found[0].params)


PROCESS = """
import json, sys
import fedgauss as fg
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.site import Site
from fedgauss.integrations.gossip.sites import fit_peers
from fedgauss.integrations.gossip.torch_links import TorchLinks

rank, rows = int(sys.argv[1]), json.load(open(sys.argv[3]))
with TorchLinks(rank, 4, sys.argv[2]) as links:
    found = fit_peers(Site(rows), rank, fg.networks.ring(4), links.exchange, list("abcd"), "died", family="logistic")
print(json.dumps({"params": found.params.tolist(), "errors": found.std_errors.tolist()}))
"""


@pytest.mark.study
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: fedgauss[gossip]")
def test_processes_come_to_the_pooled_fit(tmp_path):
    peers, meeting = [], (tmp_path / "meeting").as_uri()
    environment = os.environ | {"PYTHONPATH": str(Path(fg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    try:
        for rank, name in enumerate(NAMES):
            own = FRAME[FRAME.site == name].drop(columns="site")
            (tmp_path / f"{name}.json").write_text(json.dumps(own.to_dict("list")))
            command = [sys.executable, "-c", PROCESS, str(rank), meeting, str(tmp_path / f"{name}.json")]
            peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        found = [json.loads(peer.communicate(timeout=300)[0].splitlines()[-1]) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    pooled = fg.fit(FRAME, "died", "site", "logistic")
    for peer in found:
        np.testing.assert_allclose(peer["params"], pooled.params, rtol=1e-12)
        np.testing.assert_allclose(peer["errors"], pooled.std_errors, rtol=1e-12)
