"""The demonstration in a terminal: one table and what it means, then the attack."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedgauss.demo import story
from fedgauss.demo.run import DemoResult
from fedgauss.demo.setup import DemoSetup
from fedgauss.demo.watch import WatchedAttack


def print_demo(result: DemoResult, console: Console) -> None:
    """Print the comparison with theory, whether they agree, the advice, and the monitored attack."""
    console.print(_comparison_table(result))
    console.print(Text(_reading(result)), end="\n\n")
    check = result.check
    console.print(Text(str(check), style="bold green" if check.agrees else "bold red"), end="\n\n")
    console.print(Text(f"What the theorems advise here:\n{result.advice}"), end="\n\n")
    print_watched(result.watched, result.setup, console)


def print_watched(watched: WatchedAttack, setup: DemoSetup, console: Console) -> None:
    """Print the attack, what the monitor said of it, and how monitors fare in general."""
    attack, alarm = watched.attack, watched.alarm
    console.print(Text(story.WATCHED_TITLE, style="bold"))
    console.print(Text(story.what_is_watched(attack, setup.sync_every)), end="\n\n")
    console.print(Text(story.last_word(watched.verdicts)))
    head, well = story.outcome(alarm, attack)
    console.print(Text(head, style="bold green" if well else "bold red"))
    console.print(Text(story.beside_truth(alarm, attack, setup.sync_every)), end="\n\n")
    if watched.suspects is not None:
        console.print(_clients_table(watched))
        console.print(Text(story.named_clients(watched.suspects, watched.attackers)))
        console.print(Text(story.basis(watched.suspects)), end="\n\n")
    elif watched.unnamed:
        console.print(Text(f"Nobody could be named: {watched.unnamed}"), end="\n\n")
    console.print(Text(story.over_runs(watched.repeats, watched.verdicts[0].alpha)))
    console.print(Text(story.clients_over_runs(watched.repeats, attack)))


def _comparison_table(result: DemoResult) -> Table:
    """A section for each start."""
    s = result.setup
    table = _table(
        f"{s.network.n_clients} clients on a {s.network.name}, {s.n_steps} steps, mixing every {s.sync_every}, "
        f"{s.steps}\n{s.replicates} runs from each of two starts"
    )
    table.add_column("quantity", no_wrap=True)
    for name in ("simulated (error)", "exact", "Gaussian", "diff/error"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, part in (("from the optimum", result.from_optimum), ("from zero", result.from_zero)):
        table.add_row(Text(name, style="italic"))
        for comparison in part.comparisons:
            quantity, *numbers = story.comparison_row(comparison)
            table.add_row(f"  {quantity}", *(cell.replace("−", "-") for cell in numbers))  # not all terminals have −
        table.add_section()
    return table


def _clients_table(watched: WatchedAttack) -> Table:
    """Clients, the most suspect first; mistakes stand out."""
    table = _table()
    for name in story.CLIENT_HEADER:
        table.add_column(name, justify="left" if name == "in truth" else "right", no_wrap=True)
    for suspect in watched.suspects.table if watched.suspects else ():
        row = story.client_row(suspect, watched.attackers, watched.attack.noise_sd)
        mistaken = suspect.malicious != (suspect.client in watched.attackers)
        table.add_row(*row, style="red" if mistaken else "bold" if suspect.malicious else "")
    return table


def _table(title: str | None = None) -> Table:
    shape = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title_justify="left", title_style="bold")
    shape.title = title
    return shape


def _reading(result: DemoResult) -> str:
    """What the rows of the table are, and what to read from them."""
    exact, finite, limit = result.percentages(result.from_optimum)
    to_finite, to_limit = (result.ratios(theory)[-1] for theory in (result.sigma_n, result.limit_n))
    return (
        "average: sqrt(n) (Ybar_n - theta*), compared with its start bias D_1 and Sigma_n\n"
        "last iterate: n^(beta/2) (Y_n - theta*), compared with tilde Sigma_n\n"
        "disagreement: |Theta_t (I - J)|_F^2 at the last mixing\n"
        "diff/error: (simulated - exact) / error, on a log scale for variances and disagreement\n\n"
        f"From the optimum, n = {result.setup.n_steps}: variance {to_finite.simulated:.2f} ({to_finite.error:.2f}) of "
        f"Sigma_n and {to_limit.simulated:.2f} ({to_limit.error:.2f}) of Sigma/K. "
        f"95 % ellipses hold {exact:.1f} % (exact), {finite:.1f} % (Sigma_n), {limit:.1f} % (Sigma/K) of the runs."
    )
