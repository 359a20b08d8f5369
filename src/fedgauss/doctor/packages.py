"""Checks of Python and of packages: those that are needed, and those of extras."""

from __future__ import annotations

import importlib
import platform
import sys
from importlib import metadata

import fedgauss
from fedgauss.doctor.finding import Finding
from fedgauss.doctor.requirements import Requirement, installed, requirements

PURPOSES = {
    "frames": "tables of pandas, in and out",
    "flower": "Flower runs, watched and protected",
    "gossip": "peers without a server, over torch.distributed",
    "private": "fits with differential privacy (--epsilon)",
    "dask": "sweeps on a Dask cluster (--engine dask)",
    "mlflow": "verdicts sent to MLflow",
    "tensorboard": "verdicts in TensorBoard",
    "prometheus": "verdicts as metrics of your own process, for Prometheus",
    "opentelemetry": "verdicts as OpenTelemetry metrics",
}

_BASE = ("cryptography", "jax", "matplotlib", "networkx", "numpy", "rich", "scipy", "typer")


def python_version() -> Finding:
    """Python against the oldest that fedgauss admits."""
    here = platform.python_version()
    try:
        oldest = metadata.metadata("fedgauss")["Requires-Python"] or ""
    except metadata.PackageNotFoundError:
        oldest = ""
    needed = Requirement("python", ((">=", oldest.removeprefix(">=").strip()),))
    if oldest.startswith(">=") and not needed.admits(here):
        return Finding(
            "problem", "Python", f"{here}, but fedgauss needs {oldest}", "Install fedgauss under a newer one."
        )
    return Finding("ok", "Python", f"{here} at {sys.executable}" + (f"; needed: {oldest}" if oldest else ""))


def fedgauss_version() -> Finding:
    """The fedgauss that is imported, against the one that is installed."""
    here, there = fedgauss.__version__, installed("fedgauss")
    if there is None:
        fix = "Install it, so that versions can be checked: pip install . in its folder."
        return Finding("warning", "fedgauss", f"{here}, found on the path but not installed", fix)
    if there != here:
        fix = "Look at PYTHONPATH, and at the current folder; or reinstall."
        return Finding("warning", "fedgauss", f"{here} is imported, but {there} is installed", fix)
    return Finding("ok", "fedgauss", here)


def needed_packages() -> list[Finding]:
    """Every package that fedgauss cannot do without: there, new enough, and importable."""
    return [_needed(requirement) for requirement in _required() if requirement.extra is None]


def extras() -> list[Finding]:
    """What each extra is for, and whether it is there."""
    by_extra: dict[str, list[Requirement]] = {}
    for requirement in _required():
        if requirement.extra is not None:
            by_extra.setdefault(requirement.extra, []).append(requirement)
    return [_extra(name, packages) for name, packages in by_extra.items()]


def _required() -> list[Requirement]:
    try:
        return requirements()
    except metadata.PackageNotFoundError:  # fedgauss_version says so; what is needed at all is known nevertheless
        return [Requirement(name, ()) for name in _BASE]


def _needed(requirement: Requirement) -> Finding:
    name, words = requirement.name, f"; needed: {requirement.words}" if requirement.words else ""
    pip = f"pip install '{name}{requirement.words}'"
    version = installed(name)
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken package may raise anything
        lacking = "is not installed" if version is None else f"{version} cannot be imported"
        return Finding("problem", name, f"{lacking}: {_one_line(error)}", f"{pip}{_without(name)}")
    if version is None:
        return Finding("warning", name, "importable, but of unknown version", pip)
    if not requirement.admits(version):
        return Finding("problem", name, f"{version}{words}", pip)
    return Finding("ok", name, f"{version}{words}")


def _without(name: str) -> str:
    """What still works where a package is missing."""
    if name == "jax":
        return ". Until then monitors, exact fits, sites and `fedgauss watch` work; simulation and --solver sgd do not."
    if name == "cryptography":
        return ". Until then all works but fits between sites."
    return ""


def _extra(name: str, packages: list[Requirement]) -> Finding:
    purpose, pip = PURPOSES.get(name, ""), f"pip install 'fedgauss[{name}]'"
    here = {package.name: installed(package.name) for package in packages}
    if here[packages[0].name] is None:
        return Finding("ok", f"extra {name}", f"not installed; for {purpose}: {pip}")
    wrong = [p for p in packages if (version := here[p.name]) is None or not p.admits(version)]
    if wrong:
        said = ", ".join(f"{p.name} {here[p.name] or 'missing'}, needed: {p.words}" for p in wrong)
        return Finding("warning", f"extra {name}", f"{said}; for {purpose}", pip)
    return Finding("ok", f"extra {name}", f"{packages[0].name} {here[packages[0].name]}; for {purpose}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
