"""Where gloo's peers listen, and what a stranger who reaches them can do."""

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fedgauss as fg

pytestmark = [
    pytest.mark.study,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: fedgauss[gossip]"),
    pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="Linux alone lists a process's sockets so"),
]

_PEER = """
import os, sys
from pathlib import Path
import numpy as np
from fedgauss.integrations.gossip import TorchLinks

rank, secret = int(sys.argv[1]), sys.argv[3] or None


def listening():
    own = {os.readlink(f"/proc/self/fd/{fd}") for fd in range(256) if os.path.islink(f"/proc/self/fd/{fd}")}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                yield words[1].split(":")[0]


with TorchLinks(rank, 2, sys.argv[2], secret=secret) as links:
    heard = links.exchange({1 - rank: np.array([rank, 0.5])})
    print(*heard.get(1 - rank, ["nothing"]), "|", *sorted(set(listening())))
"""


def a_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def two(meeting, secrets=("", "")):
    """What each of two peers says, and its errors."""
    environment = os.environ | {"PYTHONPATH": str(Path(fg.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    peers = []
    try:
        for rank, secret in enumerate(secrets):
            command = [sys.executable, "-c", _PEER, str(rank), meeting, str(secret)]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            peers.append(subprocess.Popen(command, **pipes, text=True, env=environment))
        return [peer.communicate(timeout=100.0) for peer in peers]
    finally:
        for peer in peers:
            peer.kill()
            peer.communicate()


LOOPBACK, LOOPBACK_6 = "0100007F", "00000000000000000000000001000000"


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", LOOPBACK), ("127.0.0.2", "0200007F"), ("[::1]", LOOPBACK_6)]
)
def test_peers_listen_at_the_host_that_was_given_and_nowhere_else(host, address):
    """Catches the store of torch, which listens on all interfaces, and gloo, which takes what the host's name means."""
    (zero, words), (one, _) = two(f"tcp://{host}:{a_port()}")
    assert (zero, one[: one.index("|")]) == (f"1.0 0.5 | {address}\n", "0.0 0.5 "), words
    assert words.count("authenticate nobody") == 1
    assert set(one.split("|")[1].split()) <= {address, LOOPBACK}  # peer 1 reaches 127.0.0.2 from 127.0.0.1


@pytest.mark.parametrize(
    ("theirs", "heard"), [("a secret of peers", ["1.0 0.5", "0.0 0.5"]), ("x" * 32, ["nothing"] * 2)]
)
def test_over_gloo_too_peers_hear_those_who_have_their_secret(tmp_path, theirs, heard):
    files = []
    for rank, secret in enumerate(("a secret of peers", theirs)):
        files.append(tmp_path / f"secret {rank}")
        files[-1].write_text(secret)
        files[-1].chmod(0o600)
    said = two(f"tcp://127.0.0.1:{a_port()}", files)
    assert [text.split(" |")[0] for text, _ in said] == heard
    for _, words in said:
        assert ("must have a seal of the peers' secret" in words) == (heard[0] == "nothing"), words
        assert "authenticate nobody" not in words
