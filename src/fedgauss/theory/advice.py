"""Which decay of the step sizes to use for n steps and K clients, and what the theorems then say."""

import math
from dataclasses import dataclass

from fedgauss import _checks
from fedgauss._rounds import participants
from fedgauss._shown import ShownInSentences
from fedgauss.theory import bounds, rates
from fedgauss.theory.bounds import Bound

# Evaluated where no beta in (1/2, 1) works: drift then dominates and falls as beta grows to 1.
_NEAR_ONE = 0.99


@dataclass(frozen=True, repr=False)
class Advice(ShownInSentences):
    """What the theory says about n steps with K = n^c clients and step sizes that decay as t^-beta.

    exponent                        c = log K / log n
    beta                            the decay in use: yours, or `best_beta`
    best_beta                       minimiser of Theorem 2.3's bound, corrected: 3/4 + c/4; None for c >= 1
    best_beta_printed               the same bound as printed: 3/4; None for c > 1/2
    clt_holds                       c < 2 beta - 1, that is K = o(n^(2 beta - 1)): Remark 2.1 covers the CLT
    berry_esseen_vanishes           Theorem 2.3's bound tends to 0, corrected
    berry_esseen_vanishes_printed   and as printed
    limit                           Theorem 2.3's bound, corrected, at these n, K and beta
    synchronisation                 `synchronisation_factor`, 2 at its least; None when tau and rho are not given
    moments                         p of Theorems 3.1 and 3.2, when given
    aggregated_beta, client_beta    the decay from which Proposition 1 holds for each; None where it does not
    participants                    m of `participation`, which then stands for K; None when everybody takes part
    """

    n_steps: int
    n_clients: int
    sync_every: int | None
    exponent: float
    beta: float
    best_beta: float | None
    best_beta_printed: float | None
    clt_holds: bool
    berry_esseen_vanishes: bool
    berry_esseen_vanishes_printed: bool
    limit: Bound
    synchronisation: float | None
    moments: float | None = None
    aggregated_beta: float | None = None
    client_beta: float | None = None
    second_eigenvalue: float | None = None
    participants: int | None = None

    @property
    def dominant(self) -> str:
        """The largest term of `limit`; the terms of Theorem 2.1 that it lacks are never larger."""
        return self.limit.dominant

    @property
    def dominant_value(self) -> float:
        """Its value, without the paper's constant."""
        return self.limit.terms[self.dominant]

    @property
    def drifts(self) -> bool:
        """Whether clients can differ: not with one client, nor where complete averaging follows every step."""
        return self.n_clients > 1 and not (self.sync_every == 1 and self.second_eigenvalue == 0)

    def __str__(self) -> str:
        clients = "1 client" if self.n_clients == 1 else f"{self.n_clients} clients"
        if self.participants is not None:
            clients = f"{self.participants} of {clients} a round"
        lines = [
            f"{clients} and {self.n_steps} steps: K = n^c with c = {self.exponent:.3f}.",
            _what_sampling_means(self),
            _what_to_use(self),
            _what_holds(self),
            _what_dominates(self),
            _what_to_change(self),
            _what_communication_costs(self),
            _what_paths_need(self),
            "The bounds leave out the start (D_1), which a larger beta forgets more slowly: compute it with "
            "`start_bias`, or use `step_sizes.warm_start`.",
            "These are statements about powers of n as n grows with c fixed. Constants are unknown and can "
            "outweigh them at this n: check with a simulation or `exact_moments`.",
        ]
        return "\n".join(line for line in lines if line)


def advise(
    n_steps: int,
    n_clients: int,
    beta: float | None = None,
    sync_every: int | None = None,
    second_eigenvalue: float | None = None,
    moments: float | None = None,
    participation: float | None = None,
) -> Advice:
    """Which beta to use, and whether normal approximations of the average can be trusted as n and K grow.

    Parameters
    ----------
    n_steps, n_clients : int
        n and K.
    beta : float, optional
        The decay of eta_t = eta0 t^-beta; by default the best one.
    sync_every : int, optional
        tau, to include the cost of communication. rho is taken as 0, its least value, unless given.
    second_eigenvalue : float, optional
        rho of the network, likewise: `network.second_eigenvalue`, which for a random network is its contraction factor.
        tau is taken as 1 unless given.
    moments : float, optional
        p of Section 3, the number of moments of the gradient noise, to include advice on whole-path approximations.
    participation : float or int, optional
        The share or number m of clients that take part in a round with a server, as in `simulate`. The bounds are then
        taken with m in place of K, which the paper does not prove.

    Returns
    -------
    Advice
        Print it to read the advice in words.

    Examples
    --------
    >>> import fedgauss as fg
    >>> advice = fg.advise(n_steps=5000, n_clients=40)
    >>> round(advice.best_beta, 3), advice.clt_holds
    (0.858, True)
    """
    n = _checks.whole("n_steps", n_steps, at_least=2)
    k = _checks.whole("n_clients", n_clients)
    present = None if participation is None else participants(participation, k)
    k = k if present is None else present
    c = math.log(k) / math.log(n)
    best = rates.best_beta(c)
    used = beta if beta is not None else _NEAR_ONE if best is None else best
    limit = bounds.berry_esseen_limit(n, k, used)  # checks beta
    clt = c < 2 * used - 1
    tau = None if sync_every is None else _checks.whole("sync_every", sync_every)
    if tau is None and second_eigenvalue is not None:
        tau = 1
    return Advice(
        n_steps=n,
        n_clients=_checks.whole("n_clients", n_clients),
        sync_every=tau,
        exponent=c,
        beta=float(used),
        best_beta=best,
        best_beta_printed=rates.best_beta(c, "printed"),
        clt_holds=clt,
        # n^(beta-1) vanishes for every beta < 1, so only the drift term decides, as for the CLT.
        berry_esseen_vanishes=clt,
        berry_esseen_vanishes_printed=clt and c < 2 - 2 * used,
        limit=limit,
        synchronisation=None if tau is None else bounds.synchronisation_factor(tau, second_eigenvalue or 0.0),
        moments=moments,
        aggregated_beta=None if moments is None else rates.aggregated_beta(c, moments),
        client_beta=None if moments is None else rates.client_beta(c, moments),
        second_eigenvalue=second_eigenvalue,
        participants=present,
    )


