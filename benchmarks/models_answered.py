"""How many different textbook models sites answer, by default policies, after a first look at all of their columns.

    OMP_NUM_THREADS=1 PYTHONPATH=src:benchmarks python benchmarks/models_answered.py [--rows 300 1000 5000] [--times 1]

Three hospitals with so many rows each, through the protocol, masked and not. The first look is a linear model with all
columns in it, whose sums are those of a table of means and standard deviations. Then 24 models in the order of the
list; what a refusal costs (a try, perhaps a refusal) stays spent.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedgauss.federated.budget import Budget
from fedgauss.federated.home import Home
from fedgauss.federated.keys import Key
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Site
from fedgauss.inference.model import Model

HOSPITALS = ("east", "north", "west")
FIRST_LOOK = Model("sbp ~ age + sex + bmi + smoker + C(stage) + ldl + days + died")
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("sbp ~ C(stage)", {}),
    ("ldl ~ C(stage)", {}),
    ("sbp ~ age + sex + bmi", {}),
    ("sbp ~ age * sex", {}),
    ("ldl ~ log(age) + log(bmi)", {}),
    ("sbp ~ ns(age, df=3) + sex", {}),
    ("ldl ~ age + age**2 + bmi + smoker", {}),
    ("bmi ~ age + sex + smoker + C(stage)", {}),
    ("died ~ age", {"family": "binomial"}),
    ("died ~ age + sex", {"family": "binomial"}),
    ("died ~ age + sex + bmi + smoker + C(stage)", {"family": "binomial"}),
    ("died ~ age + smoker * sex", {"family": "binomial"}),
    ("died ~ ns(age, df=3) + C(stage)", {"family": "binomial"}),
    ("died ~ log(bmi) + sbp + ldl", {"family": "binomial"}),
    ("smoker ~ age + sex + bmi", {"family": "binomial"}),
    ("died ~ age + C(stage)", {"family": "binomial", "link": "probit"}),
    ("died ~ age + sex", {"family": "poisson", "exposure": "days"}),
    ("died ~ age + smoker + C(stage)", {"family": "poisson", "exposure": "days"}),
    ("days ~ age + sex", {"family": "cox", "event": "died"}),
    ("days ~ age + C(stage)", {"family": "cox", "event": "died"}),
    ("days ~ age + sex + bmi + smoker + C(stage)", {"family": "cox", "event": "died"}),
    ("days ~ age + sex", {"family": "gamma", "link": "log"}),
    ("ldl ~ age + sex + bmi + C(stage)", {"site_effects": True}),
    ("sbp ~ age + sex + bmi + ldl", {"errors": "model"}),
]


def hospital(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Patients, of whom one in seven or so dies within the days that were seen."""
    age, sex = rng.normal(62, 11, n).clip(20, 99).round(), (rng.random(n) < 0.48) * 1.0
    bmi, smoker = rng.lognormal(3.29, 0.16, n).round(1), (rng.random(n) < 0.22) * 1.0
    stage = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    sbp = (95 + 0.55 * age + 0.6 * (bmi - 27) + 4 * sex + rng.normal(0, 14, n)).round()
    ldl = (rng.lognormal(1.15, 0.28, n) + 0.01 * (age - 62)).clip(0.5).round(2)
    rate = np.exp(-9.0 + 0.05 * (age - 62) + 0.4 * smoker + 0.35 * stage)
    dies, seen = rng.exponential(1.0 / rate), rng.uniform(200, 1500, n)
    return {
        "age": age, "sex": sex, "bmi": bmi, "smoker": smoker, "stage": np.array(["I", "II", "III", "IV"])[stage],
        "sbp": sbp, "ldl": ldl, "days": np.ceil(np.minimum(dies, seen)), "died": (dies <= seen) * 1.0,
    }  # fmt: skip


def spent(ledger: Ledger) -> Mapping[str, int]:
    """What a ledger says that was spent of each budget."""
    names = ("tries", "refusals", "parameters", "matrices")
    lines = [line.split() for line in ledger.report().splitlines()]
    return {words[0][:-1]: int(words[1]) for words in lines if words[0].rstrip(":") in names}


def answered(rows: int, masked: bool, seed: int, times: int) -> None:
    """Ask three hospitals for all models, and print what became of each."""
    rng, policy = np.random.default_rng(seed), Policy()
    budget = Budget(**{name: times * most for name, most in asdict(policy.budget).items()})
    with TemporaryDirectory() as folder:
        homes = {}
        for name in HOSPITALS:
            ledger = Ledger(Path(folder) / f"{name}.ledger", policy.few, policy.sites_apart, budget)
            homes[name] = Home(Key(rng.bytes(32)), ledger)
        parts = {name: Site(hospital(rng, rows), home, policy, say=lambda text: None) for name, home in homes.items()}
        count, began, before = 0, time.perf_counter(), spent(homes["east"].ledger)
        print(f"\n{rows:,} rows at each of {len(HOSPITALS)} sites, {'masked' if masked else 'unmasked'}")
        with LocalSites(parts) as sites:
            for model in [FIRST_LOOK, *(Model(formula, **options) for formula, options in MODELS)]:
                try:
                    federate(model, sites, masked=masked)
                except ValueError as error:
                    said = str(error).split(" site 'north'")[0]
                else:
                    said, count = "answered", count + (model is not FIRST_LOOK)
                now = spent(homes["east"].ledger)
                cost = " ".join(f"{now[name] - before[name]:>3}" for name in now)
                before = now
                words = " ".join([str(model.formula), model.family or "", model.event or "", model.exposure or ""])
                print(f"  {words.strip():<58} {cost}  {said}", flush=True)
        left = ", ".join(f"{name} {now[name]}" for name in now)
        print(f"  {count} of {len(MODELS)} answered after the first look, {time.perf_counter() - began:.1f} s; {left}")


def main() -> None:
    """For tables of three sizes, without masks and with them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 1000, 5000])
    parser.add_argument("--times", type=int, default=1, help="of the default budgets, to see what else refuses")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(f"{date.today()}; columns: tries, refusals, parameters and matrices that it cost the first site")
    for rows in arguments.rows:
        for masked in (False, True):
            answered(rows, masked, arguments.seed, arguments.times)


if __name__ == "__main__":
    main()
