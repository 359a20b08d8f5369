"""The demonstration in a terminal: one table and what it means, then the attack."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedgauss.demo import findings
from fedgauss.demo.run import DemoResult
from fedgauss.demo.watch_terminal import print_watched


def print_demo(result: DemoResult, console: Console) -> None:
    """Simulated beside exact beside approximate, the verdict and the advice; then the watched attack."""
    console.print(demo_table(result))
    console.print(Text(_reading(result)))
    console.print()
    console.print(Text(str(result.verdict), style="bold green" if result.verdict.agrees else "bold red"))
    console.print()
    console.print(Text(f"What the theorems advise here:\n{result.advice}"))
    console.print()
    print_watched(result.watched, result.setup, console)


def demo_table(result: DemoResult) -> Table:
    """A section for each start."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        title=_title(result),
        title_justify="left",
        title_style="bold",
    )
    table.add_column("quantity", no_wrap=True)
    for name in ("simulated (error)", "exact", "Gaussian", "diff/error"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, part in (("from the optimum", result.from_optimum), ("from zero", result.from_zero)):
        table.add_row(Text(name, style="italic"))
        for c in part.comparisons:
            table.add_row(
                f"  {c.name}",
                f"{_number(c.simulated)} ({c.error:.3f})",
                _number(c.exact),
                "" if c.approximation is None else _number(c.approximation),
                f"{c.z:+.1f}",
            )
        table.add_section()
    return table


def _title(result: DemoResult) -> str:
    s = result.setup
    return (
        f"{s.network.n_clients} clients on a {s.network.name}, {s.n_steps} steps, "
        f"mixing every {s.sync_every}, {s.steps}\n"
        f"{s.replicates} runs from each of two starts"
    )


def _reading(result: DemoResult) -> str:
    exact, finite, limit = (100 * share for share in findings.coverage(result, result.from_optimum))
    to_finite, to_limit = (findings.ratios(result, to_limit)[-1] for to_limit in (False, True))
    n = result.setup.n_steps
    return (
        "average: sqrt(n) (Ybar_n - theta*), beside its start bias D_1 and Sigma_n\n"
        "last iterate: n^(beta/2) (Y_n - theta*), beside tilde Sigma_n\n"
        "disagreement: |Theta_t (I - J)|_F^2 at the last mixing\n"
        "diff/error: (simulated - exact) / error, on a log scale for variances and disagreement\n\n"
        f"From the optimum, n = {n}: variance {to_finite.simulated:.2f} ({to_finite.error:.2f}) of Sigma_n and "
        f"{to_limit.simulated:.2f} ({to_limit.error:.2f}) of Sigma/K. "
        f"95 % ellipses hold {exact:.1f} % (exact), {finite:.1f} % (Sigma_n), {limit:.1f} % (Sigma/K) of the runs."
    )


def _number(value: float) -> str:
    return f"{value:.3f}".replace("-0.000", "0.000")
