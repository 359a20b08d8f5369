"""Rounds from JSON and arrays: what is malformed, hostile or half written is refused or waited for."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from fedgauss.integrations.live.lines import MOST_BYTES, line_from_json
from fedgauss.integrations.live.logs import ArrayLog, LineLog, Replaced

WRONG = {
    "nothing": (b"", "one JSON object"),
    "half": (b'{"round": 1, "parameters": [0.1', "one JSON object"),
    "no JSON": (b"round 1", "one JSON object"),
    "not UTF-8": (b'{"round": 1, "parameters": [1], "participants": ["\xff"]}', "one JSON object; 'utf-8' codec"),
    "a list": (b"[1, 2]", "must be a JSON object; got"),
    "no round": (b'{"parameters": [1]}', "must have 'round'"),
    "no parameters": (b'{"round": 1}', "must have 'parameters'"),
    "round zero": (b'{"round": 0, "parameters": [1]}', "whole number from 1"),
    "round as words": (b'{"round": "1", "parameters": [1]}', "whole number from 1"),
    "round true": (b'{"round": true, "parameters": [1]}', "whole number from 1"),
    "round 1.5": (b'{"round": 1.5, "parameters": [1]}', "whole number from 1"),
    "round huge": (b'{"round": 1' + b"0" * 400 + b', "parameters": [1]}', "whole number from 1"),
    "5,000 digits": (b'{"round": 1' + b"0" * 5000 + b', "parameters": [1]}', "one JSON object; Exceeds the limit"),
    "bad step": (b'{"round": 1, "parameters": [1], "step": -5}', "step must be a whole number"),
    "empty": (b'{"round": 1, "parameters": []}', "list of numbers"),
    "words": (b'{"round": 1, "parameters": [1, "2"]}', "'2' is none"),
    "null": (b'{"round": 1, "parameters": [null]}', "None is none"),
    "true": (b'{"round": 1, "parameters": [true]}', "True is none"),
    "nested": (b'{"round": 1, "parameters": [[1, 2]]}', r"\[1, 2\] is none"),
    "deep": (b'{"round": 1, "parameters": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested this deeply"),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested this deeply"),
    "large integer": (b'{"round": 1, "parameters": [1' + b"0" * 400 + b"]}", "below 1e308"),
    "twice": (b'{"round": 1, "parameters": [1], "clients": {"a": [1], "a": [2]}}', "occur once"),
    "clients a list": (b'{"round": 1, "parameters": [1], "clients": [[1]]}', "clients must be an object"),
    "nobody": (b'{"round": 1, "parameters": [1], "participants": []}', "at least one"),
    "named twice": (b'{"round": 1, "parameters": [1], "participants": ["a", "a"]}', "name each client once"),
    "named by a list": (b'{"round": 1, "parameters": [1], "participants": [["a"]]}', "printable characters"),
    "control characters": (b'{"round": 1, "parameters": [1], "participants": ["\\u001b[2J"]}', "printable"),
    "half a surrogate": (b'{"round": 1, "parameters": [1], "participants": ["\\ud800"]}', "printable"),
    "a long name": (b'{"round": 1, "parameters": [1], "participants": ["' + b"x" * 201 + b'"]}', "1 to 200"),
    "too long": (b'{"round": 1, "parameters": [' + b"1," * (MOST_BYTES // 2) + b"1]}", "at most 8,388,608 bytes"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_round_is_refused_with_a_short_reason(text, message):
    with pytest.raises(ValueError, match=message) as refused:
        line_from_json(text)
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_a_round_from_json():
    found = line_from_json(
        b'{"round": 7, "parameters": [1, -0.5, NaN], "step": 140, "participants": ["a", 12], "loss": 0.3, '
        b'"clients": {"a": [1, 2, 3], "12": [0, 0, 1e400]}, "all_clients": ["a", "b", 12]}'
    )
    assert (found.number, found.step, found.participants, found.all_clients) == (7, 140, ("a", "12"), ("a", "b", "12"))
    np.testing.assert_array_equal(found.parameters, [1.0, -0.5, np.nan])
    np.testing.assert_array_equal(found.clients["12"], [0.0, 0.0, np.inf])


def numbers(lines):
    return [found if isinstance(found, ValueError) else found.number for found in lines.poll()]


def said(number, first=0.5):
    return json.dumps({"round": number, "parameters": [first, 1.5]}) + "\n"


def test_lines_are_read_as_they_come_and_half_a_line_waits(tmp_path):
    log = tmp_path / "run.jsonl"
    lines = LineLog(log, line_from_json)
    assert numbers(lines) == []  # there is no file yet
    with log.open("a") as file:
        file.write(said(1) + "\n  \n" + said(2) + said(3)[:9])
        file.flush()
        assert numbers(lines) == [1, 2]
        assert numbers(lines) == []
        file.write(said(3)[9:-2])
        file.flush()
        assert numbers(lines) == []  # only the last brace is missing
        file.write("}")
        file.flush()
        assert numbers(lines) == [3]  # whole, though the line has no end yet
        file.write("\n" + said(4))
        file.flush()
        assert numbers(lines) == [4]


def test_one_bad_line_does_not_hide_the_next(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_bytes(said(1).encode() + b"\x00\xff{{{\n" + b"[" * 50_000 + b"\n" + said(2).encode())
    first, broken, deep, second = numbers(LineLog(log, line_from_json))
    assert (first, second) == (1, 2)
    assert "one JSON object" in str(broken)
    assert "nested" in str(deep)


def test_a_line_without_end_is_refused_once_and_skipped(tmp_path):
    log = tmp_path / "run.jsonl"
    log.write_bytes(b"9" * (MOST_BYTES + 3_000_000))
    lines = LineLog(log, line_from_json)
    (refused,) = numbers(lines)
    assert "at most 8,388,608 bytes" in str(refused)
    with log.open("ab") as file:
        file.write(b"9" * 1000)
        file.flush()
        assert numbers(lines) == []
        file.write(b"\n" + said(5).encode())
    assert numbers(lines) == [5]


def followed(tmp_path):
    """A log of four rounds that were read, and how it is read."""
    log = tmp_path / "run.jsonl"
    log.write_text("".join(map(said, range(1, 5))))
    lines = LineLog(log, line_from_json, lambda found: found.number > 4)
    assert numbers(lines) == [1, 2, 3, 4]
    return log, lines


def cut_short(log):
    log.write_text(said(1))


def replaced(log):
    fresh = log.with_name("fresh")
    fresh.write_text("nonsense\n" + "".join(said(j, 7.0) for j in range(1, 9)))
    fresh.replace(log)


def rewritten(log):
    log.write_text("".join(said(j, 7.0) for j in range(1, 20)))  # the same file, longer than before


@pytest.mark.parametrize("change", [cut_short, replaced, rewritten])
def test_another_runs_log_in_the_same_place_is_noticed(tmp_path, change):
    log, lines = followed(tmp_path)
    change(log)
    with pytest.raises(Replaced):
        numbers(lines)


def test_a_log_that_is_renamed_and_begun_again_is_gone_on_with(tmp_path):
    """As logrotate does with `create`; the writer is still at the old file for a while."""
    log, lines = followed(tmp_path)
    old = log.rename(tmp_path / "run.jsonl.1")
    with old.open("a") as writer:
        writer.write(said(5))
        writer.flush()
        assert numbers(lines) == [5]  # there is no new one yet
        log.touch()
        writer.write(said(6))
        writer.flush()
        assert numbers(lines) == [6]
        writer.write(said(7))
    log.write_text(said(8))
    assert numbers(lines) == [7, 8]
    with log.open("a") as writer:
        writer.write(said(9))
    assert numbers(lines) == [9]


def test_a_log_that_is_copied_and_cut_to_nothing_is_gone_on_with(tmp_path):
    """As logrotate does with `copytruncate`, whether or not the new lines are more than the old."""
    for count in (1, 30):
        log, lines = followed(tmp_path)
        os.truncate(log, 0)
        assert numbers(lines) == []
        with log.open("a") as writer:
            writer.write("".join(map(said, range(5, 5 + count))))
        assert numbers(lines) == list(range(5, 5 + count))
        log.unlink()


def test_a_longer_copy_in_its_place_is_the_same_log(tmp_path):
    """As rsync does each time."""
    log, lines = followed(tmp_path)
    for last in (9, 12):
        fresh = log.with_name("fresh")
        fresh.write_text("".join(map(said, range(1, last + 1))))
        fresh.replace(log)
        assert numbers(lines) == list(range(5 if last == 9 else 10, last + 1))
    log.unlink()
    assert numbers(lines) == []  # it may come back


@pytest.mark.parametrize("reader", [lambda path: LineLog(path, line_from_json), ArrayLog], ids=["lines", "arrays"])
def test_a_log_must_be_a_plain_file(tmp_path, reader):
    """Opening a pipe would wait for a writer, and no Ctrl-C would end it."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path(os.devnull), tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="must be a plain file"):
            numbers(reader(path))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (gzip.compress(b'{"round": 1}'), r"is compressed\. Unpack it first"),
        (b"PK\x03\x04 and so on", "is compressed"),
        (said(1).encode("utf-16"), "is in UTF-16"),
        (said(1).encode("utf-16-le"), "is in UTF-16"),
    ],
    ids=["gzip", "zip", "UTF-16", "UTF-16 without a mark"],
)
def test_a_log_that_is_no_text_is_said_once_and_not_for_every_line(tmp_path, written, message):
    (tmp_path / "run.jsonl").write_bytes(written)
    with pytest.raises(ValueError, match=message):
        numbers(LineLog(tmp_path / "run.jsonl", line_from_json))


