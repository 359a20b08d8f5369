"""Sites in this process that hear and say nothing but lines of JSON, and rows with all that a model may use."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from fedgauss.federated.home import Home
from fedgauss.federated.keys import Key
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.local import LocalSites
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Parts, Site
from fedgauss.federated.wire import encode
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


_FOLDER = tempfile.TemporaryDirectory(prefix="fedgauss-homes-")
_numbers = itertools.count()


def home(policy=None, name="table"):
    """A home of its own, in a folder that goes when the tests do."""
    rules = Policy() if policy is None else policy
    place = Path(_FOLDER.name) / f"{name}-{next(_numbers)}.ledger"
    return home_at(place, rules, Key.fresh())


def home_at(place, rules, key):
    """A key and a ledger whose file may be there."""
    return Home(key, Ledger(place, rules.few, rules.sites_apart, rules.budget, privacy=rules.privacy))


def site_of(frame, policy=None, where=None, say=lambda text: print(text), **parts):
    """A site with these rows."""
    return Site(frame, home(policy) if where is None else where, policy, say, Parts(**parts))


class Sites(LocalSites):
    """A site for each value of the column "h"; all that they hear and say is kept, as text."""

    def __init__(self, frame=ROWS, policy=None, homes=None):
        homes = homes or {}
        names = sorted(set(frame.h))
        super().__init__({name: site_of(own(frame, name), policy, homes.get(name)) for name in names})
        self.asked, self.said = [], []

    def ask(self, order, contents):
        replies = super().ask(order, contents)
        self.asked.append((order, {name: encode(content) for name, content in contents.items()}))
        self.said.append((order, {name: encode(reply) for name, reply in replies.items()}))
        return replies


def model_of(name):
    """A model of `MODELS`."""
    target, options = MODELS[name]
    options = dict(options)
    return Model(options.pop("formula", target), **options)
