"""Checks of JAX: which devices it sees, and how long the first compilation takes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from fedgauss.doctor.finding import Finding
from fedgauss.doctor.surroundings import CACHE

_LONG = 20.0  # seconds of a compilation that are worth a word
_SEE_ABOVE = "See the line of jax, above."
_DRIVER = Path("/proc/driver/nvidia/version")


def devices() -> Finding:
    """What JAX can compute on."""
    name = "devices"
    try:
        import jax

        seen = jax.devices()
    except ImportError:
        return Finding("warning", name, "unknown, since JAX cannot be imported", _SEE_ABOVE)
    except RuntimeError as error:
        fix = "Set JAX_PLATFORMS=cpu, or repair the driver."
        return Finding("problem", name, f"JAX finds none: {' '.join(str(error).split())}", fix)
    kinds = Counter(device.device_kind for device in seen)
    said = ", ".join(f"{number} x {kind}" for kind, number in kinds.items())
    if _DRIVER.exists() and all(device.platform == "cpu" for device in seen):
        fix = "For the GPU: pip install 'jax[cuda13]', or 'jax[cuda12]' with an older driver."
        return Finding("warning", name, f"{said}; there is an NVIDIA driver, but JAX does not use it", fix)
    return Finding("ok", name, said)


def first_compilation() -> Finding:
    """A small simulation, from nothing: most of it is compiling."""
    name = "first compilation"
    try:
        import jax  # noqa: F401 - importing it is not compiling

        from fedgauss.engine.simulate import simulate
        from fedgauss.networks import ring
        from fedgauss.problems import random_effects
        from fedgauss.step_sizes import polynomial
    except ImportError:
        return Finding("warning", name, "not tried, since JAX cannot be imported", _SEE_ABOVE)
    began = time.monotonic()
    simulate(random_effects(n_clients=4, seed=1), ring(4), polynomial(0.3, beta=0.75), n_steps=40, replicates=2)
    took = time.monotonic() - began
    words = f"{took:.1f} s for a small simulation"
    if took > _LONG:
        return Finding("warning", name, words, f"Set {CACHE} to keep compiled programs for the next process.")
    return Finding("ok", name, words)
