"""The battery for sinks: every shipped one passes, and every rule finds a broken one."""

import json
import math
import pickle
import sys
import threading
import time
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure, outcome

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations import sinks
from fedgauss.testing import check_sink, checks_for_sink, sink


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


class Fresh:
    """What has been added to a list since it was looked at last."""

    def __init__(self, rows):
        self.rows, self.seen = rows, 0

    def __call__(self):
        rows = self.rows()
        new, self.seen = rows[self.seen :], len(rows)
        return new


def test_json_lines_conform(tmp_path):
    file = tmp_path / "verdicts.jsonl"
    file.touch()
    read = Fresh(lambda: [json.loads(line, parse_constant=refuse) for line in file.read_text().splitlines()])
    report = check_sink(lambda: sinks.json_lines(file), read)
    assert [found.status for found in report.outcomes] == ["passed"] * 11


def test_a_webhook_conforms():
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])), parse_constant=refuse))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_address[1]}/hook"
            report = check_sink(lambda: sinks.webhook(url), Fresh(lambda: list(got)))
        finally:
            server.shutdown()
            thread.join()
    assert [found.status for found in report.outcomes] == ["passed"] * 11


def test_several_sinks_conform(tmp_path):
    check_sink(lambda: sinks.Sinks([sinks.json_lines(tmp_path / "one"), sinks.json_lines(tmp_path / "two")]))


def test_prometheus_conforms():
    package = pytest.importorskip("prometheus_client")
    check_sink(lambda: sinks.prometheus(package.CollectorRegistry()))


def test_tensorboard_conforms(tmp_path):
    pytest.importorskip("tensorboardX")
    check_sink(lambda: sinks.tensorboard(tmp_path))


def test_opentelemetry_conforms():
    metrics = pytest.importorskip("opentelemetry.sdk.metrics")
    provider = metrics.MeterProvider()
    check_sink(lambda: sinks.opentelemetry(provider.get_meter("fedgauss")))
    provider.shutdown()


def test_mlflow_conforms(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    with mlflow.start_run():
        check_sink(lambda: sinks.mlflow())


class Rows:
    """A sound sink into a list, for mutants to spoil."""

    def __init__(self, rows):
        self.rows = rows

    def row(self, round, verdict):
        row = asdict(verdict) | {"round": round, "words": str(verdict)}
        for name in ("statistic", "threshold"):
            row[name] = row[name] if math.isfinite(row[name]) else None
        return row

    def __call__(self, round, verdict):
        self.rows.append(self.row(round, verdict))

    def close(self):
        pass


class Unclosable(Rows):
    closed = False

    def close(self):
        if self.closed:
            raise ValueError("closed already")
        self.closed = True


class Fussy(Rows):
    def __call__(self, round, verdict):
        self.rows.append({"round": round, "onset": int(verdict.onset)})


class Once(Rows):
    def __call__(self, round, verdict):
        if any(row["round"] == round for row in self.rows):
            raise KeyError(round)
        super().__call__(round, verdict)


class Meddling(Rows):
    def __call__(self, round, verdict):
        object.__setattr__(verdict, "note", "seen")


class Slow(Rows):
    def __call__(self, round, verdict):
        time.sleep(0.02)


class Pickling(Rows):
    def __call__(self, round, verdict):
        pickle.dumps(verdict)


class Ending(Rows):
    def __call__(self, round, verdict):
        if verdict.alarm:
            sys.exit("alarm")


class Losing(Rows):
    def __call__(self, round, verdict):
        if verdict.alarm:
            super().__call__(round, verdict)


class Raw(Rows):
    def row(self, round, verdict):
        return asdict(verdict)


class Textual(Rows):
    def row(self, round, verdict):
        return {"round": round, "threshold": str(verdict.threshold)}


class Unescaped(Rows):
    def row(self, round, verdict):
        return {"round": round, "note": verdict.note.replace("\n", " ")}


def test_the_sound_sink_conforms():
    rows = []
    check_sink(lambda: Rows(rows), Fresh(lambda: rows))


@pytest.mark.parametrize(
    ("name", "kind", "pattern"),
    [
        ("callable", list, "list, which is not callable"),
        ("every verdict", Fussy, "TypeError for no alarm"),
        ("repeated rounds", Once, "KeyError: 1"),
        ("leaves the verdict", Meddling, "another note"),
        ("prompt", Slow, r"a call that took \d+\.\d s"),
        ("no pickle", Pickling, "a call of pickle"),
        ("close", Unclosable, "ValueError the second time: closed already"),
        ("never stops a run", Ending, "SystemExit: alarm"),
        ("every round arrives", Losing, r"rounds \[2, 3, 4, 8\], not \[1, 2, 3, 4, 5, 6, 7, 8, 9\]"),
        ("numbers arrive", Raw, "statistic = inf in place of None in round 4"),
        ("numbers arrive", Textual, r"threshold = '4\.0' in place of 4\.0 in round 1"),
        ("words arrive", Unescaped, "note = 'a .* in place of"),
    ],
)
def test_every_rule_finds_a_broken_sink(name, kind, pattern, monkeypatch):
    monkeypatch.setattr(sink, "_SECONDS", 0.01)
    rows = []
    expect_failure(checks_for_sink(lambda: kind(rows), Fresh(lambda: rows)), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(sink._RULES, sys.modules[__name__])


def test_what_does_not_apply_is_skipped():
    battery = checks_for_sink(lambda: lambda round, verdict: None)
    assert outcome(battery, "close").status == "skipped"
    assert outcome(battery, "words arrive").status == "skipped"


def test_verdicts_of_the_battery_are_of_every_kind():
    told = list(sink.VERDICTS.values())
    assert all(isinstance(verdict, Verdict) for verdict in told)
    assert {verdict.channel for verdict in told} == {"mean", "spread", "invalid update", "my channel-2"}
