"""Ctrl-C waits for the next check, and a second one does not wait."""

import os
import signal

import pytest

from fedgauss._progress import deferred_interrupts


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_is_raised_by_the_check_and_the_handler_comes_back():
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupts() as check:
        check()
        press()  # and the work goes on
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_is_raised_at_once():
    with deferred_interrupts():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()
