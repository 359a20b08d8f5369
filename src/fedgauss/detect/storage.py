"""A monitor in a file: arrays and some JSON, exact to the last bit, and nothing that could run as code."""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._files import whole_file
from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.channel import Channel
from fedgauss.detect.saved import Arrays, part, prefixed
from fedgauss.detect.thresholds import Boundary
from fedgauss.detect.verdict import ChannelReading, Verdict
from fedgauss.step_sizes import Listed, Polynomial, StepSizes, WarmStart, from_array

_FORMAT = "fedgauss monitor 3"
_FORMAT_0_1_0 = "fedgauss monitor 2"
_LIN = ("optimum", "client_hessians", "client_noise_cov", "weights", "kurtosis", "client_gradients")

Contents = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]  # words and arrays


def write(path: str | os.PathLike[str], words: dict[str, Any], arrays: Arrays, form: str = _FORMAT) -> None:
    """Write words (as JSON) and arrays to one .npz file, completely or not at all; only its owner can read it."""
    header = np.frombuffer(json.dumps({"format": form, **words}, default=_plain).encode(), dtype=np.uint8)
    with whole_file(path) as file:
        np.savez(file, header=header, **arrays)  # type: ignore[arg-type]


def _plain(number: Any) -> Any:
    """NumPy's numbers as Python's own, which JSON knows; a float32 is a float64 that happens to be short."""
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{type(number).__name__} cannot be written down")


def read(
    path: str | os.PathLike[str], forms: tuple[str, ...] = (_FORMAT, _FORMAT_0_1_0), by: str = "Monitor.save"
) -> Contents:
    """What `write` wrote, in one of these formats."""
    words, arrays = _contents(path, by)
    if words.get("format") not in forms:
        raise ValueError(f"{os.fspath(path)} must have the format {forms[0]!r}; it has {words.get('format')!r}.")
    return words, arrays


def format_of(path: str | os.PathLike[str]) -> str:
    """The format of a file that `write` wrote, which says what kind of monitor it holds."""
    return str(_contents(path, "Monitor.save or ClientMonitor.save")[0].get("format"))


def _contents(path: str | os.PathLike[str], by: str) -> Contents:
    with open(path, "rb") as opened:
        try:
            with np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            words = json.loads(arrays.pop("header").tobytes())
            if not isinstance(words, dict):
                raise ValueError("the header must be a list of words by name")
        except Exception as error:  # a damaged file may break anything in the libraries that read it
            raise ValueError(f"{os.fspath(path)} must be a file that {by} wrote; it is not one.") from error
    return words, arrays


def from_0_1_0(words: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Contents:
    """A file of version 0.1.0, which knew two channels, with today's names; others as they are."""
    if words["format"] != _FORMAT_0_1_0:
        return words, arrays
    words = words | {"channels": ["mean", "spread"], "dof": words["freedom"]}
    travel, spread = part(arrays, "watch.travel."), part(arrays, "watch.spread.")
    arrays = {name: array for name, array in arrays.items() if not name.startswith(("watch.travel.", "watch.spread."))}
    arrays |= {"watch.mean.travel.total": travel.pop("total"), "watch.rounds": arrays["watch.mean.position"]}
    arrays |= prefixed("watch.mean.travel.places.", travel)
    if "clients.sums" in arrays:
        arrays.setdefault("clients.baseline", np.zeros_like(arrays["clients.sums"]))
    spread |= dict(zip(("rounds", "count", "began"), spread.pop("whole"), strict=True))
    spread |= dict(zip(("weight", "mass"), spread.pop("masses"), strict=True))
    step, position = spread.pop("peak_step"), spread.pop("peak_position")
    group = math.ceil(10 / words["sync_every"])
    spread |= {"statistic": spread.pop("peak"), "step": step}
    spread["rounds_before"] = np.where(step < 0, 0, (position + 1) * group)
    return words, arrays | prefixed("watch.spread.", spread)


def named_channels(words: dict[str, Any], channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    """The channels that a monitor was saved with, or a ValueError that says which are missing."""
    names = words.get("channels", ["mean", "spread"])  # 0.1.0 wrote none
    by_name = {channel.name: channel for channel in channels}
    if missing := [name for name in names if name not in by_name]:
        raise ValueError(
            f"the monitor was saved with the channels {names}; {missing} must be given: "
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
        return WarmStart(constant, _checks.whole("n_warm", n_warm, at_least=0), _polynomial(words["decay"]))
    return from_array(arrays["steps.values"])


def _polynomial(words: dict[str, Any]) -> Polynomial:
    eta0, shift = _checks.real("eta0", words["eta0"], above=0.0), _checks.real("shift", words["shift"], above=-1.0)
    return Polynomial(eta0, _checks.real("beta", words["beta"]), shift)


def verdict_from_words(words: dict[str, Any] | None, channels: Sequence[Channel]) -> Verdict | None:
    """The current alarm from the fields of its verdict, None when there is none."""
    if words is None:
        return None
    fields: dict[str, Any] = {name: _checks.real(name, words[name]) for name in ("statistic", "threshold", "alpha")}
    places = ("round", "step", "onset", "rollback")
    fields |= {name: _checks.whole(name, words[name], at_least=0) for name in places}
    reasons = {channel.name: channel.alarm_words for channel in channels}
    name = _checks.one_of("channel", words["channel"], reasons)
    readings = tuple(
        ChannelReading(_checks.one_of("channel", of, reasons), _checks.real("statistic", top), _checks.real("above", h))
        for of, top, h in words.get("readings", ())
    )
    if (interval := words.get("onset_interval")) is not None:  # older files have none
        first, last = (_checks.whole("onset_interval", step, at_least=0) for step in interval)
        fields["onset_interval"] = (first, last)
    note, reason = str(words["note"]), reasons[name]
    return Verdict(True, channel=name, note=note, reason=reason, readings=readings, **fields)


def boundary_from_arrays(arrays: Arrays, channels: Sequence[Channel]) -> Boundary:
    """The thresholds of a monitor."""
    ends = arrays["ends"]
    names = [channel.name for channel in channels]
    levels = {name: _checks.real_array(name, arrays[f"above.{name}"], shape=ends.shape) for name in names}
    if ends.dtype.kind not in "iu" or ends.ndim != 1 or not ends.size or np.min([*levels.values()]) <= 0.0:
        raise ValueError("thresholds must be positive, one for each end of an epoch")
    return Boundary(ends, levels)


def weights_from(arrays: Arrays, n_clients: int) -> FloatArray | None:
    """Client weights as they were, to the last bit, if there are any."""
    if "weights" in arrays:
        _checks.client_weights(arrays["weights"], n_clients)
    return arrays.get("weights")


def lin_to_arrays(lin: Linearization) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a linearisation; its standard errors are not needed to watch."""
    return {f"lin.{name}": getattr(lin, name) for name in _LIN if getattr(lin, name) is not None}


def lin_from_arrays(arrays: Arrays, n_warmup: int | None, dof: float | None) -> Linearization:
    """The linearisation that `lin_to_arrays` took apart."""
    stored: dict[str, Any] = part(arrays, "lin.")
    weights_from(stored, len(stored["client_hessians"]))
    return Linearization(**stored, n_warmup=n_warmup, dof=dof)