def test_a_byte_order_mark_costs_no_line(tmp_path):
    (tmp_path / "run.jsonl").write_text(said(1) + said(2), encoding="utf-8-sig")
    assert numbers(LineLog(tmp_path / "run.jsonl", line_from_json)) == [1, 2]


def arrays(count, **more):
    return {"round": np.arange(1, count + 1), "parameters": np.arange(2.0 * count).reshape(count, 2)} | more


def test_arrays_are_read_as_the_file_grows(tmp_path):
    log = tmp_path / "run.npz"
    source = ArrayLog(log)
    assert numbers(source) == []
    np.savez(log, **arrays(3))
    assert numbers(source) == [1, 2, 3]
    assert numbers(source) == []
    np.savez_compressed(log, **arrays(5))
    assert numbers(source) == [4, 5]
    np.savez(log, **arrays(2))
    with pytest.raises(Replaced):
        numbers(source)


def test_arrays_hold_clients_and_participation(tmp_path):
    log = tmp_path / "run.npz"
    here = np.array([[True, True, True], [True, False, True]])
    sent = np.arange(12.0).reshape(2, 3, 2)
    np.savez(log, **arrays(2), participation=here, clients=sent, names=np.array(["a", "b", "c"]), step=[20, 60])
    first, second = ArrayLog(log).poll()
    assert (first.participants, second.participants) == (("a", "b", "c"), ("a", "c"))
    assert (second.step, second.all_clients) == (60, ("a", "b", "c"))
    np.testing.assert_array_equal(second.clients["c"], [10.0, 11.0])
    np.savez(log, **arrays(2), participation=here)
    first, second = ArrayLog(log).poll()
    assert (second.participants, second.clients) == (("0", "2"), None)


