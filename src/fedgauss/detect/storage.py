"""A monitor in a file: arrays and a few words, exact to the last bit, and nothing that could run as code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.thresholds import Boundary
from fedgauss.detect.verdict import Channel, Verdict
from fedgauss.step_sizes import Listed, Polynomial, StepSizes, WarmStart, from_array

_FORMAT = "fedgauss monitor 2"
_OPTIONAL = ("kurtosis", "client_gradients")
_LIN = ("optimum", "client_hessians", "client_noise_cov", "weights")

Arrays = Mapping[str, npt.NDArray[Any]]


def write(path: str | os.PathLike[str], words: dict[str, Any], arrays: Arrays) -> None:
    """Write words (as JSON) and arrays to one .npz file, whole or not at all."""
    target = Path(path)
    unfinished = target.with_name(target.name + ".unfinished")
    header = np.frombuffer(json.dumps({"format": _FORMAT, **words}, default=_plain).encode(), dtype=np.uint8)
    with unfinished.open("wb") as file:
        np.savez(file, header=header, **arrays)  # type: ignore[arg-type]
    unfinished.replace(target)


def _plain(number: Any) -> Any:
    """NumPy's numbers as Python's own, which JSON knows; a float32 is a float64 that happens to be short."""
    if isinstance(number, np.generic):
        return number.item()
    raise TypeError(f"{type(number).__name__} cannot be written down")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What `write` wrote."""
    with open(path, "rb") as opened:
        try:
            with np.load(opened, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            words = json.loads(arrays.pop("header").tobytes())
            if not isinstance(words, dict):
                raise ValueError("the header must be a list of words by name")
        except Exception as error:  # a damaged file may break anything in the libraries that read it
            raise ValueError(f"{os.fspath(path)} must be a file that Monitor.save wrote; it is not one.") from error
    if words.get("format") != _FORMAT:
        raise ValueError(f"{os.fspath(path)} must have the format {_FORMAT!r}; it has {words.get('format')!r}.")
    return words, arrays


def part(arrays: Arrays, prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def steps_to_words(steps: StepSizes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """A schedule as words and arrays. JSON keeps every bit of a Python float."""
    if isinstance(steps, Polynomial):
        return {"kind": "polynomial", "eta0": steps.eta0, "beta": steps.beta, "shift": steps.shift}, {}
    if isinstance(steps, WarmStart):
        decay, _ = steps_to_words(steps.decay)
        return {"kind": "warm start", "constant": steps.constant, "n_warm": steps.n_warm, "decay": decay}, {}
    if isinstance(steps, Listed):
        return {"kind": "listed"}, {"steps.values": steps.values}
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


def verdict_to_words(verdict: Verdict | None) -> dict[str, Any] | None:
    """The alarm that is on as words, None when there is none."""
    return None if verdict is None else asdict(verdict)


def verdict_from_words(words: dict[str, Any] | None) -> Verdict | None:
    """The alarm that `verdict_to_words` took apart."""
    if words is None:
        return None
    statistic, threshold, alpha = (_checks.real(name, words[name]) for name in ("statistic", "threshold", "alpha"))
    places = ("round", "step", "onset", "rollback")
    number, step, onset, rollback = (_checks.whole(name, words[name], at_least=0) for name in places)
    channel: Channel = "mean" if words["channel"] == "mean" else "spread"
    note = str(words["note"])
    return Verdict(True, statistic, threshold, channel, number, step, onset, rollback, alpha, note=note)


def boundary_from_arrays(arrays: Arrays) -> Boundary:
    """The thresholds of a monitor."""
    ends = arrays["ends"]
    mean, spread = (_checks.real_array(name, arrays[f"above.{name}"], shape=ends.shape) for name in ("mean", "spread"))
    if ends.dtype.kind not in "iu" or ends.ndim != 1 or not ends.size or min(mean.min(), spread.min()) <= 0.0:
        raise ValueError("thresholds must be positive, one for each end of an epoch")
    return Boundary(ends, mean, spread)


def weights_from(arrays: Arrays, name: str, n_clients: int) -> FloatArray | None:
    """Client weights as they were, to the last bit, if there are any."""
    if name in arrays:
        _checks.client_weights(arrays[name], n_clients)
    return arrays.get(name)


def lin_to_arrays(lin: Linearization) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a linearisation; its standard errors are not needed to watch."""
    named = {f"lin.{name}": getattr(lin, name) for name in (*_LIN, *_OPTIONAL)}
    return {name: array for name, array in named.items() if array is not None}


def lin_from_arrays(arrays: Arrays, n_warmup: int | None, freedom: float | None) -> Linearization:
    """The linearisation that `lin_to_arrays` took apart."""
    optimum, hessians, noise, weights = (arrays[f"lin.{name}"] for name in _LIN)
    weights_from(arrays, "lin.weights", len(hessians))
    return Linearization(
        optimum, hessians, noise, weights, {}, n_warmup, freedom, *(arrays.get(f"lin.{name}") for name in _OPTIONAL)
    )
