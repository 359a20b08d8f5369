"""Sites in this process that hear and say nothing but lines of JSON, and rows with all that a model may use."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.site import Site
from fedgauss.inference.model import Model

SIZES = {"a": 90, "b": 120, "c": 150}


def many_columns(seed=7, sizes=SIZES):
    """A row for each patient, sorted by site "h"."""
    rng, n = np.random.default_rng(seed), sum(sizes.values())
    z, ward = rng.normal(size=(n, 2)), rng.choice(["east", "north", "south"], n)
    signal = 0.2 + z @ [0.5, -0.3] + 0.4 * (ward == "south")
    years = rng.uniform(0.5, 3.0, n)
    mean = np.exp(0.5 + 0.4 * signal)
    beds = rng.integers(3, 12, n)
    classes = np.argmax(np.stack([np.zeros(n), signal, 0.5 - signal]) + rng.gumbel(size=(3, n)), axis=0)
    return pd.DataFrame(
        {
            "age": 50 + 10 * z[:, 0],
            "dose": z[:, 1],
            "ward": ward,
            "died": (rng.random(n) < 1 / (1 + np.exp(-signal))).astype(int),
            "cost": 1000 + 200 * signal + 100 * rng.normal(size=n),
            "error": signal + rng.standard_t(3, n),
            "visits": rng.poisson(mean * years),
            "falls": rng.negative_binomial(2.0, 2.0 / (2.0 + 3 * mean)),
            "stay": rng.gamma(3.0, mean / 3.0),
            "full": rng.binomial(beds, 1 / (1 + np.exp(-signal))),
            "beds": beds,
            "months": np.ceil(12 * rng.exponential(np.exp(-0.5 * signal))),
            "ended": (rng.random(n) < 0.7).astype(int),
            "blood": np.array(["A", "B", "O"])[classes],
            "years": years,
            "shift": 0.2 * rng.normal(size=n),
            "counts_for": rng.uniform(0.5, 2.0, n),
            "doctor": rng.integers(0, 12, n),
            "h": np.repeat(list(sizes), list(sizes.values())),
        }
    )


ROWS = many_columns()

# target, and what goes with it: every family, and everything that stands beside covariates.
MODELS = {
    "gaussian": ("cost", {"family": "gaussian", "formula": "cost ~ age + dose + C(ward)", "errors": "HC1"}),
    "no intercept": ("cost", {"family": "gaussian", "formula": "cost ~ age + ward - 1", "errors": "site"}),
    "binomial": ("died", {"family": "binomial", "features": ["age", "dose", "ward"]}),
    "probit": ("died", {"family": "binomial", "link": "probit", "features": ["age", "dose"], "errors": "model"}),
    "cloglog": ("died", {"family": "binomial", "link": "cloglog", "features": ["age", "dose"]}),
    "trials": ("full", {"trials": "beds", "features": ["age", "ward"], "errors": "model"}),
    "poisson": ("visits", {"family": "poisson", "features": ["age", "dose"], "exposure": "years"}),
    "gamma": ("stay", {"family": "gamma", "link": "log", "features": ["age", "dose"], "errors": "model"}),
    "negative binomial": ("falls", {"family": "negative_binomial", "features": ["age", "dose"]}),
    "huber": ("error", {"family": "huber", "features": ["age", "dose"]}),
    "multinomial": ("blood", {"family": "multinomial", "features": ["age", "dose"], "errors": "model"}),
    "one versus rest": ("blood", {"family": "one_versus_rest", "features": ["age", "dose"]}),
    "cox": ("months", {"event": "ended", "formula": "months ~ age + dose + ward", "errors": "model"}),
    "cox, robust": ("months", {"event": "ended", "features": ["age", "dose"], "row_weights": "counts_for"}),
    "weights": ("cost", {"family": "gaussian", "features": ["age", "dose"], "row_weights": "counts_for"}),
    "weights of counts": ("visits", {"family": "poisson", "features": ["age"], "row_weights": "counts_for"}),
    "offset": ("visits", {"family": "poisson", "formula": "visits ~ age + ward", "offset": "shift"}),
    "offset in a formula": ("visits", {"family": "poisson", "formula": "visits ~ age + offset(log(years))"}),
    "clusters": ("died", {"family": "binomial", "features": ["age"], "cluster": "doctor", "errors": "cluster"}),
    "effects of sites": ("died", {"family": "binomial", "features": ["age", "dose"], "site_effects": True}),
    "scale": ("cost", {"family": "gaussian", "formula": "cost ~ scale(age) + center(dose)"}),
    "splines": ("died", {"family": "binomial", "formula": "died ~ ns(age, df=3) + scale(dose)"}),
    "interactions": ("cost", {"family": "gaussian", "formula": "cost ~ age*ward + dose**2 + log(years)"}),
    "ridge": ("died", {"family": "binomial", "features": ["age", "dose", "ward"], "ridge": 2.0}),
}  # fmt: skip


def own(frame, name):
    """The rows of one site."""
    return frame[frame.h == name].drop(columns="h")


def asked_of(site="a", **model):
    """What a coordinator says to describe a model: all fields, those that are not given as `fit` has them."""
    return Model("y").wire() | {"target": None, "sites": list(SIZES), "name": site} | model


class Channel:
    """Sites by name, in order; all that they hear and say is kept."""

    def __init__(self, frame=ROWS, policy=None):
        self.names = sorted(set(frame.h))
        self.sites = [Site(own(frame, name), policy) for name in self.names]
        self.heard, self.said = [], []

    def ask(self, order, contents):
        pairs = zip(self.sites, contents, strict=True)
        replies = [
            None if content is None else encoded(site.answer(order, decoded(encoded(content))))
            for site, content in pairs
        ]
        self.heard.append((order, list(contents)))
        self.said.append((order, replies))
        return [None if reply is None else decoded(reply) for reply in replies]

    @property
    def orders(self):
        return [order for order, _ in self.said]
