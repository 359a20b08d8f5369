"""Which honest studies are refused: simulated mortality studies and fits of textbooks, by today's rules and others.

A study has eight hospitals with a median of 400, 1,000 or 2,500 patients, 4.5 % of whom die. Covariates are age, bmi,
sex, smoker and diabetes; stage has a level of 3 % and code one of 1 %. Hospitals differ: in size (a lognormal law, sd
.4 of the logarithm), in age and in the odds of everything else (sd .2 of the logarithm).

Rules, each a function of the data that says what it refuses:

    DataSHIELD   glmDS1 (dsBase): at each site fewer parameters than .33 of the rows, and in each column and outcome of
                 two values 0 or at least 3 rows have each value
    today        what sites of this version answer, unmasked and masked (`textbook_fits.run`)
    i, ii        at each site every level, column and outcome of two values has 0 or at least 3 (ii: 5) rows
    iii          over all sites, at least 5
    iv           i, and no combination of the columns and the outcome vanishes but on one or two rows of a site (`few`),
                 with 3 rows for each parameter at each site (unmasked) or over all sites (masked)
    iii at 3     the same where a site adds its rows with a level to the count if it has 3 of them, else nothing: who
                 sees the total then knows no 1 or 2 of a site
    v            iii, and no such combination on one or two rows of all sites, with 3 rows for each parameter over all
                 sites: the same idea about totals, for masked fits

    python benchmarks/refusals.py [--studies 20]
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype
from scipy.optimize import brentq
from scipy.special import expit, logit
from textbook_fits import LIST, RAN, SITE, AtSites, Textbook, run

from fedgauss.inference.model import Model
from fedgauss.inference.model_data import read_model_data

Array = np.ndarray[Any, Any]

HOSPITALS, DEATHS = 8, 0.045
SIZES, UNLIKE = 0.4, 0.2  # sds of logarithms: of hospitals' sizes, and of their odds
SHARES = {"stage": {"I": 0.47, "II": 0.30, "III": 0.20, "IV": 0.03}, "code": {"A": 0.5, "B": 0.3, "C": 0.19, "D": 0.01}}
BINARY = {"sex": 0.48, "smoker": 0.22, "diabetes": 0.12}
EFFECTS = {"sex": 0.3, "smoker": 0.4, "diabetes": 0.5, "II": 0.3, "III": 0.7, "IV": 1.2, "B": 0.1, "C": 0.2, "D": 0.5}
FIVE = "died ~ age + bmi + sex + smoker + diabetes"
TABLE = [
    (400, FIVE), (400, f"{FIVE} + stage"), (1_000, f"{FIVE} + stage"), (1_000, f"{FIVE} + stage + code"),
    (2_500, f"{FIVE} + stage + code"),
]  # fmt: skip

CELL, CELL_TODAY = 3, 5  # of DataSHIELD (nfilter.tab), and of sites of this version
SATURATION = 0.33  # nfilter.glm: parameters for each row
PER_PARAMETER = 3  # rows
APART = 0.999  # share of a combination's squares on a few rows


class Study(NamedTuple):
    """A simulated study."""

    median: int
    formula: str
    seed: int
    family: str = "binomial"
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def frame(self) -> pd.DataFrame:
        """A row for each patient."""
        rng = np.random.default_rng([self.seed, self.median])
        sizes = np.exp(SIZES * rng.normal(size=HOSPITALS))
        counts = np.round(self.median * sizes / np.median(sizes)).astype(int)
        site = np.repeat(np.arange(HOSPITALS), counts)
        n = len(site)

        def unlike(share: float) -> Array:
            """A share at each patient's hospital."""
            return expit(logit(share) + UNLIKE * rng.normal(size=HOSPITALS))[site]

        columns: dict[str, Array] = {
            "age": np.round(np.clip(rng.normal(64, 11, n) + 3 * rng.normal(size=HOSPITALS)[site], 25, 97)),
            "bmi": np.round(27 * np.exp(0.17 * rng.normal(size=n)), 1),
        }
        columns |= {name: (rng.random(n) < unlike(share)).astype(int) for name, share in BINARY.items()}
        for name, shares in SHARES.items():
            weights = np.stack([unlike(share) for share in shares.values()])
            edges = np.cumsum(weights / weights.sum(axis=0), axis=0)
            columns[name] = np.array(list(shares))[(rng.random(n) > edges[:-1]).sum(axis=0)]
        effect = 0.05 * (columns["age"] - 64) + 0.02 * (columns["bmi"] - 27) + UNLIKE * rng.normal(size=HOSPITALS)[site]
        effect += sum(EFFECTS[name] * columns[name] for name in BINARY)
        effect += sum(np.vectorize(lambda level: EFFECTS.get(level, 0.0))(columns[name]) for name in SHARES)
        base = brentq(lambda at: expit(at + effect).mean() - DEATHS, -20.0, 5.0)
        columns["died"] = (rng.random(n) < expit(base + effect)).astype(int)
        return pd.DataFrame(columns | {SITE: np.array([f"h{k}" for k in range(HOSPITALS)])[site]})


