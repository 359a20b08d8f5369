"""Try an installed fedgauss, each part once: `python smoke.py [--extra NAME ...]`, far from the repository.

Prints a line for each check and ends with exit code 1 at the first that fails. Of an extra that is not installed the
check is that its error says what to install; `--extra` names those that must be there.
"""

import argparse
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from importlib.metadata import metadata, version
from pathlib import Path

import numpy as np
from smoke_extras import EXTRAS, check_extra

COMMAND = Path(sysconfig.get_path("scripts")) / "fedgauss"
ROWS = 120


def run(*arguments, **environment):
    """What the installed command prints."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], capture_output=True, text=True, env=os.environ | environment, timeout=300
    )
    assert done.returncode == 0, f"fedgauss {arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def table():
    """Rows of two sites with a linear model: a dictionary of columns, which needs no pandas."""
    rng = np.random.default_rng(7)
    dose, age = rng.normal(size=ROWS), rng.normal(50.0, 9.0, ROWS)
    y = 1.0 + 0.5 * dose - 0.02 * age + rng.normal(scale=0.3, size=ROWS)
    return {"y": y, "dose": dose, "age": age, "site": np.repeat(["north", "south"], ROWS // 2)}


def write_csv(file, columns, rows=slice(None)):
    """Columns as a CSV file."""
    lines = zip(*(np.asarray(column)[rows] for column in columns.values()), strict=True)
    file.write_text("\n".join([",".join(columns), *(",".join(map(str, line)) for line in lines)]) + "\n")


def check_version(folder):
    """The package, its metadata and both ways to start the command agree."""
    import fedgauss

    here = Path(fedgauss.__file__).parent
    assert here.is_relative_to(sysconfig.get_path("purelib")), f"{here} is not the installed package"
    said = f"fedgauss {version('fedgauss')}\n"
    assert run("--version") == said
    assert f"fedgauss {fedgauss.__version__}\n" == said
    assert subprocess.check_output([sys.executable, "-m", "fedgauss", "--version"], text=True) == said
    return f"{version('fedgauss')} in {here}"


def check_contents(folder):
    """Data and typing marker are there, tests are not; the metadata has readme and licence."""
    import fedgauss
    from fedgauss.data import mnist_scores

    here = Path(fedgauss.__file__).parent
    wanted = ["py.typed", "detect/thresholds.json", "paper/printed.json", "report/page.css"]
    wanted += [f"integrations/live/{name}" for name in ("page.html", "page.css", "chart.js")]
    missing = [name for name in wanted if not (here / name).is_file()]
    assert not missing, f"{missing} are missing"
    assert not (here.parent / "tests").exists(), "tests are installed beside the package"
    told = metadata("fedgauss")
    assert told["License-Expression"] == "Apache-2.0"
    assert "# fedgauss" in (told.get_payload() or told["Description"])
    assert set(told.get_all("Provides-Extra")) == set(EXTRAS)
    return f"{len(wanted)} files; {len(mnist_scores().labels):,} MNIST scores"


def check_simulate(folder):
    """A simulated covariance beside the exact one, within five standard errors."""
    import fedgauss as fg

    problem, network = fg.problems.random_effects(n_clients=4, seed=1), fg.networks.ring(4)
    steps, lin = fg.step_sizes.polynomial(0.3, beta=0.75), fg.linearize(problem)
    about = {"n_steps": 60, "sync_every": 5}
    runs = fg.simulate(problem, network, steps, **about, replicates=2000, start="optimum")
    exact = fg.theory.exact_moments(problem, network, steps, **about, start_mean=lin.optimum)
    ratio = np.mean((runs.average - lin.optimum)[:, 0] ** 2) / exact.cov_average[0, 0]
    assert abs(ratio - 1.0) < 5.0 * np.sqrt(2.0 / 2000), ratio
    return f"variance over its exact value {ratio:.3f}"


def check_fit(folder):
    """The federated fit is least squares on all rows, without pandas."""
    import fedgauss as fg

    columns = table()
    fit = fg.fit(columns, target="y", client="site", family="linear")
    design = np.column_stack([np.ones(ROWS), columns["dose"], columns["age"]])
    pooled = np.linalg.lstsq(design, columns["y"], rcond=None)[0]
    found = [fit.params[name] for name in ("const", "dose", "age")]
    assert np.allclose(found, pooled, rtol=1e-8), (found, pooled)
    return f"dose {fit.params['dose']:.4f}, as pooled"


def check_client_monitor(folder):
    """Honest clients for 25 rounds, then two that send the opposite: an alarm that names them."""
    import fedgauss as fg

    rng, monitor = np.random.default_rng(3), fg.ClientMonitor(horizon=60, seed=1)
    own = rng.normal(size=(10, 40))  # clients are not alike
    for number in range(1, 41):
        moves = 1.0 + own + 0.3 * rng.normal(size=own.shape)
        moves[[2, 7]] *= -1.0 if number > 25 else 1.0
        verdict = monitor.update(dict(zip("abcdefghij", moves, strict=True)))
        if verdict.alarm:
            break
    assert verdict.alarm
    assert verdict.round > 25
    assert verdict.rollback <= 25
    assert sorted(verdict.suspects) == ["c", "h"]
    return f"alarm in round {verdict.round}, c and h named"


def check_help(folder):
    """Help of the command and of every subcommand."""
    shown = run("--help")
    verbs = ["demo", "advise", "reproduce", "fit", "coverage", "site", "federate", "watch"]
    assert all(verb in shown for verb in verbs)
    for verb in verbs:
        assert "Usage" in run(verb, "--help")
    return f"{len(verbs)} subcommands"


def check_commands(folder):
    """`fit` on a file and `federate` on its two halves, masked too, have the same coefficients."""
    columns = table()
    write_csv(folder / "all.csv", columns)
    alone = {name: column for name, column in columns.items() if name != "site"}
    for name, rows in (("north", slice(0, ROWS // 2)), ("south", slice(ROWS // 2, ROWS))):
        write_csv(folder / f"{name}.csv", alone, rows)
    run("fit", folder / "all.csv", "--target", "y", "--client", "site", "--family", "linear", "--out", folder / "fit")
    sites = [f'--site={name}="{COMMAND}" site "{folder / name}.csv"' for name in ("north", "south")]
    for name, masked in (("federated", []), ("masked", ["--masked"])):
        run("federate", "--target", "y", "--family", "linear", *masked, *sites, "--out", folder / name)
    from fedgauss.inference.fit_result import Fit

    one, other, behind_masks = (Fit.load(folder / name / "fit.json").params for name in ("fit", "federated", "masked"))
    differ = max(abs(one[name] - found[name]) for found in (other, behind_masks) for name in ("const", "dose", "age"))
    assert differ < 1e-9, differ
    assert (folder / "federated" / "coefficients.svg").is_file()
    return f"fit and federate agree: dose {one['dose']:.4f} and {other['dose']:.4f}"


def check_completion(folder):
    """A shell is told families and results."""
    said = run(_FEDGAUSS_COMPLETE="complete_bash", COMP_WORDS="fedgauss fit --family po", COMP_CWORD="3")
    assert said == "poisson\n", said
    script = run(_FEDGAUSS_COMPLETE="source_bash")
    assert "complete -o default" in script
    return "--family po: poisson"


def check_demo(folder):
    """The demonstration writes its page."""
    run("demo", "--out", folder / "demo", "--replicates", "200")
    page = folder / "demo" / "index.html"
    assert "<style" in page.read_text()
    return f"{page.stat().st_size // 1000} kB of page"


CHECKS = (
    check_version,
    check_contents,
    check_simulate,
    check_fit,
    check_client_monitor,
    check_help,
    check_commands,
    check_completion,
    check_demo,
)


def main():
    """Every check, a line each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--extra", action="append", default=[], choices=list(EXTRAS), help="an extra that must be there"
    )
    parser.add_argument("--extras-only", action="store_true", help="try only the extras that --extra names")
    asked = parser.parse_args()
    warnings.filterwarnings("error", module=r"fedgauss(\.|$)")  # deprecations of what fedgauss calls
    began = time.monotonic()
    parts = ("jax", "numpy", "scipy", "networkx", "matplotlib", "rich", "typer")
    print(f"Python {platform.python_version()}; " + ", ".join(f"{name} {version(name)}" for name in parts), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for check in () if asked.extras_only else CHECKS:
            name = check.__name__.removeprefix("check_").replace("_", " ")
            print(f"  {name}: {check(Path(folder))}", flush=True)
        for extra in asked.extra if asked.extras_only else EXTRAS:
            print(f"  [{extra}]: {check_extra(extra, extra in asked.extra, Path(folder))}", flush=True)
    print(f"All well, {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
