"""A small federation as a log would show it: six clients on one linear problem, two of which turn malicious."""

import json

import numpy as np

import fedgauss as fg

TAU, STEPS, DIM = 20, fg.step_sizes.polynomial(0.3, 0.75), 2
OPTIMUM = np.array([2.0, -3.0])
NAMES = ("north", "south", "east", "west", "up", "down")


def lin():
    k = len(NAMES)
    noise, alike = np.stack([4.0 * np.eye(DIM)] * k), np.zeros((k, DIM))
    return fg.linearization(np.stack([np.eye(DIM)] * k), noise, optimum=OPTIMUM, gradients=alike)


def monitor(**options):
    return fg.Monitor(lin(), STEPS, TAU, start=OPTIMUM, **options)


def rounds(count, onset=10**9, shift=2.0, seed=1, attackers=2):
    """Y and the uploads (K, d) after each round; the attackers' gradients move by `shift` after step `onset`."""
    generator, eta = np.random.default_rng(seed), STEPS.eta(count * TAU)
    y, bad = OPTIMUM, np.arange(len(NAMES))[:, None] < attackers
    for j in range(count):
        theta = np.repeat(y[None], len(NAMES), axis=0)
        for t in range(j * TAU, (j + 1) * TAU):
            noise = 2.0 * generator.standard_normal(theta.shape)
            theta = theta - eta[t] * (theta - OPTIMUM + noise + bad * (t >= onset) * shift)
        y = theta.mean(axis=0)
        yield y, theta


def line(number, y, theta=None, names=NAMES, **more):
    said = {"round": number, "parameters": list(y), **more}
    if theta is not None:
        said["clients"] = {name: list(row) for name, row in zip(names, theta, strict=True)}
    return json.dumps(said).encode()


def state_bytes(watched):
    """Everything a monitor holds."""
    words, arrays = watched.state()
    return repr(words), {name: array.tobytes() for name, array in arrays.items()}
