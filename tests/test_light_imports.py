"""What computes and what draws loads with the first name that needs it: two fresh processes, looked at step by step."""

import subprocess
import sys

import pytest

# What is done, in order, and what must still not be loaded after it.
COMMAND = {
    "import fedgauss": "jax matplotlib networkx numpy pandas scipy",
    "from fedgauss.cli import app": "jax matplotlib networkx numpy pandas scipy",
    "app(['--help'], standalone_mode=False)": "jax matplotlib networkx numpy pandas scipy",
    "from fedgauss.doctor import checkup, packages, requirements, surroundings": "jax matplotlib numpy pandas scipy",
    "from typer.testing import CliRunner; run = CliRunner().invoke": "jax matplotlib networkx",
    "assert run(app, ['advise', '--steps', '500', '--clients', '9']).exit_code == 0": "jax matplotlib networkx",
    "assert run(app, ['reproduce', '--list']).exit_code == 0": "jax matplotlib networkx",
    "assert run(app, ['reproduce', 'nothing']).exit_code == 2": "jax matplotlib networkx",
}
SCIPY = "scipy.linalg scipy.optimize scipy.stats"  # which take a site longer to load than many a fit takes
# A whole run with its site in this process.
ANSWER = """
import contextlib, tempfile, numpy
from fedgauss.federated import home, keys, ledger, local, mailbox, site
from fedgauss.inference.model import Model
with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
    rng = numpy.random.default_rng(0)
    rows = [{"x": rng.normal(size=40), "y": rng.poisson(2.0, 40)} for _ in "ab"]
    homes = [home.Home(keys.Key.fresh(), ledger.Ledger(f"{folder}/{k}")) for k in "ab"]
    sites = {name: site.Site(*both) for name, both in zip("ab", zip(rows, homes))}
    with local.LocalSites(sites) as reached:
        mailbox.federate(Model("y ~ x", family="poisson"), reached, masked=True, key=keys.Key.fresh())
"""
LIBRARY = {
    "import fedgauss.federated.site, fedgauss.inference.tables": f"jax matplotlib networkx pandas {SCIPY}",
    ANSWER: f"jax matplotlib networkx pandas {SCIPY}",
    "import fedgauss.federated.mailbox, fedgauss.federated.processes": f"jax matplotlib pandas {SCIPY}",
    "import fedgauss.networks, fedgauss.step_sizes": "jax networkx",
    "import fedgauss.data; fedgauss.data.mnist_scores()": "jax",
    "import fedgauss.testing": "jax",
    "from fedgauss.inference.fit_result import Fit": "jax matplotlib pandas",
    "from fedgauss import Monitor": "jax matplotlib",
    "import fedgauss.detect.attribution, fedgauss.detect.client_rounds": "jax",
    "import fedgauss.detect.cusum, fedgauss.detect.paper_rule": "jax matplotlib",
    "from fedgauss.detect.eprocess import EProcess; EProcess(2).update([0.0, 1.0])": "jax matplotlib",
    "from fedgauss.paper.result import PAPER, catalogue": "jax matplotlib rich",
    "[result.cells(PAPER) for result in catalogue().values()]": "jax matplotlib rich",
    # It works where neither is installed.
    "sys.modules['pandas'] = sys.modules['polars'] = None; fedgauss.fit": "matplotlib",
}


@pytest.fixture(scope="module")
def loaded():
    """The names of all modules that are loaded after each step."""
    after = {}
    for steps in (COMMAND, LIBRARY):
        program = "import sys\n" + "".join(f"{step}\nprint('loaded:', *sys.modules)\n" for step in steps)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith("loaded:")]
        after |= dict(zip(steps, lines, strict=True))
    return after


@pytest.mark.parametrize(("step", "heavy"), [*COMMAND.items(), *LIBRARY.items()], ids=lambda text: text.strip()[:60])
def test_nothing_heavy_loads_before_it_is_needed(loaded, step, heavy):
    assert not set(heavy.split()) & set(loaded[step])
