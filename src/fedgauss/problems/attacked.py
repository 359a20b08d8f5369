"""An honest problem in which chosen clients turn malicious: what an attack does to gradients, and to their law.

Each attack wraps a problem. With s the intensity of its schedule at step t (1 at full strength) and k a chosen client:

    mean_shift                  g_k(theta - s mu_k)                                  another mean
    label_flip                  g_k with y replaced by its partner, with chance s    another mean
    sign_flip                   (1 - 2s) g_k                                         another mean
    gradient_scaling            (1 + s (c - 1)) g_k                                  another mean
    gradient_noise              g_k + s sd Z, Z ~ N(0, I)                            the honest mean
    little_is_enough            (1 - s) g_k + s (mean of honest g - z sd)            another mean
    inner_product_manipulation  (1 - s) g_k - s epsilon (mean of honest g)           another mean

`preserves_mean` says which leave E sum_k w_k g_k as it was at every theta, whatever the problem: a detector that
looks at means alone cannot see those. Shifts that cancel, one client's against another's, do so too when Hessians are
equal and constant. Scaling and sign flip are a border case. They add (c - 1) sum w_k grad F_k(theta) over the chosen
clients, which vanishes at theta*_K when the chosen clients' own optimum is there: then they show up only in the
spread, and in how fast the run returns to its optimum. `mean_effect` gives the shift of the mean in numbers.

Intensity zero leaves the honest run as it was, so a run has the honest one as its prefix: to the bit, but for
colluders, whose programs round otherwise in the last digit.
"""

import abc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._lanes import add_up
from fedgauss._random import Noise
from fedgauss._types import BoolArray, FloatArray, JaxArray
from fedgauss.problems.arrays import ArrayProblem
from fedgauss.problems.base import Moments, Problem, WrappedProblem, checked_problem, pytree

# The strength of the attack on each client (K, 1), the honest data, and what else the attacker draws.
Drawn = tuple[JaxArray, Any, Any]
_NEVER = np.int32(2**31 - 1)


@pytree
class Schedule:
    """The intensity of an attack at step t, from 0 (honest) to 1 (full strength).

        intensity(t) = min((t - start + 1) / over, 1)   if start <= t < until and (t - start) mod (on + off) < on
                     = 0                                otherwise

    All of it is traced: another onset or another rhythm needs no other compilation.
    """

    start: np.int32
    until: np.int32 = _NEVER
    over: np.float32 = np.float32(1.0)  # a float, so that settings run together may drift at several speeds
    on: np.int32 = np.int32(1)
    off: np.int32 = np.int32(0)

    def intensity(self, t: JaxArray) -> JaxArray:
        """A number from 0 to 1."""
        age = jnp.int32(t) - self.start
        acts = (age >= 0) & (t < self.until) & (age % (self.on + self.off) < self.on)
        return jnp.where(acts, jnp.minimum((age + 1) / self.over, 1.0), 0.0).astype(jnp.float32)


def from_step(start: int, until: int | None = None) -> Schedule:
    """Full strength at steps start, ..., until - 1; without `until`, for ever.

    Parameters
    ----------
    start, until : int
        The first affected step, and the first honest one after it.
    """
    start = _checks.step_number("start", start)
    if until is None:
        return Schedule(np.int32(start))
    until = _checks.step_number("until", until)
    if until <= start:
        raise ValueError(f"until must come after start = {start}; got {until}. The attack acts before step `until`.")
    return Schedule(np.int32(start), until=np.int32(until))


def slow_drift(start: int, over: float) -> Schedule:
    """From nothing to full strength in `over` equal steps, the first of them at step `start`.

    Parameters
    ----------
    start : int
        The first affected step.
    over : float
        Over how many steps it grows.
    """
    start = _checks.step_number("start", start)
    length = _checks.real("over", over, fix="It is the number of steps that the drift takes.")
    if length < 1:
        raise ValueError(f"over must be at least 1 step; got {length:g}. Use from_step(start) for a sudden attack.")
    return Schedule(np.int32(start), over=np.float32(length))


def on_off(start: int, on: int, off: int) -> Schedule:
    """Full strength for `on` steps from `start`, then `off` honest steps, and so on: an attacker that hides.

    Parameters
    ----------
    start : int
        The first affected step.
    on, off : int
        Lengths of the spells.
    """
    start = _checks.step_number("start", start)
    largest = 2**30 - 1  # on + off is a 32-bit number too
    on = _checks.whole("on", on, at_most=largest)
    off = _checks.whole("off", off, at_most=largest, fix="Use from_step(start) for an attack without pauses.")
    return Schedule(np.int32(start), on=np.int32(on), off=np.int32(off))


