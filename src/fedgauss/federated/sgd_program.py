"""A pass of local SGD as a program: parameters that sites synchronise, and what they add up in the end.

What is mixed are the parameters that all sites have signed, by the matrix in the plan, so that nobody chooses the next
ones. Without masks all see every site's parameters at every synchronisation; under masks their total alone, of which
each site takes the mean. The pass is that of `fit(solver=SGD(...))` in one process, to single precision.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.engine.runs import Runs
from fedgauss.families.same_bits import inverse
from fedgauss.federated.fixed_point import Shapes
from fedgauss.federated.plan import Heard, Plan, Question, total_of
from fedgauss.inference.client_pass import Course, Stretch
from fedgauss.inference.client_steps import busy_steps
from fedgauss.inference.client_sums import ClientStatistics, next_reference
from fedgauss.inference.fit_result import Fit, as_fit
from fedgauss.inference.fit_sgd import sgd_facts
from fedgauss.inference.model_data import ModelData, check_plain
from fedgauss.inference.pass_estimate import Request, check_hessian, estimate_from_pass
from fedgauss.inference.passes import Pass
from fedgauss.inference.preparation import Units, check_rows, told_little
from fedgauss.networks import Network


def sgd_program(
    plan: Plan, data: ModelData, units: Units, start: FloatArray, n_rows: int, level: float
) -> Generator[Question, Heard, Fit]:
    """The questions of a pass between sites that have agreed on their columns, and at its end the fit."""
    options, n_sites, dim = plan.sgd, len(plan.sites), len(start)
    assert options is not None
    check_plain(data)
    data.family.check_sgd()
    check_rows(data.clients, data.counts, dim)
    graph = options.graph(n_sites, plan.masked)
    scales, units = units.columns.scale, units if options.standardise else units.unscaled()
    course = Course(units, units.family(data.family), start, n_rows, n_sites, options.sync_every)
    n_steps, tau, steps = course.n_steps, course.sync_every, course.plan
    if tau > n_steps:
        raise ValueError(f"sync_every must be at most the {n_steps} steps of a pass; got {tau}. Use 10?")
    matrix = (dim, dim)
    told = total_of((yield _ask("begin", {"hessian": matrix}, course=course)))
    matrices = [inverse(told["hessian"])]
    theta = reference = np.tile(start, (n_sites, 1))
    references, rounds = np.zeros((n_sites, dim)), 0
    for since, until in pairwise(course.stops):
        if since < steps.burn_in:
            reference = theta
        else:
            rounds += 1
            reference = next_reference(mix(graph, reference), theta, rounds)
        if since <= steps.burn_in < until:
            cut_short = _stretches(since, steps.burn_in, theta, reference)
            told = total_of((yield _ask("burn-in", {"hessian": matrix}, matrices=matrices, stretches=cut_short)))
            matrices = [*matrices, inverse(told["hessian"])]
        references = references + max(0, until - max(since, steps.burn_in)) * reference
        about: dict[str, Any] = {"matrices": matrices, "stretches": _stretches(since, until, theta, reference)}
        if until < n_steps:
            heard = yield _ask("steps", {"theta": (dim,)}, **about)
            theta = np.tile(total_of(heard)["theta"] / n_sites, (n_sites, 1))
            if not plan.masked:
                theta = mix(graph, np.stack([one["theta"] for one in heard.each]))
    shapes = {"gradient": (dim,), "hessian": matrix, "noise": matrix, "average": (dim,)}
    heard = yield _ask("window", shapes, **about)
    total = total_of(heard)
    # Under masks each site is given an equal part of the totals: what is told apart below is none's own.
    own = [{name: value / n_sites for name, value in total.items()}] * n_sites if plan.masked else heard.each
    gradients, hessians, noise, _ = (np.stack([one[name] for one in own])[None] for name in shapes)
    references, average = references[None] / steps.window, total["average"][None] / n_sites
    # Sites have multiplied by their weights w_k, so that those of the sums are 1.
    clients = ClientStatistics(
        hessians, noise, references, gradients, references, np.zeros_like(gradients), steps.window
    )
    one_pass = Pass(
        Runs(average, average, n_steps, n_sites, options.seed), clients, matrices[0][None], matrices[1][None],
        told["hessian"][None], steps, np.ones(n_sites), start,
    )  # fmt: skip
    check_hessian(one_pass)
    request = Request("plugin", level, data.all_names, units.readout(data.family.n_outputs))
    busy = busy_steps(data.counts * (not plan.masked), n_steps, steps.window)
    estimate = estimate_from_pass(one_pass, request, graph, tau, busy)
    if not (np.isfinite(estimate.params).all() and np.isfinite(estimate.cov).all()):
        raise ValueError("sums of all sites must give a finite fit; these do not. Is a site's data in other units?")
    estimate = estimate.with_notes(*told_little(course.information, n_rows, dim))
    return as_fit(estimate, data, scales, sgd_facts(options))


def mix(network: Network, theta: FloatArray) -> FloatArray:
    """Parameters of all sites, (K, d), after a synchronisation; the same bits everywhere."""
    mixed = np.zeros_like(theta)
    for weights, own in zip(network.matrix, theta, strict=True):
        mixed = mixed + np.multiply.outer(weights, own)
    return mixed


def _ask(what: str, shapes: Shapes, **content: Any) -> Question:
    return Question("sgd", {"what": what, "content": content}, shapes)


def _stretches(since: int, until: int, theta: FloatArray, reference: FloatArray) -> list[Stretch]:
    """That of each site."""
    return [Stretch(since, until, *own) for own in zip(theta, reference, strict=True)]
