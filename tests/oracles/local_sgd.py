"""Algorithm 1 for the linear model, step by step and client by client: the slow twin of fast recursions."""

from __future__ import annotations

import numpy as np


def local_sgd(coefficients, noise_var, design_cov, weights, mixing, eta, sync_mask, start, x, noise):
    """The path of theta, (n + 1, K, d, R); entry 0 is the start. Only replicates are vectorised.

    x (n, K, d, R) and noise (n, K, R) are standard normal; a client sees L_k x with L_k L_k' = H_k, and
    y = x' beta_k + sigma_k e. eta is (n,) or (n, K). start is (d,), (K, d) or (K, d, R).
    """
    n, n_clients, dim, replicates = x.shape
    eta = np.broadcast_to(eta if np.ndim(eta) == 2 else np.asarray(eta)[:, None], (n, n_clients))
    start = np.asarray(start, dtype=float)
    path = np.empty((n + 1, n_clients, dim, replicates))
    path[0] = start if start.ndim == 3 else np.broadcast_to(start, (n_clients, dim))[:, :, None]
    for t in range(1, n + 1):
        stepped = np.empty((n_clients, dim, replicates))
        for k in range(n_clients):
            theta = path[t - 1, k]
            design = np.linalg.cholesky(design_cov[k]) @ x[t - 1, k]
            y = coefficients[k] @ design + np.sqrt(noise_var[k]) * noise[t - 1, k]
            gradient = design * ((design * theta).sum(axis=0) - y)
            stepped[k] = theta - eta[t - 1, k] * n_clients * weights[k] * gradient
        path[t] = stepped
        if sync_mask[t - 1]:
            for k in range(n_clients):
                path[t, k] = sum(stepped[j] * mixing[j, k] for j in range(n_clients))
    return path
