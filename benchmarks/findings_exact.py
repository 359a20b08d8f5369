"""Findings about the paper by exact moments: nothing is simulated. See `paper_findings.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import finding_recursions as exact
import numpy as np
from finding_parts import Numbers, random_effects, rms_slope, slope, with_error

import fedgauss as fg

SMALL_STEPS = fg.step_sizes.polynomial(1.0, beta=0.75, shift=2000)  # tau eta_t is small from the first step on


def theorem_2_3() -> Numbers:
    """|Sigma_n - Sigma/K|, and the same relative to Sigma/K, over K and n."""
    clients, horizons, draws, eta0 = (16, 64, 256, 1024), (10**3, 10**4, 10**5, 10**6), range(16), 0.8
    lins = {(k, draw): random_effects(k, draw) for k, draw in product(clients, draws)}
    rows, on_n, constants = [], {}, {}
    for beta in (0.6, 0.75, 0.9):
        steps = fg.step_sizes.polynomial(eta0, beta=beta)
        relative = {}
        for n in horizons:
            gaps = {}
            for place, lin in lins.items():
                finite, limit = fg.theory.average_covariance(lin, steps, n), fg.theory.limit_covariance(lin)
                gaps[place] = (np.linalg.norm(finite - limit), fg.theory.total_variation_bound(finite, limit) / 1.5)
            mean = [[float(np.mean([gaps[k, draw][i] for draw in draws])) for k in clients] for i in (0, 1)]
            on_k = [[slope(clients, [gaps[k, draw][i] for k in clients]) for draw in draws] for i in (0, 1)]
            relative[n] = mean[1][-1]
            rows.append({"beta": beta, "n": n, "K": clients, "gap": mean[0], "relative": mean[1]})
            rows[-1] |= {"slope of gap": with_error(on_k[0]), "slope of relative": with_error(on_k[1])}
        on_n[f"{beta:g}"] = slope(horizons[-2:], [relative[n] for n in horizons[-2:]])
        # In the eigenbasis of A the gap tends to n^(beta-1)/eta0 times v_ij / (a_i a_j (a_i + a_j)).
        lin, n = lins[clients[0], 0], horizons[-1]
        values, vectors = np.linalg.eigh(lin.hessian)
        leading = vectors.T @ lin.noise_cov @ vectors / np.outer(values, values) / np.add.outer(values, values)
        gap = fg.theory.average_covariance(lin, steps, n) - fg.theory.limit_covariance(lin)
        constants[f"{beta:g}"] = float(np.linalg.norm(gap) / np.linalg.norm(leading) / n ** (beta - 1) * eta0)
    return {"rows": rows, "slope on n": on_n, "ratio to the leading term at n = 10^6": constants}


def theorem_2_2() -> Numbers:
    """The bias of the last iterate in standard errors, over n and over K, on the steps .3 t^-beta."""
    horizons, sizes, draws = [1000, 3000, 10_000, 30_000, 100_000], (10, 40, 160, 640), 64
    on_n, on_k = [], []
    for beta in (0.55, 0.6, 0.75, 0.9):
        clients = exact.stack([exact.drawn(10, draw, True) for draw in range(draws)])
        eta = fg.step_sizes.polynomial(0.3, beta=beta).eta(horizons[-1])
        found = exact.last_bias(clients, _even, eta, 10, horizons)
        local = [rms_slope(horizons[i : i + 2], found[i : i + 2]) for i in range(len(horizons) - 1)]
        on_n.append({"beta": beta, "n": horizons, "bias": _rms(found), "local slopes on n": local})
    n = 20_000
    eta = fg.step_sizes.polynomial(0.3, beta=0.75).eta(n)
    for follow in (True, False):
        each = [exact.stack([exact.drawn(k, draw, follow) for draw in range(draws)]) for k in sizes]
        found = np.concatenate([exact.last_bias(clients, _even, eta, 10, [n]) for clients in each])
        row = {"n": n, "beta": 0.75, "Hessians": "follow" if follow else "permuted", "K": sizes, "bias": _rms(found)}
        on_k.append(row | {"slope on K": rms_slope(sizes, found)})
    return {"draws": draws, "over n": on_n, "over K": on_k}


def _even(x: Any) -> Any:
    """Even mixing with rho = 1/2 of (draws, K)."""
    return 0.5 * x + 0.5 * x.mean(axis=-1, keepdims=True)


def _rms(table: Any) -> list[float]:
    """Over draws."""
    return np.sqrt((table**2).mean(axis=1)).tolist()


def start() -> Numbers:
    """|D_1| over n and K, and the distance of Figure 2 from zero and from the optimum, by exact moments."""
    from fedgauss.paper.budget import FIGURE_2, MomentsCell

    horizons = [10**power for power in range(2, 7)]
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)

    def length(k: int, n: int) -> float:
        lin = random_effects(k, 0, np.eye(2))
        bias = fg.theory.start_bias(lin, steps, n, lin.optimum + np.array([2.0, -3.0]))
        return float(np.sqrt(n * bias @ np.linalg.solve(fg.theory.average_covariance(lin, steps, n), bias)))

    sizes = [length(10, n) for n in horizons]
    clients = (10, 40, 160, 640)
    distances = []
    for begin, r, beta, n in product(("zeros", "optimum"), (0.2, 0.6), (0.85, 0.95), (100, 200, 400, 800)):
        reading = replace(FIGURE_2.reading, start=begin)
        curve = replace(FIGURE_2, reading=reading, n_clients=max(int(n**r), 3), beta=beta, r=r)
        (row,) = (row for row in MomentsCell("start", "Figure 2", curve, (n,)).run() if row.covariance == "Sigma/K")
        distances.append({"start": begin, "r": r, "beta": beta, "n": n, "K": curve.n_clients, "distance": row.estimate})
    slopes = {}
    for begin, r, beta in product(("zeros", "optimum"), (0.2, 0.6), (0.85, 0.95)):
        line = [row for row in distances if (row["start"], row["r"], row["beta"]) == (begin, r, beta)]
        slopes[f"{begin}, r = {r:g}, beta = {beta:g}"] = slope(
            *zip(*((p["n"], p["distance"]) for p in line), strict=True)
        )
    return {
        "n": horizons,
        "D_1 at K = 10": sizes,
        "slope on n, last decade": slope(horizons[-2:], sizes[-2:]),
        "slope on K": slope(clients, [length(k, 10_000) for k in clients]),
        "distances": distances,
        "slopes of distances on n": slopes,
    }


def corollary_f1() -> Numbers:
    """How far clients are apart, and the bias that this leaves, over tau and over 1/(1 - rho)."""
    k = 20
    offsets = np.linspace(-1, 1, k)
    hessians = 1 + offsets / 2
    found = {}
    axes = {
        "tau": [(tau, fg.networks.complete(k), tau) for tau in (5, 10, 20, 40, 80, 160)],
        "1/(1-rho)": [(1 / (1 - rho), fg.networks.lazy(k, rho), 1) for rho in (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)],
    }
    for name, settings in axes.items():
        rows = []
        for x, network, tau in settings:
            n = 8000 // tau * tau - 1  # just before a mixing; with tau = 1 just after one
            spread = {}
            for optima, own in (("own optima", 1.0), ("one optimum", 0.0)):
                model = SimpleNamespace(
                    coefficients=own * offsets[:, None],
                    noise_var=np.ones(k),
                    design_cov=hessians[:, None, None],
                    weights=np.full(k, 1 / k),
                )
                optimum = [own * hessians @ offsets / hessians.sum()]
                moments = fg.theory.exact_moments(model, network, SMALL_STEPS, n, tau, optimum)
                spread[optima] = float(np.sqrt(moments.disagreement / k) / SMALL_STEPS.eta(n)[-1])
                if own:
                    bias = float(abs(moments.mean_average - moments.optimum)[0])
            printed, corrected = (
                fg.theory.synchronisation_factor(tau, network.second_eigenvalue, reading)
                for reading in ("printed", "corrected")
            )
            rows.append({"x": x, **spread, "bias": bias, "printed": printed, "corrected": corrected})
        last = rows[2:]
        slopes = {
            what: slope([row["x"] for row in last], [row[what] for row in last])
            for what in ("own optima", "one optimum", "bias", "printed", "corrected")
        }
        found[name] = {"rows": rows, "slopes": slopes}
    return found


def proposition_3() -> Numbers:
    """|Q_s - A^-1| over s, its value at s = n, and Omega_n over n."""
    lin = fg.linearization(np.ones((1, 1, 1)), np.ones((1, 1, 1)))
    lines, variation = [], []
    for beta in (0.6, 0.75, 0.9):
        steps = fg.step_sizes.polynomial(1.0, beta=beta)
        gaps = fg.theory.step_variation(lin, steps, 1_000_000)[1]
        s = np.unique(np.geomspace(10, 1_000_000, 61).astype(int))
        lines.append({"beta": beta, "s": s.tolist(), "gap": gaps[s - 1].tolist()})
        lines[-1] |= {
            "slope from s = 10^3 to 10^4": slope([1e3, 1e4], gaps[[999, 9999]]),
            "ratio to beta s^(beta-1)/eta_0 at s = 10^4": float(gaps[9999] / (beta * 1e4 ** (beta - 1))),
            "gap at s = n": float(gaps[-1]),
        }
        horizons = [10**power for power in range(2, 7)]
        omega = [fg.theory.step_variation(lin, steps, n)[0] for n in horizons]
        variation.append(
            {
                "beta": beta,
                "n": horizons,
                "Omega_n": omega,
                "slope on n, last decade": slope(horizons[-2:], omega[-2:]),
            }
        )
    return {"gaps": lines, "variation": variation}


def proposition_5() -> Numbers:
    """Exponents in eta_i of E|(Theta_t - Theta'_t)(I - J)|^2 after some mixings, and in K of E|Y_t - Y'_t|^2."""
    k, changes, lags, draws = 6, (201, 401, 801, 1601, 3201), (1, 2, 5, 10, 20, 40), 32
    eta = fg.step_sizes.polynomial(0.3, beta=0.75).eta(changes[-1] + max(lags))
    network, clients = fg.networks.ring(k), exact.drawn(k, 0, follow=True)
    found = np.array([exact.resampled_gaps(clients, network.matrix, eta, 1, i, lags) for i in changes])
    x = eta[np.array(changes) - 1]
    sizes = (16, 64)
    on_k = []  # just after the change, with tau = 5 and no mixing in between
    for draw in range(draws):
        gaps = [
            exact.resampled_gaps(exact.drawn(n, draw, True), fg.networks.lazy(n, 0.5).matrix, eta, 5, 51, (1,))[0]
            for n in sizes
        ]
        on_k.append([slope(sizes, column) for column in zip(*gaps, strict=True)])
    mean, spread = zip(*on_k, strict=True)
    return {
        "eta": x.tolist(),
        "mixings": lags,
        "rho": network.second_eigenvalue,
        "spread": (found[:, :, 1] / k).T.tolist(),
        "slopes of spread on eta": [slope(x, found[:, j, 1]) for j in range(len(lags))],
        "slope of mean gap on eta": slope(x, found[:, 0, 0]),
        "slope of mean gap on K": with_error(mean),
        "slope of spread on K": with_error(spread),
    }


def bootstrap() -> Numbers:
    """The variance that the multiplier bootstrap gives sqrt(n) (Ybar_n - theta*), over the true one, for each n."""
    k, horizons = 10, (50, 100, 200, 400, 800, 1600, 3200)
    eta = fg.step_sizes.polynomial(0.3, beta=0.75).eta(horizons[-1])
    offsets = np.random.default_rng(0).standard_normal(k)
    offsets *= 1 / np.std(offsets)
    found = {}
    for name, scale in (("own optima", 1.0), ("one optimum", 0.0)):
        clients = exact.Clients(scale * (offsets - offsets.mean()), np.ones(k), np.ones(k))
        path = list(exact.bootstrap_variances(clients, fg.networks.ring(k).matrix, eta, 10, spread=0.5))
        truth, printed, own = np.array([path[n - 1] for n in horizons]).T
        second = (clients.gradients**2).sum() / k**2
        found[name] = {
            "printed": (printed / truth).tolist(),
            "own iterate": (own / truth).tolist(),
            "slope of printed on n": slope(horizons[-2:], (printed / truth)[-2:]),
            "limit": float(1 + second / clients.noise_cov),
        }
    return {"n": horizons, **found}


def drift() -> Numbers:
    """The bias of the average in standard errors over K, from theta*, and the leading term of theory beside it.

    On two schedules: .3 t^-beta, which is the paper's, and (t + n)^-beta, whose steps are small from the first on and
    where the leading term leads at this n already.
    """
    from fedgauss.theory.covariances import step_factors

    n, draws = 20_000, 64
    schedules = {
        "the paper's, .3 t^-.75": fg.step_sizes.polynomial(0.3, beta=0.75),
        "small from the start, (t + n)^-.75": fg.step_sizes.polynomial(1.0, beta=0.75, shift=n),
    }
    networks: dict[str, tuple[int, tuple[int, ...], Callable[[Any], Any]]] = {  # tau, K, how clients (draws, K) mix
        "lazy": (10, (10, 40, 160, 640), _even),
        "ring": (1, (8, 16, 32, 64), lambda x: (x + np.roll(x, 1, axis=-1) + np.roll(x, -1, axis=-1)) / 3),
    }
    rows = []
    for (schedule, steps), (network, (tau, sizes, mix)), follow in product(
        schedules.items(), networks.items(), (True, False)
    ):
        eta = steps.eta(n)
        table, theory = [], []
        for k in sizes:
            clients = exact.stack([exact.drawn(k, draw, follow) for draw in range(draws)])
            hessian = clients.hessians.mean(axis=-1)
            scale = hessian * np.sqrt(n / clients.noise_cov)  # sqrt(n) (Sigma/K)^-1/2
            table.append(np.abs(scale * exact.mean_bias(clients, mix, eta, tau)))
            kernel = exact.kernel(mix(np.eye(k)), tau)
            pull = np.einsum("rk,kl,rl->r", clients.hessians, kernel, clients.gradients) / k  # b_K
            theory.append(np.abs(scale * pull * (eta[:, None] * step_factors(eta, hessian)).mean(axis=0)))
        found, leading = np.array(table), np.array(theory)
        rows.append(
            {
                "schedule": schedule,
                "network": network,
                "Hessians": "follow" if follow else "permuted",
                "K": sizes,
                "bias": _rms(found),
                "theory": _rms(leading),
                "slope on K": rms_slope(sizes, found),
                "slope at the largest K": rms_slope(sizes[-2:], found[-2:]),
                "median of exact over theory": np.median(found / leading, axis=1).tolist(),
            }
        )
    return {"n": n, "draws": draws, "rows": rows, "leading term on large rings": _large_rings()}


def _large_rings() -> Numbers:
    """The slope on K of |b_K| K^1/2 on rings, tau = 1, which is what the leading term grows by."""
    sizes, draws = (64, 256, 1024), 64
    found = {}
    for follow in (True, False):
        table = []
        for k in sizes:
            clients = exact.stack([exact.drawn(k, draw, follow) for draw in range(draws)])
            kernel = exact.kernel(fg.networks.ring(k).matrix, 1)
            table.append(np.sum(clients.hessians @ kernel * clients.gradients, axis=-1) * k**-0.5)
        found["follow" if follow else "permuted"] = rms_slope(sizes, np.array(table))
    return {"K": sizes, "slopes": found}
