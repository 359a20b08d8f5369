from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedgauss import networks, step_sizes
from fedgauss.theory import bounds, rates
from fedgauss.theory.exact import mean_recursion

N, K, BETA = 400, 16, 0.8


def test_theorems_2_1_and_2_2_by_hand() -> None:
    average = bounds.berry_esseen_average(N, K, BETA)
    assert list(average.terms.values()) == pytest.approx([1 / 80, 400**-0.3 * 4, 400**-0.4 / 4])
    assert average.total == pytest.approx(1 / 80 + 400**-0.3 * 4 + 400**-0.4 / 4)
    assert average.dominant == "n^(1/2-beta) K^(1/2)"
    printed = bounds.berry_esseen_last(N, K, BETA, "printed")
    assert list(printed.terms.values()) == pytest.approx([400**-0.4 / 4, 400**-0.3 * 4])
    corrected = bounds.berry_esseen_last(N, K, BETA)
    assert list(corrected.terms.values()) == pytest.approx([400**-0.4 / 4, 400**-0.4 * 4])
    assert printed.terms[printed.dominant] / corrected.terms[corrected.dominant] == pytest.approx(400**0.1)


def test_drift_is_never_smaller_than_the_terms_theorem_2_3_leaves_out() -> None:
    for n in (2, 10, 1000):
        for k in (1, 5, 500):
            for beta in (0.51, 0.75, 0.99):
                average = bounds.berry_esseen_average(n, k, beta)
                assert average.terms[average.dominant] <= average.terms["n^(1/2-beta) K^(1/2)"] * (1 + 1e-12)


def test_theorem_2_3_in_both_readings() -> None:
    assert bounds.covariance_gap(N, K, BETA).total == pytest.approx(400**-0.2 / 16)
    assert bounds.covariance_gap(N, K, BETA, "printed").total == pytest.approx(400**-0.2 / 4)
    drift = 4 * 400**-0.3
    assert bounds.berry_esseen_limit(N, K, BETA).total == pytest.approx(drift + 400**-0.2)
    assert bounds.berry_esseen_limit(N, K, BETA, "printed").total == pytest.approx(drift + 4 * 400**-0.2)


@pytest.mark.parametrize("reading", ["printed", "corrected"])
@pytest.mark.parametrize("c", [0.0, 0.25, 0.5])
def test_best_beta_minimises_the_bound_and_best_rate_is_its_value(reading: bounds.Reading, c: float) -> None:
    n = 10_000
    k = round(n**c)
    grid = np.linspace(0.51, 0.99, 481)
    totals = [bounds.berry_esseen_limit(n, k, beta, reading).total for beta in grid]
    beta, rate = rates.best_beta(c, reading), rates.best_rate(c, reading)
    assert beta is not None
    assert rate is not None
    assert grid[np.argmin(totals)] == pytest.approx(beta, abs=1.01e-3)
    assert bounds.berry_esseen_limit(n, k, beta, reading).total == pytest.approx(2 * n**-rate)


def test_where_no_beta_is_left() -> None:
    assert rates.best_beta(0.5, "printed") == 0.75
    assert rates.best_rate(0.5, "printed") == 0  # bounded, not vanishing
    assert rates.best_beta(0.51, "printed") is None
    assert rates.best_rate(0.51, "printed") is None
    assert rates.best_beta(0.9) == pytest.approx(0.975)
    assert rates.best_beta(1.0) is None


def test_synchronisation_multiplies_theorem_2_1() -> None:
    for reading, expected in (("corrected", 4 + 2), ("printed", 2 + 2**0.5)):
        assert bounds.synchronisation_factor(1, 0.0, reading) == 2
        assert bounds.synchronisation_factor(4, 0.0625, reading) == pytest.approx(expected)
        assert bounds.synchronisation_factor(4, -0.0625, reading) == pytest.approx(expected)
        bound = bounds.synchronisation_bound(N, K, BETA, 4, 0.0625, reading)
        assert bound.total == pytest.approx(expected * bounds.berry_esseen_average(N, K, BETA).total)
        assert ("as printed" in bound.name) == (reading == "printed")
    assert bounds.synchronisation_factor(4, 0.0625) == pytest.approx(4 + 2)
    assert bounds.synchronisation_bound(N, K, BETA, 4, 0.0625).name.endswith("times 6 for synchronisation")


