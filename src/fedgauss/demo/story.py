"""The demonstration as a page: a network that heals, then theory beside simulation."""

from collections.abc import Callable
from pathlib import Path

from fedgauss import __version__
from fedgauss._files import write_whole
from fedgauss._progress import Tick
from fedgauss.demo import told
from fedgauss.demo.comparison import Comparison
from fedgauss.demo.figures import DRAWINGS, SCALED
from fedgauss.demo.healing import ROUNDS, Healing
from fedgauss.demo.healing_figure import healed
from fedgauss.demo.run import DemoResult
from fedgauss.demo.setup import PROBLEM_SEED, DemoSetup
from fedgauss.report.output import Drawing, save
from fedgauss.report.page import Page
from fedgauss.report.text import number, sentence, signed, with_error

_COMPARISON_HEADER = ("quantity", "simulated", "exact", "Gaussian", "difference / error")
_HEALING_PROGRAM = """\
import fedgauss as fg

monitor = fg.ClientMonitor(horizon=60)
kept = [network]  # the model after each round, the start first
for number in range(1, 61):
    sent = kept[-1]
    moves = {name: client.train(sent) - sent for name, client in clients.items()}
    verdict = monitor.update(moves)
    if verdict.alarm:
        print(verdict)
        kept.append(kept[verdict.rollback])
        for name in verdict.suspects:
            del clients[name]
        monitor.exclude()
    else:
        kept.append(sent + sum(moves.values()) / len(moves))
"""


def write_demo(
    healing: Healing,
    result: DemoResult,
    folder: Path,
    tick: Tick = lambda what, done, total: None,
    paper: Path | None = None,
) -> Path:
    """Write every figure as PNG and SVG, and then the page.

    Parameters
    ----------
    healing : Healing
        What `heal` found.
    result : DemoResult
        What `run_demo` found.
    folder : Path
        Where the files go.
    tick : callable
        Called as tick(what, done, total) to report progress.
    paper : Path, optional
        A page below the folder with the paper's results, to be linked.

    Returns
    -------
    Path
        The page.
    """
    drawn: dict[str, tuple[Drawing, bytes]] = {}
    drawings = [lambda: healed(healing), *(lambda draw=draw: draw(result) for draw in DRAWINGS)]
    for done, draw in enumerate(drawings):
        tick("drawing", done, len(drawings))
        drawing = draw()
        drawn[drawing.name] = drawing, save(drawing, folder)

    def show(page: Page, name: str) -> None:
        drawing, image = drawn[name]
        page.figure(image, drawing.caption, drawing.alt, small=drawing.small)

    page = Page("A run that heals, and a theory that holds", told.turning())
    _add_healing(page, healing, show)
    _add_theory(page, result, show)
    page.section("What else is here")
    pictures = [(f"{name}.{kind}", f"{name}.{kind}") for name in drawn for kind in ("png", "svg")]
    report = [(paper.relative_to(folder).as_posix(), "The paper’s results, computed again in short")] if paper else []
    page.links([*report, *pictures])
    page.footer(
        f"fedgauss {__version__}, {result.setup.replicates:,} replicates from each start, seed {result.setup.seed}. "
        "Both starts see the same data."
    )
    write_whole(folder / "index.html", page.html().encode(), public=True)
    tick("drawing", len(drawings), len(drawings))
    return folder / "index.html"


def _add_healing(page: Page, healing: Healing, show: Callable[[Page, str], None]) -> None:
    """The picture first, then what was said."""
    show(page, "healed")
    for alarm in healing.protected.alarms:
        page.verdict(f"Round {alarm.round}", "finite", sentence(str(alarm)))
    page.paragraph(f"{told.names(healing)} {told.ending(healing)} {told.honest(healing)}")
    page.paragraph(
        "Nothing is known of the loss, the optimiser or the attack: the monitor sees what each client changed, round "
        f"by round, and compares it with the others and with the client’s own past. That any of {ROUNDS} honest rounds "
        f"ends in an alarm has a chance of {healing.honest.verdicts[0].alpha:g}. The loop:"
    )
    page.code(_HEALING_PROGRAM)
    page.paragraph('In Flower it is one line: Monitored(strategy, Clients(), on_alarm="exclude").')


def _add_theory(page: Page, result: DemoResult, show: Callable[[Page, str], None]) -> None:
    """Simulation beside exact and Gaussian theory."""
    setup, tau = result.setup, result.setup.sync_every
    page.section("Theory beside simulation")
    page.paragraph(
        f"Where a model is simple enough, everything can be computed. {setup.replicates:,} simulated runs of "
        f"{setup.network.n_clients} clients from each of two starts, beside theory. {result.check}"
    )
    page.subsection("What was run")
    page.paragraph(
        f"A group of {setup.network.n_clients} clients fits one linear regression without sharing data. Client $k$ "
        "sees $x$ ~ $N(0, I)$ and $y = x′β_k$ + noise, with its own coefficients $β_k$ and noise variance. Every "
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
            ("optimum $θ^*$", f"({', '.join(number(x) for x in result.optimum)})"),
            ("starts", "optimum; zero"),
            ("replicates from each start", f"{setup.replicates:,}"),
            ("seed", str(setup.seed)),
        ]
    )
    show(page, "network")
    page.subsection("What theory says")
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
    page.subsection("What was observed")
    for name in ("paths", "averages", "variance", "disagreement"):
        show(page, name)
    page.subsection("Do they agree?")
    page.paragraph(
        f"{result.check} The Gaussian approximation of the paper has its own column: it is not meant to be exact "
        "at a finite $n$, and the figures show how far off it is."
    )
    page.paragraph(
        f"For the average, {SCALED}, that approximation is the bias $D_1$ left by the start for means and $Σ_n$ for "
        "variances; for the last iterate, $n^{β/2} (Y_n − θ^*)$, it is the covariance of Theorem 2.2. Disagreement "
        "is $|Θ_t (I − J)|^2$ at the last mixing. Numbers in brackets are Monte Carlo standard errors; "
        "the last column is the difference between simulated and exact in standard errors, on a logarithmic scale for "
        "variances and disagreement."
    )
    for title, part in (("Started at the optimum", result.from_optimum), ("Started at zero", result.from_zero)):
        page.table(_COMPARISON_HEADER, [comparison_row(c) for c in part.comparisons], title)
    page.subsection("What the theorems advise here")
    page.items(str(result.advice).splitlines())
    page.subsection("Run it yourself")
    page.code(_comparison_program(setup))


def comparison_row(c: Comparison) -> tuple[str, ...]:
    """A row of the table of comparisons."""
    gaussian = "" if c.approximation is None else number(c.approximation)
    return c.name, with_error(c.simulated, c.error), number(c.exact), gaussian, signed(c.z, 1)


def _comparison_program(s: DemoSetup) -> str:
    k = s.network.n_clients
    return f"""\
import fedgauss as fg
from fedgauss.theory.covariances import average_covariance
from fedgauss.theory.exact import exact_moments

problem = fg.problems.random_effects(n_clients={k}, seed={PROBLEM_SEED})
network = fg.networks.{s.network.name}({k})
steps = fg.step_sizes.polynomial({s.steps.eta0:g}, beta={s.steps.beta:g})

runs = fg.simulate(problem, network, steps, n_steps={s.n_steps}, sync_every={s.sync_every},
                   replicates={s.replicates}, seed={s.seed}, start="optimum")
print(runs)
print(exact_moments(problem, network, steps, {s.n_steps}, {s.sync_every}, fg.linearize(problem).optimum))
print(average_covariance(fg.linearize(problem), steps, {s.n_steps}))
"""
