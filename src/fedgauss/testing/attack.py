"""What every attack must keep to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.problems.attacked import AttackedProblem, Schedule, from_step, on_off, slow_drift
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.chance import expect_mean
from fedgauss.testing.evaluation import SEED, evaluate, everywhere, expect_pytree, trace

_ONSET = 3  # the first step under attack, in the battery
_MANY = 8192
_ROUNDING = 2e-6  # relative: another program may round its last digit otherwise


def check_attack(attacked: AttackedProblem) -> Report:
    """Check an attack of your own: that it is the honest problem until it begins, and what it says it is afterwards.

    Parameters
    ----------
    attacked : AttackedProblem
        An attack on some, not all, of the clients of an honest problem. The battery sets its schedule itself.

    Returns
    -------
    Report
        The outcome of every check; printed, it lists them.

    Raises
    ------
    ConformanceError
        If any rule is broken. It lists all broken rules, with what was found and how to mend it.

    Notes
    -----
    The honest problem has a battery of its own, `check_problem`. Moments under attack are compared with averages over
    draws, with a chance of at most 1e-4 for each check of failing although the attack is right.

    Examples
    --------
    >>> import fedgauss as fg
    >>> from fedgauss.testing import check_attack
    >>> honest = fg.problems.random_effects(n_clients=3)
    >>> print(check_attack(fg.problems.sign_flip(honest, [1], start=100)))  # doctest: +SKIP
    """
    return run(repr(attacked), checks_for_attack(attacked))


def checks_for_attack(attacked: AttackedProblem) -> list[Check]:
    """The checks of `check_attack` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    attacked : AttackedProblem
        As in `check_attack`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not isinstance(attacked, AttackedProblem):
        raise ValueError(
            f"an attack must be a subclass of problems.AttackedProblem; got {type(attacked).__name__}. "
            "Use check_problem for other problems, such as those of change_at?"
        )
    return checks(_RULES, _Case(attacked))


