"""fedgauss: measure, infer and watch decentralised federated learning with local SGD.

    import fedgauss as fg

    problem = fg.problems.random_effects(n_clients=10, seed=1907)
    runs = fg.simulate(problem, fg.networks.ring(10), fg.step_sizes.polynomial(0.3, beta=0.75), n_steps=500,
                       sync_every=20, replicates=1000)
    print(runs)

Importing this package is light: JAX loads with the first name that computes with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fedgauss import networks, step_sizes
from fedgauss._checks import FedgaussWarning
from fedgauss._linearization import Linearization, gradient_moments, linearization

if TYPE_CHECKING:
    from fedgauss import approx, detect, problems, theory
    from fedgauss.detect.monitor import Monitor
    from fedgauss.detect.server_only import server_only
    from fedgauss.engine import observers, projections
    from fedgauss.engine.runs import DivergedError, Runs
    from fedgauss.engine.simulate import simulate
    from fedgauss.engine.starts import near_optimum
    from fedgauss.engine.together import Setting, simulate_together
    from fedgauss.inference.fit import fit
    from fedgauss.inference.infer import infer
    from fedgauss.problems.linearize import linearize
    from fedgauss.problems.warm_up import warm_up
    from fedgauss.theory.advise import advise
    from fedgauss.theory.distances import ball_distance, max_relative_quantile_gap

__version__ = "0.1.0"

__all__ = [
    "DivergedError",
    "FedgaussWarning",
    "Linearization",
    "Monitor",
    "Runs",
    "Setting",
    "advise",
    "approx",
    "ball_distance",
    "detect",
    "fit",
    "gradient_moments",
    "infer",
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
    "theory",
    "warm_up",
]

# Where to find the names that need JAX, loaded on first use (PEP 562). A name of None is the module itself.
_LAZY: dict[str, tuple[str, str | None]] = {
    "DivergedError": ("fedgauss.engine.runs", "DivergedError"),
    "Monitor": ("fedgauss.detect.monitor", "Monitor"),
    "Runs": ("fedgauss.engine.runs", "Runs"),
    "Setting": ("fedgauss.engine.together", "Setting"),
    "advise": ("fedgauss.theory.advise", "advise"),
    "approx": ("fedgauss.approx", None),
    "ball_distance": ("fedgauss.theory.distances", "ball_distance"),
    "detect": ("fedgauss.detect", None),
    "max_relative_quantile_gap": ("fedgauss.theory.distances", "max_relative_quantile_gap"),
    "fit": ("fedgauss.inference.fit", "fit"),
    "infer": ("fedgauss.inference.infer", "infer"),
    "linearize": ("fedgauss.problems.linearize", "linearize"),
    "near_optimum": ("fedgauss.engine.starts", "near_optimum"),
    "observers": ("fedgauss.engine.observers", None),
    "problems": ("fedgauss.problems", None),
    "projections": ("fedgauss.engine.projections", None),
    "server_only": ("fedgauss.detect.server_only", "server_only"),
    "simulate": ("fedgauss.engine.simulate", "simulate"),
    "simulate_together": ("fedgauss.engine.together", "simulate_together"),
    "theory": ("fedgauss.theory", None),
    "warm_up": ("fedgauss.problems.warm_up", "warm_up"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'fedgauss' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    loaded = importlib.import_module(module)
    return loaded if attribute is None else getattr(loaded, attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
