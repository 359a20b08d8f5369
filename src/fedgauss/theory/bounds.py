"""The paper's bounds in n, K and beta, without constants: compare values, and do not read them as errors."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from fedgauss import _checks

# Theorem 2.2 as printed has the drift of the average; that of the last iterate is smaller by n^((1-beta)/2).
# Theorem 2.3 as printed takes |V_K| = K^-1/2; V_K is of order 1/K. "corrected" carries 1/K through its proof.
# Corollary F.1 as printed takes the square root of its factor; "corrected" does not.
Reading = Literal["printed", "corrected"]

_NOISE = "(nK)^(-1/2)"
_DRIFT = "n^(1/2-beta) K^(1/2)"
_FEEDBACK = "n^(-beta/2) K^(-1/2)"
_LAST_DRIFT = "n^(-beta/2) K^(1/2)"
_GAP = "n^(beta-1)"
_GAP_PRINTED = "n^(beta-1) K^(1/2)"
_PATH = "n^(1-beta)"
_AGGREGATED = "n^(1/p) K^(-1/2) log n"
_CLIENT = "(n/K)^(1/4+1/(2p)) (log n)^(3/2)"

MEANING: dict[str, str] = {
    _NOISE: "the central limit theorem for the nK gradient noises themselves",
    _DRIFT: "client drift (D_3), clients moving apart as they work alone; for few clients curvature (D_2)",
    _LAST_DRIFT: "client drift of the last iterate, which only the last n^beta steps bring",
    _FEEDBACK: "gradient noise away from the optimum (D_4); for the last iterate, too few recent noises",
    _GAP: "Sigma_n has not reached its limit Sigma/K",
    _GAP_PRINTED: "Sigma_n has not reached its limit Sigma/K, as printed",
    _PATH: "drift and curvature along the whole path",
    _AGGREGATED: "coupling the summed gradient noise with p moments",
    _CLIENT: "coupling each client's gradient noise with p moments",
}


@dataclass(frozen=True)
class Bound:
    """A bound as the sum of its terms, without the paper's constant."""

    name: str
    terms: dict[str, float]

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return sum(self.terms.values())

    @property
    def dominant(self) -> str:
        """The name of the largest term."""
        return max(self.terms, key=lambda term: self.terms[term])

    def __str__(self) -> str:
        width = max(len(term) for term in self.terms)
        lines = [f"{self.name}: {self.total:.4g}, up to a constant"]
        for term, value in self.terms.items():
            meaning = MEANING.get(term, "")
            lines.append(f"  {term:<{width}}  {value:<10.4g}  {meaning}".rstrip())
        return "\n".join(lines)


def berry_esseen_average(n_steps: int, n_clients: int, beta: float) -> Bound:
    """d_C(sqrt(n) (Ybar_n - theta*), N(0, Sigma_n)) <~ (nK)^-1/2 + n^(1/2-beta) K^1/2 + n^(-beta/2) K^-1/2.

    Theorem 2.1. The middle term is the largest for every n, K >= 1 and beta < 1.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    terms = {_NOISE: (n * k) ** -0.5, _DRIFT: n ** (0.5 - b) * k**0.5, _FEEDBACK: n ** (-b / 2) * k**-0.5}
    return Bound("Theorem 2.1, the average against N(0, Sigma_n)", terms)


def berry_esseen_last(n_steps: int, n_clients: int, beta: float, reading: Reading = "corrected") -> Bound:
    """d_C(n^(beta/2) (Y_n - theta*), N(0, tilde Sigma_n)) <~ n^(-beta/2) K^-1/2 + n^(-beta/2) K^1/2 (Theorem 2.2).

    Printed with n^(1/2-beta) K^1/2 as the second term, that of the average. Drift at step s is of order eta_s and
    reaches Y_n as eta_s |A_s^n| eta_s. These add up to eta_n, since only the last n^beta steps have not been forgotten,
    and n^(beta/2) K^1/2 eta_n is n^(-beta/2) K^1/2.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    noise = {_FEEDBACK: n ** (-b / 2) * k**-0.5}
    if is_printed(reading):
        name = "Theorem 2.2 as printed, the last iterate against N(0, tilde Sigma_n)"
        return Bound(name, {**noise, _DRIFT: n ** (0.5 - b) * k**0.5})
    return Bound(
        "Theorem 2.2, the last iterate against N(0, tilde Sigma_n)", {**noise, _LAST_DRIFT: n ** (-b / 2) * k**0.5}
    )


def covariance_gap(n_steps: int, n_clients: int, beta: float, reading: Reading = "corrected") -> Bound:
    """|Sigma_n - Sigma/K|_F <~ K^-1 n^(beta-1), printed as K^-1/2 n^(beta-1) (Theorem 2.3).

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    if is_printed(reading):
        return Bound("Theorem 2.3 as printed, |Sigma_n - Sigma/K|", {"n^(beta-1) K^(-1/2)": n ** (b - 1) * k**-0.5})
    return Bound("Theorem 2.3, |Sigma_n - Sigma/K|", {"n^(beta-1) K^(-1)": n ** (b - 1) / k})


def berry_esseen_limit(n_steps: int, n_clients: int, beta: float, reading: Reading = "corrected") -> Bound:
    """d_C(sqrt(n) (Ybar_n - theta*), N(0, Sigma/K)) <~ K^1/2 n^(1/2-beta) + n^(beta-1) (Theorem 2.3).

    Printed as K^1/2 (n^(1/2-beta) + n^(beta-1)). Sigma/K is itself of order 1/K, so a gap of K^-1 n^(beta-1)
    is a relative gap of n^(beta-1), and Proposition 9 adds no K.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    drift = n ** (0.5 - b) * k**0.5
    if is_printed(reading):
        terms = {_DRIFT: drift, _GAP_PRINTED: n ** (b - 1) * k**0.5}
        return Bound("Theorem 2.3 as printed, the average against N(0, Sigma/K)", terms)
    return Bound("Theorem 2.3, the average against N(0, Sigma/K)", {_DRIFT: drift, _GAP: n ** (b - 1)})


