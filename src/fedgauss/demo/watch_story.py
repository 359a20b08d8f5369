"""The watched attack on the page."""

from __future__ import annotations

from collections.abc import Callable

from fedgauss.demo import watch_words
from fedgauss.demo.setup import PROBLEM_SEED, Setup
from fedgauss.demo.watching import Watched
from fedgauss.report.page import Page


def watched_chapter(page: Page, watched: Watched, setup: Setup, show_picture: Callable[[], None]) -> None:
    """The attack, the alarm and the onset with their picture, the clients, and how all runs fared."""
    attack, alarm, tau = watched.attack, watched.alarm, setup.sync_every
    page.section(watch_words.TITLE, "watched")
    page.paragraph(f"{watch_words.what_was_run(attack, tau)} Clients are numbered as in the picture of the ring.")
    head, well = watch_words.judged(alarm, attack)
    page.verdict(head, "finite" if well else "limit", watch_words.last_word(watched.verdicts))
    page.paragraph(watch_words.beside_truth(alarm, attack, tau))
    show_picture()
    if watched.suspects is not None:
        found, guilty = watched.suspects, watched.attackers
        page.paragraph(f"{watch_words.who(found, guilty)} This rests on {watch_words.basis(found)}")
        rows = [watch_words.client_row(row, guilty, attack.noise_sd) for row in found.table]
        page.table(
            watch_words.HEADER,
            [[cell.replace("-", "−") for cell in row] for row in rows],
            "Clients, the most suspect first, with the smallest false-discovery rate $q$ at which each is named",
        )
    elif watched.unnamed:
        page.paragraph(f"Nobody could be named: {watched.unnamed}")
    page.paragraph(
        f"{watch_words.over_runs(watched.repeats, watched.verdicts[0].alpha)} "
        f"{watch_words.clients_over_runs(watched.repeats, attack)}"
    )


def watch_program(watched: Watched, setup: Setup) -> str:
    """The chapter as a program."""
    attack, k, tau = watched.attack, setup.network.n_clients, setup.sync_every
    noise = ", ".join(f"{value:g}" for value in attack.honest.noise_var)
    return (
        "import fedgauss as fg\n\n"
        f"honest = fg.problems.random_effects(n_clients={k}, seed={PROBLEM_SEED},\n"
        f"                                    noise_var=[{noise}])\n"
        f"attacked = fg.problems.mean_shift(honest, {list(attack.attackers)}, {attack.shift:g}, "
        f"start={attack.begins})\n"
        f"lin, network = fg.linearize(honest), fg.networks.{setup.network.name}({k})\n"
        f"steps = fg.step_sizes.polynomial({setup.steps.eta0:g}, beta={setup.steps.beta:g})\n"
        f"seen = [fg.observers.uploads({tau}), fg.observers.path({tau})]\n"
        f"run = fg.simulate(attacked, network, steps, n_steps={attack.n_steps}, sync_every={tau},\n"
        f"                  seed={setup.seed}, start=lin.optimum, observe=seen)\n\n"
        f"monitor = fg.Monitor(lin, steps, sync_every={tau}, horizon={attack.n_steps}, start=lin.optimum)\n"
        "alarm = None\n"
        "for y, began, sent in zip(run.path[0], run.began[0], run.sent[0]):\n"
        "    verdict = monitor.update(y, clients=sent, began=began)\n"
        "    if verdict.alarm and alarm is None:\n"
        "        alarm = verdict\n"
        "        print(alarm)\n"
        f"    if alarm and verdict.step == alarm.step + {attack.wait}:\n"
        "        print(monitor.suspects())  # clients counted from 0\n"
    )
