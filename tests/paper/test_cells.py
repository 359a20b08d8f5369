"""The paper's cells: they run, and as coded they give what was published."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedgauss.paper.curves import Curve
from fedgauss.paper.distance_cells import DistanceCell
from fedgauss.paper.quantile import QuantileCell
from fedgauss.paper.readings import FROM_OPTIMUM, FROM_ZERO, Reading
from fedgauss.paper.result import LARGE, PAPER, QUICK, catalogue
from fedgauss.sweep.cell import cell_key

PRINTED = json.loads((Path(__file__).parent / "printed.json").read_text())


def results():
    return {name: one for name, one in catalogue().items() if one.quick}


def label(cell, curve):
    """As the rows of the cell have it."""
    named = cell.named if isinstance(cell, DistanceCell) else (cell.named,)
    place = curve.coordinates | {"K": curve.n_clients}
    return " ".join(f"{name}={place[name]:g}" for name in named)


def printed(result):
    return PRINTED[result]


def only(cells, wanted):
    """The cells with nothing but the wanted curves in them."""
    kept = [(cell, tuple(curve for curve in cell.curves if wanted(curve))) for cell in cells]
    return [replace(cell, curves=curves, lanes=len(curves)) for cell, curves in kept if curves]


def test_every_result_has_cells_at_every_scale():
    for result in results().values():
        keys = [cell_key(cell) for cell in result.cells(PAPER)]
        assert len(set(keys)) == len(keys) > 0
        assert len(result.cells(QUICK)) <= len(keys) <= len(result.cells(LARGE))


@pytest.mark.parametrize("scale", [QUICK, PAPER, LARGE])
def test_every_curve_is_run_once_at_each_point(scale):
    """Catches curves lost or repeated; every reading has as many draws, or verdicts would depend on it."""
    for result in results().values():
        seen = [
            (cell.result, cell.n_clients, step, label(cell, curve), curve.reading, curve.draw)
            for cell in result.cells(scale)
            for curve in cell.curves
            for step in (cell.steps if isinstance(cell, DistanceCell) else (cell.n_steps,))
        ]
        assert len(set(seen)) == len(seen)
        draws = defaultdict(set)
        for *_, reading, draw in seen:
            draws[reading.name].add(draw)
        for name in ("text, start at zero", "text, start at optimum"):
            assert len(draws[name]) == scale.draws
        for cell in result.cells(scale):
            assert len(cell.curves) <= cell.lanes


def test_every_printed_number_has_its_point():
    """At the paper's scale; ablations print tau = 5, 10, 15 and the text says 5, 50, 100: both are run."""
    for result in results().values():
        points = set()
        for cell in result.cells(PAPER):
            for curve in cell.curves:
                for step in cell.steps if isinstance(cell, DistanceCell) else ():
                    points.add((cell.result, label(cell, curve), str(step if cell.column == "n" else cell.n_clients)))
                if isinstance(cell, QuantileCell):
                    points |= {(cell.result, label(cell, curve), name) for name in ("Aggr-GA", "Client-GA", "f-CLT")}
        for name in {cell.result for cell in result.cells(PAPER)} - {"figure3_qq"}:
            for curve, values in printed(name).items():
                assert {(name, curve, x) for x in values} <= points


def test_a_curve_does_not_depend_on_its_company():
    """Catches a pass in which curves see each other."""
    curves = (
        Curve(FROM_ZERO, 4, sync_every=3),
        Curve(FROM_OPTIMUM, 4, draw=1, sync_every=5, rho=0.4),
        Curve(Reading("as coded", "near optimum", phase=1), 4, sync_every=5),
    )
    cell = DistanceCell("any", curves, "n", ("tau",), steps=(10, 20), replicates=200, lanes=5)
    alone = [row for curve in curves for row in replace(cell, curves=(curve,), lanes=1).run()]
    assert cell.run() == alone


def test_steps_that_are_only_watched_change_nothing():
    cell = DistanceCell("any", (Curve(n_clients=4),), "n", ("tau",), steps=(10, 20), replicates=200, lanes=1)
    assert cell.run() == replace(cell, watched=(5, 10, 20, 30)).run()


def test_legacy_offsets_are_those_of_the_published_programs():
    # V_K of the published program, whose offsets are not centred; the sds of the clients are known.
    (reading,) = {c.reading for cell in results()["figure4"].cells(PAPER) for c in cell.curves if c.reading.fixed_vars}
    problem = reading.random_effects(10, 5.0, 0)
    offsets = problem.coefficients - [2.0, -3.0]
    level = problem.noise_var + (offsets**2).sum(axis=1)
    v = (np.eye(2) * level[:, None, None] + offsets[:, :, None] * offsets[:, None, :]).sum(axis=0) / 100
    np.testing.assert_allclose(v, [[10.4904, 0.3793], [0.3793, 10.3277]], atol=1e-4)


