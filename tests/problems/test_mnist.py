"""The shipped MNIST scores, the problem made of them, and the files they come from."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

import fedgauss as fg
from fedgauss import data

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 4, 3), dtype=np.uint8)
LABELS = np.arange(20, dtype=np.uint8) % 10
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_mnist_scores.py"


def idx(array, n_axes=None):
    n_axes = array.ndim if n_axes is None else n_axes
    return bytes([0, 0, 8, n_axes]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def small(n_clients=5, **options):
    scores, labels = data.mnist_scores()
    return fg.problems.mnist(n_clients, scores=scores[:3001], labels=labels[:3001], **options)


def test_the_shipped_scores_are_those_of_the_training_set():
    scores, labels = data.mnist_scores()
    assert scores.shape == (60_000, 3)
    np.testing.assert_array_equal(
        np.bincount(labels), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    )  # as published
    np.testing.assert_allclose(scores.mean(axis=0), 0.0, atol=1e-5)
    covariance = np.cov(scores.T, ddof=0)
    np.testing.assert_allclose(covariance, np.diag([5.1168, 3.7413, 3.2527]), atol=1e-4)


def test_the_mnist_problem_is_the_one_that_the_figures_were_measured_on():
    # Known independently: eigenvalues of A from 7e-4 to .57; flipping three of five clients shifts the mean gradient
    # by delta with delta' V_K^-1 delta = 52 a step, more or less by which three.
    problem = fg.problems.mnist()
    assert (problem.n_clients, problem.dim) == (5, 40)
    lin = fg.linearize(problem)
    values = np.linalg.eigvalsh(lin.hessian)
    np.testing.assert_allclose([values[0], values[-1]], [7.2e-4, 0.570], rtol=0.01)
    flip = fg.problems.label_flip(problem, [0, 1, 2], 50, pairs=fg.problems.MNIST_FLIP)
    delta = flip.mean_effect(lin.optimum)
    assert delta @ np.linalg.solve(lin.noise_cov, delta) == pytest.approx(52, abs=1)


def test_rows_are_split_at_random_and_evenly():
    problem, same, other = small(), small(), small(seed=1)
    np.testing.assert_array_equal(problem.counts, [601, 600, 600, 600, 600])
    np.testing.assert_array_equal(problem.features, same.features)
    assert np.any(problem.features != other.features)
    assert problem.order == "replacement"
    np.testing.assert_array_equal(problem.features[:, 3], 1.0)
    assert small(order="once").max_steps() == 600


def test_a_label_flip_of_three_clients_from_step_50_on():
    problem = small()
    flip = fg.problems.label_flip(problem, [0, 2, 4], 50, pairs=fg.problems.MNIST_FLIP)
    assert list(flip.partner) == [0, 7, 5, 3, 8, 2, 6, 1, 4, 9]

    def path(of):
        return fg.simulate(
            of, fg.networks.ring(5), fg.step_sizes.polynomial(1.0, 0.6), 60, sync_every=5, replicates=8, keep="path"
        ).path

    honest, attacked = path(problem), path(flip)
    np.testing.assert_array_equal(honest[:, :49], attacked[:, :49])
    assert np.abs(honest[:, 49:] - attacked[:, 49:]).max(axis=(0, 2)).min() > 1e-3


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_as_published(tmp_path, packed):
    wrap = gzip.compress if packed else bytes
    (tmp_path / "images").write_bytes(wrap(idx(IMAGES)))
    (tmp_path / "labels").write_bytes(wrap(idx(LABELS)))
    np.testing.assert_array_equal(data.read_images(tmp_path / "images"), IMAGES)
    np.testing.assert_array_equal(data.read_labels(tmp_path / "labels"), LABELS)


def test_npz_files_are_read_too(tmp_path):
    np.savez_compressed(tmp_path / "both.npz", images=IMAGES, labels=LABELS)
    images, labels = data.read_images(tmp_path / "both.npz"), data.read_labels(tmp_path / "both.npz")
    np.testing.assert_array_equal(images, IMAGES)
    problem = fg.problems.mnist(2, scores=data.principal_scores(images, 2), labels=labels)
    assert (problem.n_clients, problem.dim) == (2, 30)


def test_scores_are_principal_components_whatever_the_solver():
    scores = data.principal_scores(IMAGES, 3)
    pixels = IMAGES.reshape(20, -1) / 255
    left, sizes, loadings = np.linalg.svd(pixels - pixels.mean(axis=0), full_matrices=False)
    expected = left[:, :3] * sizes[:3]
    signs = np.sign(loadings[:3][np.arange(3), np.abs(loadings[:3]).argmax(axis=1)])
    np.testing.assert_allclose(scores, expected * signs, atol=1e-10)


def npz_member(shape, dtype, body, order=False):
    header = repr({"descr": dtype, "fortran_order": order, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def npz(**members):
    def write(path):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"{name}.npy", content)

    return write


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it begins with nothing"),
        (b"hello", "it begins 68656c6c. Are images and labels swapped"),
        (idx(LABELS), "must hold images: an IDX file of bytes with 3 axes, which begins 00000803"),
        (idx(IMAGES)[:10], "cut off inside its header, after 10 bytes"),
        (idx(IMAGES)[:-1], "must hold 240 bytes after its header; it holds only 239. Is it damaged?"),
        (idx(IMAGES) + b"x", "it holds more"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "its header says .4294967295, 4294967295, 4294967295."),
        (bytes([0, 0, 8, 3]) + b"\x00" * 12, "must hold 1 to 2147483648 bytes"),
        (gzip.compress(idx(IMAGES))[:-20], "cut off or damaged"),
        (gzip.compress(idx(IMAGES))[:40] + b"\x00" * 60, "cut off or damaged"),
        (gzip.compress(idx(IMAGES) + bytes(10**7)), "it holds more"),
        (b"PK\x03\x04 no archive", "cut off or damaged"),
        (npz(other=b""), "must hold an array named 'images'; it holds .'other.npy'."),
        (npz(images=b"no array"), "no readable NumPy array"),
        (npz(images=npz_member((20, 4, 3), "|O", b"cos\nsystem\n")), "must be bytes, uint8, with 3 axes; got object"),
        (npz(images=npz_member((20, 4), "|u1", bytes(80))), r"with 3 axes; got uint8 \(20, 4\)"),
        (
            npz(images=npz_member((20, 4, 3), "|u1", bytes(239))),
            "must hold 240 bytes after its header; it holds only 239",
        ),
        (npz(images=npz_member((20, 4, 3), "|u1", bytes(241))), "it holds more"),
        (npz(images=npz_member((20, 4, 3), "|u1", bytes(240), order=True)), "C order"),
        (npz(images=npz_member((10**6, 10**6, 3), "|u1", b"")), "must hold 1 to 2147483648 bytes"),
        (npz(images=npz_member((-20, -4, 3), "|u1", bytes(240))), "its header says .-20, -4, 3."),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",  # bytes would carry gzip's clock into the name
)
def test_damaged_and_hostile_files_are_refused(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    with pytest.raises(ValueError, match=message):
        data.read_images(path)


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(tmp_path):
    # 200 MB of zeros behind a header that promises 240 bytes. Catches reading all of it first.
    (tmp_path / "bomb").write_bytes(gzip.compress(idx(IMAGES) + bytes(200_000_000), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(ValueError, match="it holds more"):
        data.read_images(tmp_path / "bomb")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_the_script_makes_the_shipped_kind_of_file(tmp_path):
    spec = importlib.util.spec_from_file_location("make_mnist_scores", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.OUT.name == "mnist_pca3.npz"
    assert script.OUT.exists()
    np.savez(tmp_path / "few.npz", images=IMAGES, labels=LABELS)
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "few.npz", "--out", tmp_path / "out.npz"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "60,000 images of 28 by 28" in done.stderr
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clients": 0}, "n_clients must be at least 1; got 0"),
        ({"n_clients": 60_001}, "n_clients must be at most 60000; got 60001. Every client needs a row"),
        ({"scores": np.zeros((3, 2))}, "scores and labels belong together"),
        ({"n_clients": 1, "scores": np.zeros((3, 2)), "labels": [0, 1, 10]}, "classes 0 to 9; row 2 is 10"),
        ({"n_clients": 1, "scores": np.zeros((3, 2)), "labels": [0, 1]}, "Give one response a row"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_mnist_problems_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fg.problems.mnist(**options)


def test_images_that_are_not_bytes_are_refused():
    with pytest.raises(ValueError, match="images must be at least two arrays of bytes"):
        data.principal_scores(IMAGES / 255)
    with pytest.raises(ValueError, match="n_components must be at most 12; got 13"):
        data.principal_scores(IMAGES, 13)
