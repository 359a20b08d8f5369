"""What the paper proves, as functions: covariances, exact moments, error terms, bounds, rates and advice.

Everything here is NumPy and SciPy, except `error_terms`, `lindeberg` and `measure_propositions`, which run the engine.
These load JAX on first use, and so does `step_variation`, which stands beside them. Appendix letters are those of the
published version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauss._lazy import lazy

if TYPE_CHECKING:
    from fedgauss.theory.advice import Advice, advise
    from fedgauss.theory.bounds import (
        Bound,
        aggregated_coupling,
        berry_esseen_average,
        berry_esseen_last,
        berry_esseen_limit,
        client_coupling,
        covariance_gap,
        synchronisation_bound,
        synchronisation_factor,
    )
    from fedgauss.theory.covariances import (
        average_covariance,
        last_covariance,
        limit_covariance,
        participation_noise,
        start_bias,
        step_matrices,
        total_variation_bound,
    )
    from fedgauss.theory.decomposition import ErrorTerms, error_terms
    from fedgauss.theory.distances import (
        Distance,
        ball_distance,
        half_space_distance,
        max_relative_quantile_gap,
        quantile_gap_error,
        quantile_pairs,
    )
    from fedgauss.theory.exact import ExactMeans, ExactMoments, ExactPath, exact_moments, exact_path, mean_recursion
    from fedgauss.theory.propositions import Coupling, Slope, lindeberg, measure_propositions, step_variation
    from fedgauss.theory.rates import aggregated_beta, aggregated_rate, best_beta, best_rate, client_beta, client_rate

__all__ = [
    "Advice",
    "Bound",
    "Coupling",
    "Distance",
    "ErrorTerms",
    "ExactMeans",
    "ExactMoments",
    "ExactPath",
    "Slope",
    "advise",
    "aggregated_beta",
    "aggregated_coupling",
    "aggregated_rate",
    "average_covariance",
    "ball_distance",
    "berry_esseen_average",
    "berry_esseen_last",
    "berry_esseen_limit",
    "best_beta",
    "best_rate",
    "client_beta",
    "client_coupling",
    "client_rate",
    "covariance_gap",
    "error_terms",
    "exact_moments",
    "exact_path",
    "half_space_distance",
    "last_covariance",
    "limit_covariance",
    "lindeberg",
    "max_relative_quantile_gap",
    "mean_recursion",
    "measure_propositions",
    "participation_noise",
    "quantile_gap_error",
    "quantile_pairs",
    "start_bias",
    "step_matrices",
    "step_variation",
    "synchronisation_bound",
    "synchronisation_factor",
    "total_variation_bound",
]

_MODULES = {
    "advice": "Advice advise",
    "bounds": (
        "Bound aggregated_coupling berry_esseen_average berry_esseen_last berry_esseen_limit client_coupling "
        "covariance_gap synchronisation_bound synchronisation_factor"
    ),
    "covariances": (
        "average_covariance last_covariance limit_covariance participation_noise start_bias step_matrices "
        "total_variation_bound"
    ),
    "decomposition": "ErrorTerms error_terms",
    "distances": (
        "Distance ball_distance half_space_distance max_relative_quantile_gap quantile_gap_error quantile_pairs"
    ),
    "exact": "ExactMeans ExactMoments ExactPath exact_moments exact_path mean_recursion",
    "propositions": "Coupling Slope lindeberg measure_propositions step_variation",
    "rates": "aggregated_beta aggregated_rate best_beta best_rate client_beta client_rate",
}
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
