"""The coordinator of one pass of SGD between sites: mixing, and what they report, as `fit` would have it."""

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray, IntArray
from fedgauss.engine.runs import Runs
from fedgauss.inference.client_steps import busy_steps, steps_of_a_pass
from fedgauss.inference.client_sums import client_statistics, next_reference
from fedgauss.inference.federated.conversation import Conversation, Tick
from fedgauss.inference.federated.fields import REPLIES
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.sgd_disclosure import stops_of, warm_steps
from fedgauss.inference.fit import SgdOptions, as_fit
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.fit_sgd import sgd_facts
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.pass_estimate import Request, check_hessian, estimate_from_pass
from fedgauss.inference.passes import Pass, inverse, schedule
from fedgauss.inference.preparation import (
    Location,
    Units,
    check_collinear,
    check_rows,
    largest_step,
    row_information,
    starting_point,
    told_little,
)
from fedgauss.inference.tables import listed
from fedgauss.networks import Network, as_network, ring
from fedgauss.networks.random_network import need_unchanging
from fedgauss.problems.arrays import checked_weights

_ROUNDING = 0.01  # of sums in single precision


def fit_sites_by_sgd(
    talk: Conversation, data: ModelData, start_terms: FloatArray, columns: Location, about: Location | None,
    options: SgdOptions, level: float, tick: Tick,
) -> Fit:  # fmt: skip
    """One pass between sites that have agreed on their columns."""
    tau, seed = _checks.whole("sync_every", options.sync_every), _checks.seed(options.seed)
    n_sites, counts = len(data.clients), data.counts
    graph = ring(n_sites) if options.network is None else as_network(options.network, n_sites)
    need_unchanging("a pass between sites", graph)
    check_rows(data.clients, counts, len(data.all_names))
    notes = _checked(talk, data, columns)
    units = Units(columns, about, data.constant is not None)
    if not options.standardise:
        units = units.unscaled()
    share = checked_weights(options.weights, n_sites)
    w = counts / counts.sum() if isinstance(share, str) else _checks.client_weights(share, n_sites)
    n_steps = steps_of_a_pass(int(counts.sum()), n_sites)
    if tau > n_steps:
        raise ValueError(f"sync_every must be at most the {n_steps} steps of a pass; got {tau}. Use 10?")
    start = starting_point(data, start_terms)
    told = row_information(units.family(data.family), start, data.constant is not None)
    largest = largest_step(told, len(start))
    notes += told_little(told, int(counts.sum()), len(start))
    one_pass = _run(talk, units, graph, tau, counts, w, start, largest, seed, tick)
    check_hessian(one_pass)
    readout = units.readout(data.family.n_outputs)
    request = Request("plugin", level, data.all_names, readout, correct_drift=options.correct_drift)
    busy = busy_steps(counts, n_steps, one_pass.clients.count)
    estimate = estimate_from_pass(one_pass, request, graph, tau, busy).with_notes(*notes)
    if not (np.isfinite(estimate.params).all() and np.isfinite(estimate.cov).all()):
        raise ValueError("sums of all sites must give a finite fit; these do not. Is a site's data in other units?")
    return as_fit(estimate, data, columns.scale, sgd_facts(options))


def _checked(talk: Conversation, data: ModelData, columns: Location) -> tuple[str, ...]:
    """Refuse what cannot be fitted; notes about what could not be ruled out."""
    replies = talk.all("shape", {"means": columns.mean, "scales": columns.scale})
    triangles = [reply["triangle"] for reply in replies]
    check_collinear(data.names, triangles, int(data.counts.sum()), data.constant is not None)
    unsure = [what for i, what in enumerate(data.sides) if not any(reply["overlaps"][i] for reply in replies)]
    if not unsure:
        return ()
    return (
        f"No site by itself shows that {listed(unsure)} is not linearly separable: if coefficients look large, they "
        "may have no finite estimate.",
    )


