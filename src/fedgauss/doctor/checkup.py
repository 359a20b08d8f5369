"""All checks in order. One that cannot even run is a problem of its own, and the others still run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from fedgauss._progress import Tick
from fedgauss.doctor.finding import Finding

# What is looked at, the module, and its functions, which return a Finding or several. A module is imported only when
# its turn has come: where NumPy is missing the checks before it have already said so.
_CHECKS = (
    ("Python and packages", "packages", "python_version fedgauss_version needed_packages extras"),
    ("folders and signals", "surroundings", "current_folder temporary_folder compiled_programs ctrl_c"),
    ("thresholds", "thresholds", "thresholds"),
    ("JAX", "jax_check", "devices first_compilation"),
    ("self-test", "self_test", "monitor_test client_monitor_test fit_test"),
)


def checkup(tick: Tick = lambda what, done, total: None) -> list[Finding]:
    """Every finding, in the order in which `fedgauss doctor` prints them."""
    findings: list[Finding] = []
    done, total = 0, sum(len(functions.split()) for _, _, functions in _CHECKS)
    for what, module, functions in _CHECKS:
        for function in functions.split():
            tick(f"checking: {what}", done, total)
            findings += _found(what, module, function)
            done += 1
    tick(what, done, total)
    return findings


def _found(what: str, module: str, function: str) -> Iterator[Finding]:
    try:
        check = getattr(importlib.import_module(f"fedgauss.doctor.{module}"), function)
        found = check()
    except Exception as error:  # whatever is wrong with an installation must not hide the other lines
        words = " ".join(f"{type(error).__name__}: {error}".split())
        fix = "Mend what is named above; if all of it is well, report this line."
        yield Finding("problem", f"{what}: {function.replace('_', ' ')}", f"could not be checked: {words}", fix)
        return
    yield from [found] if isinstance(found, Finding) else found
