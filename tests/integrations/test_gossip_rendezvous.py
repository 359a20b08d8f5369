"""Where peers meet, with a store in memory in place of those of torch."""

import os
import socket
import threading
from types import SimpleNamespace

import pytest

import fedgauss as fg
from fedgauss.integrations.gossip import torch_links
from fedgauss.integrations.gossip.torch_links import meet


class Store:
    def __init__(self):
        self.values, self.lock = {}, threading.Lock()

    def add(self, key, amount):
        with self.lock:
            self.values[key] = int(self.values.get(key, 0)) + amount
            return self.values[key]

    def compare_set(self, key, expected, desired):
        assert expected == ""
        with self.lock:
            return str(self.values.setdefault(key, desired)).encode()

    def check(self, keys):
        return all(key in self.values for key in keys)

    def get(self, key):
        return str(self.values[key]).encode()


@pytest.fixture
def place(tmp_path):
    """What brings a peer (rank, size) to a place that is the same for all."""
    store = Store()
    torch = SimpleNamespace(FileStore=lambda path, size: store)

    def come(rank, size, sealed=False):
        return meet(torch, rank, size, (tmp_path / "meeting").as_uri(), sealed)[0]

    return come


def test_all_peers_meet_and_a_used_place_is_refused(place):
    others = [threading.Thread(target=place, args=(rank, 3)) for rank in (0, 2)]
    for other in others:
        other.start()
    store = place(1, 3)
    for other in others:
        other.join()
    assert store.check(["peer 0", "peer 1", "peer 2"])
    with pytest.raises(ValueError, match=r"peer 1 has already come to file:///.*meeting\. Name another place"):
        place(1, 3)


def test_who_waits_in_vain_is_told_for_whom_and_may_come_again(place, monkeypatch):
    monkeypatch.setattr(torch_links, "COMING", 0.2)
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"all 3 peers must come to file:///.*; \[1, 2\] did not"):
            place(0, 3)
    with pytest.raises(ValueError, match=r"size must be the same for all peers at .*; got 4, and others have 3"):
        place(1, 4)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("file:///nonexistent/x", "a new file in a folder that exists; got file:///nonexistent/x"),
        ("file://x", "a new file in a folder that exists"),
        ("tcp://127.0.0.1", "must be tcp://host:port"),
        ("tcp://127.0.0.1:99999", "must be tcp://host:port"),
        ("udp://127.0.0.1:9", "must begin with file:// or tcp://"),
    ],
)
def test_no_place_is_no_rendezvous(address, words):
    with pytest.raises(ValueError, match=words):
        meet(None, 1, 3, address)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_peer_0_does_not_listen_everywhere(host):
    with pytest.raises(ValueError, match=r"must have one address, at which peer 0 listens; tcp://.* means all of them"):
        meet(None, 0, 3, f"tcp://{host}:9")


def a_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"must be a free port where peer 0 runs; at {place}: .*in use"):
            meet(None, 0, 3, place, sealed=True)


def test_beyond_this_machine_peers_need_a_secret_and_on_it_they_are_warned(monkeypatch):
    with pytest.raises(ValueError, match=r"need secret=, .*; tcp://192\.0\.2\.1:9 is reached from 192\.0\.2\.1"):
        meet(None, 0, 3, "tcp://192.0.2.1:9")
    monkeypatch.setattr(torch_links, "COMING", 0.2)
    torch = SimpleNamespace(TCPStore=lambda *where, master_listen_fd, **options: os.close(master_listen_fd) or Store())
    with (
        pytest.warns(fg.FedgaussWarning, match=r"Peers at tcp://127\.0\.0\.1:\d+ authenticate nobody"),
        pytest.raises(TimeoutError, match="all 2 peers must come"),
    ):
        meet(torch, 0, 2, f"tcp://127.0.0.1:{a_port()}")


def test_who_comes_without_the_secret_of_others_is_told(place, monkeypatch):
    monkeypatch.setattr(torch_links, "COMING", 0.2)
    with pytest.raises(TimeoutError):
        place(0, 2, sealed=True)
    with pytest.raises(ValueError, match=r"all peers at .* must have the same secret, or none; some have one and some"):
        place(1, 2)


def test_a_peer_0_that_does_not_come_is_named(monkeypatch):
    monkeypatch.setattr(torch_links, "COMING", 0.0)
    with pytest.raises(TimeoutError, match=r"peer 0 must come to tcp://127\.0\.0\.1:1 within"):
        meet(None, 1, 3, "tcp://127.0.0.1:1")
