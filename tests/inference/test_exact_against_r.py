"""Exact fits of data sets that ship with R packages, against R's: coefficients, errors and likelihoods to 1e-6.

`r_datasets/make.R` writes the tables with a column of sites, fits them by lm, glm, MASS, nnet and survival, and keeps
what it finds in `expected.json`. Both read the same files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import fedgauss as fg
from fedgauss import families

FOLDER = Path(__file__).parent / "r_datasets"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
VERSIONS = EXPECTED.pop("versions")


class Case(NamedTuple):
    """A model as fedgauss has it; by default errors are robust, HC0."""

    formula: str
    family: Any
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed


CASES = {
    "penguins": Case("mass ~ flipper * sex + depth", "gaussian"),
    "caschools": Case("score ~ ratio + english + lunch", "gaussian", {"row_weights": "students", "errors": "model"}),
    "mroz": Case("lfp ~ k5 + k618 + wc + hc + lwg + inc + ns(age, knots=[38, 44, 50], bounds=[32, 57])", "binomial"),
    "snails": Case(
        "deaths ~ species * exposure + humidity",
        "binomial",
        {"trials": "n", "link": "cloglog", "site_effects": True, "errors": "model"},
    ),
    "mmmec": Case("deaths ~ uvb", "poisson", {"exposure": "expected"}),
    "grouseticks": Case("ticks ~ height", "poisson", {"cluster": "brood", "errors": "cluster"}),
    "ricefarms": Case(
        "output ~ log(size) + log(seed) + log(labour) + varieties", "gamma", {"link": "log", "errors": "model"}
    ),
    "schooldays": Case("absent ~ race + gender + learner", "negative_binomial", {"errors": "model"}),
    "womenlf": Case("partic ~ hincome + children", "multinomial", {"errors": "model"}),
    "bmt": Case("days ~ group + fab + age * donor", "cox", {"event": "event", "errors": "model"}),
    "colon": Case(
        "days ~ rx + sex + age + obstruct + perfor + adhere + nodes + C(differ) + C(extent) + surg",
        families.Cox("breslow"),
        {"event": "died"},
    ),
}


def fit_of(frame: pd.DataFrame, case: Case) -> Any:
    """The one place that knows how a fit is called."""
    return fg.fit(frame, fg.Model(case.formula, family=case.family, **case.options), client="site")


def test_every_table_that_is_stored_is_fitted() -> None:
    assert set(CASES) == set(EXPECTED) == {file.stem for file in FOLDER.glob("*.csv")}


@pytest.mark.parametrize("name", CASES)
def test_fits_are_those_of_r(name: str) -> None:
    ours, theirs = fit_of(pd.read_csv(FOLDER / f"{name}.csv"), CASES[name]), EXPECTED[name]
    assert dict(zip(ours.names, ours.params, strict=True)) == pytest.approx(theirs["params"], rel=1e-6, abs=0.0)
    assert dict(zip(ours.names, ours.std_errors, strict=True)) == pytest.approx(theirs["std_errors"], rel=1e-6, abs=0.0)
    for what in {"log_likelihood", "deviance"} & theirs.keys():
        assert getattr(ours.statistics, what) == pytest.approx(theirs[what], rel=1e-6), what
