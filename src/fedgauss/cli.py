"""The command `fedgauss`. What computes or draws is imported inside the verbs, so that help comes at once."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from fedgauss import __version__

if TYPE_CHECKING:
    from fedgauss.experiments.runner import Executor
    from fedgauss.inference.fit import Fit
    from fedgauss.report.demonstration.run import Tick

# Help is laid out here because a line break in it is one on the screen.
_HELP = """\
Measure, infer and watch decentralised federated learning with local SGD.

Clients on a network take gradient steps on their own data and average with their neighbours now and then. \
This command simulates them and says what theory promises, with an error beside every simulated number.

[bold]Examples[/bold]
  fedgauss demo                               a page in ./demo, in seconds
  fedgauss demo --replicates 20000 --out big  smaller Monte-Carlo errors
  fedgauss advise --steps 5000 --clients 40   which step sizes to use
  fedgauss reproduce --scale quick            the paper's results, thinned out
  fedgauss fit data.csv --target y --client hospital --family logistic
  fedgauss coverage --runs 200                do intervals cover?
  fedgauss watch run.jsonl --monitor m.npz    a live page, and alarms
"""
_DEMO_HELP = """\
Simulate ten clients on a ring, put exact theory beside them, watch an attack, and leave a page with figures.

This is the paper's random-effects regression, started at the optimum and at zero. It prints a table of simulated, \
exact and approximate values. Then half of the clients turn malicious, and a monitor says when and who. index.html has \
all of it; every figure is there as PNG and SVG too.
"""
_ADVISE_HELP = """\
Say which step sizes to use for n steps and K clients, and which theorems then hold.

Clients are taken to average completely whenever they mix.

[bold]Example[/bold]
  fedgauss advise --steps 5000 --clients 40 --sync-every 20
"""
_REPRODUCE_HELP = """\
Compute the paper's numbers again, under every reading of its settings, and say which come out.

Prints for each result the paper's number, ours with its Monte-Carlo error, and a verdict with its reason. Writes \
report.html, every figure as PNG and SVG, rows as CSV and verdicts as JSON. NAMES picks results; without any, all run.

[bold]Scales[/bold]
  quick  fewer runs and points, one draw of the clients, attacks and what is beyond the paper only when named; \
half a minute
  paper  the runs and points of the paper, four draws of the clients; three minutes on two cores
  large  100 times the runs, over eight draws of the clients; an hour, or minutes on a GPU

Finished parts are kept in results.sqlite in the output folder. After Ctrl-C, a crash or a reboot the same command \
goes on where it stopped; once all is there it only draws again. A folder holds one scale, and its report has every \
result that is finished there.

[bold]Examples[/bold]
  fedgauss reproduce --list                   what there is to reproduce
  fedgauss reproduce --scale quick            everything, thinned out
  fedgauss reproduce figure1_left connection  two results
  fedgauss reproduce --out study --workers 8  everything, by 8 processes
"""
_FIT_HELP = """\
Fit a regression to a table whose rows belong to clients, without bringing the rows together.

Clients take gradient steps on their own rows and average with their neighbours on a ring. Prints estimates, standard \
errors and intervals like those of a pooled fit. Writes fit.json, and coefficients.png and .svg, into the output \
folder. Text columns are taken as categories; missing values, collinear columns and separable classes are refused.

[bold]Families[/bold]
  linear, logistic (target 0 or 1), poisson (counts), huber, one_versus_rest (classes)

[bold]Examples[/bold]
  fedgauss fit data.csv --target y --client hospital
  fedgauss fit data.parquet --target died --client hospital --family logistic --features age,sex,dose
  fedgauss fit data.csv --target y --client hospital --formula "y ~ age + C(ward)" --passes 10
"""
_COVERAGE_HELP = """\
Put intervals to the test: how often they cover, and how wide they are, over many runs of a federation.

Every option takes several values with commas between them, and every combination is run. Prints coverage of each \
method with its Monte-Carlo error, and what the diagnostic of bias predicts. Writes coverage.html, figures, and rows \
as CSV. Finished federations are kept in the output folder: after Ctrl-C the same command goes on, and another command \
adds to them.

