"""Saved fits, which may be damaged, or changed by somebody who makes the checksum fit."""

import json

import numpy as np
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.inference.fit_file import _checksum, fit_numbers, load_fit, read_fit
from fedgauss.inference.fit_result import Fit
from fuzz.damaged import byte_mutants, fuzzed, json_mutants, refused_or

RNG = np.random.default_rng(0)
N = 90
FRAME = {
    "age": RNG.normal(50, 10, N),
    "x": RNG.normal(size=N),
    "ward": np.array(["east", "north", "south"])[np.arange(N) % 3],
    "y": RNG.normal(size=N),
    "died": np.arange(N) % 2,
    "h": np.array(["a", "b", "c"])[np.arange(N) // 30],
}
FITS = [
    fg.fit(FRAME, target="y", client="h", formula="y ~ ns(age, df=3) + C(ward) + scale(x):C(ward)", family="gaussian"),
    fg.fit(FRAME, target="died", client="h", features=["age"], family="binomial", errors="model"),
]
CONTENTS = [fit_numbers(fit) for fit in FITS]


def _with_checksum(data):
    held = json.loads(data)
    if not isinstance(held, dict):
        return data
    rest = {key: value for key, value in held.items() if key != "checksum"}
    return json.dumps(rest | {"checksum": _checksum(rest)}).encode()


def use(content):
    """A fit that was read can be used, or says why not."""
    fit = read_fit(content)
    assert isinstance(fit, Fit)
    assert str(fit)
    refused_or(fit.predict, {name: values[:3] for name, values in FRAME.items()})
    refused_or(fit.contrast, f"`{fit.names[0]}`")
    if fit.sites is not None:
        refused_or(fit.sites.meta, fit.names[0])
    return fit


@fuzzed(json_mutants(*CONTENTS).map(_with_checksum), many=2000)
def test_a_fit_with_other_content_is_used_or_refused(folder, content):
    refused_or(use, content)


@fuzzed(st.one_of(byte_mutants(*(json.dumps(content).encode() for content in CONTENTS)), st.binary()))
def test_a_damaged_fit_is_refused(folder, content):
    (folder / "fit.json").write_bytes(content)
    refused_or(load_fit, folder / "fit.json")
