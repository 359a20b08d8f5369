"""The ring of the example, with real processes over gloo: all of it against `simulate`, and with one peer killed."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import fedgauss as fg

pytestmark = [
    pytest.mark.study,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: fedgauss[gossip]"),
]

_EXAMPLE = Path(__file__).parents[2] / "examples" / "gossip_ring" / "ring.py"
_PEERS, _STEPS, _TAU, _SEED = 6, 400, 10, 0
_ETA = fg.step_sizes.polynomial(0.3, beta=0.75)


def ring(folder, attacker=-1, kill=None, at=None):
    """The lines of each peer, and its exit code. `kill` is ended with SIGKILL when it has reported step `at`."""
    options = [f"--peers={_PEERS}", f"--steps={_STEPS}", f"--attacker={attacker}", f"--seed={_SEED}", "--chains=4"]
    meeting = f"--rendezvous={(folder / 'meeting').as_uri()}"
    environment = os.environ | {"PYTHONPATH": str(Path(fg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    peers, lines = [], [[] for _ in range(_PEERS)]

    def follow(rank):
        with peers[rank].stdout as said:
            for line in map(json.loads, said):
                lines[rank].append(line)
                if rank == kill and line.get("step", 0) >= at:
                    peers[rank].kill()

    try:
        for rank in range(_PEERS):
            command = [sys.executable, str(_EXAMPLE), f"--rank={rank}", meeting, *options]
            peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        readers = [threading.Thread(target=follow, args=(rank,)) for rank in range(_PEERS)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout=400.0)
        codes = [peer.wait(timeout=60.0) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()
    return lines, codes


def simulated(attacker):
    """Where every client began each round, and what it sent, (J, K, d)."""
    problem = fg.problems.random_effects(n_clients=_PEERS, dim=2, heterogeneity=1.0, seed=1907)
    if attacker >= 0:
        problem = fg.problems.attacks.mean_shift(problem, [attacker], 2.0, start=_STEPS // 2 + 1)
    network, seen = fg.networks.ring(_PEERS), [fg.observers.uploads(_TAU)]
    runs = fg.simulate(problem, network, _ETA, _STEPS, sync_every=_TAU, seed=_SEED, observe=seen)
    return runs.began[0], runs.sent[0]


def test_a_ring_of_six_processes_makes_the_iterates_of_simulate(tmp_path):
    lines, codes = ring(tmp_path)
    assert codes == [0] * _PEERS
    began, sent = simulated(attacker=-1)
    for peer, said in enumerate(lines):
        *rounds, ending = said
        assert len(rounds) == _STEPS // _TAU
        np.testing.assert_allclose([r["began"] for r in rounds], began[:, peer], atol=5e-6)
        np.testing.assert_allclose([r["sent"] for r in rounds], sent[:, peer], atol=5e-6)
        assert ending["alarm"] is None
        assert ending["lost"] == {}
    lin = fg.linearize(fg.problems.random_effects(n_clients=_PEERS, dim=2, heterogeneity=1.0, seed=1907))
    chains = fg.approx.client(
        *(lin, fg.networks.ring(_PEERS), _ETA, _STEPS), sync_every=_TAU, replicates=4, seed=_SEED
    ).last
    np.testing.assert_allclose(np.mean([said[-1]["chains"] for said in lines], axis=0), chains, atol=5e-6)


@pytest.mark.parametrize(("killed", "losers"), [(2, (1, 3)), (0, (1, 5))])
def test_survivors_of_a_sigkill_finish_with_their_alarms(tmp_path, killed, losers):
    """Peer 4 is poisoned after step 200 and seen by 3, 4 and 5; then another is killed, who may be where peers met."""
    lines, codes = ring(tmp_path, attacker=4, kill=killed, at=330)
    assert codes[killed] == -9
    assert [code for peer, code in enumerate(codes) if peer != killed] == [0] * 5
    began, _ = simulated(attacker=4)
    for peer, said in enumerate(lines):
        if peer == killed:
            continue
        *rounds, ending = said
        assert len(rounds) == _STEPS // _TAU
        assert list(ending["lost"]) == ([str(killed)] if peer in losers else [])
        before = [r["began"] for r in rounds if r["step"] <= 330]
        np.testing.assert_allclose(before, began[: len(before), peer], atol=5e-6)
        if peer in (3, 4, 5):
            assert ending["alarm"]["step"] < 330
            assert all(r["alarm"] for r in rounds if r["step"] >= 330)  # as in the run without a kill
            assert ending["suspects"] == [4]
            assert ending["rounds"] == _STEPS // _TAU
        else:
            assert ending["alarm"] is None
        if peer in losers:
            assert list(rounds[-1]["shares"].values()) == [pytest.approx(1 / 3)]  # the other one has two neighbours yet


_FROZEN = """
import os, signal, sys
import numpy as np
from fedgauss.integrations.gossip import TorchLinks

rank = int(sys.argv[1])
left = [(rank - 1) % 4, (rank + 1) % 4]
with TorchLinks(rank, 4, sys.argv[2], patience=4.0) as links:
    for turn in range(6):
        if (rank, turn) == (2, 3):
            os.kill(os.getpid(), signal.SIGSTOP)
        heard = links.exchange({neighbour: np.array([rank, turn]) for neighbour in left})
        assert all(list(message) == [neighbour, turn] for neighbour, message in heard.items())
        left = sorted(heard)
print(left)
"""


def four(program, meeting, finishing=(0, 1, 2, 3)):
    """What those peers of four say that must finish, and how they end. The program reads its rank and where to meet."""
    environment = os.environ | {"PYTHONPATH": str(Path(fg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    peers = []
    try:
        for rank in range(4):
            command = [sys.executable, "-W", "ignore", "-c", program, str(rank), meeting]
            peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        said = [peers[rank].communicate(timeout=200.0)[0].strip() for rank in finishing]
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()
    return said, [peers[rank].returncode for rank in finishing]


def test_a_frozen_peer_is_given_up_and_the_others_stay_together(tmp_path):
    """Its connections are open. Catches neighbours that, having waited for it, are given up by theirs."""
    said, codes = four(_FROZEN, (tmp_path / "meeting").as_uri(), finishing=(0, 1, 3))
    assert said == ["[1, 3]", "[0]", "[0]"]
    assert codes == [0, 0, 0]


_LEFT_OUT = """
import sys
import numpy as np
from fedgauss.integrations.gossip import TorchLinks

rank = int(sys.argv[1])
left = [(rank - 1) % 4, (rank + 1) % 4]
with TorchLinks(rank, 4, sys.argv[2]) as links:
    for turn in range(6):
        if (rank, turn) == (0, 2):
            left = [3]
        length = 50 if (rank, turn) == (2, 4) else 2
        left = sorted(links.exchange({neighbour: np.zeros(length) for neighbour in left}))
print(left)
"""


def test_who_is_left_out_or_sends_another_length_is_lost_on_that_edge_alone(tmp_path):
    """Peer 0 drops peer 1, later peer 2 sends too much. Catches peers that wait for ever, and gloo's abort."""
    said, codes = four(_LEFT_OUT, (tmp_path / "meeting").as_uri())
    assert codes == [0, 0, 0, 0]
    assert said == ["[3]", "[]", "[]", "[0]"]
