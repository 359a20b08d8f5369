"""Checks of what surrounds the process: folders that must be written to, and Ctrl-C."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

from fedgauss.doctor.finding import Finding, State

_ROOM = 100_000_000  # bytes below which a folder is called full
CACHE = "JAX_COMPILATION_CACHE_DIR"


def current_folder() -> Finding:
    """Where commands write their results unless --out says otherwise."""
    try:
        folder = Path.cwd()
    except OSError as error:
        return Finding("problem", "current folder", f"is gone: {error.strerror}", "cd to a folder that exists.")
    return _writable("current folder", folder, "Use cd, or --out with a folder of your own.", "warning")


def temporary_folder() -> Finding:
    """Where programs keep what they need for a moment."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as error:
        return Finding("problem", "temporary folder", str(error), "Set TMPDIR to a folder that can be written to.")
    return _writable("temporary folder", folder, "Set TMPDIR to a folder that can be written to.", "problem")


def compiled_programs() -> Finding:
    """Where JAX keeps compiled programs, if it was told to."""
    name, given = "JAX cache", os.environ.get(CACHE)
    if not given:
        return Finding("ok", name, f"not set: every process compiles anew. {CACHE}=~/.cache/jax would keep programs")
    folder = Path(given).expanduser()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent  # JAX makes what is missing
    return _writable(name, folder, f"Set {CACHE} to a folder that can be written to, or unset it.", "warning")


def ctrl_c() -> Finding:
    """Whether SIGINT reaches Python."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        fix = "Programs that a shell starts with & or nohup ignore it: stop them with kill (SIGTERM), or use systemd."
        return Finding("warning", "Ctrl-C", "SIGINT is ignored here, so Ctrl-C does nothing", fix)
    return Finding("ok", "Ctrl-C", "SIGINT is heard")


def _writable(name: str, folder: Path, fix: str, otherwise: State) -> Finding:
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding(otherwise, name, f"{folder} cannot be written to: {error.strerror}", fix)
    if free < _ROOM:
        return Finding("warning", name, f"{folder} has {free / 1e6:.0f} MB left", "Make room, or use another one.")
    return Finding("ok", name, f"{folder} can be written to; {free / 1e9:.1f} GB free")
