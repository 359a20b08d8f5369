from __future__ import annotations

import pytest

from fedgauss.theory.advise import advise


def test_the_corrected_bound_has_no_phase_transition_at_one_half() -> None:
    # K = n^(3/4): as printed no beta works, corrected 3/4 + c/4 does.
    advice = advise(n_steps=10_000, n_clients=1000)
    assert advice.exponent == pytest.approx(0.75)
    assert advice.best_beta == advice.beta == pytest.approx(0.9375)
    assert advice.best_beta_printed is None
    assert advice.clt_holds
    assert advice.berry_esseen_vanishes
    assert not advice.berry_esseen_vanishes_printed


def test_few_clients_satisfy_both_readings() -> None:
    advice = advise(n_steps=10_000, n_clients=10, beta=0.75)
    assert advice.clt_holds
    assert advice.berry_esseen_vanishes
    assert advice.berry_esseen_vanishes_printed
    assert advice.best_beta_printed == 0.75


def test_too_many_clients_for_this_beta() -> None:
    advice = advise(n_steps=500, n_clients=100, beta=0.75)
    assert not advice.clt_holds
    assert not advice.berry_esseen_vanishes
    assert advice.dominant == "n^(1/2-beta) K^(1/2)"
    assert advice.dominant_value == pytest.approx(500**-0.25 * 10)
    text = str(advice)
    assert "Take beta above (1 + c)/2 = 0.871" in text
    assert "client drift" in text


def test_a_large_beta_is_told_about_the_covariance() -> None:
    advice = advise(n_steps=5000, n_clients=10, beta=0.95)
    assert advice.dominant == "n^(beta-1)"
    assert "average_covariance" in str(advice)


def test_more_clients_than_steps() -> None:
    advice = advise(n_steps=100, n_clients=200)
    assert advice.best_beta is None
    assert not advice.clt_holds
    assert "no beta in (1/2, 1)" in str(advice)
    assert "fewer clients" in str(advice)


def test_one_client() -> None:
    advice = advise(n_steps=1000, n_clients=1)
    assert advice.exponent == 0
    assert advice.beta == 0.75
    assert advice.clt_holds


def test_rare_communication_is_priced() -> None:
    advice = advise(n_steps=500, n_clients=10, sync_every=4, second_eigenvalue=0.0625)
    assert advice.synchronisation == pytest.approx(2 + 2**0.5)
    assert "every 4 steps on this network multiplies the bounds by 1.71" in str(advice)
    assert "Synchronise more often" in str(advise(n_steps=500, n_clients=10, sync_every=600))


def test_paths_are_advised_on_only_when_moments_are_given() -> None:
    assert "Proposition 1" not in str(advise(500, 10))
    advice = advise(10_000, 10, moments=4)  # c = 1/4
    assert advice.aggregated_beta == pytest.approx(0.875)
    assert advice.client_beta == pytest.approx(1 - 0.75 * 0.375)
    assert "Aggr-GA needs beta >= 0.875" in str(advice)
    assert "Aggr-GA has no such beta" in str(advise(10_000, 1000, moments=4))


@pytest.mark.parametrize("n_clients", [1, 10, 400, 500, 100_000])
@pytest.mark.parametrize("beta", [None, 0.501, 0.75, 0.999])
@pytest.mark.parametrize("moments", [None, 2, 8.0])
def test_every_advice_prints_and_calls_itself_asymptotic(n_clients: int, beta: float | None, moments: float) -> None:
    text = str(advise(500, n_clients, beta=beta, moments=moments))
    assert "as n grows" in text
    assert "None" not in text
    assert "nan" not in text


def test_errors_state_the_rule() -> None:
    with pytest.raises(ValueError, match="n_steps must be at least 2; got 1"):
        advise(1, 10)
    with pytest.raises(ValueError, match=r"beta must lie in \(1/2, 1\)"):
        advise(100, 10, beta=0.4)
