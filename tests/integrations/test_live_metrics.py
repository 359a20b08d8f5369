"""`/health` for probes and `/metrics` for Prometheus, read by its own parser."""

import json
import socket

import pytest
from client_runs import logged
from client_runs import rounds as client_rounds
from live_dribblers import until
from live_runs import NAMES, line, monitor, rounds
from live_served import TOKEN, Served
from prometheus_client.parser import text_string_to_metric_families

import fedgauss as fg
from fedgauss.integrations.live.connection import Limits
from fedgauss.integrations.live.run import Run

BEARER = {"Authorization": f"Bearer {TOKEN}"}
TYPES = {
    "fedgauss_watch_rounds": "counter",
    "fedgauss_watch_refused": "counter",
    "fedgauss_watch_alarms": "counter",
    "fedgauss_watch_alarm": "gauge",
    "fedgauss_watch_watching": "gauge",
    "fedgauss_watch_blind": "gauge",
    "fedgauss_watch_silence_seconds": "gauge",
    "fedgauss_watch_ratio": "gauge",
    "fedgauss_watch_connections_refused": "counter",
    "process_resident_memory_bytes": "gauge",
}


def scraped(it):
    """Samples by name and labels; every family has help and its type."""
    status, headers, body = it.ask("GET", "/metrics", headers=BEARER)
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        assert TYPES[family.name] == family.type
        assert family.documentation.endswith(".")
        for sample in family.samples:
            found[sample.name, *sample.labels.values()] = sample.value
    return found


def test_metrics_follow_a_run_into_its_alarm():
    with Served(TOKEN, limits=Limits(head_seconds=0.2)) as it:
        before = scraped(it)
        assert before["fedgauss_watch_rounds_total",] == before["fedgauss_watch_watching",] == 0
        assert ("fedgauss_watch_ratio",) not in before
        assert before["fedgauss_watch_connections_refused_total", "full"] == 0
        for j, (y, theta) in enumerate(rounds(40, onset=400), start=1):
            assert it.post(line(j, y, theta), **BEARER)[0] == 200
            if j == 10:
                quiet = scraped(it)
        assert it.post(b"{", **BEARER)[0] == 400
        with socket.create_connection(("127.0.0.1", it.server.port)):
            until(lambda: it.server.rejected["slow"] == 1)
        after = scraped(it)
    assert quiet["fedgauss_watch_rounds_total",] == 10
    assert quiet["fedgauss_watch_alarms_total",] == quiet["fedgauss_watch_alarm",] == 0
    assert 0 < quiet["fedgauss_watch_ratio",] < 1
    assert after["fedgauss_watch_rounds_total",] == 40
    assert after["fedgauss_watch_refused_total",] == 1
    assert after["fedgauss_watch_alarms_total",] == after["fedgauss_watch_alarm",] == 1
    assert after["fedgauss_watch_watching",] == 1
    assert after["fedgauss_watch_blind",] == 0
    assert after["fedgauss_watch_ratio",] > 1
    assert 0 <= after["fedgauss_watch_silence_seconds",] < 60
    assert after["fedgauss_watch_connections_refused_total", "slow"] == 1
    assert 10 * 2**20 < after["process_resident_memory_bytes",] < 2**36


def test_metrics_of_watched_clients(tmp_path):
    verdicts = logged(tmp_path / "log", client_rounds(36))
    run = Run(fg.ClientMonitor(horizon=60, seed=1))
    with Served(TOKEN, run=run) as it:
        for text in (tmp_path / "log").read_bytes().splitlines():
            run.take_json(text)
        found = scraped(it)
    assert any(verdict.alarm for verdict in verdicts)
    assert found["fedgauss_watch_rounds_total",] == 36
    assert found["fedgauss_watch_alarms_total",] >= 1
    assert found["fedgauss_watch_ratio",] == pytest.approx(run.verdict.statistic / run.verdict.threshold)


def test_health_is_for_probes_and_tells_strangers_the_state_alone():
    with Served(TOKEN) as it:
        status, _, body = it.ask("GET", "/health")
        assert (status, json.loads(body)["state"]) == (200, "waiting")
        for j, (y, theta) in enumerate(rounds(40, onset=400), start=1):
            it.run.take_json(line(j, y, theta))
        status, _, body = it.ask("GET", "/health")
        said = json.loads(body)
        assert (status, said["state"], said["watching"]) == (200, "alarm", True)
        assert said.keys() == {"state", "watching", "since"}
        assert not any(name.encode() in body for name in NAMES)
        known = json.loads(it.ask("GET", "/health", headers=BEARER)[2])
        assert known["reason"].startswith("ALARM")
        assert (known["round"], known["taken"], known["refused"]) == (40, 40, 0)
        assert it.ask("GET", "/health", headers={"Host": "evil.example"})[0] == 403
        assert it.ask("POST", "/health", b"{}")[0] == 401
        for path in ("/metrics", "/health/", "/state"):
            assert it.ask("GET", path)[0] == 401


def test_health_is_503_when_nothing_is_watched():
    """Rounds that are refused one after the other, as after a jump: an attack would not be seen."""
    with Served(TOKEN, run=Run(monitor())) as it:
        for j, (y, _) in enumerate(rounds(5), start=1):
            it.post(line(j, y), **BEARER)
        assert it.ask("GET", "/health")[0] == 200
        for _ in range(10):
            it.post(b'{"round": 1, "parameters": [2, -3]}', **BEARER)
        status, _, body = it.ask("GET", "/health")
        assert (status, json.loads(body)["state"], json.loads(body)["watching"]) == (503, "not watching", False)
        found = scraped(it)
        assert (found["fedgauss_watch_watching",], found["fedgauss_watch_blind",]) == (0, 1)