class _Case:
    """An attack, and what several checks look at."""

    def __init__(self, attacked: AttackedProblem) -> None:
        self.attacked, self.honest = attacked, attacked.problem

    @cached_property
    def at(self) -> FloatArray:
        """Where gradients are compared, (d,)."""
        offset = np.random.default_rng(SEED).standard_normal(self.honest.dim)
        return np.asarray(self.honest.guess(), float) + 0.25 * offset

    @cached_property
    def chosen(self) -> Any:
        """Which clients are under attack, (K,)."""
        return np.asarray(self.attacked.chosen) > 0

    def gradients(self, schedule: Schedule | None, t: int) -> FloatArray:
        """Gradients of step t under a schedule, or honest ones, (d, K, R)."""
        problem = self.honest if schedule is None else replace(self.attacked, schedule=schedule)
        count = max(512, min(_MANY, 2**22 // (problem.dim * problem.n_clients) // 32 * 32))
        return np.asarray(evaluate(problem, everywhere(self.at, problem.n_clients, count), t)[1], float)

    @cached_property
    def before(self) -> FloatArray:
        """Honest gradients of the first step under attack."""
        return self.gradients(None, _ONSET)

    @cached_property
    def rounding(self) -> float:
        """What two programs may differ by."""
        return _ROUNDING * float(np.abs(self.before).max())

    @cached_property
    def after(self) -> FloatArray:
        """Gradients of the same step under attack, at full strength."""
        return self.gradients(from_step(_ONSET), _ONSET)


def _same_clients(case: _Case) -> None:
    """The attack has the clients, weights, dimensions and number of steps of the honest problem."""
    for name in ("n_clients", "dim"):
        mine, theirs = getattr(case.attacked, name), getattr(case.honest, name)
        expect(mine == theirs, f"{name} = {mine}, not {theirs}", f"leave `{name}` to AttackedProblem.")
    weights = np.asarray(case.attacked.weights)
    fix = "leave `weights` and `max_steps` to AttackedProblem."
    expect(np.array_equal(weights, case.honest.weights), f"weights {weights}, not {case.honest.weights}", fix)
    steps = case.attacked.max_steps(), case.honest.max_steps()
    expect(steps[0] == steps[1], f"{steps[0]} steps, not {steps[1]}", fix)


def _chosen_clients(case: _Case) -> None:
    """`chosen` is 1 for clients under attack and 0 for the others, of whom there are some."""
    mask = np.asarray(case.attacked.chosen)
    expect(mask.shape == (case.honest.n_clients,), f"shape {mask.shape}", "give one entry for each client.")
    expect(np.isin(mask, (0.0, 1.0)).all(), f"{mask}", "use 1.0 and 0.0; strength belongs to the schedule.")
    expect(0 < mask.sum() < mask.size, f"{mask}", "attack at least one client and leave at least one honest.")


def _pytree(case: _Case) -> None:
    """JAX can take the attack to pieces and put it together again: numbers are leaves, everything else is static."""
    expect_pytree(case.attacked)


def _reference(case: _Case) -> None:
    """`reference` is that of the honest problem: the theory describes the honest run."""
    found, wanted = case.attacked.reference(), case.honest.reference()
    expect(found is wanted, f"{found!r}, not {wanted!r}", "return self.problem.reference().")


def _honest_before(case: _Case) -> None:
    """Before it begins, and while it pauses, the attack leaves the honest run as it is, but for the last digit."""
    for schedule, t in ((from_step(_ONSET), _ONSET - 1), (on_off(_ONSET, 1, 2), _ONSET + 1)):
        gap = np.abs(case.gradients(schedule, t) - case.gradients(None, t)).max()
        fix = "multiply what you add by the strength, the first entry of data, and draw from noise only in `draw`."
        expect(gap <= case.rounding, f"gradients that differ by {gap:.3g} at step {t}", fix)


def _acts_afterwards(case: _Case) -> None:
    """From its first step on, the attack changes the gradients of every client under attack."""
    changed = np.abs(case.after - case.before).max(axis=(0, 2)) > case.rounding
    idle = np.flatnonzero(case.chosen & ~changed)
    fix = "use the strength, the first entry of data; is the attack's own size zero?"
    expect(idle.size == 0, f"honest gradients of clients {idle.tolist()}", fix)


def _spares_the_others(case: _Case) -> None:
    """Clients that are not under attack send what they would have sent: the attacker draws numbers of its own."""
    gap = np.abs(case.after - case.before)[:, ~case.chosen].max(initial=0.0)
    fix = "the strength is (K, 1) and 0 for honest clients: multiply by it, and draw in `draw`, not in `sample`."
    expect(gap <= case.rounding, f"honest clients' gradients that differ by {gap:.3g}", fix)


def _grows_with_intensity(case: _Case) -> None:
    """At half intensity the mean gradient is changed less than at full strength, or not more."""
    half = case.gradients(slow_drift(_ONSET, over=2), _ONSET)
    sizes = [np.linalg.norm((g - case.before)[:, case.chosen].mean(axis=-1)) for g in (half, case.after)]
    spread = (case.after - case.before)[:, case.chosen].std() / np.sqrt(case.after.shape[-1])
    got = f"changes of {sizes[0]:.3g} at half intensity and {sizes[1]:.3g} at full"
    expect(sizes[0] <= sizes[1] + 10.0 * spread, got, "scale the attack by the strength, which lies between 0 and 1.")


def _moments(case: _Case) -> None:
    """`attacked_moments` are the mean and the covariance of each client's gradient at full strength."""
    stated = case.attacked.attacked_moments(case.at)
    if stated is None:
        not_applicable("it has no closed-form moments")
    dim, clients = case.honest.dim, case.honest.n_clients
    shapes, wanted = tuple(np.shape(part) for part in stated), ((clients, dim), *[(clients, dim, dim)] * 2)
    expect(shapes == wanted, f"shapes {shapes}, not {wanted}", "start from `self.problem.moments` and `self.pick`.")
    fix = "mend the closed form, or return None."
    expect_mean(case.after, stated.gradient.T, "attacked_moments.gradient", fix)
    centred = case.after - stated.gradient.T[..., None]
    expect_mean(centred**2, np.diagonal(stated.noise_cov, axis1=1, axis2=2).T, "attacked_moments.noise_cov", fix)


def _mean_law(case: _Case) -> None:
    """`attacked_mean` is the mean and the covariance of sum_k w_k g_k at full strength, and `mean_effect` its shift."""
    law, effect = case.attacked.attacked_mean(case.at), case.attacked.mean_effect(case.at)
    if law is None:
        not_applicable("it has no closed-form moments")
    weights, fix = np.asarray(case.honest.weights, float), "override `attacked_mean` where clients collude."
    mean = np.einsum("k,dkr->dr", weights, case.after)
    expect_mean(mean, law.gradient, "attacked_mean.gradient", fix)
    centred = mean - law.gradient[:, None]
    expect_mean(centred**2, np.diagonal(law.noise_cov), "attacked_mean.noise_cov", fix)
    if effect is not None:
        moved = mean - np.einsum("k,dkr->dr", weights, case.before)
        expect_mean(moved, effect, "mean_effect", "leave `mean_effect` to AttackedProblem.")


def _preserves_mean(case: _Case) -> None:
    """An attack that says it `preserves_mean` leaves E sum_k w_k g_k where it was."""
    if not case.attacked.preserves_mean:
        not_applicable("it does not claim to")
    moved = np.einsum("k,dkr->dr", np.asarray(case.honest.weights, float), case.after - case.before)
    expect_mean(moved, np.zeros(case.honest.dim), "the claimed shift of the mean", "set preserves_mean = False.")


def _compiles(case: _Case) -> None:
    """The engine can trace the attack into its loop: branches and sizes do not depend on traced numbers."""
    try:
        trace(case.attacked)
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        fix = "write with jax.numpy; use jnp.where for conditions."
        expect(False, f"{type(error).__name__}: {said}", fix)


_RULES: Sequence[Any] = (
    _same_clients, _chosen_clients, _pytree, _reference, _honest_before, _acts_afterwards, _spares_the_others,
    _grows_with_intensity, _moments, _mean_law, _preserves_mean, _compiles,
)  # fmt: skip