def test_the_bias_of_client_drift_grows_as_the_corrected_factor() -> None:
    # E D_3, from the mean recursion: no noise. Hessians go with the offsets, complete averaging every tau steps.
    k = 20
    offsets = np.linspace(-1, 1, k)
    hessians = 1 + offsets / 2
    model = SimpleNamespace(
        coefficients=offsets[:, None],
        noise_var=np.ones(k),
        design_cov=hessians[:, None, None],
        weights=np.full(k, 1 / k),
    )
    optimum = [hessians @ offsets / hessians.sum()]

    def bias(tau: int) -> float:
        means = mean_recursion(model, networks.complete(k), step_sizes.polynomial(0.3, 0.75), 4000, tau, optimum)
        return abs((means.mean_average - means.optimum)[0])

    growth = bias(80) / bias(5)  # 12.7
    printed, corrected = (
        bounds.synchronisation_factor(80, 0.0, reading) / bounds.synchronisation_factor(5, 0.0, reading)
        for reading in ("printed", "corrected")
    )
    assert growth > 3 * printed  # 3.1
    assert growth == pytest.approx(corrected, rel=0.15)  # 13.5


def test_theorems_3_1_and_3_2_by_hand() -> None:
    aggregated = bounds.aggregated_coupling(N, K, BETA, moments=4)
    assert list(aggregated.terms.values()) == pytest.approx([400**0.2, 400**0.25 / 4 * math.log(400)])
    client = bounds.client_coupling(N, K, BETA, moments=4)
    assert list(client.terms.values()) == pytest.approx([400**0.2, 25**0.375 * math.log(400) ** 1.5])


def test_couplings_agree_up_to_logarithms_at_two_moments() -> None:
    aggregated = bounds.aggregated_coupling(N, K, BETA, 2).terms["n^(1/p) K^(-1/2) log n"]
    client = bounds.client_coupling(N, K, BETA, 2).terms["(n/K)^(1/4+1/(2p)) (log n)^(3/2)"]
    assert client / aggregated == pytest.approx(math.log(N) ** 0.5)


@pytest.mark.parametrize("p", [2.0, 4.0, 8.0])
@pytest.mark.parametrize("c", [0.0, 0.1, 0.2])
def test_proposition_1_balances_the_terms_of_section_3(p: float, c: float) -> None:
    # At these beta the path term n^(1-beta) has the power of n of the other term, logarithms apart.
    n = 1e8
    k = n**c
    for beta, rate, other in [
        (rates.aggregated_beta(c, p), rates.aggregated_rate(c, p), n ** (1 / p) * k**-0.5),
        (rates.client_beta(c, p), rates.client_rate(c, p), (n / k) ** (0.25 + 0.5 / p)),
    ]:
        assert beta is not None
        assert n ** (1 - beta) == pytest.approx(other)
        assert n**rate == pytest.approx(other)


def test_aggregated_asks_for_a_larger_beta_than_client() -> None:
    for p in (2.5, 4.0, 16.0):
        for c in np.linspace(0.01, 2 / p - 0.01, 5):
            assert rates.aggregated_beta(c, p) > rates.client_beta(c, p)
    assert rates.aggregated_beta(0.5, 4) is None
    assert rates.aggregated_rate(0.5, 4) is None
    assert rates.client_beta(1.0, 4) is None
    assert rates.client_rate(1.0, 4) is None


def test_a_bound_prints_its_terms() -> None:
    text = str(bounds.berry_esseen_limit(N, K, BETA))
    assert "Theorem 2.3" in text
    assert "n^(beta-1)" in text
    assert "client drift" in text
    assert "up to a constant" in text


def test_errors_state_the_rule_the_value_and_the_fix() -> None:
    with pytest.raises(ValueError, match=r"beta must lie in \(1/2, 1\).*got 1"):
        bounds.berry_esseen_average(N, K, 1.0)
    with pytest.raises(ValueError, match=r"reading must be one of .*Did you mean 'printed'"):
        rates.best_beta(0.2, "print")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"moments must be at least 2.*got 1"):
        rates.aggregated_beta(0.2, 1)
    with pytest.raises(ValueError, match=r"second_eigenvalue must lie in \(-1, 1\).*got 1.*connected"):
        bounds.synchronisation_factor(2, 1.0)
    with pytest.raises(ValueError, match=r"sync_every must be smaller than n_steps = 400.*got 400"):
        bounds.synchronisation_bound(N, K, BETA, 400, 0.5)
    with pytest.raises(ValueError, match=r"must not be negative; got -0.1"):
        rates.best_beta(-0.1)
