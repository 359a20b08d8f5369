"""The watched attack in a terminal: the alarm, the onset, the clients, each beside the truth."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedgauss.demo import watch_words
from fedgauss.demo.setup import Setup
from fedgauss.demo.watching import Watched


def print_watched(watched: Watched, setup: Setup, console: Console) -> None:
    """What was set up, what the monitor said, and how it fares in general."""
    attack, alarm = watched.attack, watched.alarm
    console.print(Text(watch_words.TITLE, style="bold"))
    console.print(Text(watch_words.what_was_run(attack, setup.sync_every)))
    console.print()
    console.print(Text(watch_words.last_word(watched.verdicts)))
    head, well = watch_words.judged(alarm, attack)
    console.print(Text(head, style="bold green" if well else "bold red"))
    console.print(Text(watch_words.beside_truth(alarm, attack, setup.sync_every)))
    console.print()
    if watched.suspects is not None:
        console.print(clients_table(watched))
        console.print(Text(watch_words.who(watched.suspects, watched.attackers)))
        console.print(Text(f"This rests on {watch_words.basis(watched.suspects)}"))
        console.print()
    elif watched.unnamed:
        console.print(Text(f"Nobody could be named: {watched.unnamed}"))
        console.print()
    console.print(Text(watch_words.over_runs(watched.repeats, watched.verdicts[0].alpha)))
    console.print(Text(watch_words.clients_over_runs(watched.repeats, attack)))


def clients_table(watched: Watched) -> Table:
    """Clients, the most suspect first; mistakes stand out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in watch_words.HEADER[:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(watch_words.HEADER[-1], no_wrap=True)
    for suspect in watched.suspects.table if watched.suspects else ():
        row = watch_words.client_row(suspect, watched.attackers, watched.attack.noise_sd)
        mistaken = suspect.malicious != (suspect.client in watched.attackers)
        table.add_row(*row, style="red" if mistaken else "bold" if suspect.malicious else "")
    return table
