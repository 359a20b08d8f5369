from __future__ import annotations

import pytest

from fedgauss.theory.advice import advise


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
    assert advice.synchronisation == pytest.approx(4 + 2)
    assert "every 4 steps on this network multiplies Theorem 2.1's bound by 3, relative to" in str(advice)
    alone = str(advise(n_steps=500, n_clients=10, sync_every=20))
    assert "every 20 steps by complete averaging multiplies Theorem 2.1's bound by 10.5" in alone
    assert "every step on this network" in str(advise(500, 10, second_eigenvalue=0.5))
    assert "Synchronise more often" in str(advise(n_steps=500, n_clients=10, sync_every=600))


def test_paths_are_advised_on_only_when_moments_are_given() -> None:
    assert "Proposition 1" not in str(advise(500, 10))
    advice = advise(10_000, 10, moments=4)  # c = 1/4
    assert advice.aggregated_beta == pytest.approx(0.875)
    assert advice.client_beta == pytest.approx(1 - 0.75 * 0.375)
    assert "Aggr-GA needs beta >= 0.875; Client-GA beta > 0.719." in str(advice)
    assert "Aggr-GA has no such beta" in str(advise(10_000, 1000, moments=4))


@pytest.mark.parametrize("n_clients", [1, 10, 400, 500, 100_000])
@pytest.mark.parametrize("beta", [None, 0.501, 0.75, 0.999])
@pytest.mark.parametrize("moments", [None, 2, 8.0])
def test_every_advice_prints_and_calls_itself_asymptotic(n_clients: int, beta: float | None, moments: float) -> None:
    text = str(advise(500, n_clients, beta=beta, moments=moments))
    assert "as n grows" in text
    assert "leave out the start (D_1), which a larger beta forgets more slowly" in text
    assert "None" not in text
    assert "nan" not in text


def test_communication_is_left_out_unless_given() -> None:
    advice = advise(500, 10)
    assert advice.sync_every is None
    assert advice.second_eigenvalue is None
    assert advice.synchronisation is None
    for text in (str(advice), str(advise(500, 10, sync_every=1)), str(advise(500, 1, sync_every=20))):
        assert "Theorem 2.1" not in text
        assert "communication" not in text


@pytest.mark.parametrize("k", [1, 10])
def test_no_drift_with_one_client_or_complete_averaging(k: int) -> None:
    text = str(advise(1000, k, beta=0.7, sync_every=1, second_eigenvalue=0.0))
    assert "curvature (D_2), not client drift (D_3), which is zero" in text
    assert text.startswith("1 client and" if k == 1 else "10 clients and")
    assert ("adds nothing to the bounds" in text) == (k > 1)
    for tau, rho in [(2, 0.0), (1, 0.5), (1, None)]:
        assert "not client drift" not in str(advise(1000, 10, beta=0.7, sync_every=tau, second_eigenvalue=rho))


def test_the_sentences_at_the_best_beta() -> None:
    text = str(advise(10_000, 10))  # c = 1/4, so beta = 13/16 and both terms are 10^(-3/4)
    assert "decay as t^-0.812; this minimises" in text
    assert "is covered (Remark 2.1: c < 2 beta - 1 = 0.625)" in text
    assert "tends to 0 (also as printed)" in text
    assert "Both terms are 0.178. n^(1/2-beta) K^(1/2): client drift (D_3)" in text
    assert "n^(beta-1): Sigma_n has not reached its limit" in text
    assert "largest term" not in text
    assert "A larger beta" not in text
    assert "A smaller beta" not in text


@pytest.mark.parametrize(
    ("k", "beta", "printed", "change"),
    [
        (10, 0.7, "also as printed", "A larger beta, up to 0.812"),
        (10, 0.8, "also as printed", "A larger beta, up to 0.812"),
        (10, 0.9, "as printed it does not", "A smaller beta, down to 0.812"),
        (100, 0.8, "as printed it does not", "A larger beta, up to 0.875"),
    ],
)
def test_the_sentences_on_either_side(k: int, beta: float, printed: str, change: str) -> None:
    # c = 1/4 and 1/2. As printed the bound vanishes for c < 2 - 2 beta: 0.6, 0.4, 0.2, 0.4.
    advice = advise(10_000, k, beta=beta)
    assert advice.berry_esseen_vanishes
    assert advice.berry_esseen_vanishes_printed == (printed == "also as printed")
    assert f"tends to 0 ({printed})" in str(advice)
    assert change in str(advice)
    assert ("A larger" in str(advice)) != ("A smaller" in str(advice))


def test_on_the_boundary_nothing_is_covered() -> None:
    advice = advise(10_000, 100, beta=0.75)  # c = 1/2 = 2 beta - 1 = 2 - 2 beta
    assert not advice.clt_holds
    assert not advice.berry_esseen_vanishes
    assert not advice.berry_esseen_vanishes_printed
    assert advice.best_beta_printed == 0.75
    assert "is not covered (c >= 2 beta - 1 = 0.500)" in str(advice)


def test_errors_state_the_rule() -> None:
    with pytest.raises(ValueError, match="n_steps must be at least 2; got 1"):
        advise(1, 10)
    with pytest.raises(ValueError, match=r"beta must lie in \(1/2, 1\)"):
        advise(100, 10, beta=0.4)
