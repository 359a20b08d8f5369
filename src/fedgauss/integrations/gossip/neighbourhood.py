"""What a peer can watch without a server: the clients of its neighbourhood, itself among them.

A peer does not know the mean of all clients. Of each neighbour it knows where a round began and what came of it. With
S the neighbourhood in a round, v_j = w_j / sum_S w the weights in it, and c the factor that makes eta'_t = c eta_t the
step of its mean, these obey a recursion of their own, whatever mixing does in between:

    D = c sum_S (sent_j - began_j) / (K sum_S w_j) = - sum_t eta'_t sum_S v_j grad f_j,    b = sum_S v_j began_j.

So b + D is to b what Y_j is to Y_{j-1} in a federation of these clients alone, with A = sum_S v_j H_j and
V = sum_S v_j^2 Var(W^j). A monitor wants one path, and is given the one that has the same innovations,

    y_j = P_j y_{j-1} + (b + D - P_j b),    P_j = prod_t (I - eta'_t A):

where this neighbourhood would be, had it never mixed with others.

What it does not see: clients that are no neighbours, except through what they do to neighbours; a neighbour that lies
about where it began, and steps honestly from there. Each of K peers has an alpha of its own: together they ring falsely
in up to K alpha of all runs. Disagreement among neighbours with other Hessians is taken for noise, as everywhere.
"""

from collections.abc import Mapping

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.updates import fault
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.gossip.messages import Message
from fedgauss.step_sizes import from_array

_FURTHEST_CHAIN = 1e4


class Neighbourhood:
    """A monitor of the clients around a peer, fed with what they tell it.

    members  their numbers, in the order of `lin`
    lin      their federation: weights that sum to 1, and the point their gradients were taken at
    eta      eta'_t, as above: c is the mean of K w_j over the members
    start    where each of them begins, a row each
    """

    def __init__(
        self,
        members: tuple[int, ...],
        lin: Linearization,
        eta: FloatArray,
        sync_every: int,
        alpha: float,
        start: FloatArray,
    ) -> None:
        self.members, self._lin, self._eta = members, lin, eta
        self._y = lin.weights @ start
        self.monitor = Monitor(lin, from_array(eta), sync_every, alpha, len(eta), self._y)

    def fault(self, message: Message) -> str:
        """Why a message is refused, in words; empty when an honest neighbour can have sent it.

        A monitor would refuse its parameters: not finite, or absurdly far from where it is. Or a chain has left zero
        further than noise can carry it, in the units of `Innovations.distances`. An honest one is some K sqrt(d) away
        at most, when its noise is this neighbourhood's; that of others comes to it divided among all.
        """
        for name, value in (("sends", message.sent), ("began at", message.began)):
            if fault(self.monitor.innovations, self._y, value, None, None, None):
                return f"the parameter that it {name} must be finite, and near those of its neighbours; it is not."
        far = float(self.monitor.innovations.distances(message.chains.T, np.zeros(self._lin.dim)).max(initial=0.0))
        if not far <= _FURTHEST_CHAIN:
            return (
                f"a chain must lie within {_FURTHEST_CHAIN:.0e} standard deviations of one step's noise from zero; "
                f"one of its chains lies at {far:.2g}."
            )
        return ""

    def update(self, told: Mapping[int, Message], step: int) -> Verdict:
        """Judge a round from what members told of it; who told nothing took no part."""
        present = np.array([member in told for member in self.members])
        origin, end = np.full((2, len(self.members), self._lin.dim), np.nan)
        origin[present] = [told[member].began for member in self.members if member in told]
        end[present] = [told[member].sent for member in self.members if member in told]
        share = self._lin.weights[present]
        v = share / share.sum()
        # c / (K sum_S w) with sum_S w = share.sum() times that of all members: 1 / (members share.sum()).
        moved = (end - origin)[present].sum(axis=0) / (len(self.members) * share.sum())
        b = v @ origin[present]
        contraction = self._contraction(v, present, step)
        y = b + moved + contraction @ (self._y - b)
        everybody = bool(present.all())
        verdict = self.monitor.update(y, end, None if everybody else present, step, origin)
        if self.monitor.step == step:  # else the update was refused, and changed nothing
            self._y = y
        return verdict

    def begin_anew(self, y: FloatArray) -> None:
        """Forget what was seen, and watch with a fresh alpha from here on, where the path goes on at y.

        y is free: innovations are the same from wherever the path goes on.
        """
        self._y = y
        self.monitor.reset(step=self.monitor.step, y=y, round=self.monitor.round)

    def _contraction(self, v: FloatArray, present: BoolArray, step: int) -> FloatArray:
        """P_j of the steps since the last update."""
        values, vectors = np.linalg.eigh(np.einsum("k,kij->ij", v, self._lin.client_hessians[present]))
        factors = np.prod(1.0 - self._eta[self.monitor.step : step, None] * values, axis=0)
        return np.asarray((vectors * factors) @ vectors.T)
