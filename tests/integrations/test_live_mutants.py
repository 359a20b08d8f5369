"""Broken POSTs and lines of logs by the thousand: none is a traceback, and refused ones leave the monitor alone."""

import random

import client_runs
import pytest
from live_runs import NAMES, line, monitor, rounds, state_bytes
from live_served import JSON, TOKEN, Served

import fedgauss as fg
from fedgauss.integrations.live.feed import Outcome
from fedgauss.integrations.live.lines import line_from_json
from fedgauss.integrations.live.logs import LineLog
from fedgauss.integrations.live.run import Run
from memory_used import highest_memory

HOW_MANY = pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.study)])

HOSTILE = (
    *(b"NaN", b"-Infinity", b"1e999", b"1e308", b"-0", b"9" * 400, b"1e-400", b"null", b"true", b'""', b"[]", b"{}"),
    *(b"[[1]]", b'"\\ud800"', b"\xff\xfe", b"\x00", b"\r\n\r\n", b"\r\n", b"{" * 2000, b'"round": 1,', b"<script>"),
    *(b"HTTP/1.1", b"POST / HTTP/1.1", b":", b"?token=", b" " * 40_000, b"Origin: null\r\n", b"Host: evil\r\n"),
    *(b"Content-Length: 0\r\n", b"Content-Length: 99999999\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Expect: 100-continue\r\n", b"Cookie: a=b; fedgauss_80=\xff\r\n"),
)


def mutant(generator, data):
    """Up to four accidents to some bytes."""
    data = bytearray(data)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(data) + 1)
        to = min(len(data), at + generator.randint(1, 12))
        accident = generator.randrange(6)
        if accident == 0:
            data[at:to] = b""
        elif accident == 1:
            data[at:at] = generator.choice(HOSTILE)
        elif accident == 2:
            data[at:to] = generator.choice(HOSTILE)
        elif accident == 3:
            data[at:to] = generator.randbytes(to - at)
        elif accident == 4:
            data[at:at] = data[at:to]
        else:
            del data[at + (len(data) - at) // 2 :]
    return bytes(data)


class Recorded(Run):
    """A run that remembers what it was given and took."""

    def __init__(self, watcher):
        super().__init__(watcher)
        self.bodies = []

    def take_json(self, text):
        outcome = super().take_json(text)
        self.bodies.append(text)
        return outcome


def post(port, body):
    head = f"POST /rounds HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    kind = f"Content-Type: {JSON['Content-Type']}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + kind.encode() + b"\r\n" + body


@HOW_MANY
def test_mutated_posts_are_answered_and_change_nothing_unless_they_are_taken(count, capfd):
    """Half of them have accidents in the body alone, half anywhere. A twin that is fed those taken ends the same."""
    generator, run, twin, numbers = random.Random(5), Recorded(monitor()), Run(monitor()), [0, 0, 0]
    path = list(rounds(50))
    with Served(TOKEN, run=run) as it:
        begun = None
        for k in range(count):
            y, theta = path[k % len(path)]
            body = line((run.round or 0) + 1, y, theta, participants=list(NAMES))
            if k % 2:
                body = mutant(generator, body)
                data = post(it.server.port, body)
            else:
                data = mutant(generator, post(it.server.port, body))
            before = state_bytes(run.monitor)
            answer = it.raw(data)
            status = int(answer[9:12]) if answer else 0
            numbers[0 if status == 200 else 1 if status else 2] += 1
            assert status in (0, 200, 303, *range(400, 500), 505), answer
            assert answer or not data.strip(b"\r\n"), data
            assert status == 200 or state_bytes(run.monitor) == before
            if k == 200:
                begun = highest_memory(reset=True)
        assert it.ask("GET", "/state", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        grown = highest_memory() - begun
    with capfd.disabled():
        taken, refused, silent = numbers
        print(f"\n{count} mutants: {taken} taken, {refused} refused, {silent} not answered; {grown:.1f} MB more")
    for body in run.bodies:
        twin.take_json(body)
    assert state_bytes(run.monitor) == state_bytes(twin.monitor)
    assert grown < 50
    assert capfd.readouterr().err == ""


def of_parameters():
    return Run(monitor()), [lambda j, y=y, theta=theta: line(j, y, theta) for y, theta in rounds(40)]


def of_parameters_alone():
    return Run(monitor()), [lambda j, y=y: line(j, y) for y, _ in rounds(40)]


def of_clients():
    seen = client_runs.rounds(40, onset=10**6)
    return Run(fg.ClientMonitor(horizon=1_000, seed=1)), [
        lambda j, moves=moves: client_runs.line(j, moves) for moves in seen
    ]


def held(run):
    return (client_runs.held if run.feed.by_client else state_bytes)(run.monitor)


@HOW_MANY
@pytest.mark.parametrize("kind", [of_parameters, of_parameters_alone, of_clients])
def test_mutated_lines_are_taken_or_refused_and_a_refusal_changes_nothing(kind, count, tmp_path):
    """Each comes in two pieces. A twin that is fed those taken, and nothing else, ends the same."""
    generator, (run, good), (twin, _) = random.Random(6), kind(), kind()
    path, counts, begun = tmp_path / "run.jsonl", {"taken": 0, "refused": 0}, None
    last = b""

    def recorded(text):
        nonlocal last
        last = text
        return line_from_json(text)

    log = LineLog(path, recorded)
    with path.open("wb", buffering=0) as file:
        for k in range(count):
            whole = good[k % len(good)]((run.round or 0) + 1)
            text = mutant(generator, whole) if k % 8 else whole
            cut = generator.randrange(len(text) + 1)
            for piece in (text[:cut], text[cut:] + b"\n"):
                file.write(piece)
                for said in log.poll():
                    before = held(run)
                    (found,) = run.take_many([said])
                    if isinstance(found, Outcome) and found.kind != "invalid update":
                        counts["taken"] += 1
                        twin.take(line_from_json(last))
                    else:
                        counts["refused"] += 1
                        assert held(run) == before
            assert run.health().round == run.round
            if k == 200:
                begun = highest_memory(reset=True)
    log.close()
    grown = highest_memory() - begun
    print(f"\n{count} lines: {counts}, {grown:.1f} MB more")
    assert held(run) == held(twin)
    assert min(counts.values()) > 0.05 * count
    assert grown < 50