def synchronisation_factor(sync_every: int, second_eigenvalue: float, reading: Reading = "corrected") -> float:
    """tau + 1/(1 - rho^(1/tau)), the factor by which rare or sparse communication multiplies Theorem 2.1; at least 2.

    Printed (Corollary F.1) as sqrt(tau) + (1 - rho^(1/tau))^-1/2, which is not a bound: the paper's own proof of
    Proposition 5 sums |C^r - J| over past steps, and E|Theta_t (I - J)|_F^2 gets that sum squared, not itself.
    Measured in the bias D_3 with K = 20, Hessians tied to offsets, n = 20,000, beta = 3/4 and complete averaging:
    going from tau = 5 to 80 multiplied it by 14.5; the printed factor says 3.1, the corrected one 13.5.

    Parameters
    ----------
    sync_every : int
        tau.
    second_eigenvalue : float
        rho of the network, in (-1, 1). Its absolute value counts: it governs how fast C^s tends to the mean.
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    float
    """
    tau = _checks.whole("sync_every", sync_every)
    rho = abs(_checks.real("second_eigenvalue", second_eigenvalue))
    if rho >= 1:
        raise ValueError(
            f"second_eigenvalue must lie in (-1, 1) (Assumption 2.1); got {second_eigenvalue:g}. "
            "Is the network connected?"
        )
    power = 0.5 if is_printed(reading) else 1.0
    return tau**power + (1 - rho ** (1 / tau)) ** -power


def synchronisation_bound(
    n_steps: int,
    n_clients: int,
    beta: float,
    sync_every: int,
    second_eigenvalue: float,
    reading: Reading = "corrected",
) -> Bound:
    """Theorem 2.1's bound times `synchronisation_factor` (Corollary F.1), for tau <= theta n with some theta in (0, 1).

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    sync_every : int
        tau.
    second_eigenvalue : float
        rho of the network.
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    Bound
    """
    factor = synchronisation_factor(sync_every, second_eigenvalue, reading)
    if sync_every > 1 and sync_every >= n_steps:
        raise ValueError(
            f"sync_every must be smaller than n_steps = {n_steps}, or clients never synchronise; "
            f"got {sync_every}. Synchronise more often, or run longer."
        )
    plain = berry_esseen_average(n_steps, n_clients, beta)
    terms = {term: factor * value for term, value in plain.terms.items()}
    printed = ", as printed" if is_printed(reading) else ""
    return Bound(f"{plain.name}, times {factor:.3g} for synchronisation{printed}", terms)


def aggregated_coupling(n_steps: int, n_clients: int, beta: float, moments: float) -> Bound:
    """max_t |sum_{s<=t} (Y_s - theta* - Y_{s,1}^G)| <~ n^(1-beta) + n^(1/p) K^-1/2 log n.

    Theorem 3.1, Aggr-GA.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    p = checked_moments(moments)
    terms = {_PATH: n ** (1 - b), _AGGREGATED: n ** (1 / p) * k**-0.5 * math.log(n)}
    return Bound("Theorem 3.1, the path against Aggr-GA", terms)


def client_coupling(n_steps: int, n_clients: int, beta: float, moments: float) -> Bound:
    """max_t |sum_{s<=t} (Y_s - theta* - Y_{s,2}^G)| <~ n^(1-beta) + (n/K)^(1/4+1/(2p)) (log n)^(3/2).

    Theorem 3.2, Client-GA. It is loose: the mean of Client-GA has the law of Aggr-GA, and `aggregated_coupling` bounds
    both.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float
        The decay of the step sizes, in (1/2, 1).
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    Bound
    """
    n, k, b = _checked(n_steps, n_clients, beta)
    p = checked_moments(moments)
    terms = {_PATH: n ** (1 - b), _CLIENT: (n / k) ** (0.25 + 0.5 / p) * math.log(n) ** 1.5}
    return Bound("Theorem 3.2, the path against Client-GA", terms)


def _checked(n_steps: int, n_clients: int, beta: float) -> tuple[int, int, float]:
    b = _checks.real("beta", beta)
    if not 0.5 < b < 1:
        raise ValueError(f"beta must lie in (1/2, 1) (Theorem 2.1); got {b:g}. Use best_beta(c) with K = n^c?")
    return _checks.whole("n_steps", n_steps), _checks.whole("n_clients", n_clients), b


def checked_moments(moments: float) -> float:
    """p, if there are enough."""
    p = _checks.real("moments", moments)
    if p < 2:
        raise ValueError(f"moments must be at least 2 (Theorem 3.1); got {p:g}.")
    return p


def is_printed(reading: Reading) -> bool:
    """Whether to follow the printed statement."""
    return _checks.one_of("reading", reading, get_args(Reading)) == "printed"
