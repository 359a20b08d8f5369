"""Rows that are written once."""

import json

from live_runs import monitor
from live_served import Served

from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.live.thinned import Thinned, WrittenRows


def test_rows_are_written_once_and_anew_after_a_thinning():
    """Defects that it would catch: old rows after a thinning, rows twice, a number beyond the last as the end."""
    rows, times = Thinned(10, max), []

    def shown(row):
        times.append(row)
        return {"is": row}

    written = WrittenRows(rows, shown)
    for row in range(100):
        rows.add(row)
        for number in (0, 3, rows.count, rows.count + 1):
            first, held = rows.since(number)
            assert written.since(number) == (first, json.dumps([{"is": row} for row in held], separators=(",", ":")))
    assert rows.epoch == 4
    assert len(times) < 60  # of 100, most of which were asked for often


def test_a_page_is_told_what_the_state_says(monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.history._CELLS", 1000)
    run = Run(monitor())
    with Served(run=run) as it:
        for j in range(1, 60):
            run.history.add(HistoryRow(j, 20 * j, 0.5 if j % 7 else float("inf"), "quiet"))
            for since in (0, run.history.count // 2, run.history.count, 10**6):
                status, _, body = it.ask("GET", f"/state?run={run.id}&since={since}")
                assert status == 200
                assert {**json.loads(body), "health": 0} == {
                    **json.loads(json.dumps(state_of(run, since))),
                    "health": 0,
                }
