"""The figures of the demonstration, each with its caption and words for those who cannot see it.

A figure's title is the sentence that its data support.
"""

from collections.abc import Callable

import networkx as nx
import numpy as np

from fedgauss._figures import LIGHT, styled, titled_axes, titled_figure
from fedgauss.demo.comparison import mean_ratio
from fedgauss.demo.run import DemoResult
from fedgauss.report.output import Drawing, few_ticks, log_ticks

SCALED = r"$√n (\bar{Y}_n − θ^*)$"
_RUNS = 6  # runs drawn as lines
_POINTS = 2000  # a cloud of more says no more
_DASHED = (0, (4, 3))


@styled
def network(result: DemoResult) -> Drawing:
    """The clients and their neighbours, with the noise variance beside each client."""
    clients = result.setup.network
    figure, axes = titled_axes("Each client averages with two neighbours", 3.5, width=3.6)
    graph = nx.from_scipy_sparse_array(clients.sparse)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    place = nx.kamada_kawai_layout(graph)
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color=LIGHT["muted"], width=1.2)
    nodes = nx.draw_networkx_nodes(graph, place, ax=axes, node_color=LIGHT["paper"], node_size=330)
    nodes.set_edgecolor(LIGHT["exact"])
    nodes.set_linewidth(1.4)
    for k, (x, y) in place.items():
        note = f"$\\sigma^2={result.setup.problem.noise_var[k]:g}$"
        axes.text(x, y, str(k + 1), ha="center", va="center", color=LIGHT["exact"])
        axes.text(1.36 * x, 1.25 * y, note, ha="center", va="center", fontsize=10, color=LIGHT["muted"])
    axes.set(xlim=(-1.65, 1.65), ylim=(-1.35, 1.35), aspect="equal")
    axes.set_axis_off()
    return Drawing(
        "network",
        figure,
        "The clients and their noise variances. Mixing replaces a client’s parameters by the mean of its own and its "
        f"two neighbours’; the second eigenvalue of the mixing matrix is {clients.second_eigenvalue:.3f}.",
        f"{clients.n_clients} numbered circles joined in a ring.",
        small=True,
    )


@styled
def paths(result: DemoResult) -> Drawing:
    """Y_t of some runs from zero over the exact mean +- 2 sd, one panel a coordinate, with the optimum."""
    part, optimum = result.from_zero, result.optimum
    shown, mean, sd = part.simulated.paths[:_RUNS], part.exact.mean, part.exact.sd
    share, (n, dim) = 100 * part.share_in_band, mean.shape
    title = f"{share:.0f} % of simulated iterates lie within two exact sd of the exact mean"
    figure = titled_figure(title, 0.8 + 1.65 * dim)
    t = np.arange(1, n + 1)
    marks = [mark * 10**power for power in range(len(str(n))) for mark in (1, 2, 5) if mark * 10**power <= n]
    for i, axes in enumerate(figure.subplots(dim, 1, sharex=True, squeeze=False)[:, 0]):
        axes.fill_between(t, (mean - 2 * sd)[:, i], (mean + 2 * sd)[:, i], color=LIGHT["exact"], alpha=0.18, lw=0)
        axes.plot(t, shown[:, :, i].T, color=LIGHT["simulated"], lw=0.7)
        axes.plot(t, mean[:, i], color=LIGHT["exact"], lw=1.6)
        axes.axhline(optimum[i], color=LIGHT["ink"], lw=0.8, ls=_DASHED)
        log_ticks(axes, "x", marks)
        axes.set(ylabel=f"coordinate {i + 1} of $Y_t$", xlim=(1, n))
        few_ticks(axes.yaxis, 5)
    names = {
        "simulated": "simulated runs",
        "exact": "exact mean, and 2 sd to either side",
        "ink": "optimum, dashed",
    }
    first = figure.axes[0]
    side = 0.30 if optimum[0] > mean[0, 0] else 0.92  # the corner that runs towards the optimum leave empty
    for row, (role, text) in enumerate(names.items()):
        first.text(0.98, side - 0.12 * row, text, ha="right", va="center", color=LIGHT[role], transform=first.transAxes)
    figure.align_ylabels()
    figure.axes[-1].set_xlabel("step $t$, logarithmic")
    return Drawing(
        "paths",
        figure,
        f"The first {len(shown)} runs of $Y_t$, the mean over clients, started at zero. The band is the exact mean "
        f"plus and minus two exact standard deviations; it holds {share:.1f} % of the iterates of "
        f"{len(part.simulated.paths)} runs, where a normal law would give 95.4 %.",
        "Two line charts, one for each coordinate: simulated runs move from zero to the optimum inside a shaded band.",
    )


