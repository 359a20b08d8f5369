"""The demonstration in a terminal: the story of the run that healed, then theory beside simulation, in few lines."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedgauss.demo import story, told
from fedgauss.demo.healing import Healing
from fedgauss.demo.run import DemoResult
from fedgauss.report.text import sentence, terminal_table

# What the table shows of all comparisons; the page has the rest.
_SHOWN = ("average: mean 1", "average: variance 1", "last iterate: variance 1", "disagreement after mixing")


def print_demo(healing: Healing, result: DemoResult, console: Console) -> None:
    """Print both chapters."""
    _print_healing(healing, console)
    console.print(_comparison_table(result))
    check = result.check
    console.print(Text(str(check), style="bold green" if check.agrees else "bold red"), end="\n\n")


def _print_healing(healing: Healing, console: Console) -> None:
    """What was staged, what the monitor said, and what became of the network."""
    console.print(Text(told.turning()), end="\n\n")
    for alarm in healing.protected.alarms:
        console.print(Text(sentence(str(alarm)), style="bold"))
    console.print(Text(told.names(healing)), end="\n\n")
    console.print(Text(told.ending(healing)))
    console.print(Text(told.honest(healing)), end="\n\n")


def _comparison_table(result: DemoResult) -> Table:
    """A section for each start."""
    s = result.setup
    table = terminal_table(
        f"Theory beside simulation: {s.network.n_clients} clients on a {s.network.name}, {s.n_steps} steps, mixing "
        f"every {s.sync_every}, {s.replicates} runs"
    )
    table.add_column("quantity", no_wrap=True)
    for name in ("simulated (error)", "exact", "Gaussian", "diff/error"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, part in (("from the optimum", result.from_optimum), ("from zero", result.from_zero)):
        table.add_row(Text(name, style="italic"))
        for comparison in part.comparisons:
            if comparison.name in _SHOWN:
                quantity, *numbers = story.comparison_row(comparison)
                table.add_row(
                    f"  {quantity}", *(cell.replace("−", "-") for cell in numbers)
                )  # not all terminals have −
    return table
