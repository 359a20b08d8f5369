"""W, D_1, ..., D_4 of the linear model by explicit sums in float64: the slow twin of `theory.error_terms`."""

from __future__ import annotations

import numpy as np
from scipy.linalg import sqrtm


def decomposition(path, x, y, beta, noise_var, cov, weights, eta):
    """(left, W, D_1, D_2, D_3, D_4), each (d, R), from a path (n + 1, K, d, R) and its data."""
    n, n_clients, dim, replicates = x.shape
    hessian = sum(weights[k] * cov[k] for k in range(n_clients))
    optimum = np.linalg.solve(hessian, sum(weights[k] * cov[k] @ beta[k] for k in range(n_clients)))
    q = []
    for s in range(1, n + 1):
        product, total = np.eye(dim), np.eye(dim)
        for j in range(s + 1, n + 1):
            product = (np.eye(dim) - eta[j - 1] * hessian) @ product
            total = total + product
        q.append(eta[s - 1] * total)
    noise_cov = np.zeros((dim, dim))
    for k in range(n_clients):
        delta = optimum - beta[k]
        pull = cov[k] @ delta
        noise_cov += weights[k] ** 2 * ((noise_var[k] + delta @ pull) * cov[k] + np.outer(pull, pull))
    sigma = sum(m @ noise_cov @ m.T for m in q) / n
    scale = np.linalg.inv(np.real(sqrtm(sigma))) / np.sqrt(n)

    mean = path.mean(axis=1)
    w, d2, d3, d4 = (np.zeros((dim, replicates)) for _ in range(4))
    for s in range(1, n + 1):
        before, average = path[s - 1], mean[s - 1]
        at_average = np.zeros((dim, replicates))
        for k in range(n_clients):
            rows, response = x[s - 1, k], y[s - 1, k]

            def noise_at(theta, k=k, rows=rows, response=response):
                sample = rows * ((rows * theta).sum(axis=0) - response)
                return cov[k] @ (theta - beta[k][:, None]) - sample

            there, here = noise_at(optimum[:, None]), noise_at(before[k])
            w += q[s - 1] @ (weights[k] * there)
            d4 += q[s - 1] @ (weights[k] * (here - there))
            d3 += q[s - 1] @ (weights[k] * cov[k] @ (average - before[k]))
            at_average += weights[k] * cov[k] @ (average - beta[k][:, None])
        d2 += q[s - 1] @ (hessian @ (average - optimum[:, None]) - at_average)
    carried, product = np.zeros((dim, dim)), np.eye(dim)
    for t in range(1, n + 1):
        product = (np.eye(dim) - eta[t - 1] * hessian) @ product
        carried += product
    d1 = carried @ (mean[0] - optimum[:, None])
    left = (mean[1:] - optimum[:, None]).sum(axis=0)
    return tuple(scale @ term for term in (left, w, d1, d2, d3, d4))