@styled
def averages(result: DemoResult) -> Drawing:
    """sqrt(n) (Ybar_n - theta*) in the plane, a panel for each start, with 95 % ellipses and what they hold."""
    starts = {"started at the optimum": result.from_optimum, "started at zero": result.from_zero}
    exact, finite, limit = result.percentages(result.from_optimum)
    finite_from_zero = result.percentages(result.from_zero)[1]
    figure = titled_figure(f"The 95 % ellipse of $\\Sigma/K$ holds {limit:.0f} % of runs from the optimum", 3.75)
    columns = figure.subplots(1, len(starts), sharex=True, sharey=True)
    for axes, (name, part) in zip(columns, starts.items(), strict=True):
        axes.axhline(0, color=LIGHT["faint"], lw=0.7, zorder=0)
        axes.axvline(0, color=LIGHT["faint"], lw=0.7, zorder=0)
        points = result.scaled(part)
        axes.scatter(*points[:_POINTS].T, s=3.0, color=LIGHT["simulated"], alpha=0.4, lw=0)
        for ellipse in result.ellipses(part):
            label = f"{ellipse.label}: holds {100 * ellipse.share(points):.0f} %"
            axes.plot(*ellipse.outline.T, color=LIGHT[ellipse.role], ls=ellipse.line, lw=1.5, label=label)
        axes.set_title(name, fontsize=10.5, color=LIGHT["muted"])
        axes.set(xlabel="coordinate 1", aspect="equal")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.23), handlelength=2.2, labelspacing=0.35)
        few_ticks(axes.xaxis)
        few_ticks(axes.yaxis)
    columns[0].set_ylabel(r"coordinate 2 of $\sqrt{n}\,(\bar{Y}_n - \theta^*)$")
    return Drawing(
        "averages",
        figure,
        f"Each point is {SCALED} of one run at $n$ = {result.setup.n_steps}, with the 95 % ellipses of three normal "
        f"laws. Of the runs from the optimum they hold {exact:.1f} % (exact), {finite:.1f} % ($Σ_n$) and "
        f"{limit:.1f} % ($Σ/K$): how the average is scaled still matters at this $n$. From zero, the same data leave "
        f"a biased average, and the ellipse of $Σ_n$ about $θ^*$ holds {finite_from_zero:.1f} %.",
        "Two scatter plots with ellipses; in the right one the cloud lies off centre.",
    )


@styled
def variance(result: DemoResult) -> Drawing:
    """Variance over theory against n: simulated with +- 2 Monte Carlo errors, exact as a line; 1 is agreement."""
    n = result.setup.n_steps
    theories = {"finite": (r"\Sigma_n", result.sigma_n), "limit": (r"\Sigma/K", result.limit_n)}
    finite, limit = (result.ratios(theory)[-1].simulated for _, theory in theories.values())
    title = f"At $n={n}$ the variance is {finite:.2f} of $\\Sigma_n$ and {limit:.2f} of $\\Sigma/K$"
    figure, axes = titled_axes(title, 3.0)
    axes.axhline(1.0, color=LIGHT["ink"], lw=0.8, ls=_DASHED)
    for role, (symbol, theory) in theories.items():
        colour, points = LIGHT[role], result.ratios(theory)
        exact = [mean_ratio(cov, theory[m]) for m, cov in result.exact_n.items()]
        axes.plot(list(result.exact_n), exact, color=colour, lw=1.4)
        axes.errorbar(
            result.setup.checkpoints,
            [point.simulated for point in points],
            [2 * point.error for point in points],
            fmt="o", ms=4, color=colour, elinewidth=1.0, capsize=2.5,
        )  # fmt: skip
        end = (n, exact[-1])
        axes.annotate(f"over ${symbol}$", end, xytext=(9, 0), textcoords="offset points", va="center", color=colour)
    variance_of = r"variance of $\sqrt{n}\,(\bar{Y}_n - \theta^*)$"
    axes.set(xlabel="steps $n$", ylabel=f"{variance_of} / theory", xlim=(0, n * 1.02))
    axes.margins(y=0.12)
    few_ticks(axes.yaxis)
    averaged = mean_ratio(result.averaged, result.sigma_n[n])
    return Drawing(
        "variance",
        figure,
        f"The variance of {SCALED} from the optimum over what $Σ_n$ and $Σ/K$ say, averaged over directions. Points: "
        "simulated, with two Monte Carlo errors to either side; lines: exact. $Σ_n$ counts the gradient noise at "
        "$θ^*$, but between mixings clients sit nearer their own optima, where their gradients are less noisy. Had "
        f"all clients averaged with each other after every step, the exact ratio to $Σ_n$ would be {averaged:.2f}.",
        "Two curves of variance ratios against n with simulated points on them, and a dashed line at one.",
    )


@styled
def disagreement(result: DemoResult) -> Drawing:
    """The root mean square of |Theta_t (I - J)|_F against t: simulated points, and the exact line under them."""
    part, setup = result.from_optimum, result.setup
    first, last = (100 * share for share in result.removed_by_mixing())
    title = f"Mixing removes {first:.0f} % of the disagreement at first, {last:.0f} % at the end"
    figure, axes = titled_axes(title, 2.9)
    t = np.arange(1, setup.n_steps + 1)
    simulated = np.sqrt(part.simulated.square_disagreement)
    axes.plot(t, np.sqrt(part.exact.disagreement), color=LIGHT["exact"], lw=1.2, label="exact")
    axes.plot(t[::4], simulated[::4], ".", ms=3.2, color=LIGHT["ink"], label="simulated, every fourth step")
    axes.legend(loc="upper right")
    axes.set(xlabel=f"step $t$; clients mix at multiples of {setup.sync_every}", xlim=(0, setup.n_steps))
    axes.set_ylabel(r"$|\Theta_t(I-J)|_F$, root mean square")
    axes.set_ylim(bottom=0.0)
    return Drawing(
        "disagreement",
        figure,
        "How far clients are from their mean when they start together at the optimum. They drift towards their own "
        f"optima for {setup.sync_every} steps, then average with their neighbours. Early mixings remove what differs "
        "between neighbours; what is left varies slowly round the ring, and of that a mixing keeps up to "
        f"{100 * setup.network.second_eigenvalue:.0f} %.",
        "A saw-tooth curve that falls as step sizes shrink, with simulated points on it.",
    )


DRAWINGS: tuple[Callable[[DemoResult], Drawing], ...] = (network, paths, averages, variance, disagreement)
