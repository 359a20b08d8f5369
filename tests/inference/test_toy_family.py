"""A family in a file of its own: it fits, federates, prints, is saved and covers, and nothing else knows of it.

Exponential regression with a log link: y ~ mu E with mu = exp(eta) and E standard exponential. The loss is
eta + y exp(-eta), its optimum that of a gamma GLM in statsmodels.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedgauss as fg
from fedgauss.coverage.cells import CoverageCell
from fedgauss.coverage.federation import Federation
from fedgauss.families import Family, ResidualMoments, base, numpy_for, register
from fedgauss.federated.mailbox import federate
from fedgauss.federated.processes import SiteProcesses
from site_rows import Sites


@dataclass(frozen=True)
class Exponential(Family):
    """Waiting times: y is exponential with mean exp(eta)."""

    name = "exponential"
    aliases = ("waiting_time",)
    needs = "positive numbers"
    signal = 0.3

    def mean(self, predictor):
        """exp(eta)."""
        return numpy_for(predictor).exp(predictor)

    def residual(self, predictor, response):
        """1 - y exp(-eta)."""
        return 1.0 - response * numpy_for(predictor).exp(-predictor)

    def loss(self, predictor, response):
        """Eta + y exp(-eta)."""
        return predictor[0] + response * np.exp(-predictor[0])

    def check_response(self, response):
        """Times are positive."""
        if np.any(response <= 0):
            raise ValueError(f"exponential responses must be positive; the smallest is {response.min():g}.")

    def start(self, totals, n_rows):
        """The logarithm of the mean."""
        return np.log(totals / n_rows)

    def respond(self, predictor, noise, noise_sd):
        """By inversion."""
        return -jnp.exp(predictor[0]) * jnp.log(noise.uniform(1)[0])

    def residual_moments(self, u, v):
        """With q = exp(v - u): r = 1 - q E, E[E] = 1 and E[E^2] = 2."""
        q = np.exp(v - u)
        return ResidualMoments(1.0 - q, 1.0 - 2.0 * q + 2.0 * q**2, q)

    def slopes(self, theta_var, beta_var, gap_var, noise_sd):
        """grad F = E[x (1 - exp(x'(beta - theta)))] = exp(gap_var / 2) H (theta - beta)."""
        growth = jnp.exp(gap_var / 2)
        return growth, growth


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
    register(Exponential)


RNG = np.random.default_rng(5)
N = 600
FRAME = pd.DataFrame({"dose": RNG.normal(size=N), "age": 50 + 10 * RNG.normal(size=N), "h": list("abc") * 200})
FRAME["hours"] = np.exp(1.0 + 0.5 * FRAME.dose - 0.03 * (FRAME.age - 50)) * RNG.exponential(size=N)
COLUMNS = ["dose", "age"]


def test_it_fits_as_statsmodels_does_and_prints_its_name():
    link = sm.families.Gamma(sm.families.links.Log())
    pooled = sm.GLM(FRAME.hours, sm.add_constant(FRAME[COLUMNS]), family=link).fit(cov_type="HC0")
    fit = fg.fit(FRAME, "hours", "h", "exponential", COLUMNS, solver=fg.SGD(passes=15))
    assert np.abs((fit.params - pooled.params.to_numpy()) / pooled.bse.to_numpy()).max() < 0.3
    np.testing.assert_allclose(fit.std_errors, pooled.bse, rtol=0.15)
    assert "Family: exponential" in str(fit)


def test_it_fits_exactly():
    link = sm.families.Gamma(sm.families.links.Log())
    pooled = sm.GLM(FRAME.hours, sm.add_constant(FRAME[COLUMNS]), family=link).fit(cov_type="HC0", tol=1e-14)
    fit = fg.fit(FRAME, "hours", "h", "exponential", COLUMNS)
    np.testing.assert_allclose(fit.params, pooled.params, rtol=1e-8)
    np.testing.assert_allclose(fit.std_errors, pooled.bse, rtol=1e-3)  # statsmodels expects the curvature


def test_a_name_an_alias_and_an_instance_are_one_family():
    fits = [fg.fit(FRAME, "hours", "h", f, COLUMNS) for f in ("exponential", "waiting_time", Exponential())]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.params, fits[0].params)
    with pytest.raises(ValueError, match="does not suit the family: exponential responses must be positive"):
        fg.fit(FRAME.assign(hours=FRAME.hours - 5), "hours", "h", "exponential", COLUMNS)


@pytest.mark.parametrize("masked", [False, True])
def test_it_federates_to_the_pooled_fit_and_is_saved(tmp_path, masked):
    model = fg.Model("hours", family="exponential", features=COLUMNS)
    with Sites(FRAME) as sites:
        fit = federate(model, sites, masked=masked)
    pooled = fg.fit(FRAME, model, client="h")
    np.testing.assert_allclose(fit.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(fit.std_errors, pooled.std_errors, rtol=1e-10)
    fit.save(tmp_path / "fit.json")
    saved = json.loads((tmp_path / "fit.json").read_text())
    assert saved["facts"]["Family"] == "exponential"
    np.testing.assert_array_equal(saved["params"], fit.params)


# A site as an owner may start it who has a family of their own: it is registered in the site's process.
OWN_SITE = """
import sys
from fedgauss.federated.site import Site
from fedgauss.federated.wire import lines_of, serve_lines
from fedgauss.inference.tables import read_table
from test_toy_family import Exponential
from fedgauss.families import register

register(Exponential)
serve_lines(Site(read_table(sys.argv[1]), sys.argv[1]).answer, lines_of(sys.stdin.buffer), sys.stdout)
"""


@pytest.mark.study
def test_it_is_registered_in_processes_of_sites(tmp_path):
    commands = {}
    for name, rows in FRAME.groupby("h"):
        rows.drop(columns="h").to_csv(tmp_path / f"{name}.csv", index=False)
        commands[name] = [sys.executable, "-c", OWN_SITE, str(tmp_path / f"{name}.csv")]
    model = fg.Model("hours", family="exponential", features=COLUMNS)
    with pytest.MonkeyPatch.context() as patch:
        here = [Path(__file__).parent, Path(__file__).parents[1], Path(fg.__file__).parents[1]]
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, here)))
        with SiteProcesses(commands) as sites:
            fit = federate(model, sites, masked=True)
    np.testing.assert_allclose(fit.params, fg.fit(FRAME, model, client="h").params, rtol=1e-10)