class Rows(NamedTuple):
    """What rules look at, over all sites."""

    site: Array  # (n,)
    x: Array  # (n, p), with a column of ones where the model has one
    outcome: Array  # (n, c): the response or its classes, or of a Cox regression the event
    levels: dict[str, Array]  # indicators of every level, column and outcome of two values, (n,) each
    n_parameters: int

    def sites(self) -> Iterator[tuple[str, Array]]:
        """Names of sites, each with its rows."""
        for name in np.unique(self.site):
            yield str(name), self.site == name


def rows_of(fit: AtSites) -> Rows:
    """The design of a fit; the one place besides `run` that knows the library."""
    frame = fit.frame()
    target, terms = fit.formula.split(" ~ ")
    data = read_model_data(frame, SITE, Model(fit.formula, family=fit.family, missing="drop", **fit.options))
    x = data.covariates
    if data.constant is not None:
        x = np.column_stack([np.ones(len(x)), x])
    others = {*fit.options.values(), target, SITE}
    words = set(re.findall(r"\w+", terms)) | ({*frame} - others if "." in terms.split() else set())
    used = [name for name in frame if name in words or name in others]
    complete = frame[used].dropna().sort_values(SITE, kind="stable")
    assert len(complete) == len(x)
    levels: dict[str, Array] = {}
    of_levels = [name for name in words & {*frame} if not is_numeric_dtype(complete[name]) or f"C({name})" in terms]
    of_two = [name for name in used if complete[name].nunique() == 2]
    by_class = [target] if data.classes else []
    for name in sorted({*of_levels, *of_two, *by_class} - {SITE}):
        levels |= {f"{name} = {level}": (complete[name] == level).to_numpy() for level in complete[name].unique()}
    for name, column in zip(data.names, data.covariates.T, strict=True):
        if ":" in name and len(values := np.unique(column)) == 2:
            levels |= {f"{name} = {value:g}": column == value for value in values}
    if data.classes:
        outcome = np.stack([data.response == c for c in range(len(data.classes))], axis=1).astype(float)
    else:
        outcome = (data.beside if data.family.name == "cox" else data.response)[:, None]  # type: ignore[index]
    site = np.repeat(np.array(data.clients), data.counts)
    return Rows(site, x, outcome, levels, len(data.all_names))


def datashield(rows: Rows) -> list[str]:
    """glmDS1: of a design of p columns and n rows p <= .33 n, and no value of two is held by 1 or 2 rows."""
    found = []
    for name, here in rows.sites():
        x, n = rows.x[here], int(here.sum())
        if x.shape[1] > SATURATION * n:
            found.append(f"{name}: {x.shape[1]} parameters, {n} rows")
        for column in [*x.T, *rows.outcome[here].T]:
            counts = np.unique(column, return_counts=True)[1]
            if len(counts) == 2 and counts.min() < CELL:
                found.append(f"{name}: {counts.min()} rows hold one of two values")
    return found


def rare_at_a_site(fewest: int, rows: Rows) -> list[str]:
    """Levels with some rows at a site, and fewer than so many."""
    counts = {
        (name, level): int(holds[here].sum()) for name, here in rows.sites() for level, holds in rows.levels.items()
    }
    return [f"{name}: {level} has {count}" for (name, level), count in counts.items() if 0 < count < fewest]


def rare_in_all(fewest: int, rows: Rows) -> list[str]:
    """Levels with fewer rows than so many over all sites."""
    return [f"{level} has {holds.sum()} in all" for level, holds in rows.levels.items() if holds.sum() < fewest]


def rare_in_counts(rows: Rows) -> list[str]:
    """Levels with fewer than 5 rows over all sites when a site with fewer than 3 of them adds nothing."""
    here = [at for _, at in rows.sites()]
    counts = {level: [int(holds[at].sum()) for at in here] for level, holds in rows.levels.items()}
    added = {level: sum(count for count in of_sites if count >= CELL) for level, of_sites in counts.items()}
    return [f"{level} has {count} in the count" for level, count in added.items() if count < CELL_TODAY]


def few(x: Array) -> int | None:
    """1 or 2 where a combination of columns has all but .001 of its squares on one or two rows, else None.

    With P the projection on the columns' span, the largest share of the rows S is the largest eigenvalue of P_SS.
    """
    scaled = x / np.maximum(np.sqrt((x**2).sum(axis=0)), np.finfo(float).tiny)
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    basis = left[:, values > 1e-9 * values.max()]
    h = (basis**2).sum(axis=1)
    if h.max() > APART:
        return 1
    for i in np.flatnonzero(h >= APART / 2):
        mixed = basis @ basis[i]
        share = (h + h[i]) / 2 + np.sqrt(((h - h[i]) / 2) ** 2 + mixed**2)
        share[i] = 0.0
        if share.max() > APART:
            return 2
    return None


