"""Edges between peers: who is told what when one leaves, freezes, is late, or sends too much."""

import threading
import time

import numpy as np
import pytest
from gossip_threads import Hung, Threads

import fedgauss as fg
from fedgauss.integrations.gossip import edges


def around(peer, size):
    return sorted({(peer - 1) % size, (peer + 1) % size})


def talk(peer, exchange, turns, size=4, before=None):
    """What a peer has lost, by turn, when it exchanges with whoever is left on a ring."""
    left, lost = around(peer, size), {}
    for turn in range(turns):
        if before is not None:
            left = before(peer, turn, left) or left
        heard = exchange({j: np.array([peer, turn, 0.5]) for j in left})
        for j, message in heard.items():
            assert message.tolist() == [j, turn, 0.5]
        lost |= {j: turn for j in left if j not in heard}
        left = sorted(heard)
    return lost


def test_who_is_left_out_is_told():
    """Peer 0 leaves peer 1 out from turn 2 on. Catches links that go on pulsing it: it would wait for ever."""

    def before(peer, turn, left):
        return [3] if peer == 0 and turn >= 2 else None

    lost = Threads(4).run(lambda peer, exchange: talk(peer, exchange, 5, before=before))
    assert lost == [{}, {0: 2}, {}, {}]


def test_a_peer_that_ends_early_does_not_keep_others():
    lost = Threads(4).run(lambda peer, exchange: talk(peer, exchange, 2 if peer == 0 else 5))
    assert lost == [{}, {0: 2}, {}, {0: 2}]


def test_a_peer_that_dies_is_missed_at_once():
    def before(peer, turn, left):
        if (peer, turn) == (2, 3):
            raise Hung

    assert Threads(4).run(lambda p, exchange: talk(p, exchange, 5, before=before)) == [{}, {2: 3}, None, {2: 3}]


def test_messages_of_other_lengths_are_refused_with_words():
    def program(peer, exchange):
        return [sorted(exchange({1 - peer: np.zeros(length)})) for length in (2, 5 if peer else 3)]

    with pytest.warns(fg.FedgaussWarning, match="must send as much; it sends [35] numbers, and this peer [35]"):
        assert Threads(2).run(program) == [[[1], []], [[0], []]]


def test_a_frozen_peer_is_given_up_and_ends_when_it_wakes():
    """Catches a peer that wakes among others who still live, and waits for them."""
    threads, awake, over = Threads(4, patience=1.0), threading.Event(), threading.Event()

    def before(peer, turn, left):
        if (peer, turn) == (2, 1):
            threads.frozen[2] = awake
        if (peer, turn) == (0, 3):  # peers 1 and 3 have given peer 2 up by now
            awake.set()
            assert over.wait(30.0)

    def program(peer, exchange):
        lost = talk(peer, exchange, 5, before=before)
        if peer == 2:
            over.set()
        return lost

    zero, one, two, three = threads.run(program)
    assert (zero, one, three) == ({}, {2: 1}, {2: 1})
    assert two.keys() == {1, 3}


@pytest.mark.study
def test_who_computes_is_not_given_up_before_the_first_exchange_either(monkeypatch):
    """Peer 1 takes twice the patience, first before it has any pulse and then between exchanges."""

    def before(peer, turn, left):
        if peer == 1 and turn in (0, 2):
            time.sleep(3.0)

    assert Threads(4, patience=1.5).run(lambda p, exchange: talk(p, exchange, 4, before=before)) == [{}] * 4
    monkeypatch.setattr(edges, "COMING", 1.5)  # it must come some time
    assert Threads(4, patience=1.5).run(lambda p, exchange: talk(p, exchange, 4, before=before))[0] == {1: 0}
