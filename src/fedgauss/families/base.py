"""The contract of a regression family, and the registry in which families are found by name.

A family says how a response follows a linear predictor: the one-dimensional part of a regression. It turns the
predictors eta = x'theta, (C, K, R) with C outputs (one, except where each class has its own), and the responses y,
(K, R), into residuals: the derivative of the loss in eta. The gradient is then x times residual.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Moments
from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.quadrature import TRAPEZOID, ResidualMoments, Rule
from fedgauss.families.rows import Goodness, Rows, Score, Sums, blocks_of

if TYPE_CHECKING:
    from fedgauss._random import Noise


class Family(abc.ABC):
    """How a response follows its linear predictor; all that `fit`, sites, simulations and the laboratory ask of it.

    Only `name` and `mean` are required. Make a subclass a frozen dataclass: equal families share a compilation.

    Attributes
    ----------
    name, aliases : str, tuple of str
        What the family is found by once registered.
    n_outputs : int
        C, the number of linear predictors; the parameter stacks C vectors.
    by_class : bool
        Whether the response is a class with an output of its own: its column is then read as levels.
    additive : bool
        Whether y = eta + noise. Such a response may be centred and scaled, least squares is a good first guess, and
        simulated noise has a variance of its own.
    links : tuple of str
        Links to choose from, the usual one first; empty where there is no choice.
    has_dispersion : bool
        Whether the variance of a response is phi V(mu) with phi to be estimated.
    has_intercept : bool
        Whether an intercept means anything; where it does not, the model without covariates has no parameters.
    by_row : bool
        Whether the log-likelihood is a sum over rows. Otherwise rows of a site are compared with each other, and it
        is a sum over sites.
    extra_names : tuple of str
        Parameters after the coefficients, such as the logarithm of a shape.
    model_errors : {"expected", "observed", "none"}
        Which information model-based errors are from; "none" where the loss is not the likelihood of a model.
    exact_only : str
        Why there is no fit by SGD, in words; empty where there is one.
    beside : str
        Which other column the response needs, "trials" or "event"; empty for none.
    needs : str
        What the response must be, in words.
    separated : str
        What a plane could tell apart without error, in words; see `sides`.
    signal : float
        By which simulated coefficients of order one are multiplied to give responses of a sensible size.
    quadrature : Rule
        The rule for Gaussian integrals of `residual_moments`.
    quadratic : bool
        Whether the loss is quadratic in the predictor: sums at one parameter tell those at any other.
    steadied : callable, optional
        (theta, sums) to the sums of all sites as a step of scoring should take them, or a `NoFiniteEstimate` that knows
        why: for informations that may be indefinite, and for maxima at the border of what a parameter may be.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    n_outputs: int = 1
    by_class: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    links: ClassVar[tuple[str, ...]] = ()
    quadratic: bool = False
    has_dispersion: ClassVar[bool] = False
    has_intercept: ClassVar[bool] = True
    by_row: ClassVar[bool] = True
    extra_names: tuple[str, ...] = ()
    model_errors: ClassVar[Literal["expected", "observed", "none"]] = "expected"
    exact_only: str = ""
    beside: ClassVar[str] = ""
    needs: str = "numbers"
    separated: ClassVar[str] = "the two classes"
    signal: ClassVar[float] = 1.0
    quadrature: ClassVar[Rule] = TRAPEZOID
    steadied: ClassVar[Callable[..., Sums] | None] = None

    @abc.abstractmethod
    def mean(self, predictor: JaxArray) -> JaxArray:
        """E[y | eta], (C, K, R)."""

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """The derivative of the loss in each predictor, (C, K, R): mean - y, as for every canonical link."""
        return self.mean(predictor) - response

    def steepness(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """The second derivative of the loss in each predictor, (C, K, R), or what a step should take it for."""
        import jax

        ones = numpy_for(predictor).ones_like(predictor)
        return jax.jvp(lambda eta: self.residual(eta, response), (predictor,), (ones,))[1]

    def describe(self) -> str:
        """The family with its settings, as a summary shows it."""
        return self.name

    def with_link(self, link: str) -> Family:
        """The same family with another link; refused where there is no choice."""
        raise ValueError(f"family {self.name!r} has no link to choose; got link={link!r}. Leave it out.")

    def check_sgd(self) -> None:
        """Raise where there is no fit by SGD."""
        if self.exact_only:
            raise ValueError(f"family {self.name!r} has no fit by SGD: {self.exact_only}. Use solver='scoring'.")

    # Exact fits, in double precision and NumPy: eta is (C, n), y is (n,) or has a column beside it.

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """Minus the log-likelihood of each row at dispersion 1, (n,), up to what does not depend on the predictor."""
        raise NotImplementedError(
            f"family {self.name!r} has no log-likelihood, which an exact fit needs: define `loss`, or use fg.SGD()."
        )

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """The expected second derivative of the loss, (C, n), or (C, C, n) where outputs meet in a row.

        By default a central difference of `residual`.
        """
        h = 1e-5 * (1.0 + np.abs(predictor))
        return (self.residual(predictor + h, response) - self.residual(predictor - h, response)) / (2.0 * h)

    def curvature(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """The second derivative of the loss itself, shaped as `weight`; with a canonical link the two are one."""
        return self.weight(predictor, response)

    def log_likelihood(self, predictor: FloatArray, response: FloatArray, dispersion: FloatArray | float) -> FloatArray:
        """The whole log-likelihood of each row, (n,); `dispersion` is for families that have one."""
        return -self.loss(predictor, response)

    def deviance(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """Twice what a perfect prediction of each row would add to the log-likelihood, at dispersion 1, (n,)."""
        return 2.0 * self.loss(predictor, response)

    def pearson(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """(y - mu)^2 / V(mu) of each row, (n,)."""
        return np.zeros(predictor.shape[1])

    def rows(self, rows: Rows, beside: FloatArray | None) -> Rows:
        """Rows as the family takes them, where there is a column `beside` the response."""
        return rows

    def score(self, rows: Rows, theta: FloatArray) -> Score:
        """Log-likelihood and score of a site's rows; a family with its own `sums` has its own of these, too."""
        return self._scored(rows, self._predictors(rows, theta))

    def sums(self, rows: Rows, theta: FloatArray) -> Sums:
        """Log-likelihood, score and information of a site's rows."""
        eta = self._predictors(rows, theta)
        return Sums(*self._scored(rows, eta), self._assembled(rows, self.weight(eta, rows.response)))

    def observed(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """Minus the second derivative of the log-likelihood of a site's rows, (d, d)."""
        return self._assembled(rows, self.curvature(self._predictors(rows, theta), rows.response))

    def row_scores(self, rows: Rows, theta: FloatArray) -> FloatArray:
        """The score of each row, (n, d); they add up to that of `sums`."""
        residual = self.residual(self._predictors(rows, theta), rows.response) * rows.weights
        return (-residual.T[:, :, None] * rows.x[:, None]).reshape(len(rows.x), -1)

    def goodness(self, rows: Rows, theta: FloatArray, dispersion: float) -> Goodness:
        """The whole log-likelihood, deviance and Pearson's statistic of a site's rows.

        A row of weight w is one of dispersion phi / w where there is a dispersion, and w rows where there is none.
        """
        eta, y = self._predictors(rows, theta), rows.response
        weights = np.broadcast_to(rows.weights, len(rows.x))
        if self.has_dispersion:
            likelihood = self.log_likelihood(eta, y, dispersion / weights)
        else:
            likelihood = weights * self.log_likelihood(eta, y, 1.0)
        deviance, pearson = weights @ self.deviance(eta, y), weights @ self.pearson(eta, y)
        return Goodness(float(likelihood.sum()) + rows.constant, float(deviance), float(pearson))

    def behind(self, rows: Rows, kind: str, theta: FloatArray) -> dict[str, FloatArray]:
        """What each row counts for in the answer to an `Ask` of a kind, by name: columns u, (n,), that it tells X'u of.

        For each output the score is X'u, with u = -residual; the information is X'(w x_1), ..., X'(w x_p); and "final"
        tells the observed one so, too, and the squared scores, X'(u^2 x_j); and what "goodness" does, of which each
        number is 1'u. All times the weights of rows. Where outputs meet in a row, each pair has its own.
        """
        eta, y = self._predictors(rows, theta), rows.response
        if kind == "goodness":
            weights = np.broadcast_to(rows.weights, rows.n)
            return {"deviance": weights * self.deviance(eta, y), "pearson": weights * self.pearson(eta, y)}
        score = -self.residual(eta, y) * rows.weights
        columns = {f"score {c}": part for c, part in enumerate(score)}
        if kind in ("sums", "final"):
            columns |= _times_columns(self.weight(eta, y) * rows.weights, rows.x, "information")
        if kind == "final":
            columns |= _times_columns(self.curvature(eta, y) * rows.weights, rows.x, "observed")
            columns |= _times_columns(score[:, None] * score, rows.x, "squares")
            columns |= self.behind(rows, "goodness", theta)
        return columns

    def sizes(self, response: FloatArray) -> tuple[float, float]:
        """About how large steps of predictors and residuals are, in the units in which they are measured."""
        return 1.0, 1.0

    def likelihood_dispersion(self, pearson: float, n_rows: int, dim: int) -> float:
        """The dispersion at which the log-likelihood is reported."""
        return pearson / max(1, n_rows - dim)

    def _predictors(self, rows: Rows, theta: FloatArray) -> FloatArray:
        coefficients = theta[: len(theta) - len(self.extra_names)]
        return coefficients.reshape(self.n_outputs, -1) @ rows.x.T + rows.offset

    def _scored(self, rows: Rows, eta: FloatArray) -> Score:
        loss, residual = self.loss(eta, rows.response), self.residual(eta, rows.response)
        return Score(-float(np.sum(loss * rows.weights)), (-(residual * rows.weights) @ rows.x).ravel())

    def _assembled(self, rows: Rows, curvature: FloatArray) -> FloatArray:
        """sum_i h_i x_i x_i', block by block of outputs, (d, d)."""
        weighted = curvature * rows.weights
        if len(weighted) == 1:
            return np.asarray((rows.x * weighted.reshape(-1, 1)).T @ rows.x)
        if weighted.ndim == 2:
            return blocks_of([(rows.x * h[:, None]).T @ rows.x for h in weighted])
        return np.block([[(rows.x * h[:, None]).T @ rows.x for h in row] for row in weighted])

    # Reading a response column.

    def read(self, target: str, values: FloatArray, levels: Sequence[Any] | None) -> FloatArray:
        """The responses (N,) in a column of numbers, or of indices into `levels`; raise where they do not suit."""
        if levels is not None and not all(isinstance(level, bool) for level in levels):
            rule = f"the target {target!r} must be numbers for family {self.name!r}"
            if all(map(is_number, levels)):
                raise ValueError(
                    f"{rule}; its numbers are stored as text or as categories. Make them numbers: "
                    f"frame[{target!r}].astype(float)."
                )
            some = ", ".join(repr(str(level)) for level in levels[:3]) + (", ..." if len(levels) > 3 else "")
            raise ValueError(f"{rule}; it has {some}. Use family='one_versus_rest' for classes?")
        try:
            self.check_response(values)
        except ValueError as error:
            raise ValueError(f"the target {target!r} does not suit the family: {error}") from error
        return values

    def check_response(self, response: FloatArray) -> None:  # noqa: B027 - most families take any number
        """Raise when a response cannot come from this family."""

    @property
    def n_classes(self) -> int | None:
        """How many classes a response has, numbered from 0; None where responses are numbers."""
        return self.n_outputs if self.by_class else None

    def with_classes(self, n_classes: int) -> Family:
        """This family for so many classes, where it has an output for each (`by_class`)."""
        raise NotImplementedError(f"family {self.name!r} has no classes.")

    def classes_of_outputs(self, classes: Sequence[Any]) -> Sequence[Any]:
        """Which of the classes each output is about, where it is `by_class`: by default each has its own."""
        return classes

    # Before a fit.

    def start_terms(self, response: FloatArray) -> FloatArray:
        """Terms whose totals over all rows `start` needs, (N, M): by default the response itself."""
        return response[:, None]

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The intercepts of the model without covariates, then the extra parameters, (C + E,).

        From the totals (M,) of `start_terms` over all rows. Zero by default, which is right for a response that has
        been centred.
        """
        return np.zeros(len(totals))

    def rescaled(self, scale: float) -> Family:
        """The family of y / scale; asked of `additive` families only."""
        return self

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """On which side of a plane each row must lie for coefficients to grow without bound; one array a plane.

        1 or -1 for a side, 0 for rows that must lie on the plane itself. Empty where every optimum is finite.
        """
        return []

    # Simulation and closed forms.

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Draw responses (K, R) given the true predictors (C, K, R); `noise_sd` (K,) is for `additive` families."""
        raise NotImplementedError(f"family {self.name!r} does not say how responses are drawn: define `respond`.")

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """(a, b) with grad F_k(theta) = H (a theta - b beta) under x ~ N(0, H), by Stein's identity.

        `theta_var`, `beta_var` and `gap_var` are theta'H theta, beta'H beta and (theta-beta)'H(theta-beta).
        """
        raise NotImplementedError(f"{self} has no closed-form mean gradient; estimate it by simulation instead.")

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments | None:
        """Conditional moments of the residual given (u, v), for families where they determine its law."""
        return None

    def moments(
        self, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
    ) -> Moments | None:
        """Gradient, Hessian and gradient covariance of each client's risk at `theta` under x ~ N(0, H_k), or None.

        By quadrature where `residual_moments` are known: the residual depends on x through u = x'theta and v = x'beta
        alone, so that x splits into the part that carries (u, v) and an independent rest.
        """
        if not self.has_closed_form(theta, coefficients, design_cov):
            return None
        clients = [self._client_moments(theta, *client) for client in zip(coefficients, design_cov, strict=True)]
        return Moments(*(np.stack(part) for part in zip(*clients, strict=True)))

    def has_closed_form(self, theta: FloatArray, coefficients: FloatArray, design_cov: FloatArray) -> bool:
        """Whether moments at `theta` are exact, to the precision of the quadrature."""
        if self.residual_moments(np.zeros(1), np.zeros(1)) is None:
            return False
        largest = self.quadrature.largest_signal
        if largest == np.inf:
            return True
        everyone = np.broadcast_to(theta, coefficients.shape)
        signals = [np.einsum("ki,kij,kj->k", b, design_cov, b).max() for b in (coefficients, everyone)]
        return bool(max(signals) <= largest**2)

    def _client_moments(
        self, theta: FloatArray, beta: FloatArray, cov: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        root = np.linalg.cholesky(cov)
        # Columns of `plane` are orthonormal and span root'theta and root'beta; coordinates are standard normal.
        plane, _ = np.linalg.qr(np.stack([root.T @ theta, root.T @ beta], axis=1))
        axes, mass = self.quadrature.grid(plane.shape[1])
        moments = self.residual_moments((root.T @ theta) @ plane @ axes, (root.T @ beta) @ plane @ axes)
        assert moments is not None
        mean, square, slope = moments

        def second_moment(factor: FloatArray) -> FloatArray:
            """E[factor x x'] from its part in the plane and the independent complement."""
            total = float(mass @ factor)
            inside = np.einsum("n,in,jn->ij", mass * factor, axes, axes)
            both = total * (np.eye(len(theta)) - plane @ plane.T) + plane @ inside @ plane.T
            return root @ both @ root.T

        gradient = root @ plane @ (axes @ (mass * mean))
        return gradient, second_moment(slope), second_moment(square) - np.outer(gradient, gradient)


class AdditiveNoise(Family):
    """y = eta + noise, Gaussian or Student-t with `df` degrees of freedom and the same variance."""

    df: float | None = None
    additive = True

    def mean(self, predictor: JaxArray) -> JaxArray:
        """Eta."""
        return predictor

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """y = eta + noise_sd * (standardised noise)."""
        return predictor[0] + noise.per_client(noise_sd) * self._standard_noise(noise)

    def sizes(self, response: FloatArray) -> tuple[float, float]:
        """The standard deviation of the response."""
        return (float(np.std(response)),) * 2

    def _standard_noise(self, noise: Noise) -> JaxArray:
        """Noise (K, R) with mean 0 and variance 1: normal, or Student-t by Bailey's polar formula (1994)."""
        df = self.df
        if df is None:
            return noise.normal(1)[0]
        u, v = noise.uniform(2)
        jnp = numpy_for(u)
        student = jnp.sqrt(df * jnp.expm1(-2.0 / df * jnp.log(u))) * jnp.cos(2.0 * np.pi * v)
        return student * np.sqrt((df - 2.0) / df).astype(np.float32)


F = TypeVar("F", bound="type[Family]")

_REGISTRY: dict[str, type[Family]] = {}  # by name and alias


def register(cls: F) -> F:
    """Make a family known by its name and aliases, in this process. Use it as a decorator or call it.

    Raises
    ------
    ValueError
        If the class is not a family with a name, or a name belongs to another family.
    """
    if not (isinstance(cls, type) and issubclass(cls, Family) and isinstance(getattr(cls, "name", None), str)):
        raise ValueError(f"register needs a subclass of Family with a name; got {cls!r}.")
    for name in (cls.name, *cls.aliases):
        other = _REGISTRY.get(name, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the family name {name!r} belongs to {other.__qualname__}. Choose another name.")
    _REGISTRY.update(dict.fromkeys((cls.name, *cls.aliases), cls))
    return cls


def names() -> list[str]:
    """The names and aliases of all registered families."""
    return list(_REGISTRY)


def family(name: str, n_classes: int | None = None) -> Family:
    """The registered family with this name or alias, with its default settings.

    Parameters
    ----------
    name : str
        A name or alias, such as "logistic" or "binomial".
    n_classes : int, optional
        For families with an output for each class: how many there are.
    """
    chosen = _REGISTRY[_checks.one_of("family", name, _REGISTRY)]()
    if chosen.by_class and n_classes is not None:
        return chosen.with_classes(_checks.whole("n_classes", n_classes, at_least=2))
    return chosen


def as_family(value: str | Family) -> Family:
    """A family given by name or as an instance."""
    if isinstance(value, str):
        return family(value)
    if not isinstance(value, Family):
        raise ValueError(f"family must be a name, such as 'linear', or an instance of a Family; got {value!r}.")
    return value


def chosen(value: str | Family, link: str | None = None) -> Family:
    """A family given by name or as an instance, with a link of its own choice.

    Parameters
    ----------
    value : str or Family
        A name or alias, such as "binomial", or an instance.
    link : str, optional
        One of the family's links, such as "probit"; by default the link that it has.

    Raises
    ------
    ValueError
        If there is no such family, or it does not have that link; the message lists those that it has.

    Examples
    --------
    >>> chosen("binomial", "probit")
    Logistic(link='probit')
    """
    found = as_family(value)
    return found if link is None else found.with_link(link)


def _times_columns(factor: FloatArray, x: FloatArray, what: str) -> dict[str, FloatArray]:
    """f x_j for each column; of factors (C, n), or (C, C, n), of which half are others again."""
    if factor.ndim == 2:
        pairs = {f"{c}": part for c, part in enumerate(factor)}
    else:
        pairs = {f"{b} {c}": factor[b, c] for b in range(len(factor)) for c in range(b + 1)}
    return {f"{what} {name} x{j}": part * x[:, j] for name, part in pairs.items() for j in range(x.shape[1])}


def is_number(level: Any) -> bool:
    """Whether a level is a number, or text that reads as one."""
    try:
        float(level)
    except (TypeError, ValueError):
        return False
    return True


def require(valid: np.ndarray, response: FloatArray, rule: str, fix: str) -> None:
    """Raise with the first row that breaks a rule."""
    if not np.all(valid):
        row = int(np.argmin(valid))
        raise ValueError(f"{rule}; row {row} is {response[row]:g}. {fix}")
