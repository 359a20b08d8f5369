"""Block innovations against matrix products written out, and against simulation of the linear model."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.innovations import innovations, step_sizes_between
from oracles.detection import block_covariance, block_innovation


def matrices(generator, count, dim):
    roots = generator.standard_normal((count, dim, dim + 2))
    return roots @ np.swapaxes(roots, 1, 2) / dim


@pytest.fixture
def lin():
    generator = np.random.default_rng(5)
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    return fg.linearization(matrices(generator, 4, 3), matrices(generator, 4, 3), weights, optimum=[1.0, -2.0, 0.5])


STEPS = fg.step_sizes.polynomial(0.2, 0.75, shift=3.0)


@pytest.mark.parametrize(("after", "last"), [(0, 1), (0, 20), (20, 40), (40, 43), (1000, 1070)])
def test_innovation_and_weight_are_those_of_the_definition(lin, after, last):
    """Steps in the wrong order, a block off by one step, or a wrong root of V would all show."""
    generator = np.random.default_rng(1)
    before, now = generator.standard_normal((2, 3))
    parts = innovations(lin, STEPS)
    block = parts.block(after, last)
    eta = STEPS.eta(last)[after:]
    root = np.linalg.inv(np.linalg.cholesky(lin.noise_cov))
    wanted = block_innovation(lin.hessian, eta, before - lin.optimum, now - lin.optimum)
    omega = block_covariance(lin.hessian, lin.noise_cov, eta)
    x = parts.whiten(block, before, now)
    np.testing.assert_allclose(np.linalg.norm(x), np.linalg.norm(root @ wanted), rtol=1e-9)
    np.testing.assert_allclose(parts.whitening.matrix @ lin.noise_cov @ parts.whitening.matrix, np.eye(3), atol=1e-12)
    sizes = np.linalg.eigvalsh(root @ omega @ root.T)
    np.testing.assert_allclose([block.weight, block.mean_weight], [1 / sizes[-1], 3 / sizes.sum()], rtol=1e-9)
    several = parts.whiten(block, np.stack([before] * 4, axis=1), np.stack([now] * 4, axis=1))
    np.testing.assert_allclose(several, np.stack([x] * 4, axis=1), rtol=1e-12)


def test_partial_participation_uses_the_hessian_and_noise_of_those_present(lin):
    weights = np.array([0.0, 0.4, 0.6, 0.0])
    parts = innovations(lin, STEPS)
    block = parts.block(20, 40, weights)
    eta = STEPS.eta(40)[20:]
    hessian = np.einsum("k,kij->ij", weights, lin.client_hessians)
    noise = np.einsum("k,kij->ij", weights**2, lin.client_noise_cov)
    before, now = np.random.default_rng(2).standard_normal((2, 3))
    wanted = parts.whitening.matrix @ block_innovation(hessian, eta, before - lin.optimum, now - lin.optimum)
    np.testing.assert_allclose(parts.whiten(block, before, now), wanted, rtol=1e-9)
    omega = parts.whitening.matrix @ block_covariance(hessian, noise, eta) @ parts.whitening.matrix
    np.testing.assert_allclose(block.weight, 1 / np.linalg.eigvalsh(omega)[-1], rtol=1e-9)
    assert block.weight < parts.block(20, 40).weight  # fewer clients, more noise


def test_no_direction_is_trusted_more_than_its_noise_allows(lin):
    """V known: Omega_j <= V / weight in every direction, also where steps stay large and A is badly conditioned."""
    uneven = fg.linearization(np.diag([1.0, 0.02, 0.02])[None], np.eye(3)[None])
    block = innovations(uneven, fg.step_sizes.constant(0.5)).block(40, 60)
    omega = block_covariance(uneven.hessian, uneven.noise_cov, np.full(20, 0.5))
    assert np.linalg.eigvalsh(np.eye(3) / block.weight - omega).min() > -1e-12
    assert block.mean_weight > 1.1 * block.weight


def test_a_noiseless_run_has_constant_innovations_from_any_start(lin):
    """Y_t = theta* + prod (I - eta A)(Y_0 - theta*) must look like no change at all, with any gaps between rounds."""
    parts = innovations(lin, STEPS)
    y, last, seen = np.array([30.0, -40.0, 5.0]), 0, []
    for step in (1, 2, 7, 20, 60, 61, 200):
        before = y
        for eta in STEPS.eta(step)[last:]:
            y = y - eta * lin.hessian @ (y - lin.optimum)
        seen.append(parts.whiten(parts.block(last, step), before, y))
        last = step
    np.testing.assert_allclose(seen, 0.0, atol=1e-10)


def test_step_sizes_of_a_block_are_those_of_the_schedule():
    warm = fg.step_sizes.warm_start(0.1, 7, 0.3, 0.75)
    listed = fg.step_sizes.from_array(np.linspace(0.5, 0.1, 50))
    for steps in (STEPS, warm, listed, fg.step_sizes.constant(0.2)):
        for after, last in [(0, 5), (3, 9), (7, 8), (20, 50)]:
            np.testing.assert_allclose(step_sizes_between(steps, after, last), steps.eta(last)[after:], rtol=1e-13)


def test_bad_input_is_named(lin):
    wrong = fg.Linearization(lin.optimum, lin.client_hessians - 9 * np.eye(3), lin.client_noise_cov, lin.weights)
    with pytest.raises(ValueError, match=r"hessian A .* positive definite; its smallest eigenvalue is -"):
        innovations(wrong, STEPS)
    noise = lin.client_noise_cov - 9 * np.eye(3)
    with pytest.raises(
        ValueError, match=r"client_noise_cov must be positive semi-definite; its smallest eigenvalue is -"
    ):
        innovations(fg.Linearization(lin.optimum, lin.client_hessians, noise, lin.weights), STEPS)
    with pytest.raises(ValueError, match=r"client_hessians must have shape \(4, 3, 3\)"):
        innovations(fg.Linearization(lin.optimum, lin.client_hessians[:3], lin.client_noise_cov, lin.weights), STEPS)
    with pytest.raises(ValueError, match="same for all clients"):
        innovations(lin, fg.step_sizes.per_client([STEPS] * 4))
    with pytest.raises(ValueError, match="lin must be a Linearization"):
        innovations(lin.hessian, STEPS)
    with pytest.raises(ValueError, match="Use smaller step sizes"):
        innovations(lin, fg.step_sizes.constant(50.0)).block(0, 2)