class MeanLaw(NamedTuple):
    """Mean (d,) and covariance (d, d) of the averaged gradient sum_k w_k g_k: what the mean of the clients feels."""

    gradient: FloatArray
    noise_cov: FloatArray


@pytree
class AttackedProblem(WrappedProblem):
    """The contract of an attack on `problem`: forged gradients, and their exact law where it is known.

    `reference()` is the honest problem: what the theory describes.
    """

    chosen: FloatArray  # 1 for clients under attack, else 0  (K,)
    schedule: Schedule

    preserves_mean: ClassVar[bool] = False

    @property
    def clients(self) -> tuple[int, ...]:
        """The numbers of the clients under attack."""
        return tuple(int(k) for k in np.flatnonzero(np.asarray(self.chosen)))

    def sample(self, noise: Noise, t: JaxArray) -> Drawn:
        """The strength of the attack on each client (K, 1), the honest data, and what else the attacker draws."""
        strength = self.schedule.intensity(t) * jnp.asarray(self.chosen, jnp.float32)[:, None]
        return strength, self.problem.sample(noise, t), self.draw(noise.stream("attack"))

    def draw(self, noise: Noise) -> Any:
        """Random numbers of the attacker."""
        return None

    @abc.abstractmethod
    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """The honest gradients, and the forged ones of the chosen clients, (d, K, R)."""

    @abc.abstractmethod
    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """`moments` at full strength, or None where only sampling can tell. Those before the attack: `reference()`."""

    def attacked_mean(self, theta: FloatArray) -> MeanLaw | None:
        """The averaged gradient at full strength: sum_k w_k grad F_k and sum_k w_k^2 Var(g_k)."""
        return _mean_law(self.attacked_moments(theta), self.weights)

    def mean_effect(self, theta: FloatArray) -> FloatArray | None:
        """By how much the attack at full strength shifts E sum_k w_k g_k at `theta`, (d,); None where unknown."""
        before, after = _mean_law(self.problem.moments(theta), self.weights), self.attacked_mean(theta)
        return None if before is None or after is None else after.gradient - before.gradient

    def pick(self, honest: Moments, forged: Moments) -> Moments:
        """The forged moments of the chosen clients, the honest ones of the others."""
        return Moments(*(_where(np.asarray(self.chosen) > 0, f, h) for h, f in zip(honest, forged, strict=True)))


@pytree
class MeanShift(AttackedProblem):
    """Chosen clients have the loss f_k(theta - mu, xi): they pull towards an optimum that lies mu away."""

    shift: FloatArray  # mu_k, (K, d)

    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """g_k(theta - s mu_k)."""
        strength, xi, _ = data
        return self.problem.gradient(theta - strength * jnp.asarray(self.shift, theta.dtype).T[:, :, None], xi)

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """The honest moments at theta - mu_k."""
        shift = np.asarray(self.shift, dtype=float)
        moments = self.problem.moments(theta)
        for k in self.clients:
            there = self.problem.moments(np.asarray(theta, dtype=float) - shift[k])
            if moments is None or there is None:
                return None
            only_k = np.arange(self.n_clients) == k
            moments = Moments(*(_where(only_k, new, old) for new, old in zip(there, moments, strict=True)))
        return moments


@pytree
class LabelFlip(AttackedProblem):
    """Chosen clients report class partner[y] in place of class y."""

    partner: FloatArray  # (C,)

    def draw(self, noise: Noise) -> JaxArray:
        """A uniform number a row: at intensity s it is flipped with chance s."""
        return noise.uniform(1)[0]

    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """X times residual(x'theta, y or its partner)."""
        strength, (x, y), uniform = data
        flipped = jnp.asarray(self.partner, y.dtype)[y.astype(jnp.int32)]
        return self.problem.gradient(theta, (x, jnp.where(uniform < strength, flipped, y)))

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """Those of the flipped rows, for problems made of rows."""
        if not isinstance(self.problem, ArrayProblem):
            return None
        table = np.asarray(self.partner, dtype=float)
        owner = np.repeat(np.asarray(self.chosen) > 0, self.problem.counts)
        rows = np.asarray(self.problem.response)
        return replace(self.problem, response=np.where(owner, table[rows.astype(int)], rows)).moments(theta)


@pytree
class ScaledGradient(AttackedProblem):
    """Chosen clients multiply their gradient by a factor."""

    factor: float

    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """(1 + s (c - 1)) g_k."""
        strength, xi, _ = data
        return (1.0 + strength * (self.factor - 1.0)) * self.problem.gradient(theta, xi)

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """C grad F_k, c times the Hessian, c^2 Var(g_k)."""
        honest, c = self.problem.moments(theta), float(self.factor)
        if honest is None:
            return None
        return self.pick(honest, Moments(c * honest.gradient, c * honest.hessian, c**2 * honest.noise_cov))


