"""A federation of client objects that keep their rows and speak through a channel that writes everything down.

A slow twin of inference with whitened steps, in float64: what `run_whitened` and `bootstrap_deviations` compute, with
every number that leaves a client recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedgauss.inference.methods import SPREAD


@dataclass
class Channel:
    """The only way between clients: who told whom what, and of which shape."""

    messages: list[tuple[int, int | str, str, tuple[int, ...]]] = field(default_factory=list)

    def send(self, sender: int, receiver: int | str, kind: str, content: Any) -> Any:
        self.messages.append((sender, receiver, kind, np.shape(content)))
        return np.array(content)  # a copy: nobody reaches into anybody


class Client:
    """Logistic regression on rows of its own: nothing but what `say_*` returns can be known outside."""

    def __init__(self, number: int, x: Any, y: Any, signs: Any, pull: Any, chains: int) -> None:
        dim = len(pull)
        self.number, self._x, self._y, self._signs, self._pull = number, x, y, signs, pull
        self.theta = np.zeros((chains + 1, dim))  # the run, and its chains
        self._multipliers = np.concatenate([np.ones((len(x), 1)), 1.0 + SPREAD * signs], axis=1)
        self._sums = self._empty(dim)
        self.reference, self._rounds, self._in_window = self.theta[0], 0, False

    @staticmethod
    def _empty(dim: int) -> dict[str, Any]:
        return {
            "count": 0,
            "g": np.zeros(dim),
            "gg": np.zeros((dim, dim)),
            "h": np.zeros((dim, dim)),
            "at": np.zeros(dim),
            "reference": np.zeros(dim),
            "bend": np.zeros(dim),
        }

    def _row(self, t: int, theta: Any) -> tuple[Any, Any]:
        p = 1.0 / (1.0 + np.exp(-(theta @ self._x[t])))
        return (p - self._y[t])[..., None] * self._x[t], p * (1.0 - p)

    def warm_up(self, rows: int) -> Any:
        h = [self._row(t, np.zeros(self.theta.shape[1]))[1] for t in range(rows)]
        return sum(h[t] * np.outer(self._x[t], self._x[t]) for t in range(rows))

    def forget_sums(self) -> None:
        self._sums = self._empty(self.theta.shape[1])
        self._in_window = True

    def begin_round(self, reference: Any) -> None:
        """From the mixed reference towards the mixed parameters, which come to count about three times a mean's."""
        self._rounds += 1
        self.reference = reference + 3.0 * (self.theta[0] - reference) / (self._rounds + 2)

    def step(self, t: int, eta: float, p: Any, guard: str, every: int) -> None:
        g, curvature = self._row(t, self.theta)
        if (t + 1) % every == 0:
            s, x, r = self._sums, self._x[t], self.reference if self._in_window else self.theta[0]
            there, h = self._row(t, r)
            s["count"] += 1
            s["g"] += there
            s["gg"] += np.outer(there, there)
            s["h"] += h * np.outer(x, x)
            s["at"] += self.theta[0]
            s["reference"] += r
            s["bend"] += g[0] - there - h * x * (x @ (self.theta[0] - r))
        q = eta * curvature * (self._x[t] @ p @ self._x[t])
        short = 1.0 + q if guard == "damped" else np.maximum(q, 1.0)
        u = self._multipliers[t][:, None]
        self.theta = self.theta - eta * (u * (g @ p) / short[:, None] + (1.0 - u) * (p @ self._pull))

    def say_theta(self) -> Any:
        return self.theta

    def say_sums(self) -> dict[str, Any]:
        return self._sums


class Federation:
    """Clients on a network, with one of them asked to add up d x d numbers twice a run."""

    def __init__(self, rows: list[tuple[Any, Any]], signs: Any, pulls: Any, matrix: Any, chains: int) -> None:
        self.channel, self.matrix, self.dim = Channel(), matrix, rows[0][0].shape[1]
        self.clients = [Client(k, x, y, signs[k], pulls[k], chains) for k, (x, y) in enumerate(rows)]

    def inverse_hessian(self, matrices: list[Any], counts: list[int]) -> Any:
        told = [
            self.channel.send(k, "all", "Hessian", m / c) for k, (m, c) in enumerate(zip(matrices, counts, strict=True))
        ]
        return np.linalg.inv(sum(told) / len(told))

    def mix(self) -> None:
        heard = []
        for k in range(len(self.clients)):
            others = np.flatnonzero(self.matrix[:, k])
            said = {
                int(j): self.clients[j].say_theta()
                if j == k
                else self.channel.send(int(j), k, "parameters", self.clients[j].say_theta())
                for j in others
            }
            heard.append(sum(self.matrix[j, k] * said[j] for j in said))
        for client, theta in zip(self.clients, heard, strict=True):
            client.theta = theta

    def mix_references(self) -> None:
        heard = []
        for k in range(len(self.clients)):
            others = np.flatnonzero(self.matrix[:, k])
            said = {
                int(j): self.clients[j].reference
                if j == k
                else self.channel.send(int(j), k, "a reference", self.clients[j].reference)
                for j in others
            }
            heard.append(sum(self.matrix[j, k] * said[j] for j in said))
        for client, reference in zip(self.clients, heard, strict=True):
            client.begin_round(reference)

    def run(self, eta: Any, burn_in: int, tau: int, warm_rows: int, every: int) -> dict[str, Any]:
        warm = [client.warm_up(warm_rows) for client in self.clients]
        p = self.inverse_hessian(warm, [warm_rows] * len(warm))
        total = np.zeros_like(self.clients[0].theta)
        for t in range(len(eta)):
            if t == burn_in:
                sums = [client.say_sums() for client in self.clients]
                p = self.inverse_hessian([s["h"] for s in sums], [s["count"] for s in sums])
                for client in self.clients:
                    client.forget_sums()
            if t >= burn_in and t % tau == 0:
                self.mix_references()
            for client in self.clients:
                client.step(t, float(eta[t]), p, "damped" if t < burn_in else "capped", every)
            if (t + 1) % tau == 0:
                self.mix()
                for client in self.clients if t < burn_in else ():
                    client.reference = client.theta[0]
            if t >= burn_in:
                total += np.mean([client.theta for client in self.clients], axis=0)
        sums = [client.say_sums() for client in self.clients]
        told = [
            {name: self.channel.send(k, "all", name, value) for name, value in s.items()} for k, s in enumerate(sums)
        ]
        # Each client keeps its own running mean and tells it once, at the end: the mean of means is the average.
        for k in range(len(self.clients)):
            self.channel.send(k, "all", "average", total[0])
        return {"average": total / (len(eta) - burn_in), "sums": told, "second": p}