@pytest.mark.study
def test_figure_4_left_as_coded():
    # The published curve was measured against a sample; against the exact law the same program gives these values.
    # The seed is fixed, so this repeats one draw; it catches a start, a scale or a phase read otherwise.
    (cell,) = only(results()["figure4"].cells(PAPER), lambda c: c.reading.fixed_vars and c.sync_every == 10)
    estimates = [row.estimate for row in cell.run()]
    np.testing.assert_allclose(estimates, [0.159, 0.103, 0.084, 0.063, 0.056], atol=0.03)


@pytest.mark.study
@pytest.mark.parametrize("name", ["synchronisation", "connection"])
def test_tables_as_coded(name):
    """The mean over four draws of the clients' standard deviations, rms over the whole table."""
    found = defaultdict(list)
    for cell in only(results()[name].cells(PAPER), lambda curve: curve.reading.name == "as coded"):
        for row in cell.run():
            found[row.curve, row.n].append(row.estimate)
    assert {len(values) for values in found.values()} == {4}
    gaps = [np.mean(values) - printed(name)[curve][str(n)] for (curve, n), values in found.items()]
    assert len(gaps) == 3 * len(printed(name))
    rms = np.sqrt(np.mean(np.square(gaps)))
    print(f"{name} as coded: rms {rms:.4f}")
    assert rms < 0.02


@pytest.mark.study
def test_figure_2_as_coded():
    """At least 90 % of the printed points lie within the range over 100 draws of the clients, widened by .03.

    The published programs did not seed those draws. Catches a wrong start (distances from the optimum lie near .25
    and .45, printed ones near .5 to 1), K, or scaling.
    """
    cells = [
        replace(cell, curves=curves, lanes=len(curves), replicates=500, seed=seed)
        for cell in results()["figure2_phase"].cells(replace(PAPER, draws=1))
        for lines in [[c for c in cell.curves if c.reading.name == "as coded"]]
        for seed, draws in enumerate(np.array_split(np.arange(100), 10))
        for curves in [tuple(replace(line, draw=int(draw)) for draw in draws for line in lines)]
    ]
    found = defaultdict(list)
    for cell in cells:
        for row in cell.run():
            found[row.curve, row.n].append(row.estimate)
    assert len(found) == 60
    assert {len(values) for values in found.values()} == {100}
    inside = [
        min(values) - 0.03 <= printed("figure2_phase")[curve][str(n)] <= max(values) + 0.03
        for (curve, n), values in found.items()
    ]
    print(f"Figure 2 as coded: {sum(inside)} of 60 points inside")
    assert np.mean(inside) >= 0.9


@pytest.mark.study
@pytest.mark.parametrize("n_clients", [10, 25, 50])
def test_figure_3_from_the_optimum(n_clients):
    """Aggr-GA within 10 % of U_n from the 10 % to the 95 % quantile; the functional CLT worst in the lower tail.

    Ratios of quantiles are means over eight draws of the clients, as the text's results are: single draws differ by
    up to 14 %. With 8 x 4,000 runs the error of a mean is below .5 %. Catches a wrong K scaling.
    """
    curve = Curve(FROM_OPTIMUM, n_clients, sync_every=20, eta0=0.7, beta=0.85)
    ratios = defaultdict(lambda: defaultdict(list))
    for draw in range(8):
        cell = QuantileCell("figure3_qq", (replace(curve, draw=draw),), "K", 500, replicates=4000, lanes=1, seed=draw)
        for row in cell.run():
            if row.measure == "quantile" and 0.1 <= row.x <= 0.95:
                ratios[row.approximation][row.x].append(row.estimate / row.reference)
    gaps = {name: np.array([np.mean(values) - 1.0 for values in of.values()]) for name, of in ratios.items()}
    for name, gap in gaps.items():
        print(f"K = {n_clients}, {name}: {gap.min():+.3f} to {gap.max():+.3f}")
    assert np.abs(gaps["Aggr-GA"]).max() < 0.10
    assert np.abs(gaps["Client-GA"]).max() < 0.10
    assert np.abs(gaps["f-CLT"]).argmax() == 0
    assert gaps["f-CLT"][0] > np.abs(gaps["Aggr-GA"]).max()


@pytest.mark.study
def test_a_quantile_cell_gives_both_gaps_and_pairs_for_each_approximation():
    curve = Curve(FROM_OPTIMUM, 5, sync_every=4, eta0=0.7, beta=0.85)
    cell = QuantileCell("figure3_qq", (curve,), "K", n_steps=40, replicates=200, lanes=2)
    rows = cell.run()
    assert {row.approximation for row in rows} == {"Aggr-GA", "Client-GA", "f-CLT"}
    gaps = {(r.approximation, r.measure): r for r in rows if r.measure != "quantile"}
    assert len(gaps) == 6
    assert all(row.error > 0 for row in gaps.values())
    assert cell.run() == rows
    assert cell_key(cell) != cell_key(replace(cell, seed=1))


def test_readings_differ_in_what_gamma_means():
    variance, sd = (Reading("x", "zeros", gamma_is=g) for g in ("variance", "sd"))
    a, b = (r.random_effects(4, 9.0, 0).coefficients - [2.0, -3.0] for r in (variance, sd))
    np.testing.assert_allclose(b, 3 * a)
