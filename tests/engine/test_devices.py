"""Runs over several devices, which a child process pretends to have, are those of one device to the bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine.devices import mesh_for
from fedgauss.engine.observers import path

REPLICATES = 75  # no multiple of a chunk on two devices


def runs(eta: float, start: np.ndarray | None = None) -> fg.Runs:
    """What touches every kind of array: starts of each replicate, clients that are drawn, a table over time."""
    if start is None:
        start = np.random.default_rng(0).normal(size=(REPLICATES, 5, 2))
    problem, server = fg.problems.random_effects(5, seed=1907), fg.networks.complete(5)
    steps = np.full(40, eta)
    return fg.simulate(
        problem,
        server,
        steps,
        40,
        sync_every=5,
        replicates=REPLICATES,
        start=start,
        observe=[path(10)],
        participation=2,
    )


def where_it_diverges(start: np.ndarray | None = None) -> tuple[int, int, int]:
    """The step, client and replicate that an error names."""
    with pytest.raises(fg.DivergedError) as caught:
        runs(1e4, start)
    return caught.value.step, caught.value.client, caught.value.replicate


def write(file: Path) -> None:
    """What the child does."""
    found, together = runs(0.05), np.zeros(2)  # from there, columns for those who take part alone
    np.savez(
        file,
        average=found.average,
        last=found.last,
        path=found.path,
        diverges=where_it_diverges(),
        seated=runs(0.05, together).path,
        seated_diverges=where_it_diverges(together),
        devices=0 if (mesh := mesh_for(REPLICATES)) is None else mesh.size,
    )


@pytest.mark.filterwarnings("ignore:eta_t should not exceed")
def test_two_devices_give_the_bits_of_one(tmp_path: Path) -> None:
    """Would catch a share that begins at the wrong replicate, or an array that is split along the wrong axis."""
    child = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    order = f"import pathlib, test_devices; test_devices.write(pathlib.Path({str(tmp_path / 'two.npz')!r}))"
    subprocess.run([sys.executable, "-W", "ignore", "-c", order], cwd=Path(__file__).parent, env=child, check=True)
    write(tmp_path / "one.npz")
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "two.npz") as two:
        assert (one["devices"], two["devices"]) == (0, 2)
        for name in ("average", "last", "path", "diverges", "seated", "seated_diverges"):
            np.testing.assert_array_equal(one[name], two[name], name)


def test_few_replicates_or_a_chosen_device_stay_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen replicates a device are the fewest, and `jax.default_device` is obeyed."""
    device = jax.devices()[0]
    monkeypatch.setattr(jax, "local_devices", lambda: [device, device])
    assert mesh_for(31) is None
    with jax.default_device(device):
        assert mesh_for(32) is None