[bold]Networks[/bold]
  ring, path, star, complete; ring^4 mixes four times at each synchronisation; 0.9 has this second eigenvalue, rho

[bold]Examples[/bold]
  fedgauss coverage --runs 200 --steps 500,1000            a first look, in half a minute
  fedgauss coverage --clients 40 --network ring,complete   does a large ring drift?
  fedgauss coverage --family logistic --sync-every 10,50 --beta 0.6,0.75
"""
_SITE_HELP = """\
Take part in a federated fit with rows that stay here.

Answers, line by line, what `fedgauss federate` asks: names of columns and levels, sums, a Hessian, parameters at each \
synchronisation. No row leaves. Every line that left is in the log. It is started by `fedgauss federate`, on this \
machine or through ssh, and ends with it.

[bold]Example[/bold]
  fedgauss site data.csv --least-rows 50 --log sent.jsonl
"""
_FEDERATE_HELP = """\
Fit a regression to files that stay where they are, and print what `fedgauss fit` would print of all rows together.

Each --site has a name and the command that starts it; that command must run `fedgauss site`. Orders and replies go \
through its pipes: nothing is bound to a port, and ssh brings its own secrecy. Sites average on a ring.

[bold]Example[/bold]
  fedgauss federate --target died --family logistic \
--site north="fedgauss site north.csv" --site south="ssh south fedgauss site south.parquet"
"""
_WATCH_HELP = """\
Follow a federated run as it goes, from any framework: print alarms, and serve a live page.

The page shows statistic against threshold, alarm and onset, the clients behind an alarm, participation, and intervals \
for the average of the iterates. It needs no internet. Only this machine can see it, unless --host says otherwise.

[bold]The log[/bold]
JSON lines, one a round; only round and parameters are needed:
  {"round": 7, "parameters": [0.1, -0.3], "participants": ["a", "b"],
   "clients": {"a": [0.2, -0.1], "b": [0.0, -0.5]}, "all_clients": ["a", "b", "c"], "step": 140}
parameters is the clients' mean after the round, clients what they uploaded before averaging. all_clients has the \
names in the monitor's order, needed once; without it, the first clients with every name do. step is round times \
--sync-every if not given. A file that ends in .npz holds the same as arrays with a row a round: round, parameters, \
step, participation (booleans), clients, names.
With --listen each round is POSTed to /rounds instead, as the same JSON. What is malformed is refused and changes \
nothing.

[bold]The monitor[/bold]
  --monitor FILE         from Monitor.save: knows A, the noise and the clients, and can name attackers
  --hessian, --eta0 ...  only the server's view: A is known, the noise is estimated from the first --warm-up rounds, \
which must be honest and close to the optimum

[bold]Examples[/bold]
  fedgauss watch run.jsonl --monitor monitor.npz
  fedgauss watch run.npz --hessian A.npy --eta0 0.3 --beta 0.75 --sync-every 20
  fedgauss watch --listen --monitor monitor.npz --save monitor.npz    goes on where it stopped
