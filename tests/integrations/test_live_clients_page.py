"""The page of watched clients in a real browser: it fits, marks who was named and left out, and runs no name."""

import json

import pytest
from client_runs import NAMES, line, logged, rounds
from live_chromium import BROWSER, Tab
from live_pages import CONNECTED, fits, serving

import fedgauss as fg
from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.run import Run

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="Chromium is not installed: only a browser can say how a page looks"
)

SHADY = ("<img src=x onerror='window.ran = true'>", *NAMES[1:2], "<script>window.ran = true</script>", *NAMES[3:])


@pytest.fixture
def tab(tmp_path):
    page = Tab(tmp_path / "browser")
    try:
        yield page
    finally:
        page.close()


@pytest.fixture
def served():
    run = Run(fg.ClientMonitor(horizon=60, seed=1))
    with serving(run) as server:
        yield run, server


def texts(tab, selector):
    return json.loads(
        tab.value(f"JSON.stringify([...document.querySelectorAll('{selector}')].map((e) => e.textContent))")
    )


def colour(tab, row, number):
    """Of the middle of a cell in the heat map, as red, green, blue and how opaque it is."""
    return json.loads(
        tab.value(f"""(() => {{
          const x = Math.round(drawn.middle({number})), y = Math.round(drawn.y({row} + 0.3));
          const pen = document.getElementById("chart").getContext("2d");
          return JSON.stringify([...pen.getImageData(x, y, 1, 1).data]);
        }})()""")
    )


def test_the_page_shows_who_was_named_and_left_out_and_names_are_text(served, tab, tmp_path):
    """Cells of the picture itself are looked at: absent ones are blank, those of an attack deeper than honest ones."""
    run, server = served
    log = tmp_path / "log"
    wanted = logged(log, rounds(36, names=SHADY, absent=0))
    alarm = next(verdict for verdict in wanted if verdict.alarm)
    tab.size(1280)
    tab.open(server.address)
    tab.wait_for(CONNECTED)
    assert tab.value("document.getElementById('status').textContent") == "Waiting for the first round."
    for text in log.read_bytes().splitlines():
        run.take_json(text)
    tab.wait_for("document.getElementById('chart').dataset.rounds === '36'")
    assert tab.value("window.ran === undefined && document.querySelector('main img, main script') === null")
    out = texts(tab, "#clients tr.malicious")
    assert {SHADY[2] in row or SHADY[7] in row for row in out} == {True}
    assert all(f"out from {alarm.round + 1} on" in row for row in out)
    left, named = texts(tab, "#part-named-and-left-out li")
    assert left.startswith(f"After round {alarm.round}: ")
    assert "left out; the run went back to round" in left
    assert named.startswith(f"Round {alarm.round}: ")
    assert (SHADY[2] in left, SHADY[7] in named) == (True, True)
    place = list(run.roll.numbered).index(SHADY[2])
    late = list(run.roll.numbered).index(SHADY[9])
    assert colour(tab, late, 2)[3] == 0  # it joined in round 6
    assert colour(tab, place, alarm.round + 2)[3] == 0  # left out
    deep, honest = colour(tab, place, alarm.round), colour(tab, 0, alarm.round)
    assert deep[3] == honest[3] == 255
    assert sum(deep[1:3]) < sum(honest[1:3]) - 60  # redder
    assert tab.value("panels(seen).join()") == "accuracy"
    tab.value("""document.getElementById("chart").dispatchEvent(new PointerEvent("pointermove", {
        clientX: document.getElementById("chart").getBoundingClientRect().left + drawn.middle(3),
        clientY: document.getElementById("chart").getBoundingClientRect().top + drawn.y(0.5) }))""")
    assert tab.value("document.getElementById('at').textContent") == f"{SHADY[0]}, round 3: not judged."
    fits(tab, 1280)
    fits(tab, 390)
    run.take_json(line(37, next(rounds(1, dim=40, names=("a", "b", "c", "d", "e"), absent=0))))
    tab.wait_for("document.getElementById('chart').dataset.clients === '14'")  # "e" comes in its round 6


@pytest.mark.study
def test_a_hundred_clients_and_thousands_of_rounds_stay_responsive(served, tab):
    """No more columns are drawn than there are pixels. Measured on two busy cores: drawn in 0.07 s."""
    run, server = served
    run.take_json(line(1, next(rounds(1, names=[f"client {k}" for k in range(100)], absent=0))))
    for j in range(2, 10_001):
        run.history.add(
            HistoryRow(j, j, 0.5, "quiet", tuple(range(99)), tuple(float((j * k) % 40) / 10 for k in range(99)))
        )
    tab.size(1280)
    tab.open(server.address)
    tab.wait_for("document.getElementById('chart').dataset.rounds === '10000'", 30)
    seen = json.loads(tab.value("JSON.stringify(document.getElementById('chart').dataset)"))
    print(f"\ndrawn in {seen['ms']} ms")
    assert int(seen["bins"]) < 1280
    assert int(seen["clients"]) == 99
    assert "A column is about" in tab.value("document.getElementById('marks').textContent")
    fits(tab, 390)
