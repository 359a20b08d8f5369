"""Federations as they are, one run, step and client at a time: who is there, which links are up, what clients keep.

The slow twin of the engine. It draws the engine's own random numbers and does with them what the documentation says, by
sorting, by loops and by whole matrices C_t.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from fedgauss._random import Noise, stage_key
from oracles.data import regression_data


def run_noise(n_clients, replicates, seed):
    return Noise(stage_key(seed, "data"), jnp.uint32(0), n_clients, replicates)


def present_in_round(number, count, n_clients, replicates, seed):
    """The clients of a round, (K, R): those with the smallest words, the last bits of which are the client's number."""
    noise = run_noise(n_clients, replicates, seed).stream("participation").at_step(jnp.int32(number))
    words = np.asarray(noise.words(1)[0])
    bits = max(n_clients - 1, 1).bit_length()
    here = np.zeros((n_clients, replicates), dtype=bool)
    for r in range(replicates):
        ordered = sorted(range(n_clients), key=lambda k, r=r: (int(words[k, r]) >> bits, k))
        here[ordered[:count], r] = True
    return here


def links_up(network, t, replicates, seed):
    """Which links of a failing network are up at step t, (E, R)."""
    noise = run_noise(network.n_clients, replicates, seed).at_step(jnp.int32(t)).stream("links")
    return np.asarray(replace(noise, n_clients=len(network.links)).uniform(1)[0]) >= network.probability


def pairs_met(network, t, replicates, seed):
    """The pairs that meet at step t, a list for each replicate."""
    noise = run_noise(network.n_clients, replicates, seed).at_step(jnp.int32(t)).stream("pairs")
    words = np.asarray(noise.words(1)[0])
    order = [sorted(range(network.n_clients), key=lambda k, r=r: (words[k, r], k)) for r in range(replicates)]
    return [[(one[2 * i], one[2 * i + 1]) for i in range(network.pairs)] for one in order]


def weights_of_links(network, t, replicates, seed):
    """The links in use at step t, {(i, j): weight} for each replicate; the server's part is apart."""
    if hasattr(network, "pairs"):
        return [dict.fromkeys(met, 0.5) for met in pairs_met(network, t, replicates, seed)]
    matrix = network.sparse.toarray()
    pairs = [(i, j) for i in range(len(matrix)) for j in range(i + 1, len(matrix)) if matrix[i, j] > 0]
    if not hasattr(network, "probability"):
        return [{(i, j): matrix[i, j] for i, j in pairs}] * replicates
    assert pairs == [tuple(link) for link in network.links]
    up = links_up(network, t, replicates, seed)
    whole = matrix / (1 - network.probability)
    return [{pair: whole[pair] for e, pair in enumerate(pairs) if up[e, r]} for r in range(replicates)]


def mixing_matrices(network, t, here, replicates, seed):
    """C_t of every replicate, (R, K, K)."""
    matrices = []
    for r, links in enumerate(weights_of_links(network, t, replicates, seed)):
        c = (1 - network.uniform) * np.eye(network.n_clients)
        for (i, j), weight in links.items():
            if here[i, r] and here[j, r]:
                c[i, j] += weight
                c[j, i] += weight
                c[i, i] -= weight
                c[j, j] -= weight
        for i in np.flatnonzero(here[:, r]):
            c[i, :] += network.uniform / here[:, r].sum()
        matrices.append(c)
    return np.stack(matrices)


def federated_sgd(
    problem, network, eta, mask, start, replicates, seed, count=None, local_steps=None, momentum=0.0,
    keep_momentum=False, proximal=0.0, server_momentum=None,
):  # fmt: skip
    """Theta_1, ..., Theta_n of a linear regression, (n, K, d, R).

    The server's rule is that of the paper on FedAvgM: v <- beta v + (what it sent - the mean it got), w <- w - v.
    """
    n, k_all, dim = len(eta), problem.n_clients, problem.dim
    x, y = regression_data(problem, n, replicates, seed)
    everybody = np.ones((k_all, replicates), dtype=bool)
    theta = np.broadcast_to(np.asarray(start, float).reshape(-1, dim)[:, :, None], (k_all, dim, replicates)).copy()
    buffer, velocity, sent = np.zeros_like(theta), np.zeros((dim, replicates)), theta.mean(axis=0)
    path, number, here, began, taken = [], -1, everybody, theta.copy(), 0
    for t in range(1, n + 1):
        if t == 1 or mask[t - 2]:
            number, taken, began = number + 1, 0, theta.copy()
            here = everybody if count is None else present_in_round(number, count, k_all, replicates, seed)
            if not keep_momentum:
                buffer[:] = 0.0
        taken += 1
        for r in range(replicates):
            for k in np.flatnonzero(here[:, r]):
                if local_steps is not None and taken > local_steps[k]:
                    continue
                rows = x[t - 1, k, :, r]
                gradient = rows * (rows @ theta[k, :, r] - y[t - 1, k, r])
                gradient = gradient + proximal * (theta[k, :, r] - began[k, :, r])
                buffer[k, :, r] = momentum * buffer[k, :, r] + gradient
                theta[k, :, r] -= eta[t - 1] * k_all * problem.weights[k] * buffer[k, :, r]
        if mask[t - 1]:
            c = mixing_matrices(network, t, here, replicates, seed)
            theta = np.stack([c[r].T @ theta[:, :, r] for r in range(replicates)], axis=-1)
            if server_momentum is not None:
                velocity = server_momentum * velocity + (sent - theta[0])
                sent = sent - velocity
                theta = np.repeat(sent[None], k_all, axis=0)
        path.append(theta.copy())
    return np.stack(path)
