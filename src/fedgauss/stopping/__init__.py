"""When to stop: what more rounds could still change, for an average of iterates and for an evaluation metric.

    runs.converged(tolerance=0.01)                         how far would more steps move the average?
    Monitored(..., stop_when=Plateau("accuracy", 0.01))    would as many rounds again still gain that much?
    fit(..., solver=fg.SGD(passes="auto"))                 read a table again until the estimate hardly moves

Everything here is NumPy and SciPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedgauss._lazy import lazy

if TYPE_CHECKING:
    from fedgauss.stopping.movement import Convergence
    from fedgauss.stopping.plateau import Plateau, Stop

__all__ = ["Convergence", "Plateau", "Stop"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {"movement": "Convergence", "plateau": "Plateau Stop"}, __all__)