def test_half_an_npz_waits_and_a_broken_one_is_said_once(tmp_path):
    log, whole = tmp_path / "run.npz", tmp_path / "whole.npz"
    np.savez(whole, **arrays(3))
    log.write_bytes(whole.read_bytes()[:200])
    source = ArrayLog(log)
    assert numbers(source) == []
    log.write_bytes(whole.read_bytes())
    assert numbers(source) == [1, 2, 3]
    log.write_bytes(b"PK broken")
    said_so = [found for _ in range(40) for found in numbers(source)]
    assert len(said_so) == 1
    assert "complete .npz file" in str(said_so[0])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"round": np.arange(3)}, "must hold round and parameters"),
        (arrays(3, parameters=np.ones(3)), "parameters in the log must be numbers with 2 axes; got float64 with 1"),
        (arrays(3, parameters=np.ones((2, 2))), r"parameters in the log must have shape \(3, 2\)"),
        (arrays(3, participation=np.ones((2, 4), dtype=bool)), r"participation in the log must have shape \(3, 4\)"),
        (
            arrays(3, participation=np.ones((3, 4))),
            "participation in the log must be booleans with 2 axes; got float64 with 2",
        ),
        (arrays(3, clients=np.ones((3, 4, 5))), r"clients in the log must have shape \(3, 4, 2\)"),
        (arrays(3, parameters=np.array([[object()]] * 3)), "allow_pickle=False"),
        (arrays(3, clients=np.ones((3, 2, 2)), names=np.array(["a", "a"])), "name each client once"),
        (arrays(1, round=np.array([0])), "count from 1"),
        (arrays(1, participation=np.zeros((1, 2), dtype=bool)), "at least one participant"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path, held, message):
    np.savez(tmp_path / "run.npz", **held)
    (refused,) = numbers(ArrayLog(tmp_path / "run.npz"))
    assert isinstance(refused, ValueError)
    with pytest.raises(ValueError, match=message):
        raise refused


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.logs._MOST_BYTES", 4_000)
    np.savez_compressed(tmp_path / "run.npz", **arrays(3, clients=np.zeros((3, 100, 2))))
    assert (tmp_path / "run.npz").stat().st_size < 3_000
    (refused,) = numbers(ArrayLog(tmp_path / "run.npz"))
    assert "must unpack to at most" in str(refused)
