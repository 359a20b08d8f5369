"""fedgauss: measure, infer and watch decentralised federated learning with local SGD.

    import fedgauss as fg

    problem = fg.problems.random_effects(n_clients=10, seed=1907)
    runs = fg.simulate(problem, fg.networks.ring(10), fg.step_sizes.polynomial(0.3, beta=0.75), n_steps=500,
                       sync_every=20, replicates=1000)
    print(runs)

Importing this package is light: NumPy, SciPy and JAX load with the first name that needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauss._lazy import lazy

if TYPE_CHECKING:
    from fedgauss import approx, detect, families, networks, problems, step_sizes, stopping, theory
    from fedgauss._checks import FedgaussWarning
    from fedgauss._linearization import Linearization, gradient_moments, linearization
    from fedgauss._rounds import Optimiser
    from fedgauss.detect.clients.monitor import ClientMonitor
    from fedgauss.detect.innovations import server_only
    from fedgauss.detect.monitor import Monitor
    from fedgauss.engine import observers, projections
    from fedgauss.engine.chunks import DivergedError
    from fedgauss.engine.loop import near_optimum
    from fedgauss.engine.runs import Runs
    from fedgauss.engine.simulate import Setting, simulate, simulate_together
    from fedgauss.federated.privacy import Privacy
    from fedgauss.inference.fit import fit
    from fedgauss.inference.fit_result import likelihood_ratio
    from fedgauss.inference.infer import infer
    from fedgauss.inference.infer_run import infer_run
    from fedgauss.inference.model import Model
    from fedgauss.inference.sgd import SGD
    from fedgauss.problems.linearize import linearize, warm_up
    from fedgauss.theory.advice import advise
    from fedgauss.theory.distances import ball_distance, max_relative_quantile_gap

__version__ = "0.2.0"

__all__ = [
    "SGD",
    "ClientMonitor",
    "DivergedError",
    "FedgaussWarning",
    "Linearization",
    "Model",
    "Monitor",
    "Optimiser",
    "Privacy",
    "Runs",
    "Setting",
    "advise",
    "approx",
    "ball_distance",
    "detect",
    "families",
    "fit",
    "gradient_moments",
    "infer",
    "infer_run",
    "likelihood_ratio",
    "linearization",
    "linearize",
    "max_relative_quantile_gap",
    "near_optimum",
    "networks",
    "observers",
    "problems",
    "projections",
    "server_only",
    "simulate",
    "simulate_together",
    "step_sizes",
    "stopping",
    "theory",
    "warm_up",
]

_MODULES = {
    "": "approx detect families networks problems step_sizes stopping theory",
    "_checks": "FedgaussWarning",
    "_linearization": "Linearization gradient_moments linearization",
    "_rounds": "Optimiser",
    "detect.clients.monitor": "ClientMonitor",
    "detect.innovations": "server_only",
    "detect.monitor": "Monitor",
    "engine.": "observers projections",
    "engine.chunks": "DivergedError",
    "engine.loop": "near_optimum",
    "engine.runs": "Runs",
    "engine.simulate": "Setting simulate simulate_together",
    "federated.privacy": "Privacy",
    "inference.fit": "fit",
    "inference.fit_result": "likelihood_ratio",
    "inference.infer": "infer",
    "inference.infer_run": "infer_run",
    "inference.model": "Model",
    "inference.sgd": "SGD",
    "problems.linearize": "linearize warm_up",
    "theory.advice": "advise",
    "theory.distances": "ball_distance max_relative_quantile_gap",
}
if not TYPE_CHECKING:  # for which all names are above
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