def test_sites_that_do_not_know_it_say_which_families_they_know():
    class Elsewhere(Sites):
        """Processes that have not registered it."""

        def ask(self, order, contents):
            with pytest.MonkeyPatch.context() as patch:
                known = {name: one for name, one in base._REGISTRY.items() if one is not Exponential}
                patch.setattr(base, "_REGISTRY", known)
                return super().ask(order, contents)

    model = fg.Model("hours", family="exponential", features=COLUMNS)
    with Elsewhere(FRAME) as sites, pytest.raises(ValueError, match=r"family must be one of .*; got 'exponential'"):
        federate(model, sites)
    words = "the target 'hours' must suit the family 'exponential', which needs positive numbers; it does not at this"
    with Sites(FRAME.assign(hours=FRAME.hours - 5)) as sites, pytest.raises(ValueError, match=words):
        federate(model, sites)


@pytest.mark.study
def test_it_covers_in_the_laboratory():
    """60 runs, three coordinates: .87 is four standard errors below .95 where coordinates are independent."""
    cell = CoverageCell(Federation("exponential", n_clients=4, n_steps=400, dim=3), runs=60)
    rows = {row.method: row for row in cell.run()}
    assert rows["plugin"].family == "exponential"
    assert 0.87 < rows["plugin"].coverage <= 1.0


def test_its_closed_forms_are_those_of_draws():
    problem = fg.problems.from_family("exponential", 0.3 * np.random.default_rng(1).normal(size=(3, 2)))
    theta = np.array([0.2, -0.1])
    noise = problem.moments(theta)
    draws = fg.warm_up(problem, 20_000, theta)
    np.testing.assert_allclose(draws.client_hessians, noise.hessian, atol=0.08)
    np.testing.assert_allclose(draws.client_noise_cov, noise.noise_cov, rtol=0.15, atol=0.15)


def test_names_belong_to_one_family():
    @dataclass(frozen=True)
    class Other(Exponential):
        name = "poisson"
        aliases = ()

    with pytest.raises(ValueError, match=r"the family name 'poisson' belongs to Poisson. Choose another name"):
        register(Other)
    with pytest.raises(ValueError, match="register needs a subclass of Family with a name; got <class 'int'>"):
        register(int)
    assert register(Exponential) is Exponential  # a notebook cell may be run again