"""
_NO_MONITOR = "Without --monitor"
_REPRODUCTION = Path("reproduction")
_COVERAGE = Path("coverage")
_ROOM = 30_000_000  # bytes that a reproduction may need: rows, figures and the page

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedgauss {__version__}")
        raise typer.Exit


@app.callback(help=_HELP)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


@app.command(help=_DEMO_HELP)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and its figures.")] = Path("demo"),
    replicates: Annotated[int, typer.Option(help="Simulated runs from each start, at least 200.")] = 2000,
    seed: Annotated[int, typer.Option(help="Fixes every random number.")] = 0,
) -> None:
    """The main job, end to end."""
    with _plain_endings():
        from fedgauss.report.output import writable_folder

        folder = writable_folder(out)
        began = time.monotonic()
        with _progress() as tick:
            tick("starting JAX", 0, 1)
            from fedgauss.report.demonstration.run import run_demo
            from fedgauss.report.demonstration.setup import demo_setup

            setup = demo_setup(replicates, seed)
            tick("starting JAX", 1, 1)
            result = run_demo(setup, tick)
            from fedgauss.report.demonstration.story import write_demo
            from fedgauss.report.demonstration.terminal import print_demo

            page = write_demo(result, folder, tick)
        console = Console()
        print_demo(result, console)
        console.print()
        console.print(
            Text(f"The page is {page}, its figures beside it; {time.monotonic() - began:.0f} s."), soft_wrap=True
        )


@app.command(help=_ADVISE_HELP)
def advise(
    steps: Annotated[int, typer.Option(help="Steps n that every client takes.")],
    clients: Annotated[int, typer.Option(help="Clients K.")],
    beta: Annotated[
        float | None, typer.Option(help="Decay of the step sizes, eta_t = eta0 t^-beta; the best one if not given.")
    ] = None,
    sync_every: Annotated[int, typer.Option(help="Steps between two mixings, tau.")] = 1,
) -> None:
    """Print `fedgauss.advise`."""
    with _plain_endings():
        from fedgauss.theory.advise import advise as advise_on

        advice = advise_on(steps, clients, beta=beta, sync_every=sync_every)
        Console().print(Text(str(advice)))


@app.command(help=_REPRODUCE_HELP)
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Results by name; all of them if none is given.")] = None,
    scale: Annotated[str, typer.Option(help="How much to compute: quick, paper or large.")] = "paper",
    out: Annotated[Path, typer.Option(help="Folder for the report, and for what is finished so far.")] = _REPRODUCTION,
    workers: Annotated[
        int | None, typer.Option(help="Processes that compute; one for each core, at most 8, if not given.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Who computes: local, or dask for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="The scheduler of Dask, as tcp://host:8786.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Print what there is, and stop.")] = False,
) -> None:
    """The paper's results, from cells to a page."""
    names = names or []
    command = _reproduce_command([name.lower() for name in names], scale.lower(), out, workers, scheduler)
    with _plain_endings(), _sweep_endings(command):
        from fedgauss.experiments.catalogue import chosen, scale_named

        how_much = scale_named(scale)
        if list_them:
            from fedgauss.report.reproduction.terminal import print_list

            print_list(chosen(names), Console())
            return
        results, executor = chosen(names, how_much), _executor(engine, scheduler)
        from fedgauss.report.output import writable_folder
        from fedgauss.report.reproduction.sweep import measure

        folder = writable_folder(out, room=_ROOM)
        began = time.monotonic()
        measured = measure(results, how_much, folder, workers, command, executor)
        with _bar() as tick:
            tick("drawing", 0, len(measured.results) + 1)
            from fedgauss.report.reproduction.files import write_reproduction
            from fedgauss.report.reproduction.terminal import print_reproduction

            sections, page = write_reproduction(measured, folder, tick)
        console = Console()
        print_reproduction(sections, console)
        console.print()
        console.print(
            Text(f"The page is {page}, its figures and rows beside it; {time.monotonic() - began:.0f} s."),
            soft_wrap=True,
        )


@app.command(help=_FIT_HELP)
def fit(
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file, a row for each observation.")],
    target: Annotated[str, typer.Option(help="The column to explain.")],
    client: Annotated[str, typer.Option(help="The column that says to whom a row belongs.")],
    family: Annotated[str, typer.Option(help="linear, logistic, poisson, huber or one_versus_rest.")] = "linear",
    features: Annotated[
        str | None, typer.Option(help="Covariates, separated by commas; all other columns if not given.")
    ] = None,
    formula: Annotated[str | None, typer.Option(help='In place of --features: "y ~ a + C(b)".')] = None,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    passes: Annotated[int, typer.Option(help="How often rows are read; more than once for small data.")] = 1,
    sync_every: Annotated[int, typer.Option(help="Steps between two mixings, tau.")] = 10,
    method: Annotated[str, typer.Option(help="plugin, bootstrap, random_scaling or batch_means.")] = "plugin",
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Fixes the order in which rows are read.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the numbers and the figure.")] = Path("fit"),
) -> None:
    """`fedgauss.fit` on a file."""
    with _plain_endings():
        from fedgauss.inference.tables import read_table
        from fedgauss.report.output import writable_folder

        frame = read_table(data)
        folder = writable_folder(out)
        with _progress() as tick:
            tick("starting JAX", 0, 1)
            from fedgauss.inference.fit import fit as fit_frame
            from fedgauss.report.coefficients import write_fit

            tick("starting JAX", 1, 1)
        found = fit_frame(
            frame, target, client, family, _listed_names(features), formula, intercept=intercept, passes=passes,
            sync_every=sync_every,
            method=method,  # type: ignore[arg-type]
            level=level, seed=seed,
        )  # fmt: skip
        _show_fit(found, write_fit(found, folder))