def _what_sampling_means(a: Advice) -> str:
    if a.participants is None:
        return ""
    return (
        f"Here K stands for the {a.participants} clients of a round. The paper supposes that everybody takes part, and "
        "does not prove this. Where clients differ, drawing them adds noise that grows with tau: "
        "`theory.participation_noise` has it, and intervals without it are too short."
    )


def _what_to_use(a: Advice) -> str:
    if a.best_beta is None:
        return (
            "With at least as many clients as steps (c >= 1) no beta in (1/2, 1) makes the bounds vanish; "
            f"they are evaluated at beta = {a.beta:g}."
        )
    printed = "none" if a.best_beta_printed is None else f"{a.best_beta_printed:g}"
    using = "" if math.isclose(a.beta, a.best_beta) else f" You use {a.beta:g}."
    return (
        f"Use step sizes that decay as t^-{a.best_beta:.3f}; this minimises the Berry-Esseen bound of "
        f"Theorem 2.3 (as printed, with a spare sqrt(K): {printed}).{using}"
    )


def _what_holds(a: Advice) -> str:
    limit = 2 * a.beta - 1
    at = f"At beta = {a.beta:.3f} the central limit theorem for the average"
    if not a.clt_holds:
        return f"{at} is not covered (c >= 2 beta - 1 = {limit:.3f}): the Berry-Esseen bound does not tend to 0."
    printed = "also as printed" if a.berry_esseen_vanishes_printed else "as printed it does not"
    return (
        f"{at} is covered (Remark 2.1: c < 2 beta - 1 = {limit:.3f}), and the Berry-Esseen bound tends to 0 "
        f"({printed})."
    )


def _what_dominates(a: Advice) -> str:
    if _tied(a):
        each = " ".join(f"{term}: {_meaning(a, term)}" for term in a.limit.terms)
        return f"Both terms are {a.dominant_value:.3g}. {each}"
    return f"The largest term is {a.dominant} = {a.dominant_value:.3g}: {_meaning(a, a.dominant)}"


def _tied(a: Advice) -> bool:
    first, second = a.limit.terms.values()
    return math.isclose(first, second)


def _meaning(a: Advice, term: str) -> str:
    if "K^(1/2)" not in term:
        return f"{bounds.MEANING[term]}."
    if a.drifts:
        meaning, zero = bounds.MEANING[term], "linear gradients, equal weights and equal client Hessians"
    else:
        why = "there is one client" if a.n_clients == 1 else "complete averaging follows every step"
        meaning, zero = f"curvature (D_2), not client drift (D_3), which is zero since {why}", "linear gradients"
    return f"{meaning}. It is a worst case: with {zero} it is zero."


def _what_to_change(a: Advice) -> str:
    if a.best_beta is None:
        return "Run more steps, or use fewer clients, so that K is well below n."
    if not a.clt_holds:
        digits = math.log10(a.participants or a.n_clients) / (2 * a.beta - 1)  # the power itself may overflow
        return (
            f"Take beta above (1 + c)/2 = {(1 + a.exponent) / 2:.3f}, or run well over "
            f"K^(1/(2 beta - 1)) = 10^{digits:.1f} steps at this beta."
        )
    if _tied(a):
        return "Scaling by Sigma_n (`average_covariance`) removes n^(beta-1)."
    if a.beta < a.best_beta:
        return f"A larger beta, up to {a.best_beta:.3f}, lowers this term; more steps help too."
    return (
        f"A smaller beta, down to {a.best_beta:.3f}, brings Sigma_n nearer its limit; or keep beta and "
        "scale by Sigma_n (`average_covariance`), which removes this term."
    )


def _what_communication_costs(a: Advice) -> str:
    if a.sync_every is None or a.synchronisation is None or a.n_clients == 1:
        return ""
    if a.sync_every > 1 and a.sync_every >= a.n_steps:
        return (
            f"Clients synchronise every {a.sync_every} of {a.n_steps} steps, at most once: no theorem "
            "covers this. Synchronise more often."
        )
    if not a.drifts:
        return "Clients average completely at every step, so communication adds nothing to the bounds."
    every = "every step" if a.sync_every == 1 else f"every {a.sync_every} steps"
    if a.second_eigenvalue is not None:
        network, least = "on this network", ""
    elif a.sync_every > 1:
        network, least = "by complete averaging", " A network that averages less costs more."
    else:
        return ""
    return (
        f"Synchronising {every} {network} multiplies Theorem 2.1's bound by {a.synchronisation / 2:.3g}, "
        f"relative to complete averaging at every step (Corollary F.1, corrected).{least}"
    )


def _what_paths_need(a: Advice) -> str:
    if a.moments is None:
        return ""
    if a.aggregated_beta is None:
        aggregated = f"Aggr-GA has no such beta, since c >= 2/p = {2 / a.moments:.3f}"
    else:
        aggregated = f"Aggr-GA needs beta >= {a.aggregated_beta:.3f}"
    client = "Client-GA has none, since c >= 1" if a.client_beta is None else f"Client-GA beta > {a.client_beta:.3f}"
    return f"For whole paths with p = {a.moments:g} moments (Proposition 1) {aggregated}; {client}."
