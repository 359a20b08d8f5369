"""The contract of networks that are drawn anew at every mixing."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse as sp

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.networks.network import DENSE, Network, norm_off_mean


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RandomNetwork(Network):
    """A network whose matrix C_t is drawn anew at every mixing, independently of everything before.

        C_t = I - sum_e v_e (e_i - e_j)(e_i - e_j)',    v_e >= 0 the random weight of the link e between i and j

    Each C_t is symmetric with rows that sum to one, so mixing keeps the clients' mean whatever is drawn. A single C_t
    need not connect all clients: Assumption 2.1 is required of its mean. `sparse`, `matrix` and `edges` are those of
    the mean E C_t, and `second_eigenvalue` is the contraction factor in mean square.

    Parameters
    ----------
    links : array of shape (E, 2)
        The pairs i < j of clients that may average with each other.
    """

    links: IntArray

    @property
    @abc.abstractmethod
    def weight_cov(self) -> FloatArray:
        """Covariances of the links' weights v_e: (E, E), or variances (E,) of independent ones."""

    @property
    @abc.abstractmethod
    def law(self) -> str:
        """How C_t is drawn, in a few words."""

    @cached_property
    def second_eigenvalue(self) -> float:
        """The contraction factor rho in mean square: E |Theta C (I - J)|_F^2 <= rho^2 |Theta (I - J)|_F^2.

        rho^2 is the norm of E[C C'] - J. For a network that stays the same, it is the second eigenvalue. The sums over
        past steps in the proof of Corollary F.1 take this rho in its place: the matrices C_t that follow a gradient
        are independent of it.
        """
        if self.n_clients == 1:
            return 0.0
        square = self._mean_square()
        if self.n_clients > DENSE:
            return float(np.sqrt(norm_off_mean(square)))
        return float(np.sqrt(np.linalg.eigvalsh(square.toarray() - 1.0 / self.n_clients)[-1].clip(0.0)))

    def _mean_square(self) -> sp.csr_array:
        """E[C C']."""
        spread = self.spread(np.eye(self.n_clients))
        return sp.csr_array(self.sparse @ self.sparse + spread)

    def spread(self, second: FloatArray, present: BoolArray | None = None) -> FloatArray:
        """E[C M C] - (E C) M (E C) for matrices M: how much the draw of C_t adds to second moments M of the clients.

            sum_{e, f} Cov(v_e, v_f) L_e M L_f,    L_e = (e_i - e_j)(e_i - e_j)'

        Parameters
        ----------
        second : array of shape (..., K, K)
            M, symmetric or not.
        present : array of K booleans, optional
            Who takes part; links of others are down.

        Returns
        -------
        array of shape (..., K, K)
        """
        i, j = self.links.T
        up = np.ones(len(i)) if present is None else (present[i] & present[j]).astype(float)
        ends = np.zeros((self.n_clients, len(i)))
        ends[i, np.arange(len(i))], ends[j, np.arange(len(i))] = up, -up
        if self.weight_cov.ndim == 1:
            apart = second[..., i, i] + second[..., j, j] - second[..., i, j] - second[..., j, i]
            return (ends * (self.weight_cov * apart)[..., None, :]) @ ends.T
        return ends @ (self.weight_cov * (ends.T @ second @ ends)) @ ends.T

    def repeated(self, times: int) -> Network:
        """Not for a network that is drawn anew: repeat the network that it is made from.

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            f"a network must be repeated before it becomes random; got repeated({times}) of one that {self.law}. "
            f"Use failing(network.repeated({times}), probability), or synchronise more often?"
        )

    def __str__(self) -> str:
        return (
            f"Network {self.name}, {self.law}: {self.n_clients} clients, {self.edges} edges, "
            f"contraction factor {self.second_eigenvalue:.4g}"
        )


def need_unchanging(what: str, network: Network) -> Network:
    """`network`, if its matrix stays the same."""
    if isinstance(network, RandomNetwork):
        raise ValueError(
            f"{what} needs a network that stays the same; got {network.name}, which is drawn anew at every mixing "
            f"({network.law}). Use networks.ring({network.n_clients})?"
        )
    return network