def few_at_a_site(rows: Rows) -> list[str]:
    """Sites where a combination of the columns and the outcome is that of one or two rows."""
    found = {name: few(np.column_stack([rows.x, rows.outcome])[here]) for name, here in rows.sites()}
    return [f"{name}: a combination of columns is on {count} row(s)" for name, count in found.items() if count]


def few_in_all(rows: Rows) -> list[str]:
    """The same over all sites."""
    count = few(np.column_stack([rows.x, rows.outcome]))
    return [f"a combination of columns is on {count} row(s) of all"] if count else []


def parameters_at_a_site(rows: Rows) -> list[str]:
    """Sites with fewer than 3 rows for each parameter."""
    counts = {name: int(here.sum()) for name, here in rows.sites()}
    p = rows.n_parameters
    return [f"{name}: {n} rows for {p} parameters" for name, n in counts.items() if n < PER_PARAMETER * p]


def parameters_in_all(rows: Rows) -> list[str]:
    """The same over all sites."""
    n, p = len(rows.site), rows.n_parameters
    return [f"{n} rows for {p} parameters in all"] if n < PER_PARAMETER * p else []


def iv(unmasked: bool, rows: Rows) -> list[str]:
    """i, few rows behind a combination at a site, and rows for each parameter."""
    enough = parameters_at_a_site if unmasked else parameters_in_all
    return rare_at_a_site(CELL, rows) + few_at_a_site(rows) + enough(rows)


def v(rows: Rows) -> list[str]:
    """The like of totals."""
    return rare_in_all(CELL_TODAY, rows) + few_in_all(rows) + parameters_in_all(rows)


def today(masked: bool, fit: AtSites) -> list[str]:
    """What sites say."""
    answer = run(fit, masked)
    return [] if answer == RAN else [answer]


RULES: dict[str, Callable[[Rows], list[str]]] = {
    "DataSHIELD": datashield,
    "i": partial(rare_at_a_site, CELL),
    "ii": partial(rare_at_a_site, CELL_TODAY),
    "iii": partial(rare_in_all, CELL_TODAY),
    "iii at 3": rare_in_counts,
    "iv unmasked": partial(iv, True),
    "iv masked": partial(iv, False),
    "v masked": v,
}
COLUMNS = ("DataSHIELD", "today", "today masked", *(name for name in RULES if name != "DataSHIELD"))


def reasons(fit: AtSites) -> dict[str, list[str]]:
    """Of every rule, in the order of `COLUMNS`; none where the fit runs."""
    rows = rows_of(fit)
    found = {name: rule(rows) for name, rule in RULES.items()}
    found |= {"today": today(False, fit), "today masked": today(True, fit)}
    return {name: found[name] for name in COLUMNS}


def line(first: str, counts: Any) -> str:
    """A row of a table."""
    return " | ".join(["", first, *map(str, counts), ""]).strip()


def simulated(studies: int) -> None:
    """The table of refusals: studies that run, by rule."""
    print(f"Simulated mortality studies that run, of {studies}:")
    print(line("median rows, model", COLUMNS))
    for median, formula in TABLE:
        found = [reasons(Study(median, formula, seed)) for seed in range(studies)]
        more = formula.removeprefix(FIVE) or " five covariates"
        print(line(f"{median:,},{more}", [sum(not one[name] for one in found) for name in COLUMNS]), flush=True)


def dealt_to(sites: int, fit: Textbook) -> Textbook:
    """The fit with so many sites, where values of a column or rows are dealt to sites."""
    column, slash, _ = fit.sites.partition("/")
    return fit._replace(sites=f"{column}/{sites}") if slash else fit


def textbooks(title: str, fits: Sequence[Textbook]) -> None:
    """How many of them run by each rule, and what is said of the others."""
    found = {fit.table: reasons(fit) for fit in fits}
    print(f"\n{title} that run, of {len(fits)}:")
    print(line("", COLUMNS))
    print(line("", [sum(not one[name] for one in found.values()) for name in COLUMNS]))
    for name in COLUMNS:
        print(f"\nRefused by {name}:")
        for table, one in found.items():
            if one[name]:
                more = f", and {len(one[name]) - 2} more" if len(one[name]) > 2 else ""
                print(f"    {table}: {'; '.join(one[name][:2])}{more}")


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=20)
    simulated(parser.parse_args().studies)
    textbooks("Fits of textbooks", LIST)
    textbooks("The same with eight sites wherever sites are dealt,", [dealt_to(HOSPITALS, fit) for fit in LIST])


if __name__ == "__main__":
    main()
