"""The page of the demonstration: what was run, what theory says, what was seen, whether they agree; an attack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from fedgauss import __version__
from fedgauss._progress import Tick
from fedgauss.demo import watch_words
from fedgauss.demo.drawings import DRAWINGS, SCALED
from fedgauss.demo.run import DemoResult
from fedgauss.demo.setup import PROBLEM_SEED
from fedgauss.demo.watch_story import watch_program, watched_chapter
from fedgauss.report import images
from fedgauss.report.comparison import Comparison
from fedgauss.report.drawing import Drawing
from fedgauss.report.output import write_whole
from fedgauss.report.page import Page


def write_demo(result: DemoResult, folder: Path, tick: Tick = lambda what, done, total: None) -> Path:
    """Draw every figure, write each as PNG and SVG and then the page, and say where the page is."""
    files: dict[str, bytes] = {}
    drawings: dict[str, Drawing] = {}
    for done, draw in enumerate(DRAWINGS):
        tick("drawing", done, len(DRAWINGS))
        drawing = draw(result)
        drawings[drawing.name] = drawing
        files[f"{drawing.name}.png"] = images.png(drawing.figure)
        files[f"{drawing.name}.svg"] = images.svg(drawing.figure)
    embedded = {name: images.themed_svg(files[f"{name}.svg"]) for name in drawings}
    files["index.html"] = demo_page(result, drawings, embedded).html().encode()
    for name, content in files.items():
        write_whole(folder / name, content)
    tick("drawing", len(DRAWINGS), len(DRAWINGS))
    return folder / "index.html"


def demo_page(result: DemoResult, drawings: Mapping[str, Drawing], embedded: Mapping[str, bytes]) -> Page:
    """The story, with `embedded` images by name."""

    def show(name: str) -> None:
        drawing = drawings[name]
        page.figure(embedded[name], drawing.caption, drawing.alt, small=drawing.small)

    setup = result.setup
    page = Page(
        "Local SGD on a ring, beside its theory",
        f"{setup.replicates:,} simulated runs of {setup.network.n_clients} clients from each of two starts. "
        f"{result.verdict} Then half of the clients turn malicious under the eyes of a monitor. "
        f"{watch_words.judged(result.watched.alarm, result.watched.attack)[0]}",
    )
    _what_was_run(page, result)
    show("network")
    _what_theory_says(page)
    page.section("What was seen")
    for name in ("paths", "averages", "variance", "disagreement"):
        show(name)
    page.section("Do they agree?")
    page.paragraph(
        f"{result.verdict} The Gaussian approximation of the paper stands in a column of its own: it is not meant to "
        "be exact at a finite $n$, and the figures show by how much it is off."
    )
    page.paragraph(
        f"For the average, {SCALED}, that approximation is the bias $D_1$ left by the start for means and $Σ_n$ for "
        "variances; for the last iterate, $n^{β/2} (Y_n − θ^*)$, it is the covariance of Theorem 2.2. Disagreement "
        "is $|Θ_t (I − J)|^2$ at the last mixing. Numbers in brackets are Monte-Carlo standard errors; "
        "the last column counts how many of them lie between simulated and exact, on a logarithmic scale for "
        "variances and disagreement."
    )
    for title, part in (("Started at the optimum", result.from_optimum), ("Started at zero", result.from_zero)):
        page.table(_HEADER, [_row(c) for c in part.comparisons], title)
    page.section("What the theorems advise here")
    page.items(str(result.advice).splitlines())
    watched_chapter(page, result.watched, setup, partial(show, "watched"))
    page.section("Run it yourself")
    page.code(_program(result))
    page.paragraph("And the attack, with its monitor:")
    page.code(watch_program(result.watched, setup))
    page.footer(
        f"fedgauss {__version__}, {setup.replicates:,} replicates a start, seed {setup.seed}. Both starts see the "
        "same data."
    )
    return page


def _what_was_run(page: Page, result: DemoResult) -> None:
    setup = result.setup
    tau = setup.sync_every
    page.section("What was run")
    page.paragraph(
        f"A group of {setup.network.n_clients} clients fits one linear regression without sharing data. Client $k$ "
        "sees $x$ ~ $N(0, I)$ and $y = x′β_k$ + noise, with coefficients $β_k$ and a noise variance of its own. Every "
        f"client takes stochastic gradient steps by itself and, after every {tau}th step, averages its parameters "
        "with those of its neighbours. This is Algorithm 1 of the paper, one recursion:"
    )
    page.equation("$Θ_t = (Θ_{t−1} − η_t G_t) C_t$")
    page.paragraph(
        "Column $k$ of $Θ_t$ is client $k$, and column $k$ of $G_t$ its stochastic gradient. $C_t$ is the mixing "
        f"matrix of the ring when $t$ is a multiple of {tau}, and the identity otherwise. $Y_t$ is the mean over "
        r"clients, $\bar{Y}_n$ the average of $Y_1, …, Y_n$, and $θ^*$ the minimiser of the clients’ mean risk, here "
        "the mean of their $β_k$."
    )
    page.facts(
        [
            ("steps $n$", str(setup.n_steps)),
            ("mixing every", f"{tau} steps"),
            ("step sizes $η_t$", f"{setup.steps.eta0:g} $t^{{−{setup.steps.beta:g}}}$"),
            ("coefficients $β_k$", "drawn from $N((2, −3), I)$"),
            ("optimum $θ^*$", "({})".format(", ".join(f"{x:.3f}" for x in result.optimum)).replace("-", "−")),
            ("starts", "optimum; zero"),
            ("replicates a start", f"{setup.replicates:,}"),
            ("seed", str(setup.seed)),
        ]
    )


def _what_theory_says(page: Page) -> None:
    page.section("What theory says")
    page.paragraph(
        f"Theorem 2.1 compares {SCALED} with a normal law of mean zero whose covariance keeps the step sizes actually "
        "used; by Theorem 2.3 it tends to the familiar sandwich as $n$ grows:"
    )
    page.equation("$Σ_n = n^{−1} ∑_s Q_s V Q_s′$  →  $Σ/K = A^{−1} V A^{−1}$")
    page.paragraph(
        "$A$ is the Hessian of the mean risk, $V$ the covariance of the mean gradient at $θ^*$, and $Q_s$ what one "
        "unit of gradient noise at step $s$ adds to the sum $Y_1 + … + Y_n$. Both are approximations. In a linear "
        "model with Gaussian covariates the mean and covariance of all clients also follow a closed recursion, with "
        "no approximation at any $n$. That recursion is what “exact” means on this page."
    )


_HEADER = ("quantity", "simulated", "exact", "Gaussian", "difference / error")


def _row(c: Comparison) -> Sequence[str]:
    gaussian = "" if c.approximation is None else _number(c.approximation)
    return (c.name, f"{_number(c.simulated)} ({c.error:.3f})", _number(c.exact), gaussian, _signed(c.z))


def _number(value: float) -> str:
    return f"{value + 0.0:.3f}".replace("-0.000", "0.000").replace("-", "−")


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def _program(result: DemoResult) -> str:
    s = result.setup
    k = s.network.n_clients
    return (
        "import fedgauss as fg\n"
        "from fedgauss.theory.covariances import average_covariance\n"
        "from fedgauss.theory.exact import exact_moments\n\n"
        f"problem = fg.problems.random_effects(n_clients={k}, seed={PROBLEM_SEED})\n"
        f"network = fg.networks.{s.network.name}({k})\n"
        f"steps = fg.step_sizes.polynomial({s.steps.eta0:g}, beta={s.steps.beta:g})\n\n"
        f"runs = fg.simulate(problem, network, steps, n_steps={s.n_steps}, sync_every={s.sync_every},\n"
        f'                   replicates={s.replicates}, seed={s.seed}, start="optimum")\n'
        "print(runs)\n"
        f"print(exact_moments(problem, network, steps, {s.n_steps}, {s.sync_every}, fg.linearize(problem).optimum))\n"
        f"print(average_covariance(fg.linearize(problem), steps, {s.n_steps}))\n"
    )
