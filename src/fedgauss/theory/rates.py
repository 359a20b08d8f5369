"""How fast the paper's bounds vanish where K = n^c, clients a power of steps, and the beta that is best there."""

from fedgauss import _checks
from fedgauss.theory.bounds import Reading, checked_moments, is_printed


def best_beta(exponent: float, reading: Reading = "corrected") -> float | None:
    """The beta in (1/2, 1) that minimises `berry_esseen_limit` for K = n^c; None where it grows or cannot vanish.

    3/4 + c/4 for c < 1. As printed (Remark 2.2): 3/4 for c <= 1/2, none beyond; at c = 1/2 itself the printed
    bound stays bounded and does not vanish. Both minimisers are exact for every n, since the product of the two
    terms does not depend on beta.

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    float or None
    """
    c = _exponent(exponent)
    if is_printed(reading):
        return 0.75 if c <= 0.5 else None
    return 0.75 + c / 4 if c < 1 else None


def best_rate(exponent: float, reading: Reading = "corrected") -> float | None:
    """The r with `berry_esseen_limit` = n^(-r) at `best_beta`, for K = n^c: (1-c)/4, as printed 1/4 - c/2.

    As printed it is 0 at c = 1/2, where the bound stays bounded but does not vanish.

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    reading : "corrected" or "printed"
        Whether to follow the proof or the printed statement.

    Returns
    -------
    float or None
    """
    c = _exponent(exponent)
    if best_beta(c, reading) is None:
        return None
    return 0.25 - c / 2 if is_printed(reading) else (1 - c) / 4


def aggregated_beta(exponent: float, moments: float) -> float | None:
    """The least beta for which Aggr-GA reaches n^(1/p - c/2) log n: 1 - 1/p + c/2, for c < 2/p.

    Proposition 1 (i), for K of exact order n^c (with K = o(n^c) the rate may be slower). None for c >= 2/p.

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    float or None
    """
    c, p = _exponent(exponent), checked_moments(moments)
    return 1 - 1 / p + c / 2 if c < 2 / p else None


def aggregated_rate(exponent: float, moments: float) -> float | None:
    """The power 1/p - c/2 of n in Aggr-GA's error at `aggregated_beta`, times log n (Proposition 1 (i)).

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    float or None
    """
    beta = aggregated_beta(exponent, moments)
    return None if beta is None else 1 - beta


def client_beta(exponent: float, moments: float) -> float | None:
    """The beta above which Client-GA reaches n^((1-c)(1/4+1/(2p))) (log n)^(3/2): 1 - (1-c)(1/4+1/(2p)).

    Proposition 1 (ii), for K of exact order n^c. None for c >= 1.

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    float or None
    """
    c, p = _exponent(exponent), checked_moments(moments)
    return 1 - (1 - c) * (0.25 + 0.5 / p) if c < 1 else None


def client_rate(exponent: float, moments: float) -> float | None:
    """The power (1-c)(1/4+1/(2p)) of n in Client-GA's error above `client_beta`, times (log n)^(3/2).

    Parameters
    ----------
    exponent : float
        c in K = n^c.
    moments : float
        p, the number of moments of the gradient noise, at least 2.

    Returns
    -------
    float or None
    """
    beta = client_beta(exponent, moments)
    return None if beta is None else 1 - beta


def _exponent(exponent: float) -> float:
    c = _checks.real("exponent", exponent)
    if c < 0:
        raise ValueError(f"exponent c in K = n^c must not be negative; got {c:g}. Use log(K) / log(n).")
    return c
