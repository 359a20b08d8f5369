"""Its presence puts this folder on the path, so that tests can import `oracles`.

Compiled programs are kept in build/, for both test workers and for the next run: compiling takes most of the time.
NumPy gets one thread: two workers share two cores, and threads of OpenBLAS that wait for a core burn it.
Bytecode is written even where the shell says not to: tests start many processes, and each would compile JAX's source.
"""

import hashlib
import importlib.util
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Keys and ledgers of tables that are no files.
_STATE = tempfile.TemporaryDirectory(prefix="fedgauss-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Programs that a shell runs in the background ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Flower holds back typer and rich, so it has an environment of its own: `make test` runs its tests there.
_FLOWER = importlib.util.find_spec("flwr") is not None
collect_ignore_glob = [] if _FLOWER else ["integrations/test_flower*.py"]


def pytest_report_header(config):
    return None if _FLOWER else "Flower is not installed here, so its tests are left out"


def pytest_addoption(parser):
    parser.addoption("--shuffle", metavar="SEED", help="run tests in a random order that depends on SEED")


def pytest_collection_modifyitems(config, items):
    """Modules in random order, and tests in random order within each: fixtures of a module are still made once."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        items.sort(key=lambda item: [_hash(seed, name) for name in (item.nodeid.partition("::")[0], item.nodeid)])


def _hash(seed, name):
    return hashlib.blake2b(f"{seed}/{name}".encode()).hexdigest()
