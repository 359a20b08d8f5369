"""The monitor's statistics, slowly: every onset at every round, from the definitions."""

from __future__ import annotations

import numpy as np
from scipy import stats


def kept(s: int, t: int) -> bool:
    """The definition of the candidates: 2^l divides s, with l the level of its age."""
    age = t - s
    if age < 1 or s < 1:
        return False
    level = 0
    while age > 12 * 2**level:
        level += 1
    return s % 2**level == 0


def block_innovation(hessian, eta, before, now):
    """E = A (I - P)^-1 (Y - P Y_before), with the matrix products written out."""
    p = np.eye(len(hessian))
    for e in eta:
        p = (np.eye(len(hessian)) - e * hessian) @ p
    return hessian @ np.linalg.solve(np.eye(len(p)) - p, now - p @ before)


def block_covariance(hessian, noise, eta):
    """Omega = A (I - P)^-1 (sum_t W_t V W_t') (I - P)^-T A'."""
    identity = np.eye(len(hessian))
    p, total = identity, np.zeros_like(hessian)
    for e in eta[::-1]:  # p is the product of the factors after this step
        w = p * e
        total += w @ noise @ w.T
        p = p @ (identity - e * hessian)
    half = hessian @ np.linalg.inv(identity - p)
    return half @ total @ half.T


def mean_statistic(x, weights, first):
    """The mean channel's statistic after each of J rounds, from x (J, d): all pairs s < t that are candidates."""
    out = np.zeros(len(x))
    for t in range(1, len(x) + 1):
        terms = []
        for s in range(first, t):
            if not kept(s, t):
                continue
            left, right = weights[:s], weights[s:t]
            gap = np.average(x[:s], axis=0, weights=left) - np.average(x[s:t], axis=0, weights=right)
            m = left.sum() * right.sum() / (left.sum() + right.sum())
            z = np.sqrt(m) * np.linalg.norm(gap)
            terms.append(np.exp(z**2 / 3 / (1 + min(0.25 * z**2 / m, z / np.sqrt(m)))))
        out[t - 1] = np.sqrt(3 * np.log(np.sum(terms))) if terms else 0.0
    return out


def spread_statistic(x, weights, group, quiet=False):
    """The spread or the quiet channel's statistic after each full group, from x (J, d)."""
    d = x.shape[1]
    floor, cap = stats.chi2.ppf(0.1, d) if quiet else 0.0, stats.chi2.ppf(0.99, d)
    expected = stats.chi2.expect(lambda v: min(max(v, floor), cap), args=(d,))
    groups = [slice(i, i + group) for i in range(0, len(x) - group + 1, group)]
    means = np.array([np.average(x[g], axis=0, weights=weights[g]) for g in groups])
    masses = np.array([weights[g].sum() for g in groups])
    q = []
    for i in range(1, len(groups)):
        past = masses[:i].sum()
        residual = means[i] - np.average(means[:i], axis=0, weights=masses[:i])
        q.append(np.clip(residual @ residual * masses[i] * past / (masses[i] + past), floor, cap) / expected)
    out = np.zeros(len(q))
    for t in range(1, len(q) + 1):
        terms = []
        for s in range(2, t):
            if not kept(s, t):
                continue
            n1, n2 = 50 + s, t - s
            r1, r2 = (50 + sum(q[:s])) / n1, np.mean(q[s:t])
            ra = (50 + sum(q[:t])) / (n1 + n2)
            ratio = d * ((n1 + n2) * np.log(ra) - n1 * np.log(r1) - n2 * np.log(r2))
            terms.append(np.exp(ratio / 3) if (r2 < r1 if quiet else r2 > r1) else 1.0)
        out[t - 1] = np.sqrt(3 * np.log(np.sum(terms))) if terms else 0.0
    return out
