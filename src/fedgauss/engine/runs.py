"""What `simulate` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgauss._shown import Shown
from fedgauss._types import FloatArray


@dataclass(frozen=True, repr=False)
class Runs(Shown):
    """Results of R replicates, with replicates along the first axis.

    Observed quantities are attributes too: `runs.cusum` is `runs.observed["cusum"]`.

    Attributes
    ----------
    average : array of shape (R, d)
        Ybar_n, the average of the iterates.
    last : array of shape (R, d)
        Y_n, the last iterate.
    n_steps, n_clients, seed : int
        As they were asked for.
    observed : dict of str to array
        The results of the observers, by name.
    """

    average: FloatArray
    last: FloatArray
    n_steps: int
    n_clients: int
    seed: int
    observed: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> np.ndarray[Any, Any]:
        observed = self.__dict__.get("observed", {})
        if name in observed:
            return observed[name]
        known = ", ".join(["average", "last", *observed])
        raise AttributeError(f"these runs kept {known}, not {name!r}. Ask for it with observe=[...] or keep='path'.")

    @property
    def replicates(self) -> int:
        """R."""
        return len(self.average)

    def __str__(self) -> str:
        _, dim = self.average.shape
        lines = [
            f"{self.replicates} runs of local SGD: {self.n_clients} clients, {self.n_steps} steps, "
            f"{dim} dimensions, seed {self.seed}",
            f"{'':12}{'mean':>12}{'sd':>12}{'mean':>14}{'sd':>12}",
            f"{'coordinate':12}{'average':>12}{'average':>12}{'last':>14}{'last':>12}",
        ]
        sd = (lambda x: x.std(axis=0, ddof=1)) if self.replicates > 1 else (lambda x: np.full(dim, np.nan))
        table = zip(self.average.mean(0), sd(self.average), self.last.mean(0), sd(self.last), strict=True)
        lines += [f"{i:<12}{a:12.5f}{b:12.5f}{c:14.5f}{e:12.5f}" for i, (a, b, c, e) in enumerate(table) if i < 10]
        if dim > 10:
            lines.append(f"... and {dim - 10} more coordinates")
        if self.observed:
            shapes = ", ".join(f"{name} {value.shape}" for name, value in self.observed.items())
            lines.append(f"also kept: {shapes}")
        return "\n".join(lines)


class DivergedError(ArithmeticError):
    """A run left the finite numbers; `step`, `client` and `replicate` say where this happened first."""

    def __init__(self, step: int, client: int, replicate: int, eta: float) -> None:
        self.step, self.client, self.replicate, self.eta = step, client, replicate, eta
        super().__init__(
            f"the run must stay finite, but client {client} left the finite numbers at step {step} "
            f"(replicate {replicate}, eta = {eta:.3g}). Use a smaller eta0 or a larger shift in step_sizes, "
            "or a projection such as projections.ball(radius)."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.step, self.client, self.replicate, self.eta)  # so that it crosses processes
