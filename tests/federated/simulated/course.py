"""The course of one run, as the program of its mailbox asks and hears, beside what all rows together say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from fedgauss.federated import program
from fedgauss.federated.plan import Heard, Plan, Question
from fedgauss.inference.fit_result import Fit
from simulated.auditor import Auditor, Failure
from simulated.cohort import Cohort

_ROUNDING = 1e-9  # of what was added up
_FELL = 1e-10  # of a log-likelihood, by which rounding may make it seem to fall
_SAME = 1e-12  # of a step


class Course:
    """A program that is looked over the shoulder.

    Parameters
    ----------
    auditor : Auditor
    machines : sequence of Machine
        In the order of their names in the run.
    honest : bool
        Whether all of them keep to the protocol, and so give the fit of all rows.
    count : Counter
        Of void rounds among other things.
    """

    def __init__(self, auditor: Auditor, machines: Sequence[Any], honest: bool, count: Counter[str]) -> None:
        self._auditor, self._machines, self._honest, self._count = auditor, machines, honest, count
        self._base: tuple[np.ndarray, float] | None = None  # where the last step that was taken led
        self._tried: tuple[np.ndarray, float] | None = None  # and the step after that
        self._constant: float | None = None

    def run(self, plan: Plan, level: float = 0.95) -> Generator[Question, Heard, Fit]:
        """`run_program`, with every total looked at."""
        inner = program.run_program(plan, level)
        question = next(inner)
        while True:
            heard = yield question
            self._look(plan, question, heard)
            try:
                question = inner.send(heard)
            except StopIteration as end:
                if self._honest:
                    self._auditor.check_fit(self._machines, plan, end.value)
                return end.value

    def _look(self, plan: Plan, question: Question, heard: Heard) -> None:
        if question.kind == "ask" and question.content["ask"].kind in ("score", "sums", "final"):
            ask = question.content["ask"]
            self._check_step(ask.theta, heard)
            if self._honest and ask.kind != "final":
                self._check_sums(self._cohort(plan), question, heard)
        elif question.kind == "design" and self._honest:
            x = self._cohort(plan).x
            self._compare("sums of columns", heard.total, {"sums": x.sum(axis=0)}, np.abs(x).sum(axis=0))

    def _check_step(self, theta: np.ndarray, heard: Heard) -> None:
        """A step that lowers the log-likelihood, or at which a site cannot answer, is halved."""
        here = -np.inf if heard.total is None else float(heard.total.get("log_likelihood", np.nan))
        if self._base is not None and self._tried is not None:
            (base, high), (tried, found) = self._base, self._tried
            size = _SAME * (np.abs(base).max() + np.abs(tried).max())
            if np.abs(theta - base).max() <= size:  # back, for another matrix
                self._base = None
            elif np.abs(theta - (base + tried) / 2.0).max() > size:
                if found < high - _FELL * (1.0 + abs(high)):
                    raise Failure(
                        f"a step was taken that lowers the log-likelihood of all from {high:.9g} to {found:.9g}"
                    )
                self._base = self._tried
        elif self._tried is not None:
            self._base = self._tried
        self._tried = theta, here

    def _check_sums(self, cohort: Cohort, question: Question, heard: Heard) -> None:
        """The total is that of all rows, and there is none where a site's numbers are too large."""
        ask, columns = question.content["ask"], question.content["columns"]
        sums = cohort.sums(ask.theta, columns.mean, columns.scale)
        if heard.total is None:
            self._count["void round"] += 1
            if sums.answerable:
                raise Failure("a round was void although all sites could answer")
            return
        if not sums.answerable:
            raise Failure("a total was told although a site could not answer")
        if self._constant is None:
            self._constant = float(heard.total["log_likelihood"]) - sums.log_likelihood
        wanted = {"log_likelihood": np.asarray(sums.log_likelihood + self._constant)}
        self._compare("log-likelihood", heard.total, wanted, np.asarray(sums.size + abs(self._constant)))
        self._compare("score", heard.total, {"score": sums.score}, sums.score_size)
        if "information" in heard.total:
            size = np.abs(sums.information).max()
            self._compare("information", heard.total, {"information": sums.information}, np.asarray(size))

    def _compare(self, what: str, told: Any, wanted: dict[str, np.ndarray], size: np.ndarray) -> None:
        for name, value in wanted.items():
            if told is None or not np.all(np.abs(told[name] - value) <= _ROUNDING * (size + np.abs(value))):
                raise Failure(f"the {what} of all sites is not what their rows add up to")

    def _cohort(self, plan: Plan) -> Cohort:
        return self._auditor.pooled(plan.model, self._machines)[0]
