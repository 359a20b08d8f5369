"""The figures of the demonstration, each with its name, its caption and words for those who cannot see it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedgauss.demo import findings
from fedgauss.demo.run import DemoResult
from fedgauss.report import figures
from fedgauss.report.drawing import Drawing

SCALED = r"$√n (\bar{Y}_n − θ^*)$"
_SHOWN = 6  # runs drawn as lines


def network(result: DemoResult) -> Drawing:
    """Who averages with whom."""
    graph = result.setup.network
    notes = [f"$\\sigma^2={value:g}$" for value in np.asarray(result.setup.problem.noise_var)]
    return Drawing(
        "network",
        figures.network_figure("Each client averages with two neighbours", graph, notes),
        "The clients and their noise variances. Mixing replaces a client’s parameters by the mean of its own and its "
        f"two neighbours’; the second eigenvalue of the mixing matrix is {graph.second_eigenvalue:.3f}.",
        f"{graph.n_clients} numbered circles joined in a ring.",
        small=True,
    )


def paths(result: DemoResult) -> Drawing:
    """Y_t from zero, in the exact band."""
    part = result.from_zero
    share = 100 * findings.share_in_band(part)
    shown = part.simulated.paths[:_SHOWN]
    title = f"{share:.0f} % of simulated iterates lie within two exact sd of the exact mean"
    return Drawing(
        "paths",
        figures.path_figure(title, shown, part.exact.mean, part.exact.sd, result.optimum),
        f"The first {len(shown)} runs of $Y_t$, the mean over clients, started at zero. The band is the exact mean "
        f"plus and minus two exact standard deviations; it holds {share:.1f} % of the iterates of "
        f"{len(part.simulated.paths)} runs, where a normal law would give 95.4 %.",
        "Two line charts, one a coordinate: simulated runs move from zero to the optimum inside a shaded band.",
    )


def averages(result: DemoResult) -> Drawing:
    """sqrt(n) (Ybar_n - theta*) with three ellipses, from both starts."""
    starts = (("started at the optimum", result.from_optimum), ("started at zero", result.from_zero))
    panels = [(name, result.scaled(part), findings.ellipses(result, part)) for name, part in starts]
    exact, finite, limit = (100 * share for share in findings.coverage(result, result.from_optimum))
    _, finite_from_zero, _ = (100 * share for share in findings.coverage(result, result.from_zero))
    return Drawing(
        "averages",
        figures.cloud_figure(f"The 95 % ellipse of $\\Sigma/K$ holds {limit:.0f} % of runs from the optimum", panels),
        f"Each point is {SCALED} of one run at $n$ = {result.setup.n_steps}, with the 95 % ellipses of three normal "
        f"laws. Of the runs from the optimum they hold {exact:.1f} % (exact), {finite:.1f} % ($Σ_n$) and "
        f"{limit:.1f} % ($Σ/K$): how the average is scaled still matters at this $n$. From zero, the same data leave "
        f"a biased average, and the ellipse of $Σ_n$ about $θ^*$ holds {finite_from_zero:.1f} %.",
        "Two scatter plots with ellipses; in the right one the cloud lies off centre.",
    )


def variance(result: DemoResult) -> Drawing:
    """Variance over theory as n grows."""
    n, dim = result.setup.n_steps, len(result.optimum)
    finite, limit = findings.ratios(result, to_limit=False), findings.ratios(result, to_limit=True)
    curves = [
        _curve(result, r"over $\Sigma_n$", "finite", finite, result.sigma_n),
        _curve(result, r"over $\Sigma/K$", "limit", limit, dict.fromkeys(result.exact_n, result.limit)),
    ]
    last, last_to_limit = finite[-1].simulated, limit[-1].simulated
    averaged = np.trace(np.linalg.solve(result.sigma_n[n], result.averaged)) / dim
    return Drawing(
        "variance",
        figures.ratio_figure(
            f"At $n={n}$ the variance is {last:.2f} of $\\Sigma_n$ and {last_to_limit:.2f} of $\\Sigma/K$", curves
        ),
        f"The variance of {SCALED} from the optimum over what $Σ_n$ and $Σ/K$ say, averaged over directions. Points: "
        "simulated, with two Monte-Carlo errors to either side; lines: exact. $Σ_n$ counts the gradient noise at "
        "$θ^*$, but between mixings clients sit nearer their own optima, where their gradients are less noisy. Had "
        f"all clients averaged with each other after every step, the exact ratio to $Σ_n$ would be {averaged:.2f}.",
        "Two curves of variance ratios against n with simulated points on them, and a dashed line at one.",
    )


def disagreement(result: DemoResult) -> Drawing:
    """The saw-tooth of drift and mixing."""
    part, setup = result.from_optimum, result.setup
    first, last = (100 * share for share in findings.removed_by_mixing(result))
    return Drawing(
        "disagreement",
        figures.disagreement_figure(
            f"Mixing removes {first:.0f} % of the disagreement at first, {last:.0f} % at the end",
            np.sqrt(part.simulated.square_disagreement),
            np.sqrt(part.exact.disagreement),
            setup.sync_every,
        ),
        "How far clients are from their mean, when they start together at the optimum. They drift towards their own "
        f"optima for {setup.sync_every} steps, then average with their neighbours. Early mixings remove what differs "
        "between neighbours; what is left varies slowly round the ring, and of that a mixing keeps up to "
        f"{100 * setup.network.second_eigenvalue:.0f} %.",
        "A saw-tooth curve that falls as step sizes shrink, with simulated points on it.",
    )


def watched(result: DemoResult) -> Drawing:
    """The monitor's statistic over the run that is attacked."""
    attack, alarm = result.watched.attack, result.watched.alarm
    if alarm is None:
        title = f"No alarm in {attack.n_steps} steps, though clients turn at step {attack.begins}"
    elif alarm.step < attack.begins:
        title = f"A false alarm at step {alarm.step}: clients turn at step {attack.begins} only"
    else:
        title = f"Clients turn at step {attack.begins}, the alarm rings after step {alarm.step}"
    trace = figures.Trace(
        steps=np.array([verdict.step for verdict in result.watched.verdicts]),
        ratio=np.array([verdict.statistic / verdict.threshold for verdict in result.watched.verdicts]),
        onset=attack.begins,
        alarm=None if alarm is None else alarm.step,
        estimate=None if alarm is None else alarm.onset,
    )
    return Drawing(
        "watched",
        figures.trace_figure(title, trace),
        "The monitor’s statistic after each round, as a multiple of its threshold, over the first simulated run, not a "
        "chosen one. Of two statistics, for the mean gradient and for its noise, the one that is nearer to its "
        "threshold, or further above it, is shown. Each is a largest value over possible onsets, and the onset at "
        "which the alarm’s was reached is the estimated one; it is always the beginning of a round.",
        f"A line chart over the steps of a run, with a dashed line at the threshold. {title}.",
    )


DRAWINGS: tuple[Callable[[DemoResult], Drawing], ...] = (network, paths, averages, variance, disagreement, watched)


def _curve(
    result: DemoResult, label: str, role: str, points: list[findings.Ratio], theory: dict[int, np.ndarray]
) -> figures.Curve:
    exact = [np.trace(np.linalg.solve(theory[n], cov)) / len(cov) for n, cov in result.exact_n.items()]
    return figures.Curve(
        label,
        role,
        n=np.array(result.setup.checkpoints, dtype=float),
        simulated=np.array([point.simulated for point in points]),
        error=np.array([point.error for point in points]),
        exact_n=np.array(list(result.exact_n), dtype=float),
        exact=np.array(exact),
    )
