"""The questions of a fit have the same bits whatever the machine's BLAS and instructions, given the same totals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fedgauss import families
from fedgauss.families.rows import NoFiniteEstimate, Rows
from fedgauss.families.same_bits import dot, factor, inverse, on_grid, solve, times
from fedgauss.inference.asks import exact_program, run

KERNELS = ("Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX")
PARTS = ("information", "observed", "squares.rows")
FAMILIES = {
    "linear": families.Linear(), "logistic": families.Logistic(), "probit": families.Logistic("probit"),
    "cloglog": families.Logistic("cloglog"), "poisson": families.Poisson(), "gamma": families.Gamma(),
    "inverse": families.Gamma("inverse"), "negative_binomial": families.NegativeBinomial(),
    "multinomial": families.Multinomial(3), "one_versus_rest": families.OneVersusRest(3), "huber": families.Huber(),
    "cox": families.Cox(),
}  # fmt: skip


def program(name: str, totals: list[float], n_rows: int, width: int):
    """The fit of a family, from the totals of its start."""
    family = FAMILIES[name]
    found = family.start(np.array(totals), n_rows)
    outputs = family.n_outputs
    start = np.zeros(outputs * width + len(found) - outputs)
    start[outputs * width :] = found[outputs:]
    null: list[int] = []
    if family.has_intercept:
        start[: outputs * width : width] = found[:outputs]
        null = [*range(0, outputs * width, width), *range(outputs * width, len(start))]
    return exact_program(family, start, null, n_rows, PARTS)


def questions(program, told: list[dict]) -> list[str]:
    """All numbers of a program's questions, in hexadecimal, where it is sent these totals."""
    told, asks = iter(told), []
    ask = next(program)
    while True:
        theta = ask.theta if ask.beside is None else [*ask.theta, *ask.beside.theta, ask.beside.dispersion]
        asks.append(" ".join([ask.kind, float(ask.dispersion).hex(), *(float(number).hex() for number in theta)]))
        try:
            ask = program.send({name: np.array(value) for name, value in next(told).items()})
        except StopIteration:
            return asks


def replayed(recorded: dict) -> dict[str, list[str]]:
    """Of every family, the questions that recorded totals lead to."""
    return {
        name: questions(program(name, one["start"], one["rows"], one["width"]), one["told"])
        for name, one in recorded.items()
    }


def record() -> dict:
    """Totals of fits of simulated rows, at two sites."""
    generator = np.random.default_rng(12)
    n, width = 600, 12
    x = np.column_stack([np.ones(n), generator.standard_normal((n, width - 1)) ** 3])
    x[:, 1:] = (x[:, 1:] - x[:, 1:].mean(axis=0)) / x[:, 1:].std(axis=0)
    eta = x[:, 1:] @ generator.uniform(-0.4, 0.4, width - 1)
    recorded = {}
    for name, family in FAMILIES.items():
        if family.n_classes in (3, 4):
            y = np.minimum(generator.poisson(np.exp(0.3 + 0.3 * eta)), family.n_classes - 1).astype(float)
        elif family.needs == "0 and 1":
            y = (generator.random(n) < 1.0 / (1.0 + np.exp(2.5 - eta))).astype(float)
        elif family.needs == "counts":
            y = generator.negative_binomial(2.0, 1.0 / (1.0 + 0.5 * np.exp(0.3 * eta))).astype(float)
        elif family.needs == "positive numbers":
            y = generator.gamma(3.0, np.exp(0.02 * eta))
        elif name == "cox":
            y = generator.exponential(np.exp(-eta))
        else:
            y = eta + generator.standard_t(3.0, n)
            y -= y.mean()
        design = x if family.has_intercept else x[:, 1:]
        events = (generator.random(n) < 0.5).astype(float) if name == "cox" else None
        sites = [
            family.rows(Rows(design[part], y[part]), None if events is None else events[part])
            for part in (slice(0, 250), slice(250, n))
        ]
        start, told = family.start_terms(y).sum(axis=0).tolist(), []

        def listening(name=name, start=start, told=told, width=design.shape[1]):
            asking, sent = program(name, start, n, width), None
            while True:
                try:
                    ask = asking.send(sent)
                except StopIteration as end:
                    return end.value
                sent = yield ask
                told.append({what: value.tolist() for what, value in sent.items()})

        run(listening(), family, sites)
        recorded[name] = {"start": start, "rows": n, "width": design.shape[1], "told": told}
    return recorded


def test_questions_have_the_same_bits_on_every_machine():
    """Kernels of BLAS are chosen by name, and NumPy's faster loops switched off. Catches `@` on the way to a step."""
    recorded = record()
    wanted = replayed(recorded)
    assert all(len(asks) >= 3 for asks in wanted.values())
    dispatched = " ".join(np._core._multiarray_umath.__cpu_dispatch__)
    settings = [{"OPENBLAS_CORETYPE": kernel} for kernel in KERNELS] + [{"NPY_DISABLE_CPU_FEATURES": dispatched}]
    for setting in settings:
        environment = os.environ | setting | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(Path(__file__))], input=json.dumps(recorded), env=environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode < 0:  # a kernel with instructions that this machine does not have
            continue
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == wanted, setting


def test_the_last_bits_of_logarithms_do_not_matter():
    """A start is on a grid: what another machine's logarithm would say is the same."""
    values = np.random.default_rng(3).uniform(-5.0, 5.0, 1000)
    np.testing.assert_array_equal(on_grid(values), on_grid(np.nextafter(np.nextafter(values, 9.0), 9.0)))
    assert np.abs(on_grid(values) - values).max() <= 2.0**-21


@pytest.mark.parametrize("dim", [1, 7, 60])
@pytest.mark.parametrize("scale", [1.0, 1e150])
def test_it_solves_as_numpy_does(dim, scale):
    generator = np.random.default_rng(dim)
    rows = generator.standard_normal((3 * dim, dim)) * np.sqrt(scale) * 10.0 ** generator.uniform(-6, 0, dim)
    matrix, right = rows.T @ rows, generator.standard_normal(dim)
    by = factor(matrix)
    np.testing.assert_allclose(by.upper.T @ by.upper, matrix * by.scale * by.scale[:, None], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(solve(by, right), np.linalg.solve(matrix, right), rtol=1e-8)
    np.testing.assert_allclose(inverse(matrix) * scale, np.linalg.inv(matrix) * scale, rtol=1e-8)
    np.testing.assert_allclose(times(matrix, right), matrix @ right, rtol=1e-9)
    assert dot(right, right) == pytest.approx(right @ right, rel=1e-14)
    assert np.isnan(dot(np.array([1e200, 1.0]), np.array([1e200, 1.0])))


def test_singular_matrices_are_refused():
    generator = np.random.default_rng(2)
    rows = generator.standard_normal((50, 6)) * 10.0 ** np.arange(-3, 3)
    factor(rows.T @ rows)
    rows[:, 4] = rows[:, :4].sum(axis=1) * 1e3 * (1.0 + 1e-7 * generator.standard_normal(50))
    for matrix in (rows.T @ rows, -np.eye(2), np.diag([1.0, np.nan]), np.array([[1.0, 2.0], [2.0, 1.0]])):
        with pytest.raises(NoFiniteEstimate):
            factor(matrix)


def test_five_hundred_columns_take_well_under_a_second():
    rows = np.random.default_rng(1).standard_normal((1000, 500))
    began = time.process_time()
    solve(factor(rows.T @ rows), np.ones(500))
    assert time.process_time() - began < 2.0


if __name__ == "__main__":
    print(json.dumps(replayed(json.load(sys.stdin))))
