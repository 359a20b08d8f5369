"""The verb `watch`."""

from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from rich.text import Text
from typer import Argument, Exit, Option

from fedgauss.cli.app import app, plain_endings

_WATCH_HELP = """\
Follow a federated run as it goes, from any framework: print alarms, and serve a live page.

The page needs no internet, and only this machine can see it unless --host says otherwise. Malformed rounds are \
refused and change nothing. With --listen each round is POSTed to /rounds in place of a log, as the same JSON \
(Content-Type: application/json).

With a token a browser opens ADDRESS/?token=TOKEN once, and has a cookie from then on; programs send \
Authorization: Bearer TOKEN. --cert and --key encrypt.

[bold]Clients of any model[/bold] (neither --monitor nor --hessian)
The page shows how surprising each client was in each round, who was named and left out, and accuracy or loss. In \
the training loop, beside the ClientMonitor that judges there:
  log = fedgauss.integrations.sinks.client_log("run.jsonl", monitor)
  log(verdict.round, verdict); log.add(accuracy=0.91)
Then here the same is judged, to the bit. Any other program can log small models whole, one JSON line per round:
  {"round": 7, "moves": {"a": [0.1, -0.3], "b": [0.2, 0.1], ...}, "accuracy": 0.91}
moves is what each client changed: its upload minus what it was sent; leave out absent clients. When the run has \
left clients out, the next line says so: "left_out": [{"clients": ["b"], "back_to": 5}].

[bold]A monitor of parameters[/bold]
The page shows statistic against threshold for every channel, alarm and onset, the clients behind an alarm, \
participation, and intervals for the average of the iterates. A JSON line a round; only round and parameters are \
required:
  {"round": 7, "parameters": [0.1, -0.3], "participants": ["a", "b"],
   "clients": {"a": [0.2, -0.1], "b": [0.0, -0.5]}, "all_clients": ["a", "b", "c"], "step": 140}
parameters is the clients' mean after the round, clients what they uploaded before averaging. all_clients lists \
the names in the monitor's order, and is needed once; without it, the first round with every client sets the order. \
step is round times \
--sync-every if not given. A file that ends in .npz holds the same as arrays with a row a round: round, parameters, \
step, participation (booleans), clients, names.
  --monitor FILE         from Monitor.save: has A, the noise and the clients, and can name attackers
  --hessian, --eta0 ...  only the server's view: A is known, the noise is estimated from the first --warm-up rounds, \
which must be honest and close to the optimum

[bold]Months[/bold]
A round or step that jumps is refused, and believed from the third round in a row on. When rounds are refused \
one after the other, no longer come, or cannot be judged, page, terminal, --webhook and --notices say NOT \
WATCHING, since when and why. With --save FILE the watch may be killed at any moment: a POSTed round is on disk \
before it is answered, a log is read again, and the same command goes on. A round may be sent \
again: with the same content it is already taken (200), with other content refused (409). A log may be rotated.

[bold]Exit codes[/bold]
  0  stopped, by Ctrl-C or SIGTERM, while all was well
  1  a file could not be read or written
  2  wrong options
  3  stopped while an alarm was on
  4  stopped while NOT WATCHING, or the log became that of another run

[bold]Examples[/bold]
  fedgauss watch run.jsonl
  fedgauss watch run.jsonl --monitor monitor.npz
  fedgauss watch run.npz --hessian A.npy --eta0 0.3 --sync-every 20
  fedgauss watch --listen --monitor monitor.npz --save watch.db
  fedgauss watch run.jsonl --host 0.0.0.0 --token-file FILE --cert C --key K
"""


def _alone(words: str) -> Any:
    """An option for a watch without a monitor's file; a log of `client_log` has its own alpha, horizon and rate."""
    return Option(help=words, rich_help_panel="Without --monitor")


def _told(words: str) -> Any:
    """An option about who hears of what."""
    return Option(help=words, rich_help_panel="Who is told")


def _server(words: str) -> Any:
    """An option of the page's server."""
    return Option(help=words, rich_help_panel="The page")


@app.command(help=_WATCH_HELP)
def watch(
    log: Annotated[Path | None, Argument(help="The run's log: JSON lines, or arrays in a .npz file.")] = None,
    listen: Annotated[bool, Option("--listen", help="Take rounds by POST in place of a log.")] = False,
    monitor: Annotated[Path | None, Option(help="A monitor that Monitor.save or ClientMonitor.save wrote.")] = None,
    hessian: Annotated[str | None, _alone("A as a .npy file, or c for c times the identity.")] = None,
    warm_up: Annotated[int, _alone("Honest rounds that the noise is estimated from.")] = 25,
    sync_every: Annotated[int, _alone("Steps between two rounds, tau.")] = 20,
    eta0: Annotated[float | None, _alone("Step sizes eta_t = eta0 (t + shift)^-beta.")] = None,
    beta: Annotated[float, _alone("Their decay; 0 for constant ones.")] = 0.75,
    shift: Annotated[float, _alone("Their shift.")] = 0.0,
    alpha: Annotated[float, _alone("Chance of any false alarm.")] = 0.05,
    horizon: Annotated[
        int | None, _alone("Steps, or rounds of clients, that alpha holds for; no end if not given.")
    ] = None,
    rate: Annotated[float, _alone("Chance of a wrong name in an alarm about clients.")] = 0.05,
    host: Annotated[str, _server("Address of the page; any address but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, _server("Port of the page; 0 takes a free one.")] = 8765,
    token_file: Annotated[
        Path | None, _server("File with a secret of 16 characters or more, mode 0600; or set FEDGAUSS_TOKEN.")
    ] = None,
    token: Annotated[str | None, _server("The secret itself; others on this machine can see it.")] = None,
    cert: Annotated[Path | None, _server("Certificate, with its chain, in PEM: the page is then https.")] = None,
    key: Annotated[Path | None, _server("Its private key, in PEM, mode 0600.")] = None,
    save: Annotated[
        Path | None, Option(help="Where to save the monitor as it goes; the same command goes on from it.")
    ] = None,
    quiet_after: Annotated[
        float | None,
        _told(
            "Seconds without a round after which nothing is being watched. By default ten times the longest of the "
            "last 20 intervals, at least 300; 3600 while fewer than 5 are known."
        ),
    ] = None,
    webhook: Annotated[str | None, _told("URL that alarms and changes of watching are POSTed to, as JSON.")] = None,
    notices: Annotated[Path | None, _told("File that the same is appended to, one JSON line each.")] = None,
    log_format: Annotated[
        Literal["text", "json"], _told("What is printed: sentences, or one JSON object a line.")
    ] = "text",
) -> None:
    """`fedgauss.integrations.live`."""
    with plain_endings():
        from fedgauss.integrations.live.command import watch as watch_run
        from fedgauss.integrations.live.options import WatchOptions

        console = Console()
        options = WatchOptions(
            log, listen, monitor, hessian, warm_up, sync_every, eta0, beta, shift, alpha, horizon,
            rate, host, port, token, token_file, cert, key, save, quiet_after, webhook, notices, log_format,
        )  # fmt: skip
        if ending := watch_run(options, lambda words: console.print(Text(words), soft_wrap=True)):
            raise Exit(int(ending))
