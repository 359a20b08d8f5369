"""A monitor in a file: arrays and some JSON, exact to the last bit, and nothing that could run as code."""

import json
import math
import os
import reprlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from io import BytesIO
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._files import whole_file
from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.array_file import LARGEST, ArrayFile
from fedgauss.detect.channel import Channel
from fedgauss.detect.saved import Arrays, part
from fedgauss.detect.thresholds import LONGEST_HORIZON, Boundary, checked_horizon, epoch_ends
from fedgauss.detect.verdict import ChannelReading, Verdict
from fedgauss.step_sizes import Listed, Polynomial, StepSizes, WarmStart, from_array

_FORMAT = "fedgauss monitor 4"
_HEADER = "header"
_LONGEST_HEADER = 4_000_000  # bytes: names of ten thousand clients, and their surprises at an alarm
LATEST = LONGEST_HORIZON  # round or step that is read
_LIN = ("optimum", "client_hessians", "client_noise_cov", "weights", "kurtosis", "client_gradients")

_SQLITE = b"SQLite format 3\0"

Place = str | os.PathLike[str] | BytesIO  # a file, or bytes that are not in one
Contents = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]  # words and arrays


def write(path: Place, words: dict[str, Any], arrays: Arrays, form: str = _FORMAT) -> None:
    """Write words (as JSON) and arrays to one .npz file, completely or not at all; only its owner can read it."""
    header = np.frombuffer(json.dumps({"format": form, **words}, default=_plain).encode(), dtype=np.uint8)
    size = sum(array.nbytes for array in arrays.values())
    if len(header) > _LONGEST_HEADER or size > LARGEST // 2:
        raise ValueError(
            f"a monitor that is saved must have at most {LARGEST // 2:,} bytes of numbers and {_LONGEST_HEADER:,} of "
            f"names and settings; it has {size:,} and {len(header):,}."
        )
    with nullcontext(path) if isinstance(path, BytesIO) else whole_file(path) as file:
        np.savez(file, **{_HEADER: header}, **arrays)  # type: ignore[arg-type]


def _plain(number: Any) -> Any:
    """NumPy's numbers as Python's own, which JSON knows; a float32 is a float64 that happens to be short."""
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{type(number).__name__} cannot be written down")


def read(path: Place, form: str = _FORMAT, by: str = "Monitor.save") -> Contents:
    """What `write` wrote, in this format."""
    with _opened(path, by) as opened:
        file = ArrayFile(opened)
        words = _words(file)
        arrays = {name: file[name] for name in file.sizes if words.get("format") == form and name != _HEADER}
    if words.get("format") != form:
        raise ValueError(f"{called(path)} must have the format {form!r}; it has {words.get('format')!r:.60}.")
    return words, arrays


def format_of(path: Place) -> str:
    """The format of a file that `write` wrote, which says what kind of monitor it holds."""
    with _opened(path, "Monitor.save or ClientMonitor.save") as opened:
        return str(_words(ArrayFile(opened)).get("format"))


def called(path: Place) -> str:
    """A file in a sentence."""
    return "what was saved" if isinstance(path, BytesIO) else os.fspath(path)


def check_plain(file: sqlite3.Connection) -> None:
    """Refuse an SQLite file that has more than tables: a view, or what a table does by itself, could do anything."""
    if file.execute("SELECT 1 FROM sqlite_master WHERE type != 'table' OR sql LIKE '%generated%'").fetchone():
        raise ValueError("it must hold tables of rows, and nothing else")


@contextmanager
def _opened(path: Place, by: str) -> Iterator[IO[bytes]]:
    """Open for reading: a file, bytes, or of what a watch keeps (--save) the monitor."""
    if not isinstance(path, BytesIO):
        with open(path, "rb") as file:
            of_a_watch = file.read(len(_SQLITE)) == _SQLITE
    try:
        if isinstance(path, BytesIO):
            path.seek(0)
            yield path
        elif of_a_watch:
            with closing(sqlite3.connect(path, timeout=0.0)) as kept:
                check_plain(kept)
                yield BytesIO(*kept.execute("SELECT watcher FROM kept").fetchone())
        else:
            with open(path, "rb") as file:
                yield file
    except Exception as error:  # a damaged file may break anything in the libraries that read it
        said = type(error) is ValueError or isinstance(error, sqlite3.Error)
        reason = f" ({error})" if said and str(error).isprintable() else ""
        raise ValueError(f"{called(path)} must be a file that {by} wrote; it is not one{reason:.200}.") from error


def _words(file: ArrayFile) -> dict[str, Any]:
    if file.sizes[_HEADER] > _LONGEST_HEADER:
        raise ValueError(f"its header must have at most {_LONGEST_HEADER:,} bytes")
    words = json.loads(file[_HEADER].tobytes())
    if not isinstance(words, dict):
        raise ValueError("its header must be a list of words by name")
    return words