@app.command(help=_COVERAGE_HELP)
def coverage(
    family: Annotated[str, typer.Option(help="linear, logistic, poisson.")] = "linear,logistic,poisson",
    offsets: Annotated[str, typer.Option(help="How much clients differ: sd of their coefficients.")] = "0.5",
    condition: Annotated[str, typer.Option(help="Condition number of the covariates.")] = "1",
    clients: Annotated[str, typer.Option(help="Clients K.")] = "10",
    sync_every: Annotated[str, typer.Option(help="Steps between two mixings, tau.")] = "10",
    network: Annotated[str, typer.Option(help="Who averages with whom.")] = "ring",
    beta: Annotated[str, typer.Option(help="Decay of the step sizes.")] = "0.75",
    steps: Annotated[str, typer.Option(help="Steps n of a client.")] = "500,1000,2000",
    dim: Annotated[str, typer.Option(help="Covariates d.")] = "5",
    runs: Annotated[int, typer.Option(help="Runs of each federation, at least 20.")] = 1000,
    bootstrap_runs: Annotated[
        int, typer.Option(help="Runs that the bootstrap is tried on, with 200 chains each; 0 leaves it out.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Fixes every random number.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the report, and for what is finished so far.")] = _COVERAGE,
    workers: Annotated[
        int | None, typer.Option(help="Processes that compute; one for each core, at most 8, if not given.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Who computes: local, or dask for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="The scheduler of Dask, as tcp://host:8786.")] = None,
) -> None:
    """The coverage laboratory."""
    command = shlex.join(["fedgauss", *sys.argv[1:]])
    with _plain_endings(), _sweep_endings(command):
        from fedgauss import _checks
        from fedgauss.experiments.coverage_settings import federations, listed

        grid = federations(
            family=listed("family", family, str),
            offsets=listed("offsets", offsets, float),
            condition=listed("condition", condition, float),
            n_clients=listed("clients", clients, int),
            sync_every=listed("sync-every", sync_every, int),
            network=listed("network", network, str),
            beta=listed("beta", beta, float),
            n_steps=listed("steps", steps, int),
            dim=listed("dim", dim, int),
        )
        _checks.whole("runs", runs, at_least=20)
        _checks.whole("bootstrap_runs", bootstrap_runs, at_least=0)
        _checks.whole("seed", seed, at_least=0)
        executor = _executor(engine, scheduler)
        from fedgauss.report.coverage.sweep import measure
        from fedgauss.report.output import writable_folder

        folder = writable_folder(out, room=_ROOM)
        began = time.monotonic()
        measured = measure(grid, runs, bootstrap_runs, seed, folder, workers, command, executor)
        with _bar() as tick:
            tick("drawing", 0, 1)
            from fedgauss.report.coverage.files import write_coverage
            from fedgauss.report.table import print_table

            tables, page = write_coverage(measured, folder, tick)
        console = Console()
        for table in tables:
            print_table(table, console)
            console.print()
        console.print(
            Text(f"The page is {page}, its figures and rows beside it; {time.monotonic() - began:.0f} s."),
            soft_wrap=True,
        )


@app.command(help=_SITE_HELP)
def site(
    data: Annotated[Path, typer.Argument(help="A .csv or .parquet file, a row for each observation.")],
    least_rows: Annotated[int, typer.Option(help="Take part only with at least so many rows.")] = 10,
    log: Annotated[Path | None, typer.Option(help="Where to write down every line that leaves.")] = None,
) -> None:
    """`fedgauss.inference.federated.lines` on standard input and output."""
    with _plain_endings():
        from fedgauss.inference.federated.lines import serve_lines
        from fedgauss.inference.federated.site import Site
        from fedgauss.inference.tables import read_table

        here = Site(read_table(data), least_rows)
        with ExitStack() as stack:
            written = None if log is None else stack.enter_context(log.open("a", encoding="utf-8"))
            serve_lines(here, sys.stdin, sys.stdout, written)


@app.command(help=_FEDERATE_HELP)
def federate(
    target: Annotated[str, typer.Option(help="The column to explain.")],
    sites: Annotated[list[str], typer.Option("--site", help="NAME=COMMAND, once for each site.")],
    family: Annotated[str, typer.Option(help="linear, logistic, poisson, huber or one_versus_rest.")] = "linear",
    features: Annotated[
        str | None, typer.Option(help="Covariates, separated by commas; all other columns if not given.")
    ] = None,
    formula: Annotated[str | None, typer.Option(help='In place of --features: "y ~ a + C(b)".')] = None,
    intercept: Annotated[bool, typer.Option(help="Whether the model has an intercept.")] = True,
    sync_every: Annotated[int, typer.Option(help="Steps between two mixings, tau.")] = 10,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Fixes the order in which rows are read.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the numbers and the figure.")] = Path("fit"),
) -> None:
    """`fedgauss.inference.federated.coordinator` with sites behind pipes."""
    with _plain_endings():
        from fedgauss.inference.federated.coordinator import fit_sites
        from fedgauss.integrations.site_processes import SiteProcesses
        from fedgauss.report.coefficients import write_fit
        from fedgauss.report.output import writable_folder

        commands = dict(_named(text) for text in sites)
        if len(commands) < len(sites):
            raise ValueError("sites must have different names; one occurs more than once.")
        folder = writable_folder(out)
        with SiteProcesses(commands) as reached, _bar() as tick:
            found = fit_sites(
                reached.ask, reached.names, target, family, _listed_names(features), formula, intercept=intercept,
                sync_every=sync_every, level=level, seed=seed, tick=tick,
            )  # fmt: skip
        _show_fit(found, write_fit(found, folder))


def _named(text: str) -> tuple[str, str]:
    name, equals, command = text.partition("=")
    if not (name.strip() and equals and command.strip()):
        raise ValueError(f'--site must be NAME=COMMAND; got {text!r}. Use a="fedgauss site a.csv"?')
    return name.strip(), command


def _listed_names(features: str | None) -> list[str] | None:
    return None if features is None else [name.strip() for name in features.split(",") if name.strip()]


def _show_fit(found: Fit, written: list[Path]) -> None:
    console = Console()
    console.print(Text(found.summary()), soft_wrap=True)
    console.print()
    console.print(Text(f"The numbers are {written[0]}, the figure {written[1]}, and as SVG."), soft_wrap=True)


@app.command(help=_WATCH_HELP)
def watch(
    log: Annotated[Path | None, typer.Argument(help="The run's log: JSON lines, or arrays in a .npz file.")] = None,
    listen: Annotated[bool, typer.Option("--listen", help="Take rounds by POST in place of a log.")] = False,
    monitor: Annotated[Path | None, typer.Option(help="A monitor that Monitor.save wrote.")] = None,
    hessian: Annotated[
        str | None, typer.Option(help="A as a .npy file, or c for c times the identity.", rich_help_panel=_NO_MONITOR)
    ] = None,
    warm_up: Annotated[
        int, typer.Option(help="Honest rounds that the noise is estimated from.", rich_help_panel=_NO_MONITOR)
    ] = 25,
    sync_every: Annotated[int, typer.Option(help="Steps between two rounds, tau.", rich_help_panel=_NO_MONITOR)] = 20,
    eta0: Annotated[
        float | None, typer.Option(help="Step sizes eta_t = eta0 (t + shift)^-beta.", rich_help_panel=_NO_MONITOR)
    ] = None,
    beta: Annotated[float, typer.Option(help="Their decay; 0 for constant ones.", rich_help_panel=_NO_MONITOR)] = 0.75,
    shift: Annotated[float, typer.Option(help="Their shift.", rich_help_panel=_NO_MONITOR)] = 0.0,
    alpha: Annotated[float, typer.Option(help="Chance of any false alarm.", rich_help_panel=_NO_MONITOR)] = 0.05,
    horizon: Annotated[
        int | None,
        typer.Option(help="Steps that alpha holds for; no end if not given.", rich_help_panel=_NO_MONITOR),
    ] = None,
    host: Annotated[str, typer.Option(help="Address of the page; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the page; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(envvar="FEDGAUSS_TOKEN", help="Secret that every request must carry, 16 characters.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Where to save the monitor at the end.")] = None,
) -> None:
    """`fedgauss.integrations.live`."""
    with _plain_endings():
        from fedgauss.integrations.live.command import Asked
        from fedgauss.integrations.live.command import watch as watch_run

        console = Console()
        asked = Asked(
            log, listen, monitor, hessian, warm_up, sync_every, eta0, beta, shift, alpha, horizon,
            host, port, token, save,
        )  # fmt: skip
        if not watch_run(asked, lambda words: console.print(Text(words), soft_wrap=True)):
            raise typer.Exit(1)


def _executor(engine: str, scheduler: str | None) -> Executor | None:
    """Who runs the cells of a sweep: None for local workers."""
    from fedgauss import _checks

    if _checks.one_of("engine", engine, ["local", "dask"]) == "local":
        if scheduler is not None:
            raise ValueError("--scheduler belongs to --engine dask; got --engine local. Add --engine dask?")
        return None
    if scheduler is None:
        raise ValueError("--engine dask needs a scheduler; got none. Use --scheduler tcp://host:8786?")
    from fedgauss.integrations.dask_cluster import on_dask

    try:
        return on_dask(scheduler)
    except ImportError as error:
        raise ValueError(str(error)) from None


def _reproduce_command(
    names: list[str], scale: str, out: Path, workers: int | None, scheduler: str | None = None
) -> str:
    """The command that does, or goes on with, the same."""
    parts = ["fedgauss", "reproduce", *names]
    parts += ["--scale", scale] if scale != "paper" else []
    parts += ["--out", str(out)] if out != _REPRODUCTION else []
    parts += ["--workers", str(workers)] if workers is not None else []
    parts += ["--engine", "dask", "--scheduler", scheduler] if scheduler is not None else []
    return shlex.join(parts)


@contextmanager
def _sweep_endings(command: str) -> Iterator[None]:
    """Say how far a sweep came, and how to go on."""
    from fedgauss.experiments.outcome import SweepError, SweepInterrupted

    try:
        yield
    except SweepInterrupted as ended:
        done = ended.summary.found + ended.summary.run
        _complain(f"stopped; {done} of {ended.summary.total} cells are finished and kept. To go on: {command}")
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        _complain(f"stopped; what is finished is kept, and no file is left half written. To go on: {command}")
        raise typer.Exit(130) from None
    except SweepError as error:
        _complain(str(error))
        raise typer.Exit(1) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        _complain(f"a file could not be written; {error}. What is finished is kept. To go on: {command}")
        raise typer.Exit(1) from None


@contextmanager
def _plain_endings() -> Iterator[None]:
    """End with one line and an exit code where Python would print a traceback that tells a user nothing."""
    try:
        yield
    except ValueError as error:
        _complain(str(error))
        raise typer.Exit(2) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        _complain(f"a file could not be written; {error}.")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _complain("stopped; no file is left half written.")
        raise typer.Exit(130) from None


def _complain(message: str) -> None:
    one_line = " ".join(message.split())
    Console(stderr=True).print(Text(one_line, style="red"), soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Tick]:
    """A bar whose ticks are where Ctrl-C acts, for work with JAX."""
    from fedgauss.report.interrupt import deferred_interrupts

    with deferred_interrupts() as check_interrupt, _bar() as show:

        def tick(what: str, done: int, total: int) -> None:
            check_interrupt()
            show(what, done, total)

        yield tick


@contextmanager
def _bar() -> Iterator[Tick]:
    """A bar for each kind of work, in a terminal; elsewhere nothing."""
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def tick(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tick
