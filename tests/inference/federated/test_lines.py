"""Lines between sites: one that does not end takes no more memory than the longest message, and is the last."""

import io

import pytest
from fedgauss.inference.federated.lines import EndlessLine, lines_of, serve_lines


class Endless(io.RawIOBase):
    """A line without an end, that counts how much of it was read."""

    taken = 0

    def readable(self):
        return True

    def readinto(self, room):
        room[:] = b"a" * len(room)
        self.taken += len(room)
        return len(room)


class Silent:
    """A site that must not be asked."""

    def answer(self, order, content):
        raise AssertionError(order)


def test_a_line_without_an_end_is_given_up():
    source = Endless()
    with pytest.raises(EndlessLine, match="a line of at most 1,000 bytes; this one goes on"):
        next(lines_of(io.BufferedReader(source), longest=1_000))
    assert source.taken < 100_000


def test_a_site_says_so_and_ends():
    replies = io.StringIO()
    serve_lines(Silent(), lines_of(io.BufferedReader(Endless()), longest=1_000), replies)
    assert replies.getvalue().count("\n") == 1
    assert "this one goes on" in replies.getvalue()


def test_lines_up_to_the_limit_are_whole():
    text = b"a" * 999 + b"\n" + b"b" * 998 + b"\n" + b"c" * 500
    assert [len(line) for line in lines_of(io.BytesIO(text), longest=1_000)] == [1_000, 999, 500]
