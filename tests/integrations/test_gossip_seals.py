"""Peers with a secret hear nobody without it, whatever is done to messages on their way."""

import numpy as np
import pytest
from gossip_threads import Threads

import fedgauss as fg
from fedgauss.integrations.gossip.seals import secret_in

ALIKE = [b"a secret of peers"] * 2


def talk(turns=3):
    def program(peer, exchange):
        heard = []
        for turn in range(turns):
            if all(heard):
                heard.append(exchange({1 - peer: np.array([peer, turn, np.nan])}))
        return [message[1 - peer].tolist() for message in heard if message]

    return program


def test_peers_with_one_secret_hear_each_other():
    zero, one = Threads(2, secrets=ALIKE).run(talk())
    np.testing.assert_array_equal(zero, [[1, turn, np.nan] for turn in range(3)])
    np.testing.assert_array_equal(one, [[0, turn, np.nan] for turn in range(3)])


def test_whole_numbers_are_sealed_as_they_arrive():
    heard = Threads(2, secrets=ALIKE).run(lambda peer, exchange: exchange({1 - peer: np.array([peer, 7])}))
    assert [message.tolist() for peer in (0, 1) for message in heard[peer].values()] == [[1, 7], [0, 7]]


def test_who_has_another_secret_is_let_go_with_words():
    with pytest.warns(fg.FedgaussWarning, match=r"Peer [01] is let go: what it sends must have a seal of the peers' "):
        assert Threads(2, secrets=[b"a secret of peers", b"another secret"]).run(talk()) == [[], []]


class Way:
    """What somebody between peers 0 and 1 makes of the messages of peer 0: first what it draws, then its numbers."""

    def __init__(self, change):
        self.change, self.passed = change, []

    def __call__(self, sender, receiver, tag, array):
        if (sender, tag) != (0, 1):
            return array
        self.passed.append(array)
        return self.change(self.passed)


def flipped(passed):
    changed = passed[-1].copy()
    changed[0] += len(passed) == 2
    return changed


def again(passed):
    return passed[1 if len(passed) == 3 else -1]


@pytest.mark.parametrize(("change", "heard"), [(flipped, 0), (again, 1)])
def test_a_message_that_is_changed_or_comes_again_is_refused(change, heard):
    with pytest.warns(fg.FedgaussWarning, match="Peer 0 is let go: what it sends must have a seal"):
        _, one = Threads(2, secrets=ALIKE, on_way=Way(change), patience=1.0).run(talk())
    assert len(one) == heard


def test_messages_of_an_earlier_run_are_worth_nothing():
    earlier = Way(lambda passed: passed[-1])
    Threads(2, secrets=ALIKE, on_way=earlier).run(talk())
    replayed = Way(lambda passed: earlier.passed[len(passed) - 1])
    with pytest.warns(fg.FedgaussWarning, match="Peer [01] is let go"):
        _, one = Threads(2, secrets=ALIKE, on_way=replayed, patience=1.0).run(talk())
    assert one == []


def test_a_secret_is_long_and_nobody_elses(tmp_path):
    file = tmp_path / "secret"
    with pytest.raises(ValueError, match="secret must be a file that can be read"):
        secret_in(file)
    file.write_text("short\n")
    file.chmod(0o600)
    with pytest.raises(ValueError, match=r"secret must be a file of 16 characters or more; .*secret has 5"):
        secret_in(file)
    file.write_text("0123456789abcdef\n")
    assert secret_in(file) == b"0123456789abcdef"
    file.chmod(0o644)
    with pytest.raises(ValueError, match="secret must not be accessible to others"):
        secret_in(file)
