"""The course of one run, as the program of its mailbox asks and hears, beside what all rows together say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from fedgauss.federated import program
from fedgauss.federated.path import spreads
from fedgauss.federated.plan import Heard, Plan, Question
from fedgauss.inference.fit_result import Fit
from simulated.auditor import Auditor, Failure
from simulated.cohort import Cohort

_ROUNDING = 1e-9  # of what was added up
_FELL = 1e-10  # of a log-likelihood, by which rounding may make it seem to fall
_SAME = 1e-12  # of a step
_DIGITS = 2.0**-11  # of the longer of the last two steps of the parameter, by which a site may round its sums after it
_FALL = 2.0**-7  # of what the last steps were to gain: sites may say no more of a log-likelihood
_WIDE, _REACH = 8.0, 32.0  # standard deviations of predictors, and steps, beyond which a site may say nothing


class Way:
    """How far one site lets the path of a fit go, as its documentation says."""

    def __init__(self) -> None:
        self._moved, self._places, self._reach = 1.0, list[np.ndarray](), list[float]()

    def step(self, theta: np.ndarray, last: np.ndarray, units: np.ndarray, spread: float) -> float | None:
        """The longer of the last two steps, at most 1; None where the site says nothing."""
        far = self._places and (np.abs(theta - np.array(self._places)) * units).max(axis=1) > self._reach
        if not spread <= _WIDE or np.any(far):
            return None
        moved = float((np.abs(theta - last) * units).max())
        step, self._moved = min(1.0, max(moved, self._moved)), moved or self._moved
        self._places.append(theta)
        self._reach.append(_REACH * step)
        return step


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
        self._base: tuple[np.ndarray, float, np.ndarray] | None = None  # where the last step that was taken led
        self._tried: tuple[np.ndarray, float, np.ndarray] | None = None  # and the step after that
        self._constant: float | None = None
        self._asked: list[np.ndarray] = []  # parameters so far
        self._gains = [0.0]  # that steps were to have
        self._ended = False
        self._ways = [Way() for _ in machines]
        self._together: Cohort | None = None  # all rows
        self._rows: tuple[np.ndarray, np.ndarray] | None = None  # in the units of the run, and their size at each site
        self._roots: list[np.ndarray] = []  # of what sites know of their spreads

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
            if not self._ended:
                self._check_step(ask.theta, heard)
            self._ended = ask.kind == "final"
            if not self._ended:
                if self._honest:
                    self._check_sums(self._cohort(plan), question, heard)
                self._asked.append(ask.theta)
        elif question.kind == "design" and self._honest:
            x = self._cohort(plan).x
            self._compare("sums of columns", heard.total, {"sums": x.sum(axis=0)}, np.abs(x).sum(axis=0))

    def _check_step(self, theta: np.ndarray, heard: Heard) -> None:
        """A step that lowers the log-likelihood, or at which a site cannot answer, is halved."""
        total = heard.total or {"log_likelihood": -np.inf, "score": np.zeros(len(theta))}
        here = theta, float(total.get("log_likelihood", np.nan)), np.asarray(total.get("score", np.zeros(len(theta))))
        if self._base is not None and self._tried is not None:
            (base, high, _), (tried, found, _) = self._base, self._tried
            size = _SAME * (np.abs(base).max() + np.abs(tried).max())
            if np.abs(theta - base).max() <= size:  # back, for another matrix
                self._base = None
            elif np.abs(theta - (base + tried) / 2.0).max() > size:
                if found < high - _FELL * (1.0 + abs(high)) - _FALL * max(self._gains[-3:]):
                    raise Failure(
                        f"a step was taken that lowers the log-likelihood of all from {high:.9g} to {found:.9g}"
                    )
                self._base = self._tried
                self._gains.append(abs(float(self._base[2] @ (theta - self._base[0]))))
        elif self._tried is not None:
            self._base = self._tried
            self._gains.append(abs(float(self._base[2] @ (theta - self._base[0]))))
        self._tried = here

    def _check_sums(self, cohort: Cohort, question: Question, heard: Heard) -> None:
        """The total is that of all rows, and there is none where a site's numbers are too large."""
        ask, columns = question.content["ask"], question.content["columns"]
        if self._rows is None:
            x = cohort.rows(columns.mean, columns.scale)
            self._rows = x, cohort.units(x)
            own = [x[piece, 1:] * columns.scale for piece in cohort.pieces]
            self._roots = [spreads(site) / columns.scale for site in own]
        x, units = self._rows
        sums = cohort.sums(ask.theta, x)
        steps: list[float | None] = [0.0]
        if cohort.family != "gaussian" and np.any(ask.theta[1:]):
            wide = [float(np.linalg.norm(root @ ask.theta[1:])) for root in self._roots]
            sites = zip(self._ways, units, wide, strict=True)
            steps = [way.step(ask.theta, self._asked[-1], own, spread) for way, own, spread in sites]
        if heard.total is None:
            self._count["void round"] += 1
            if sums.answerable and None not in steps:
                raise Failure("a round was void although all sites could answer")
            return
        if not sums.answerable or None in steps:
            raise Failure("a total was told although a site could not answer")
        if self._constant is None:
            self._constant = float(heard.total["log_likelihood"]) - sums.log_likelihood
        wanted = {"log_likelihood": np.asarray(sums.log_likelihood + self._constant)}
        step = max(one for one in steps if one is not None)
        coarse = len(self._machines) * _DIGITS * step
        size = np.asarray(sums.size + abs(self._constant))
        self._compare("log-likelihood", heard.total, wanted, size, np.asarray(coarse * step))
        coarse, most = np.asarray(coarse), units.max(axis=0)
        self._compare("score", heard.total, {"score": sums.score}, sums.score_size, coarse * most)
        if "information" in heard.total:
            size, coarse = np.abs(sums.information).max(), coarse * np.multiply.outer(most, most)
            self._compare("information", heard.total, {"information": sums.information}, size, coarse)

    def _compare(
        self, what: str, told: Any, wanted: dict[str, np.ndarray], size: np.ndarray, coarse: Any = 0.0
    ) -> None:
        for name, value in wanted.items():
            if told is None or not np.all(np.abs(told[name] - value) <= _ROUNDING * (size + np.abs(value)) + coarse):
                raise Failure(f"the {what} of all sites is not what their rows add up to")

    def _cohort(self, plan: Plan) -> Cohort:
        if self._together is None:
            self._together, _ = self._auditor.pooled(plan.model, self._machines)
        return self._together