@pytree
class NoisyGradient(AttackedProblem):
    """Chosen clients add Gaussian noise to their gradient: V grows, the mean stays."""

    preserves_mean = True

    sd: FloatArray  # (d,)

    def draw(self, noise: Noise) -> JaxArray:
        """Z ~ N(0, I), (d, K, R)."""
        return noise.normal(self.dim)

    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """g_k + s sd Z."""
        strength, xi, normal = data
        return self.problem.gradient(theta, xi) + strength * jnp.asarray(self.sd)[:, None, None] * normal

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """Var(g_k) + diag(sd^2)."""
        honest = self.problem.moments(theta)
        if honest is None:
            return None
        added = np.diag(np.asarray(self.sd, dtype=float) ** 2)
        return self.pick(honest, honest._replace(noise_cov=honest.noise_cov + added))


@pytree
class Collusion(AttackedProblem):
    """Chosen clients agree on an answer: a multiple of the honest clients' mean gradient less an offset.

    They know every honest gradient of the step, each taken at that client's own iterate.
    """

    factor: float
    offset: FloatArray  # (d,)

    def gradient(self, theta: JaxArray, data: Drawn) -> JaxArray:
        """(1 - s) g_k + s (factor mean_honest(g) - offset)."""
        strength, xi, _ = data
        honest = self.problem.gradient(theta, xi)
        trusted = 1.0 - jnp.asarray(self.chosen, honest.dtype)[:, None]
        mean = add_up(trusted * honest, axis=1)[:, None] / trusted.sum()
        forged = self.factor * mean - jnp.asarray(self.offset, honest.dtype)[:, None, None]
        return honest + strength * (forged - honest)

    def attacked_moments(self, theta: FloatArray) -> Moments | None:
        """Of each client by itself. Colluders are not independent of the others: see `attacked_mean`."""
        honest = self.problem.moments(theta)
        if honest is None:
            return None
        share = self._trusted / self._trusted.sum()
        forged = Moments(
            (self.factor * share @ honest.gradient - np.asarray(self.offset))[None],
            self.factor * np.einsum("k,kij->ij", share, honest.hessian)[None],
            self.factor**2 * np.einsum("k,kij->ij", share**2, honest.noise_cov)[None],
        )
        return self.pick(honest, forged)

    def attacked_mean(self, theta: FloatArray) -> MeanLaw | None:
        """An honest client counts w_k + factor w_A / H times, with w_A the colluders' weight and H honest clients."""
        honest = self.problem.moments(theta)
        if honest is None:
            return None
        trusted, weights = self._trusted, np.asarray(self.weights, dtype=float)
        bad = float(weights @ (1.0 - trusted))
        counts = trusted * (weights + float(self.factor) * bad / trusted.sum())
        gradient = counts @ honest.gradient - bad * np.asarray(self.offset, dtype=float)
        return MeanLaw(gradient, np.einsum("k,kij->ij", counts**2, honest.noise_cov))

    @property
    def _trusted(self) -> FloatArray:
        return 1.0 - np.asarray(self.chosen, dtype=float)


def aim(problem: Problem, clients: Iterable[int], start: int | Schedule) -> tuple[Problem, FloatArray, Schedule]:
    """What every attack is made of: the problem, 1.0 for each chosen client, and when it acts.

    A step number stands for full strength from that step on.
    """
    last = checked_problem(problem).n_clients - 1
    fix = f"Clients are numbered 0 to {last}."
    try:
        listed = list(clients)
    except TypeError:
        raise ValueError(f"clients must list client numbers; got {clients!r}. Use [{clients!r}]?") from None
    numbers = [_checks.whole("clients", k, at_least=0, at_most=last, fix=fix) for k in listed]
    if not numbers:
        raise ValueError(f"clients must name at least one client; got none. {fix}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"clients must name each client once; got {listed!r}. A mask? Use np.flatnonzero(mask).")
    chosen = np.zeros(problem.n_clients)
    chosen[numbers] = 1.0
    return problem, chosen, start if isinstance(start, Schedule) else from_step(start)


def _where(clients: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
    """`new` for these clients, `old` for the others, along the first axis."""
    return np.where(clients.reshape(-1, *[1] * (old.ndim - 1)), new, old)


def _mean_law(moments: Moments | None, weights: FloatArray) -> MeanLaw | None:
    if moments is None:
        return None
    w = np.asarray(weights, dtype=float)
    return MeanLaw(w @ moments.gradient, np.einsum("k,kij->ij", w**2, moments.noise_cov))
