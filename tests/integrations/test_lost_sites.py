"""Sites as processes that die, talk out of turn or never stop talking: the others go on, and words say what was."""

import io
import json
import os
import re
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from fedgauss.inference.federated import lines
from fedgauss.inference.federated.conversation import LostSite
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import EndlessLine, lines_of, serve_lines
from fedgauss.inference.federated.site import Site
from fedgauss.integrations.site_processes import SiteProcesses
from site_programs import environment, python, site_program

import fedgauss as fg
from fedgauss.integrations import site_processes
from site_rows import ROWS, own

FRAME = ROWS[["age", "dose", "ward", "visits", "years", "h"]]
MODEL = {"target": "visits", "family": "poisson", "formula": "visits ~ scale(age) + dose", "exposure": "years"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Tables of the sites, and the program that answers for them."""
    folder = tmp_path_factory.mktemp("sites")
    for name in "abc":
        own(FRAME, name).to_csv(folder / f"{name}.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        yield site_program(folder)


def commands(program, **options):
    """Of all three sites; options are by site."""
    return {name: python(program, program.parent / f"{name}.csv", *options.get(name, ())) for name in "abc"}


def fit_of(program, masked=False, lost="stop", **options):
    with SiteProcesses(commands(program, **options)) as sites:
        return fit_sites(sites.ask, sites.names, masked=masked, lost=lost, **MODEL)


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_a_site_that_is_killed_in_a_round_is_left_behind(program, masked):
    """The fit of the others is their pooled fit: means for scale() are of all, which changes no coefficient's test."""
    found = fit_of(program, masked, "leave", c=("--die-at", "sums", "--times", 3))
    rest = FRAME[FRAME.h != "c"]
    means = FRAME.age.mean(), FRAME.age.std(ddof=0)
    scaled = rest.assign(age=(rest.age - means[0]) / means[1])
    pooled = fg.fit(
        scaled, fg.Model("visits", family="poisson", features=["age", "dose"], exposure="years"), client="h"
    )
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-9, atol=1e-12)
    assert found.statistics.log_likelihood == pytest.approx(pooled.statistics.log_likelihood, rel=1e-10)
    assert found.facts["Rows"] == "210"
    assert found.notes[0] == (
        "site 'c' ended without a reply to 'sums'; it was ended by SIGKILL. It said last: "
        '"the disk is full". The fit is of the other sites.'
    )


@pytest.mark.parametrize(
    ("order", "times"),
    [
        ("sums", 2),
        *(pytest.param(order, 1, marks=pytest.mark.study) for order in ("levels", "design", "units", "final")),
    ],
)
def test_a_site_that_is_killed_ends_the_fit_with_its_last_words(program, order, times):
    words = f"site 'b' ended without a reply to '{order}'; it was ended by SIGKILL. It said last: "
    with pytest.raises(LostSite, match=re.escape(words + '"the disk is full".')) as gone:
        fit_of(program, masked=True, b=("--die-at", order, "--times", times))
    assert gone.value.site == "b"


@pytest.mark.study
@pytest.mark.parametrize(("order", "times"), [("units", 1), ("final", 1), ("own", 1)])
def test_a_site_may_be_lost_at_any_order_of_the_fit(program, order, times):
    found = fit_of(program, False, "leave", a=("--die-at", order, "--times", times))
    assert found.facts["Rows"] == "270"
    pooled = fg.fit(
        FRAME[FRAME.h != "a"],
        fg.Model("visits ~ age + dose", family="poisson", exposure="years"),
        client="h",
    )
    np.testing.assert_allclose(found.params[2], pooled.params[2], rtol=1e-9)


def test_where_two_are_left_none_may_be_lost(program):
    """Of one site's sums there is no total."""
    dying = {"a": ("--die-at", "sums", "--times", 2), "b": ("--die-at", "sums", "--times", 4)}
    with pytest.raises(LostSite, match=r"site 'b' ended without a reply to 'sums'"):
        fit_of(program, True, "leave", **dying)


@pytest.mark.study
def test_with_effects_of_sites_a_lost_one_ends_the_fit(program):
    with (
        SiteProcesses(commands(program, c=("--die-at", "sums", "--times", 2))) as sites,
        pytest.raises(LostSite, match="Its own effect cannot be fitted without it: start again"),
    ):
        fit_sites(sites.ask, sites.names, "visits", "poisson", ["age"], site_effects=True, lost="leave")


def test_a_banner_before_the_protocol_is_skipped_and_said(program, capfd):
    found = fit_of(program, b=("--banner", "Welcome to host b\n\x1b[31m*** maintenance on Sunday ***\n"))
    pooled = fg.fit(FRAME, fg.Model("visits ~ scale(age) + dose", family="poisson", exposure="years"), client="h")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    said = capfd.readouterr().err.splitlines()
    assert "site 'b', before its first reply: Welcome to host b" in said
    assert r"site 'b', before its first reply: \x1b[31m*** maintenance on Sunday ***" in said


def test_a_program_that_talks_on_is_no_site(monkeypatch):
    """It still runs, however long it is waited for."""
    monkeypatch.setattr(site_processes, "_A_MOMENT", 0.1)
    talks = [sys.executable, "-c", "import sys\nfor i in range(60): print('line', i, flush=True)\nsys.stdin.read()"]
    words = r"site 'a' sent something other than a reply: .*; it still runs\."
    with SiteProcesses({"a": talks}) as sites, pytest.raises(ValueError, match=words):
        sites.ask("describe", [{}])


@pytest.mark.parametrize(
    ("where", "patience", "words"),
    [("stdout", 30.0, "sent a line of more than 2,000,000 bytes, which is no reply"), ("stderr", 1.0, "within 1 s")],
)
def test_what_has_no_end_from_a_site_ends_in_words_and_in_bounded_memory(monkeypatch, where, patience, words):
    """Three times the longest line is never held, nor is what goes to standard error, which is passed on."""
    longest = 2_000_000
    monkeypatch.setattr(site_processes, "LONGEST", longest)
    endless = [sys.executable, "-c", f"import sys\nwhile True: sys.{where}.write('x' * 65536)"]
    with open(os.devnull, "w") as nowhere:
        monkeypatch.setattr(sys, "stderr", nowhere)
        tracemalloc.start()
        try:
            with SiteProcesses({"a": endless}, patience) as sites, pytest.raises(LostSite, match=words):
                sites.ask("describe", [{}])
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


def test_an_order_without_an_end_ends_in_words_and_in_bounded_memory():
    site, replies, longest = Site(own(FRAME, "a")), io.StringIO(), 2_000_000
    stream = Endless()
    tracemalloc.start()
    try:
        serve_lines(site, lines_of(io.BufferedReader(stream), longest), replies)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert json.loads(replies.getvalue())["error"].startswith("a message must be a line of at most 2,000,000 bytes")
    assert peak < 3 * longest
    assert stream.sent < 2 * longest
    assert lines.LONGEST == 64_000_000
    with pytest.raises(EndlessLine):
        next(lines_of(io.BufferedReader(Endless()), 1000))


def test_rows_of_lost_sites_are_in_no_message(program, capfd):
    found = fit_of(program, True, "leave", c=("--die-at", "sums", "--times", 3))
    heard = capfd.readouterr().err + " ".join(found.notes)
    assert not any(repr(value) in heard for value in pd.concat([FRAME.age, FRAME.dose]))