def named_channels(words: dict[str, Any], channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    """The channels that a monitor was saved with, or a ValueError that says which are missing."""
    names = words.get("channels")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError(f"the channels of a monitor must be a list of names, each once; got {reprlib.repr(names)}.")
    by_name = {channel.name: channel for channel in channels}
    if missing := [name for name in names if name not in by_name]:
        raise ValueError(
            f"the monitor was saved with the channels {reprlib.repr(names)}; {reprlib.repr(missing)} must be given: "
            "Monitor.load(path, channels=(...))."
        )
    return tuple(by_name[name] for name in names)


def steps_to_words(steps: StepSizes) -> Contents:
    """A schedule as words and arrays. JSON keeps every bit of a Python float."""
    if isinstance(steps, Listed):
        return {"kind": "listed"}, {"steps.values": steps.values}
    if isinstance(steps, Polynomial | WarmStart):
        kind = "polynomial" if isinstance(steps, Polynomial) else "warm start"
        return {"kind": kind, **asdict(steps)}, {}
    raise ValueError(
        f"steps must be of a kind that can be written down to save a monitor; got {type(steps).__name__}. "
        "Use step_sizes.polynomial, or step_sizes.from_array(steps.eta(n))?"
    )


def steps_from_words(words: dict[str, Any], arrays: Arrays) -> StepSizes:
    """The schedule that `steps_to_words` took apart."""
    if words["kind"] == "polynomial":
        return _polynomial(words)
    if words["kind"] == "warm start":
        constant, n_warm = _checks.real("constant", words["constant"], above=0.0), words["n_warm"]
        length = _checks.whole("n_warm", n_warm, at_least=0, at_most=LATEST)
        return WarmStart(constant, length, _polynomial(words["decay"]))
    _checks.one_of("kind", words["kind"], ["listed"])
    return from_array(arrays["steps.values"])


def _polynomial(words: dict[str, Any]) -> Polynomial:
    eta0, shift = _checks.real("eta0", words["eta0"], above=0.0), _checks.real("shift", words["shift"], above=-1.0)
    beta = _checks.real("beta", words["beta"])
    if beta < 0.0:
        raise ValueError("beta must not be negative")
    return Polynomial(eta0, beta, shift)


def verdict_from_words(
    words: dict[str, Any] | None, channels: Sequence[Channel], round: int, step: int
) -> Verdict | None:
    """The current alarm from the fields of its verdict, None when there is none; it lies before `round` and `step`."""
    if words is None:
        return None
    fields: dict[str, Any] = {name: _checks.real(name, words[name]) for name in ("statistic", "threshold", "alpha")}
    places = {"round": round, "step": step, "onset": step + 1, "rollback": round}
    fields |= {name: _checks.whole(name, words[name], at_least=0, at_most=last) for name, last in places.items()}
    reasons = {channel.name: channel.alarm_words for channel in channels}
    name = _checks.one_of("channel", words["channel"], reasons)
    readings = tuple(
        ChannelReading(_checks.one_of("channel", of, reasons), _checks.real("statistic", top), _threshold(h))
        for of, top, h in words.get("readings", ())
    )
    if (interval := words["onset_interval"]) is not None:
        first, last = (_checks.whole("onset_interval", at, at_least=0, at_most=step + 1) for at in interval)
        fields["onset_interval"] = (first, last)
    note, reason = text("note", words["note"]), reasons[name]
    return Verdict(True, channel=name, note=note, reason=reason, readings=readings, **fields)


def _threshold(value: Any) -> float:
    """It may be infinite, where a run is too short for a channel to see anything."""
    return math.inf if value == math.inf else _checks.real("threshold", value, above=0.0)


def text(name: str, value: Any) -> str:
    """A word that is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text")
    return value


def boundary_from_arrays(arrays: Arrays, channels: Sequence[Channel], sync_every: int, horizon: int | None) -> Boundary:
    """The thresholds of a monitor."""
    ends = epoch_ends(checked_horizon(horizon, sync_every))
    levels = {channel.name: arrays[f"above.{channel.name}"] for channel in channels}
    if arrays["ends"].dtype.kind != "i" or not np.array_equal(arrays["ends"], ends):
        raise ValueError("epochs must be those of the horizon")
    for level in levels.values():
        if level.dtype != np.float64 or level.shape != ends.shape or not (level > 0.0).all():  # NaN is not
            raise ValueError("thresholds must be positive, one for each end of an epoch")
    return Boundary(ends, levels)


def weights_from(arrays: Arrays, n_clients: int) -> FloatArray | None:
    """Client weights as they were, to the last bit, if there are any."""
    weights = arrays.get("weights")
    if weights is not None:
        _checks.client_weights(weights, n_clients)
        if weights.dtype != np.float64:
            raise ValueError("weights must be float64")
    return weights


def lin_to_arrays(lin: Linearization) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a linearisation; its standard errors are not needed to watch."""
    return {f"lin.{name}": getattr(lin, name) for name in _LIN if getattr(lin, name) is not None}


def lin_from_arrays(arrays: Arrays, n_warmup: Any, dof: Any) -> Linearization:
    """The linearisation that `lin_to_arrays` took apart."""
    stored: dict[str, Any] = part(arrays, "lin.")
    clients, dim = stored["weights"].size, stored["optimum"].size
    matrices = (clients, dim, dim)
    shapes = dict(zip(_LIN, ((dim,), matrices, matrices, (clients,), (clients,), (clients, dim)), strict=True))
    for name, array in stored.items():
        if array.dtype != np.float64 or array.shape != shapes[name] or not array.size or not np.isfinite(array).all():
            raise ValueError(f"lin.{name} must be finite float64 of shape {shapes[name]}, and not empty")
    weights_from(stored, clients)
    if "kurtosis" in stored and stored["kurtosis"].min() <= 0.0:
        raise ValueError("lin.kurtosis must be positive")
    n_warmup = None if n_warmup is None else _checks.whole("n_warmup", n_warmup, at_least=2, at_most=LATEST)
    dof = None if dof is None else _checks.real("dof", dof, above=0.0)
    return Linearization(**stored, n_warmup=n_warmup, dof=dof)
