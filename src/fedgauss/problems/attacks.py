"""Attacks on chosen clients from a step t_0 on: each is a problem, to be simulated like any other."""

from collections.abc import Iterable, Sequence

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.problems.attacked import Collusion, LabelFlip, MeanShift, NoisyGradient, ScaledGradient, Schedule, aim
from fedgauss.problems.base import Problem
from fedgauss.problems.family_problem import FamilyProblem
from fedgauss.problems.linearize import linearize


def mean_shift(problem: Problem, clients: Iterable[int], shift: float | ArrayLike, start: int | Schedule) -> MeanShift:
    """Chosen clients' data come from parameters that lie `shift` away: f_k(theta - mu, xi) from step `start` on.

    In linear and Huber regression this is the paper's attack, beta_k + mu in place of beta_k, row for row. Elsewhere
    it moves the clients' optimum by mu and leaves the shape of their risk; for responses drawn under other
    coefficients use `change_at` with a second problem.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    shift : float, (d,) or (clients, d) array_like
        mu: for every coordinate, for each, or a row for each chosen client in the order listed.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.

    Returns
    -------
    AttackedProblem

    Examples
    --------
    >>> attacked = fg.problems.mean_shift(problem, clients=[0, 1], shift=0.5, start=251)
    """
    listed = list(clients) if isinstance(clients, Iterable) else clients
    aimed = aim(problem, listed, start)
    mu, rows = _checks.real_array("shift", shift), (len(listed), problem.dim)
    if mu.shape not in ((), rows[1:], rows):
        raise ValueError(f"shift must be a number or have shape {rows[1:]} or {rows}; got shape {mu.shape}.")
    shifts = np.zeros((problem.n_clients, problem.dim))
    shifts[listed] = mu
    return MeanShift(*aimed, shifts)


def label_flip(
    problem: Problem,
    clients: Iterable[int],
    start: int | Schedule,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> LabelFlip:
    """Chosen clients swap the labels of pairs of classes, both ways.

    For families whose responses are classes, such as logistic and one-versus-rest, simulated or on rows.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.
    pairs : sequence of (int, int), optional
        Classes to swap; 0 and 1 by default where there are no others.

    Returns
    -------
    AttackedProblem
    """
    n_classes = problem.family.n_classes if isinstance(problem, FamilyProblem) else None
    if n_classes is None:
        raise ValueError(
            f"label_flip needs responses that are classes; got {problem!r}. "
            "Use a logistic or one-versus-rest problem, or mean_shift for responses that are numbers."
        )
    aimed = aim(problem, clients, start)
    if pairs is None:
        if n_classes > 2:
            raise ValueError(f"pairs must say which of {n_classes} classes are swapped, such as [(1, 7), (2, 5)].")
        pairs = [(0, 1)]
    partner = np.arange(n_classes, dtype=float)
    named = [_checks.whole("a class of pairs", c, at_least=0, at_most=n_classes - 1) for pair in pairs for c in pair]
    if len(named) != 2 * len(pairs) or len(set(named)) < len(named) or not named:
        raise ValueError(f"pairs must name two classes each, and no class twice; got {list(pairs)!r}.")
    for a, b in zip(named[::2], named[1::2], strict=True):
        partner[[a, b]] = b, a
    return LabelFlip(*aimed, partner)


def sign_flip(problem: Problem, clients: Iterable[int], start: int | Schedule) -> ScaledGradient:
    """Chosen clients send -g_k in place of g_k: they climb.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.

    Returns
    -------
    AttackedProblem
    """
    return gradient_scaling(problem, clients, -1.0, start)


def gradient_scaling(problem: Problem, clients: Iterable[int], factor: float, start: int | Schedule) -> ScaledGradient:
    """Chosen clients send a multiple of their gradient.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    factor : float
        0 for clients that stop moving.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.

    Returns
    -------
    AttackedProblem
    """
    return ScaledGradient(*aim(problem, clients, start), _checks.real("factor", factor))


def gradient_noise(
    problem: Problem, clients: Iterable[int], sd: float | ArrayLike, start: int | Schedule
) -> NoisyGradient:
    """Chosen clients add N(0, sd^2) to each coordinate of their gradient, which keeps its mean.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    sd : float or (d,) array_like
        Standard deviation, for all coordinates or for each.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.

    Returns
    -------
    AttackedProblem
    """
    aimed = aim(problem, clients, start)
    spread = _by_coordinate("sd", sd, problem.dim)
    if np.any(spread < 0):
        raise ValueError(f"sd must not be negative; the smallest is {spread.min():g}.")
    return NoisyGradient(*aimed, spread)


def little_is_enough(
    problem: Problem,
    clients: Iterable[int],
    z: float,
    start: int | Schedule,
    *,
    spread: ArrayLike | None = None,
) -> Collusion:
    """LIE (Baruch, Baruch and Goldberg 2019): the honest clients' mean gradient less z standard deviations.

    The mean is that of the honest clients' gradients at the step.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    z : float
        About 1 hides among single gradients.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.
    spread : (d,) array_like, optional
        The standard deviation of one honest gradient in each coordinate. By default the attacker knows it: the root of
        the diagonal of the mean Var(W^k) of the honest clients at theta*_K, from `linearize`.

    Returns
    -------
    AttackedProblem
    """
    aimed = _aim_at_some(problem, clients, start)
    if spread is None:
        lin = linearize(problem)
        honest = np.flatnonzero(aimed[1] == 0)
        deviation = np.sqrt(np.diagonal(lin.client_noise_cov[honest].mean(axis=0)))
    else:
        deviation = _by_coordinate("spread", spread, problem.dim)
    return Collusion(*aimed, 1.0, _checks.real("z", z) * deviation)


def inner_product_manipulation(
    problem: Problem, clients: Iterable[int], epsilon: float, start: int | Schedule
) -> Collusion:
    """IPM (Xie, Koyejo and Gupta 2020): chosen clients send -epsilon times the honest clients' mean gradient.

    Parameters
    ----------
    problem : Problem
        The honest problem.
    clients : iterable of int
        The numbers of the clients under attack.
    epsilon : float
        How strongly they pull back.
    start : int or Schedule
        The first affected step, or a schedule: `from_step`, `slow_drift` or `on_off`.

    Returns
    -------
    AttackedProblem
    """
    aimed = _aim_at_some(problem, clients, start)
    return Collusion(*aimed, -_checks.real("epsilon", epsilon), np.zeros(problem.dim))


def _by_coordinate(name: str, value: float | ArrayLike, dim: int) -> FloatArray:
    array = _checks.real_array(name, value)
    if array.shape not in ((), (dim,)):
        raise ValueError(f"{name} must be a number or have shape ({dim},); got shape {array.shape}.")
    return np.broadcast_to(array, dim).copy()


def _aim_at_some(
    problem: Problem, clients: Iterable[int], start: int | Schedule
) -> tuple[Problem, FloatArray, Schedule]:
    """`aim`, where some must stay honest."""
    _, chosen, schedule = aim(problem, clients, start)
    if chosen.all():
        raise ValueError(f"at least one of {len(chosen)} clients must stay honest for the others to imitate; got none.")
    return problem, chosen, schedule
