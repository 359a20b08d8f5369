"""The verb `site`: a party of a federated fit that keeps its rows, and what its owner asks about it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from fedgauss._files import append_private, key_place
from fedgauss.cli.app import app, listed_names, plain_endings, take_one_core

_HELP = """\
Take part in federated fits with rows that stay here.

`fedgauss site FILE` answers a run line by line: names of columns and levels, and sums over all rows. A site computes \
what it is asked itself, from the model and the messages of all sites; no row leaves. `fedgauss federate` starts this \
command, here or through ssh, and ends it. Beside the table lie its key and its ledger of all that was answered.

[bold]Examples[/bold]
  fedgauss site --example-policy > policy.toml
  fedgauss site data.csv --policy policy.toml --log sent.jsonl
  fedgauss site key data.csv                  the key, to compare with other owners
  fedgauss site ledger data.csv               what was answered, and what is left

[bold]Through ssh[/bold], in ~/.ssh/authorized_keys at the site, so that the coordinator gets this command and no shell:
  restrict,command="fedgauss site data.csv --policy policy.toml" ssh-ed25519 AAAA... coordinator
"""
_SERVE = "run"
_Table = Annotated[Path, Argument(help="The file of the table, or the name of a frame's state.")]


class _Site(TyperGroup):
    """`fedgauss site FILE` is `fedgauss site run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the usual command before its arguments."""
        if args and args[0] not in self.commands and args[0] not in ("--help",):
            args = [_SERVE, *args]
        return super().parse_args(ctx, args)


group = typer.Typer(cls=_Site, rich_markup_mode="rich", no_args_is_help=True)
app.add_typer(group, name="site", help=_HELP)


@group.command(_SERVE)
def run(
    data: Annotated[Path | None, Argument(help="A .csv or .parquet file, a row for each observation.")] = None,
    policy: Annotated[Path | None, Option(help="File with this site's own rules.")] = None,
    least_rows: Annotated[int | None, Option(help="Take no part with fewer rows than this; 10 by default.")] = None,
    columns: Annotated[
        str | None, Option(help="Columns that may be asked about, separated by commas; all if not given.")
    ] = None,
    log: Annotated[Path | None, Option(help="File that records every order and every line sent.")] = None,
    example_policy: Annotated[bool, Option("--example-policy", help="Print a sample policy and exit.")] = False,
) -> None:
    """Answer a run on standard input and output: what `fedgauss site FILE` does."""
    take_one_core()
    with plain_endings():
        from fedgauss.federated import policy as policies

        if example_policy:
            print(policies.example_policy(), end="")
            return
        from fedgauss.federated.site import Site
        from fedgauss.federated.wire import lines_of, serve_lines
        from fedgauss.inference.tables import read_table

        if data is None:
            raise ValueError("a site needs a file with its rows, such as: fedgauss site data.csv")
        rules = policies.Policy() if policy is None else policies.Policy.read(policy)
        named = listed_names(columns)
        if least_rows is not None:
            rules = replace(rules, least_rows=least_rows)
        if named is not None:
            rules = replace(rules, columns=tuple(named))
        here = Site(read_table(data), data, rules)
        with ExitStack() as stack:
            stack.callback(here.close)
            written = None if log is None else stack.enter_context(append_private(log))
            serve_lines(here.answer, lines_of(sys.stdin.buffer), sys.stdout, written)


@group.command()
def key(
    data: _Table,
    new: Annotated[bool, Option("--new", help="Replace it; other owners must then be told.")] = False,
) -> None:
    """Print the public key of a table and its fingerprint, for the owners of other sites to compare and pin."""
    with plain_endings():
        from fedgauss.federated.keys import Key, fingerprint

        place = key_place(data)
        if new:
            place.unlink(missing_ok=True)
        public = Key.read(place).public
        print(f"key          {public}\nfingerprint  {fingerprint(public)}")


@group.command()
def ledger(data: _Table) -> None:
    """Print what a table has answered, to whom, and what is left of its budgets."""
    _with_ledger(data, lambda book: book.report())


@group.command()
def withdraw(data: _Table) -> None:
    """Withdraw consent: from now on the table answers nothing."""
    _with_ledger(data, lambda book: book.consent(False) or "Consent is withdrawn: this table answers nothing.")


@group.command()
def consent(data: _Table) -> None:
    """Take a withdrawal back."""
    _with_ledger(data, lambda book: book.consent(True) or "This table answers again.")


@group.command()
def forget(data: _Table, name: Annotated[str, Argument(help="Of a site, or of who asks.")]) -> None:
    """Forget the key that somebody had at first contact, after its owner has confirmed a new one."""
    _with_ledger(data, lambda book: book.forget(name) or f"The key of {name!r} is forgotten; the next one is trusted.")


def _with_ledger(data: Path, act: Callable[[Any], str]) -> None:
    with plain_endings():
        from fedgauss.federated.home import Home
        from fedgauss.federated.policy import Policy

        home = Home.of(data, Policy())
        try:
            print(act(home.ledger))
        finally:
            home.close()
