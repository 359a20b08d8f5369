"""The live page in a real browser: it fits, keeps up, shows alarms in time, and runs nothing that a log smuggles in."""

import json
import threading
import time

import numpy as np
import pytest
from live_chromium import BROWSER, Tab
from live_pages import CONNECTED, fits, serving
from live_runs import NAMES, OPTIMUM, line, monitor, rounds

from fedgauss.integrations.live.command import watch
from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.lines import Line
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.run import Run

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="Chromium is not installed: only a browser can say how a page looks"
)

HOSTILE = '<script>document.title = "run"; window.ran = true</script>'
IMAGE = '<img src=x onerror="window.ran = true">'
SHADY = (HOSTILE, IMAGE, *NAMES[2:])
ALARMED = "document.getElementById('status').className === 'status alarm'"


@pytest.fixture
def tab(tmp_path):
    page = Tab(tmp_path / "browser")
    try:
        yield page
    finally:
        page.close()


@pytest.fixture
def served():
    run = Run(monitor(horizon=4000))
    with serving(run) as server:
        yield run, server


def test_an_alarm_is_shown_in_time_at_both_widths_and_a_script_in_a_name_is_text(served, tab):
    """And a refused round does not stretch the axis, the status is rewritten only to say more, and an end is seen."""
    run, server = served
    tab.size(1280)
    tab.open(server.address)
    tab.wait_for(CONNECTED)
    assert tab.value("document.getElementById('status').textContent") == "Waiting for the first round."
    for j, (y, theta) in enumerate(rounds(40, onset=400), start=1):
        told = run.take(Line(j, y, clients=dict(zip(SHADY, theta, strict=True))))
        if told.kind == "alarm" and run.alarm.round == j:
            assert tab.wait_for(ALARMED, seconds=2.0) <= 2.0
        if j == 38:
            run.take(Line(46, np.array([np.nan, 1.0])))
    tab.wait_for("document.querySelectorAll('#part-suspects tr.malicious').length === 2")
    names = json.loads(
        tab.value("JSON.stringify([...document.querySelectorAll('#part-suspects th')].map(e => e.textContent))")
    )
    assert {HOSTILE, IMAGE} <= set(names)
    assert tab.value("document.title") == "ALARM – Watching run.jsonl"
    assert tab.value("window.ran === undefined && document.querySelector('main img, main script') === null")
    assert tab.value("document.querySelectorAll('#part-confidence-intervals tbody tr').length") == 2
    assert tab.value("document.querySelectorAll('#clients tbody tr').length") == 6
    assert tab.value("document.getElementById('marks').textContent").startswith("First alarm after round")
    note = tab.value("document.querySelector('#part-suspects .note').textContent")
    assert note.startswith("2 of 6 clients called malicious.")
    assert tab.value("[...document.querySelectorAll('table')].every((e) => e.getAttribute('aria-label'))")
    assert tab.value("layout(document.getElementById('chart'), seen).to") == 800
    tab.value("void (window.words = document.getElementById('status').firstChild, window.last = answered)")
    fits(tab, 1280)
    fits(tab, 390)
    tab.wait_for("answered > window.last")
    assert tab.value("document.getElementById('status').firstChild === window.words")
    server.shutdown()
    server.server_close()
    tab.wait_for("document.getElementById('status').className === 'status lost'")
    assert tab.value("document.getElementById('status').textContent").startswith("NOT WATCHING since ")
    assert tab.value("document.title") == "NOT WATCHING, ALARM – Watching run.jsonl"


def test_a_page_says_that_nobody_watches(served, tab):
    run, server = served
    tab.open(server.address)
    tab.wait_for(CONNECTED)
    run.take(Line(1, OPTIMUM))
    for _ in range(3):
        run.refuse("rounds must come in order, each once; got <b>round 1</b>.")
    tab.wait_for("document.getElementById('status').className === 'status lost'")
    words = tab.value("document.getElementById('status').textContent")
    assert words.startswith("NOT WATCHING since ")
    assert "the last 3 rounds were refused. The last: rounds must come in order" in words
    assert "<b>round 1</b>" in words
    assert tab.value("document.title") == "NOT WATCHING – Watching run.jsonl"


@pytest.mark.study
def test_the_page_follows_a_log_as_it_is_written(tab, tmp_path):
    """From a line in the file to the page within two seconds, for every one of 12 rounds and for the alarm."""
    log, saved, said, stop = tmp_path / "run.jsonl", tmp_path / "m.npz", [], threading.Event()
    monitor(horizon=4000).save(saved)
    thread = threading.Thread(target=watch, args=(WatchOptions(log, monitor=saved, port=0), said.append, stop))
    thread.start()
    try:
        while not said:
            time.sleep(0.05)
        tab.size(1280)
        tab.open(said[0].split()[3].rstrip(";"))
        tab.wait_for(CONNECTED)
        seen = [line(j, y, theta, SHADY) for j, (y, theta) in enumerate(rounds(45, onset=400), start=1)]
        delays, alarm = [], None
        with log.open("ab") as file:
            file.write(b"\n".join(seen[:15]) + b"\n")
            for j, text in enumerate(seen[15:], start=16):
                file.write(text + b"\n")
                file.flush()
                delays.append(tab.wait_for(f"document.getElementById('facts').textContent.includes('round{j}')", 5.0))
                if alarm is None and tab.value(ALARMED):
                    alarm = j, delays[-1]
                if alarm is not None and len(delays) >= 12:
                    break
            file.write(b'{"round": 99, "parameters": [1, "<img src=x onerror=window.ran=true>"]}\n')
            file.flush()
            tab.wait_for("document.querySelectorAll('#refusals li').length === 1")
        print(f"\n{len(delays)} rounds: median {np.median(delays):.2f} s, largest {max(delays):.2f} s; alarm {alarm}")
        assert max(delays) <= 2.0
        assert 20 < alarm[0] <= 24
        assert tab.value("window.ran === undefined")
    finally:
        stop.set()
        thread.join(20)
    tab.wait_for("document.getElementById('link').textContent.includes('has not answered')")


@pytest.mark.study
def test_ten_thousand_rounds_stay_responsive(served, tab):
    """Drawing them takes under a fifth of a second, and frames keep coming while more arrive.

    Measured on two busy cores: 6 ms to draw, and 33 ms for the longest frame.
    """
    run, server = served
    generator = np.random.default_rng(0)
    run.take(Line(1, OPTIMUM))
    for j in range(2, 10_001):
        run.history.add(HistoryRow(j, 20 * j, float(generator.uniform(0.2, 0.8)), "quiet"))
    tab.size(1280)
    began = time.monotonic()
    tab.open(server.address)
    tab.wait_for("document.getElementById('chart').dataset.rounds === '10000'")
    loaded = time.monotonic() - began
    tab.value("""(() => { window.longest = 0; let last = performance.now(); const tick = (now) => {
        window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(tick); };
        requestAnimationFrame(tick); })()""")
    times = []
    for j in range(10_001, 10_006):
        run.history.add(HistoryRow(j, 20 * j, 0.5, "quiet"))
        tab.wait_for(f"document.getElementById('chart').dataset.rounds === '{j}'")
        times.append(float(tab.value("document.getElementById('chart').dataset.ms")))
    longest, points = tab.value("window.longest"), int(tab.value("document.getElementById('chart').dataset.points"))
    print(
        f"\nloaded in {loaded:.2f} s, drawn in {max(times):.1f} ms with {points} points, longest frame {longest:.0f} ms"
    )
    assert max(times) < 200
    assert longest < 500
    assert points <= 2 * 1280
    fits(tab, 390)