def _check_sums(site: str, reply: Message, window: int) -> None:
    """No sum of gradients has a square larger than the number of its terms times the sum of their squares (Cauchy)."""
    square = window * np.diagonal(reply["square_sum"])
    if (reply["gradient_sum"] ** 2 > (1.0 + _ROUNDING) * square).any():
        raise ValueError(
            f"site {site!r} sent a wrong reply to 'report': 'gradient_sum' must be a sum of {window:,} gradients whose "
            "squares add up to 'square_sum'; it is too large for that."
        )


def _run(
    talk: Conversation, units: Units, graph: Network, tau: int, counts: IntArray, w: FloatArray, start: FloatArray,
    largest: float, seed: int, tick: Tick,
) -> Pass:  # fmt: skip
    """Warm-up, burn-in and window; parameters mix after every tau steps."""
    n_sites, n_steps = len(w), steps_of_a_pass(int(counts.sum()), len(w))
    plan = schedule(n_steps, len(start), largest=largest)
    common = {
        "means": units.columns.mean, "scales": units.columns.scale,
        "about": None if units.response is None else np.concatenate(units.response),
        "n_steps": n_steps, "sync_every": tau, "seed": seed, "start": start,
        "warm": warm_steps(plan, counts.tolist(), len(start)),
    }  # fmt: skip
    plans = [{**common, "number": k, "share": float(n_sites * w[k])} for k in range(n_sites)]
    hessian = np.einsum("k,kij->ij", w, [reply["hessian"] for reply in talk.each("begin", plans)])
    first = second = inverse(hessian[None])[0]
    contents: list[Message] = [{"matrix": first} for _ in range(n_sites)]
    mixed, moved, since = np.tile(start, (n_sites, 1)), np.zeros((n_sites, len(start))), 0
    reference, rounds, references, previous = mixed, 0, np.zeros_like(mixed), 0
    for until in stops_of(plan, tau):
        tick("steps", until, n_steps)
        mixes = until % tau == 0
        orders = [{"until": until, **content} for content in contents]
        replies = talk.each("advance", orders, REPLIES["advance"] if mixes else {})
        contents = [{} for _ in range(n_sites)]
        if mixes:
            theta = np.stack([reply["theta"] for reply in replies])
            moved += (theta - mixed) * max(0, until - max(since, plan.burn_in)) / (until - since)
            mixed, since = graph.matrix.T @ theta, until
            contents = [{"theta": theta_k} for theta_k in mixed]
        if previous >= plan.burn_in:
            references += reference * (until - previous)
        if until == plan.burn_in:
            reference = mixed
        if mixes and until >= plan.burn_in:
            rounds += 1
            reference = next_reference(reference, mixed, rounds)
        previous = until
        if until == plan.burn_in:
            told = talk.all("report", {}, REPLIES["first report"])
            hessian = np.einsum("k,kij->ij", w, [reply["hessian_sum"] / until for reply in told])
            second = inverse(hessian[None])[0]
            contents = [{**content, "matrix": second} for content in contents]
    told = talk.all("report", {})
    for site, reply in zip(talk.sites, told, strict=True):
        _check_sums(site, reply, plan.window)
    sums = {name: np.stack([reply[name] for reply in told])[None] for name in REPLIES["report"]}
    average = sums["average"].mean(axis=1)
    runs = Runs(average, average, n_steps, n_sites, seed, {})  # sites do not share their last iterate
    # No site reports where its steps began: together with their average it would give away its parameters after the
    # burn-in, which may be one row after a mixing. They are taken to have moved evenly from one mixing to the next.
    places = sums["average"] * plan.window - moved
    clients = client_statistics(
        {**sums, "summed": np.array([plan.window]), "place_sum": places, "reference_sum": references[None],
         "bend_sum": np.zeros_like(places)}
    )  # fmt: skip
    return Pass(runs, clients, first[None], second[None], hessian[None], plan, w, start)
