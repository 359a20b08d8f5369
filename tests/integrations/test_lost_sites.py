"""Sites as processes that die, talk out of turn or never stop talking: the run ends, and words say what was."""

import io
import json
import os
import re
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from site_programs import environment, python, site_program

import fedgauss as fg
from fedgauss.federated import processes, wire
from fedgauss.federated.keys import Key
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.processes import SiteProcesses
from fedgauss.federated.wire import EndlessLine, lines_of, serve_lines
from fedgauss.inference.model import Model
from site_rows import ROWS, own

FRAME = ROWS[["age", "dose", "ward", "visits", "years", "h"]]
MODEL = Model("visits ~ scale(age) + dose", family="poisson", exposure="years")
KEY = Key.fresh()


@pytest.fixture
def program(tmp_path):
    """Tables of the sites, and the program that answers for them."""
    for name in "abc":
        own(FRAME, name).to_csv(tmp_path / f"{name}.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        yield site_program(tmp_path)


def fit_of(program, masked=False, **options):
    """Options are by site."""
    commands = {name: python(program, program.parent / f"{name}.csv", *options.get(name, ())) for name in "abc"}
    with SiteProcesses(commands) as sites:
        return federate(MODEL, sites, masked=masked, key=KEY)


@pytest.mark.parametrize(
    ("order", "times", "masked"),
    [
        ("open", 9, True),
        *(
            pytest.param(order, times, masked, marks=pytest.mark.study)
            for order, times in (("join", 1), ("meet", 1), ("open", 1), ("hear", 4), ("hear", 13))
            for masked in (False, True)
        ),
    ],
)
def test_a_site_that_is_killed_ends_the_run_with_its_name_and_last_words(program, capfd, order, times, masked):
    """The others end, too, and the words have no row. Asked again, all sites take part."""
    words = re.escape(f"site 'b' ended without a reply to '{order}'; it was ended by SIGKILL. It said last: \"")
    with pytest.raises(LostSite, match=rf'^{words}(.* / )?the disk is full"\.$') as gone:
        fit_of(program, masked, b=("--die-at", order, "--times", times))
    assert gone.value.site == "b"
    heard = capfd.readouterr().err + str(gone.value)
    assert not any(repr(value) in heard for value in pd.concat([FRAME.age, FRAME.dose]))
    found = fit_of(program, masked)
    np.testing.assert_allclose(found.params, fg.fit(FRAME, MODEL, client="h").params, rtol=1e-10)


def test_a_banner_before_the_protocol_is_skipped_and_said(program, capfd):
    found = fit_of(program, b=("--banner", "Welcome to host b\n\x1b[31m*** maintenance on Sunday ***\n"))
    pooled = fg.fit(FRAME, MODEL, client="h")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    said = capfd.readouterr().err.splitlines()
    assert "site 'b', before its first reply: Welcome to host b" in said
    assert r"site 'b', before its first reply: \x1b[31m*** maintenance on Sunday ***" in said


def test_a_program_that_talks_on_is_no_site(monkeypatch):
    """It still runs, however long it is waited for."""
    monkeypatch.setattr(processes, "_A_MOMENT", 0.1)
    talks = [sys.executable, "-c", "import sys\nfor i in range(60): print('line', i, flush=True)\nsys.stdin.read()"]
    words = r"site 'a' sent something other than a reply: .*; it still runs\."
    with SiteProcesses({"a": talks}) as sites, pytest.raises(ValueError, match=words):
        sites.ask("join", {"a": {}})


@pytest.mark.parametrize(
    ("where", "patience", "words"),
    [("stdout", 30.0, "sent a line of more than 2,000,000 bytes, which is no reply"), ("stderr", 1.0, "within 1 s")],
)
def test_what_has_no_end_from_a_site_ends_in_words_and_in_bounded_memory(monkeypatch, where, patience, words):
    """Three times the longest line is never held, nor is what goes to standard error, which is passed on."""
    longest = 2_000_000
    monkeypatch.setattr(processes, "LONGEST", longest)
    endless = [sys.executable, "-c", f"import sys\nwhile True: sys.{where}.write('x' * 65536)"]
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        tracemalloc.start()
        try:
            with SiteProcesses({"a": endless}, patience) as sites, pytest.raises(LostSite, match=words):
                sites.ask("join", {"a": {}})
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 3 * longest


class Endless(io.RawIOBase):
    """What never stops, and has no lines."""

    sent = 0

    def readable(self):
        return True

    def readinto(self, room):
        room[:] = b"x" * len(room)
        self.sent += len(room)
        return len(room)


class Silent:
    """A site that must not be asked."""

    def answer(self, order, content):
        raise AssertionError(order)


def test_an_order_without_an_end_ends_in_words_and_in_bounded_memory():
    replies, longest, stream = io.StringIO(), 2_000_000, Endless()
    tracemalloc.start()
    try:
        serve_lines(Silent().answer, lines_of(io.BufferedReader(stream), longest), replies)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert json.loads(replies.getvalue())["error"].startswith("a message must be a line of at most 2,000,000 bytes")
    assert replies.getvalue().count("\n") == 1
    assert peak < 3 * longest
    assert stream.sent < 2 * longest
    assert wire.LONGEST == 64_000_000
    with pytest.raises(EndlessLine):
        next(lines_of(io.BufferedReader(Endless()), 1000))
