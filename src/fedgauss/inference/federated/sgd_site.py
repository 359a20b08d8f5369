"""A site's part in a pass of SGD: warm-up, burn-in and window on its own rows."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import networks
from fedgauss._random import stage_key
from fedgauss._types import FloatArray
from fedgauss.engine.simulate import padded, simulate
from fedgauss.inference.client_steps import Guard, Preconditioned, in_batches, shuffled
from fedgauss.inference.client_sums import ClientSums, HessianSums, next_reference, warm_hessians
from fedgauss.inference.federated import sgd_disclosure
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.fields import ASKED, REPLIES, Fields, Sizes
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.passes import schedule
from fedgauss.inference.preparation import Location, Units, largest_step, row_information
from fedgauss.problems.arrays import from_arrays

_SUMS = ("gradient_sum", "square_sum", "hessian_sum")


class SgdRun:
    """Units, the order of rows and the number of steps are those of a plan; step sizes and burn-in follow from them."""

    orders = ("advance", "report")

    def __init__(self, data: ModelData, plan: Message, least_rows: int, sizes: Sizes) -> None:
        n_rows, n_steps, about = len(data.response), int(plan["n_steps"]), plan["about"]
        intercept = data.constant is not None
        response = None if about is None else Location(about[:1], about[1:])
        units = Units(Location(plan["means"], plan["scales"]), response, intercept)
        told = row_information(units.family(data.family), plan["start"], intercept)
        largest = largest_step(told, sizes["d"])
        self._plan, self._tau = schedule(n_steps, sizes["d"], largest=largest), int(plan["sync_every"])
        self._warm = int(plan["warm"])
        sgd_disclosure.check_rows_behind(self._plan, self._tau, self._warm, n_rows, least_rows, sizes)
        if np.any(plan["start"].reshape(sizes["C"], -1)[:, int(intercept) :] != 0.0):
            raise Refused("a run starts from the model with an intercept alone, or from zero.")
        if about is not None and about[1] <= 0.0:
            raise Refused("the scale of the response must be above 0.")
        order = shuffled(n_rows, int(plan["number"]), int(plan["seed"]), 0)
        rows = from_arrays(
            units.rows(data.covariates)[order], units.target(data.response)[order], np.zeros(n_rows),
            units.family(data.family),
        )  # fmt: skip
        self._problem = in_batches(rows, n_steps)
        # A step of client k is eta K w_k: alone, its share goes into the step size.
        self._eta: FloatArray = self._plan.eta * float(plan["share"])
        self._theta: FloatArray = plan["start"]
        self._step, self._matrix = 0, np.empty((0, 0))
        self._sums: dict[str, Any] = {}
        # Where gradients and Hessians of the window are taken: `ClientSums`.
        self._reference, self._rounds = self._theta, 0

    def state(self) -> Message:
        """All that is needed to resume."""
        return {
            "step": self._step, "theta": self._theta, "matrix": self._matrix, "sums": self._sums,
            "reference": self._reference, "rounds": self._rounds,
        }  # fmt: skip

    def resume(self, state: Message) -> None:
        """Resume from a saved state."""
        self._step, self._theta, self._matrix = int(state["step"]), state["theta"], state["matrix"]
        self._sums = state["sums"]
        self._reference, self._rounds = state["reference"], int(state["rounds"])

    def asked(self, order: str) -> Fields:
        """The fields of the next order."""
        if order == "report":
            return ASKED["report"]
        names = ["until"]
        if self._step and self._step % self._tau == 0:
            names.append("theta")
        if self._step in (0, self._plan.burn_in):
            names.append("matrix")
        return {name: ASKED["advance"][name] for name in names}

    def told(self, order: str, content: Message) -> Fields:
        """The fields of the reply to an order, as things stand."""
        if order == "advance":
            return {} if content["until"] % self._tau else REPLIES["advance"]
        return REPLIES["first report" if self._step == self._plan.burn_in else "report"]

    def reply(self, order: str, content: Message) -> Message:
        """The reply to an order."""
        return self.report() if order == "report" else self.advance(content)

    def warm_up(self) -> Message:
        """The mean Hessian at the start over the first steps."""
        start, key = jnp.float32(self._theta), stage_key(0, "data")
        sums = warm_hessians(self._problem, key, start, 1, np.int32(self._warm))
        return {"hessian": np.asarray(sums, dtype=float)[:, :, 0, 0] / self._warm}

    def advance(self, go: Message) -> Message:
        """Take steps along P g up to the next stop; reply with the parameters if it is a synchronisation."""
        since, until = self._step, int(go["until"])
        due = next((stop for stop in sgd_disclosure.stops_of(self._plan, self._tau) if stop > since), None)
        if until != due:
            raise Refused(
                f"a site stops at synchronisations, after the burn-in and at the end; {due} is due, not {until}."
            )
        self._step = len(self._eta) + 1  # should this fail, the run is over: no second try, and no sums over less
        if "matrix" in go:
            self._matrix, self._sums = go["matrix"], {}
        burning = since < self._plan.burn_in
        guard: Guard = "damped" if burning else "capped"
        self._move_reference(go, since)
        watch = HessianSums(1) if burning else ClientSums(1, reference=self._reference)
        names = ("hessian_sum",) if burning else _SUMS
        try:
            runs = simulate(
                Preconditioned(self._problem, self._matrix, padded(self._eta), guard), networks.complete(1),
                self._eta[:until], until, sync_every=None, after=since, start=go.get("theta", self._theta),
                observe=[watch], progress=False,
            )  # fmt: skip
            sums = {name: np.asarray(getattr(runs, name)[0, 0], dtype=float) for name in names}
            if not all(np.all(np.isfinite(part)) for part in sums.values()):
                raise ArithmeticError("sums overflow.")
        except ArithmeticError as error:
            raise Refused("the run diverged at this site: its numbers are no longer finite.") from error
        sums["path"] = np.asarray(runs.average[0], dtype=float) * (until - since)
        self._sums = {name: self._sums.get(name, 0.0) + part for name, part in sums.items()}
        self._step, self._theta = until, np.asarray(runs.last[0], dtype=float)
        return {} if until % self._tau else {"theta": self._theta}

    def _move_reference(self, go: Message, since: int) -> None:
        """In the window it begins where the site is, and moves towards mixed parameters."""
        if since == self._plan.burn_in:
            self._reference = self._theta
        if since >= self._plan.burn_in and "theta" in go:
            self._rounds += 1
            self._reference = next_reference(self._reference, go["theta"], self._rounds)

    def report(self) -> Message:
        """The sums since the matrix last changed, and at the end the mean of the iterates.

        After the burn-in that of Hessians only: with the mean of the iterates beside the sum of where steps began one
        would know the parameters of that moment, which may be those of a synchronisation and one row more.
        """
        if self._step == self._plan.burn_in:
            return {"hessian_sum": self._sums["hessian_sum"]}
        if self._step != len(self._eta):
            raise Refused(f"a site reports after the burn-in and at the end; this is step {self._step}.")
        return {**{name: self._sums[name] for name in _SUMS}, "average": self._sums["path"] / self._plan.window}
