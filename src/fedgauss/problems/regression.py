"""Regressions on simulated Gaussian designs: linear, logistic, Poisson, Huber, one-versus-rest."""

from dataclasses import field

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._lanes import add_up, times
from fedgauss._memory import check_memory
from fedgauss._random import Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.families import AdditiveNoise, Family, Huber, Linear, Logistic, OneVersusRest, Poisson, as_family
from fedgauss.problems.base import Moments, pytree
from fedgauss.problems.family_problem import FamilyProblem, predictors


@pytree
class Regression(FamilyProblem):
    """Client k draws x ~ N(0, H_k) and a response y from x'beta_k; the gradient of f_k is x times residual."""

    coefficients: FloatArray  # beta_k, (K, d)
    noise_var: FloatArray  # sigma_k^2, for families with additive noise, (K,)
    design_cov: FloatArray  # H_k, (K, p, p)
    design_root: FloatArray | None  # H_k^{1/2}; None when every H_k is I, (K, p, p)
    weights: FloatArray  # w_k, (K,)
    family: Family = field(metadata={"static": True})

    @property
    def dim(self) -> int:
        """d."""
        return int(np.shape(self.coefficients)[1])

    @property
    def serves_some(self) -> bool:  # type: ignore[override]
        """Yes, but a family of somebody's own may use `noise_sd` as that of all clients."""
        return not self.family.additive or type(self.family).respond is AdditiveNoise.respond

    def sample(self, noise: Noise, t: JaxArray) -> tuple[JaxArray, JaxArray]:
        """Rows x (p, K, R) and responses y (K, R)."""
        x = noise.stream("design").normal(self.dim // self.family.n_outputs)
        if self.design_root is not None:
            x = times(noise.per_client(self.design_root), x)
        truth = predictors(noise.per_client(self.coefficients), x, self.family.n_outputs)
        return x, self.family.respond(truth, noise.stream("response"), jnp.sqrt(self.noise_var))

    def mean_gradient(self, theta: JaxArray) -> JaxArray:
        """H_k (a theta - b beta_k), with the family's slopes a and b (Stein's identity)."""
        beta = self.coefficients.T[:, :, None]

        def times_design(vector: JaxArray) -> JaxArray:
            return vector if self.design_root is None else times(self.design_cov, vector)

        def variance(vector: JaxArray) -> JaxArray:
            return add_up(vector * times_design(vector))

        a, b = self.family.slopes(
            variance(theta), variance(beta), variance(theta - beta), jnp.sqrt(self.noise_var)[:, None]
        )
        return times_design(a * theta - b * beta)

    def moments(self, theta: FloatArray) -> Moments | None:
        """As the family has them: in closed form, by quadrature, or not at all."""
        return self.family.moments(theta, self.coefficients, self.noise_var, self.design_cov)

    def risk(self, theta: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """The mean gradient and its derivative, in float64."""
        if self.family.additive:  # the moments are algebra, and cheap
            return super().risk(theta)
        if not self.family.has_closed_form(theta, self.coefficients, self.design_cov):
            return None
        with jax.enable_x64(True):
            gradients, hessians = _float64_risk(self, np.asarray(theta, np.float64))
            return np.asarray(gradients), np.asarray(hessians)

    def guess(self) -> FloatArray:
        """The weighted mean of the client coefficients."""
        return self.weights @ self.coefficients


@jax.jit
def _float64_risk(problem: Regression, theta: JaxArray) -> tuple[JaxArray, JaxArray]:
    """Client gradients (K, d) at one point, and their derivatives (K, d, d)."""

    def client_gradients(at: JaxArray) -> JaxArray:
        point = jnp.broadcast_to(at[:, None, None], (problem.dim, problem.n_clients, 1))
        return problem.mean_gradient(point)[:, :, 0].T

    return client_gradients(theta), jax.jacfwd(client_gradients)(theta)


def random_effects(
    n_clients: int,
    dim: int = 2,
    heterogeneity: float | ArrayLike = 1.0,
    seed: int = 0,
    *,
    center: ArrayLike | None = None,
    noise_var: float | ArrayLike | None = None,
    design_cov: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    df: float | None = None,
) -> Regression:
    """Linear regression with random client coefficients, FRand-eff of the paper (Appendix F.1.1).

    Client k draws y = x'beta_k + noise, with beta_k ~ N(beta_0, Gamma).

    Parameters
    ----------
    n_clients, dim : int
        K and d.
    heterogeneity : float or (d, d) array_like
        gamma, giving Gamma = gamma I, or Gamma itself.
    seed : int
        Fixes beta_k and sigma_k^2: they belong to the problem, not to a run.
    center : (d,) array_like, optional
        beta_0; (2, -3) repeated to `dim` by default.
    noise_var : float or (K,) array_like, optional
        sigma_k^2; drawn uniformly from {1, ..., 5} by default.
    design_cov, weights, df
        As for `linear`.

    Returns
    -------
    Regression

    Examples
    --------
    >>> problem = fg.problems.random_effects(n_clients=10, heterogeneity=1.0, seed=1907)
    """
    n_clients, dim = _checks.whole("n_clients", n_clients), _checks.whole("dim", dim)
    _check_room(n_clients, dim)
    middle = np.resize([2.0, -3.0], dim) if center is None else _checks.real_array("center", center, shape=(dim,))
    gamma = _checks.real_array("heterogeneity", heterogeneity)
    if gamma.ndim == 0 and gamma < 0:
        raise ValueError(f"heterogeneity is a variance and must not be negative; got {gamma:g}.")
    spread = gamma * np.eye(dim) if gamma.ndim == 0 else _checks.covariance("heterogeneity", gamma)
    if spread.shape != (dim, dim):
        raise ValueError(f"heterogeneity must be a number or a ({dim}, {dim}) matrix; got shape {spread.shape}.")
    generator = np.random.default_rng(_checks.seed(seed))
    offsets = generator.standard_normal((n_clients, dim)) @ _root(spread)
    drawn = generator.integers(1, 6, n_clients).astype(float)
    return linear(middle + offsets, drawn if noise_var is None else noise_var, design_cov, weights, df=df)


def linear(
    coefficients: ArrayLike,
    noise_var: float | ArrayLike = 1.0,
    design_cov: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    df: float | None = None,
) -> Regression:
    """Linear regression on simulated rows: y = x'beta_k + noise with x ~ N(0, H_k).

    Parameters
    ----------
    coefficients : (K, d) array_like
        beta_k, a row for each client.
    noise_var : float or (K,) array_like
        The variance of the noise, for all clients or for each.
    design_cov : (d, d) or (K, d, d) array_like, optional
        H_k; the identity by default.
    weights : (K,) array_like, optional
        w_k, equal by default.
    df : float, optional
        Student-t noise with this many degrees of freedom and the same variance; Gaussian by default.

    Returns
    -------
    Regression
    """
    return from_family(Linear(_degrees(df)), coefficients, noise_var, design_cov, weights)


def logistic(
    coefficients: ArrayLike, design_cov: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Regression:
    """Logistic regression on simulated rows: P(y = 1 | x) = sigmoid(x'beta_k). Parameters are those of `linear`."""
    return from_family(Logistic(), coefficients, 0.0, design_cov, weights)


def poisson(
    coefficients: ArrayLike, design_cov: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Regression:
    """Poisson regression on simulated rows: E[y | x] = exp(x'beta_k). Parameters are those of `linear`."""
    return from_family(Poisson(), coefficients, 0.0, design_cov, weights)


def huber(
    coefficients: ArrayLike,
    noise_var: float | ArrayLike = 1.0,
    design_cov: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    *,
    threshold: float = 1.345,
    df: float | None = None,
) -> Regression:
    """The linear model under a smooth form of Huber's loss, whose gradient is bounded in y.

    Parameters
    ----------
    coefficients, noise_var, design_cov, weights, df
        As for `linear`.
    threshold : float
        The residual about which the loss turns from squared to linear.

    Returns
    -------
    Regression
    """
    family = Huber(_checks.real("threshold", threshold, above=0.0), _degrees(df))
    return from_family(family, coefficients, noise_var, design_cov, weights)


def one_versus_rest(
    coefficients: ArrayLike, design_cov: ArrayLike | None = None, weights: ArrayLike | None = None
) -> Regression:
    """One logistic loss for each class, on simulated rows.

    Parameters
    ----------
    coefficients : (K, C, p) array_like
        A row of p coefficients for each client and class. The parameter stacks the classes, d = C p.
    design_cov, weights
        As for `linear`, with p columns.

    Returns
    -------
    Regression
    """
    table = _checks.real_array("coefficients", coefficients, shape=(None, None, None))
    n_clients, n_classes, _ = table.shape
    family = OneVersusRest(_checks.whole("the number of classes", n_classes, at_least=2))
    return from_family(family, table.reshape(n_clients, -1), 0.0, design_cov, weights)


def from_family(
    family: str | Family,
    coefficients: ArrayLike,
    noise_var: float | ArrayLike = 1.0,
    design_cov: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Regression:
    """A regression of any family on simulated rows x ~ N(0, H_k).

    Parameters
    ----------
    family : str or Family
        A registered name, or a family of your own that defines `respond`.
    coefficients : (K, d) array_like
        beta_k; with C outputs the coefficients of each, one after another.
    noise_var : float or (K,) array_like
        The variance of additive noise; other families do not use it.
    design_cov, weights
        As for `linear`.

    Returns
    -------
    Regression

    Examples
    --------
    >>> problem = fg.problems.from_family("poisson", 0.3 * np.ones((4, 2)))
    """
    chosen = as_family(family)
    chosen.check_sgd()
    beta = _checks.real_array("coefficients", coefficients, shape=(None, None), fix="Give one row for each client.")
    n_clients, n_features = beta.shape[0], beta.shape[1] // chosen.n_outputs
    if not beta.size:
        raise ValueError(f"coefficients must have at least one client and one column; got shape {beta.shape}.")
    if beta.shape[1] % chosen.n_outputs:
        raise ValueError(f"coefficients must have columns for {chosen.n_outputs} outputs; got shape {beta.shape}.")
    _check_room(n_clients, n_features)
    variances = _checks.real_array("noise_var", noise_var)
    if variances.shape not in ((), (n_clients,)):
        raise ValueError(f"noise_var must be a number or have shape ({n_clients},); got {variances.shape}.")
    if np.any(variances < 0):
        raise ValueError(f"noise_var must not be negative; the smallest is {variances.min():g}.")
    shape = (n_clients, n_features, n_features)
    cov = np.eye(n_features) if design_cov is None else _checks.covariance("design_cov", design_cov, definite=True)
    if cov.shape not in (shape, shape[1:]):
        raise ValueError(f"design_cov must have shape {shape[1:]} or {shape}; got {cov.shape}.")
    cov = np.broadcast_to(cov, shape).copy()
    return Regression(
        coefficients=beta,
        noise_var=np.broadcast_to(variances, n_clients).copy(),
        design_cov=cov,
        design_root=None if design_cov is None else _root(cov),
        weights=_checks.client_weights(weights, n_clients),
        family=chosen,
    )


def _check_room(n_clients: int, dim: int) -> None:
    what = f"{n_clients:,} clients in {dim:,} dimensions, each with a covariance of its own,"
    check_memory(what, 40 * n_clients * dim * (dim + 1), "Use fewer clients or dimensions.")


def _degrees(df: float | None) -> float | None:
    """Degrees of freedom for which a variance exists."""
    if df is None:
        return None
    return _checks.real("df", df, above=2.0, fix="Student-t noise needs df > 2 to have a variance.")


def _root(matrix: FloatArray) -> FloatArray:
    """The symmetric square root of positive semi-definite matrices (..., d, d)."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
