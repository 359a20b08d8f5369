"""The demonstration told: the sentences that page and terminal share, and the page.

Clients are numbered from 1 here, as in the picture of the network; the library counts from 0.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

from fedgauss import __version__
from fedgauss._files import write_whole
from fedgauss._progress import Tick
from fedgauss._types import FloatArray
from fedgauss.demo.comparison import Comparison
from fedgauss.demo.figures import DRAWINGS, SCALED
from fedgauss.demo.run import DemoResult
from fedgauss.demo.setup import PROBLEM_SEED, DemoSetup, StagedAttack
from fedgauss.demo.watch import Repeats, WatchedAttack
from fedgauss.detect.attribution import Attribution, Suspect
from fedgauss.detect.verdict import Verdict
from fedgauss.report.output import save
from fedgauss.report.page import Page
from fedgauss.report.text import listed, number, sentence, signed, with_error

WATCHED_TITLE = "Watched: five of ten clients turn malicious"
CLIENT_HEADER = ("client", "noise sd", "statistic", "q", "in truth")
_COMPARISON_HEADER = ("quantity", "simulated", "exact", "Gaussian", "difference / error")


def write_demo(result: DemoResult, folder: Path, tick: Tick = lambda what, done, total: None) -> Path:
    """Write every figure as PNG and SVG, and then the page.

    Parameters
    ----------
    result : DemoResult
        What `run_demo` found.
    folder : Path
        Where the files go.
    tick : callable
        Called as tick(what, done, total) to report progress.

    Returns
    -------
    Path
        The page.
    """
    drawn = {}
    for done, draw in enumerate(DRAWINGS):
        tick("drawing", done, len(DRAWINGS))
        drawing = draw(result)
        drawn[drawing.name] = drawing, save(drawing, folder)

    def show(page: Page, name: str) -> None:
        drawing, image = drawn[name]
        page.figure(image, drawing.caption, drawing.alt, small=drawing.small)

    write_whole(folder / "index.html", demo_page(result, show).html().encode())
    tick("drawing", len(DRAWINGS), len(DRAWINGS))
    return folder / "index.html"


def demo_page(result: DemoResult, show: Callable[[Page, str], None]) -> Page:
    """The page; `show(page, name)` adds a figure to it."""
    setup, tau = result.setup, result.setup.sync_every
    page = Page(
        "Local SGD on a ring, compared with its theory",
        f"{setup.replicates:,} simulated runs of {setup.network.n_clients} clients from each of two starts. "
        f"{result.check} Then half of the clients turn malicious while a monitor watches. "
        f"{outcome(result.watched.alarm, result.watched.attack)[0]}",
    )
    page.section("What was run")
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
    page.section("What was observed")
    for name in ("paths", "averages", "variance", "disagreement"):
        show(page, name)
    page.section("Do they agree?")
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
    page.section("What the theorems advise here")
    page.items(str(result.advice).splitlines())
    add_watched(page, result.watched, setup, partial(show, page, "watched"))
    page.section("Run it yourself")
    page.code(_comparison_program(setup))
    page.paragraph("And the attack, with its monitor:")
    page.code(_watch_program(result.watched.attack, setup))
    page.footer(
        f"fedgauss {__version__}, {setup.replicates:,} replicates from each start, seed {setup.seed}. Both starts see "
        "the same data."
    )
    return page


def comparison_row(c: Comparison) -> tuple[str, ...]:
    """A row of the table of comparisons."""
    gaussian = "" if c.approximation is None else number(c.approximation)
    return c.name, with_error(c.simulated, c.error), number(c.exact), gaussian, signed(c.z, 1)


def add_watched(page: Page, watched: WatchedAttack, setup: DemoSetup, show_picture: Callable[[], None]) -> None:
    """Add the attack, the alarm and the onset with their picture, the clients, and how all runs fared."""
    attack, alarm, tau = watched.attack, watched.alarm, setup.sync_every
    page.section(WATCHED_TITLE, "watched")
    page.paragraph(f"{what_is_watched(attack, tau)} Clients are numbered as in the picture of the ring.")
    head, well = outcome(alarm, attack)
    page.verdict(head, "finite" if well else "limit", last_word(watched.verdicts))
    page.paragraph(beside_truth(alarm, attack, tau))
    show_picture()
    if watched.suspects is not None:
        page.paragraph(f"{named_clients(watched.suspects, watched.attackers)} {basis(watched.suspects)}")
        rows = [client_row(row, watched.attackers, attack.noise_sd) for row in watched.suspects.table]
        page.table(
            CLIENT_HEADER,
            [[cell.replace("-", "−") for cell in row] for row in rows],
            "Clients, the most suspect first, with the smallest false-discovery rate $q$ at which each is named",
        )
    elif watched.unnamed:
        page.paragraph(f"Nobody could be named: {watched.unnamed}")
    page.paragraph(
        f"{over_runs(watched.repeats, watched.verdicts[0].alpha)} {clients_over_runs(watched.repeats, attack)}"
    )


def what_is_watched(attack: StagedAttack, sync_every: int) -> str:
    """The setting, and what the monitor is told."""
    sd = attack.noise_sd
    return (
        f"The same clients on the same ring, with noise of standard deviation {sd.min():g} to {sd.max():g}, start at "
        f"the optimum. From step {attack.begins} on, {_clients(attack.attackers)} send updates from data whose "
        f"coefficients are shifted by {attack.shift:g} each. Once per round of {sync_every} steps, a monitor sees what "
        "every client uploads, and their mean. It knows the Hessians and the gradient noise of honest clients, and "
        "nothing of the attack."
    )


def last_word(verdicts: Sequence[Verdict]) -> str:
    """What the monitor said: its first alarm, or its last verdict."""
    return sentence(str(next((verdict for verdict in verdicts if verdict.alarm), verdicts[-1])))


def outcome(alarm: Verdict | None, attack: StagedAttack) -> tuple[str, bool]:
    """What became of the watch in a few words, and whether it went well."""
    if alarm is None:
        return "The attack goes undetected.", False
    if alarm.step < attack.begins:
        return "A false alarm.", False
    return f"The attack is detected after {_steps(alarm.step - attack.begins + 1)}.", True


def beside_truth(alarm: Verdict | None, attack: StagedAttack, sync_every: int) -> str:
    """Alarm, onset and rollback compared with what really happened."""
    if alarm is None or alarm.onset is None or alarm.rollback is None:  # an alarm has both
        return f"The clients turned at step {attack.begins}, and there was no alarm up to step {attack.n_steps}."
    if alarm.step < attack.begins:
        return f"All clients are honest until step {attack.begins}: there was nothing to find."
    back, clean = alarm.rollback, (attack.begins - 1) // sync_every  # `clean` rounds have no malicious step
    off = alarm.onset - attack.begins
    far = f"{_steps(abs(off))} {'early' if off < 0 else 'late'}" if off else "exact"
    where = ", at the beginning of that round" if off and alarm.onset == clean * sync_every + 1 else ""
    onset = f"The clients turned at step {attack.begins}: the estimated onset, {alarm.onset}, is {far}{where}."
    if back == clean:
        return f"{onset} Round {back} is indeed the last without a malicious step."
    if back < clean:
        return f"{onset} Round {back} is safe, but honest work up to round {clean} would be lost with the rest."
    malicious = _steps(back * sync_every - attack.begins + 1, "malicious ")
    return f"{onset} But round {back} already holds {malicious}; the last clean one is {clean}."


def named_clients(found: Attribution, attackers: Collection[int]) -> str:
    """The clients named, compared with those that are malicious by then."""
    named, guilty = set(found.malicious), set(attackers)
    if not named and not guilty:
        return "No client is named, and none is malicious yet."
    if named == guilty:
        return f"Named malicious: {_clients(named)}. These are all the attackers, and nobody else."
    words = [f"Named malicious: {_clients(named)}." if named else "No client is named."]
    if missed := guilty - named:
        words.append(f"Missed: {_clients(missed)}, also malicious.")
    if wrong := named - guilty:
        words.append(f"Wrongly named: {_clients(wrong)}, in truth honest.")
    return " ".join(words)


def basis(found: Attribution) -> str:
    """What the naming of clients rests on."""
    return (
        f"This compares {found.rounds_after} rounds after the alarm with {found.baseline_rounds} before the onset; at "
        f"most a share of {found.rate:g} of the clients named should be honest."
    )


def client_row(row: Suspect, attackers: Collection[int], noise_sd: FloatArray) -> tuple[str, ...]:
    """A row of the table of clients; it ends with what the client is, and whether the monitor saw it."""
    q = "< 0.001" if row.q_value < 0.001 else f"{row.q_value:.3f}"
    if row.client in attackers:
        truth = "malicious, named" if row.malicious else "malicious, missed"
    else:
        truth = "honest, wrongly named" if row.malicious else "honest"
    return str(row.client + 1), f"{noise_sd[row.client]:g}", f"{row.statistic:.2f}", q, truth


def over_runs(repeats: Repeats, alpha: float) -> str:
    """How often runs alarm, with the attack and without."""
    r = repeats
    delay = f" (half of them within {r.delay:.0f} steps)" if r.after else ""
    return (
        f"Of {r.runs} such runs, including the one above, {r.after} alarm after the clients turned{delay}, {r.before} "
        f"before and {r.never} never. Without an attack, {r.honest} of the same runs alarm, where a share of "
        f"{alpha:g}, {alpha * r.runs:.0f} of them, is allowed."
    )


def clients_over_runs(repeats: Repeats, attack: StagedAttack) -> str:
    """Which clients they name."""
    r = repeats
    if not r.asked:
        return f"None of them had {attack.wait} steps left after such an alarm to name clients from."
    return (
        f"Asked {attack.wait} steps after the alarm, in {r.asked} of the attacked runs, the monitor names "
        f"{r.found:.2f} of the {len(attack.attackers)} attackers on average, and {r.accused} times an honest client "
        f"too; on average a share of {r.wrong:.3f} of the names in a run is wrong, where {r.rate:g} is allowed."
    )


def _clients(clients: Collection[int]) -> str:
    return f"client{'s' if len(clients) > 1 else ''} {listed([str(k + 1) for k in sorted(clients)])}"


def _steps(count: int, kind: str = "") -> str:
    return f"{count} {kind}step{'s' if count != 1 else ''}"


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


def _watch_program(attack: StagedAttack, s: DemoSetup) -> str:
    k, tau = s.network.n_clients, s.sync_every
    noise = ", ".join(f"{value:g}" for value in attack.honest.noise_var)
    return f"""\
import fedgauss as fg

honest = fg.problems.random_effects(n_clients={k}, seed={PROBLEM_SEED},
                                    noise_var=[{noise}])
attacked = fg.problems.mean_shift(honest, {list(attack.attackers)}, {attack.shift:g}, start={attack.begins})
lin, network = fg.linearize(honest), fg.networks.{s.network.name}({k})
steps = fg.step_sizes.polynomial({s.steps.eta0:g}, beta={s.steps.beta:g})
seen = [fg.observers.uploads({tau}), fg.observers.path({tau})]
run = fg.simulate(attacked, network, steps, n_steps={attack.n_steps}, sync_every={tau},
                  seed={s.seed}, start=lin.optimum, observe=seen)

monitor = fg.Monitor(lin, steps, sync_every={tau}, horizon={attack.n_steps}, start=lin.optimum)
alarm = None
for y, began, sent in zip(run.path[0], run.began[0], run.sent[0]):
    verdict = monitor.update(y, clients=sent, began=began)
    if verdict.alarm and alarm is None:
        alarm = verdict
        print(alarm)
    if alarm and verdict.step == alarm.step + {attack.wait}:
        print(monitor.suspects())  # clients counted from 0
"""
