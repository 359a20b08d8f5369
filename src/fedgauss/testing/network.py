"""What every network must keep to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fedgauss._types import AnyArray, FloatArray
from fedgauss.networks import Network, RandomNetwork, TamperedNetwork
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.chance import expect_mean

_TOLERANCE = 1e-6
_FLOAT32 = 1e-5  # relative, of what the engine mixes
_ENTRIES = 2**21  # of the matrices drawn from a random network


def check_network(network: Network) -> Report:
    """Check a network of your own against Assumption 2.1 of the paper, and that the engine mixes by its matrix.

    Of a random network the mean is held to the assumption, and what the engine draws to the moments that it states.

    Parameters
    ----------
    network : Network
        Up to a few thousand clients: its matrix is looked at whole.

    Returns
    -------
    Report
        The outcome of every check; printed, it lists them.

    Raises
    ------
    ConformanceError
        If any rule is broken. It lists all broken rules, with what was found and how to mend it.

    Examples
    --------
    >>> import fedgauss as fg
    >>> from fedgauss.testing import check_network
    >>> print(check_network(fg.networks.ring(5)))  # doctest: +SKIP
    """
    return run(repr(network), checks_for_network(network))


def checks_for_network(network: Network) -> list[Check]:
    """The checks of `check_network` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    network : Network
        As in `check_network`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not isinstance(network, Network):
        got = type(network).__name__
        raise ValueError(f"network must be a Network; got {got}. Use networks.from_matrix or networks.from_graph?")
    return checks(_RULES, _Case(network))


class _Case:
    """A network, and what several checks look at."""

    def __init__(self, network: Network) -> None:
        self.network = network

    @cached_property
    def matrix(self) -> FloatArray:
        """C."""
        return np.asarray(self.network.matrix, float)

    @cached_property
    def contraction(self) -> float:
        """The norm of C - J."""
        n = len(self.matrix)
        return float(np.linalg.norm(self.matrix - 1.0 / n, 2)) if n > 1 else 0.0

    @cached_property
    def mixed(self) -> tuple[FloatArray, FloatArray]:
        """Some Theta (d, K, R), and what the engine makes of it before anybody forges messages."""
        theta = np.random.default_rng(0).standard_normal((2, self.network.n_clients, 4)).astype(np.float32)
        return theta.astype(float), self._mixed_by_engine(theta)

    @cached_property
    def draws(self) -> FloatArray:
        """C_t as the engine draws it, (K, K, R): what becomes of one client's 1 and the others' 0."""
        n = self.network.n_clients
        runs = int(np.clip(_ENTRIES // n**2, 64, 4096))
        return self._mixed_by_engine(np.repeat(np.eye(n, dtype=np.float32)[:, :, None], runs, axis=2))

    @property
    def random(self) -> RandomNetwork:
        """The network, if its C_t is drawn."""
        if not isinstance(self.network, RandomNetwork):
            not_applicable("the network stays the same")
        return self.network

    def _mixed_by_engine(self, theta: AnyArray) -> FloatArray:
        """Theta C_t, before anybody forges messages."""
        from fedgauss.testing.evaluation import mixed  # which loads JAX

        return np.asarray(mixed(self.network, theta), float)


def _square(case: _Case) -> None:
    """C is a finite K x K matrix, which nobody can write to."""
    shape, k = case.matrix.shape, case.network.n_clients
    expect(isinstance(k, int) and shape == (k, k), f"shape {shape} for {k!r} clients", "C must be K x K.")
    expect(np.isfinite(case.matrix).all(), "entries that are not finite", "use 0 where clients do not average.")
    got = "a matrix that can be written to"
    expect(not case.network.matrix.flags.writeable, got, "call matrix.setflags(write=False): networks are shared.")


def _symmetric(case: _Case) -> None:
    """C is symmetric (Assumption 2.1): clients give each other the same weight."""
    gap = float(np.abs(case.matrix - case.matrix.T).max())
    expect(gap <= _TOLERANCE, f"C {gap:.3g} away from its transpose", "use (C + C.T) / 2 or Metropolis weights.")


def _doubly_stochastic(case: _Case) -> None:
    """The entries of C are not negative, its rows and columns sum to one, and its diagonal is positive."""
    fix = "use Metropolis weights: networks.from_graph(graph)."
    low = float(case.matrix.min())
    expect(low >= -_TOLERANCE, f"an entry of {low:.3g}", fix)
    for axis, name in ((1, "row"), (0, "column")):
        sums = case.matrix.sum(axis=axis)
        worst = int(np.argmax(np.abs(sums - 1.0)))
        expect(abs(sums[worst] - 1.0) <= _TOLERANCE, f"{name} {worst} that sums to {sums[worst]:.6g}", fix)
    least = float(np.diagonal(case.matrix).min())
    expect(least > 0, f"a diagonal entry of {least:.3g}", "use (C + I) / 2.")


def _contracts(case: _Case) -> None:
    """Mixing brings clients together: the norm of C - J is below one (Assumption 2.1: lambda_2 < 1)."""
    fix = "connect all clients, and give each some weight of its own."
    expect(case.contraction < 1.0 - 1e-12, f"a norm of {case.contraction:.6g}", fix)


def _eigenvalue(case: _Case) -> None:
    """`second_eigenvalue` is the norm of C - J, for a random network the root of that of E[C C'] - J.

    And `spectral_gap` is what is missing from one.
    """
    found, gap = case.network.second_eigenvalue, case.network.spectral_gap
    fix = "leave `second_eigenvalue` and `spectral_gap` to Network."
    wanted = case.contraction
    if isinstance(case.network, RandomNetwork):
        square = case.matrix @ case.matrix + case.network.spread(np.eye(len(case.matrix)))
        wanted = float(np.sqrt(np.linalg.norm(square - 1.0 / len(square), 2)))
    expect(abs(found - wanted) <= _TOLERANCE, f"{found:.6g}, not {wanted:.6g}", fix)
    expect(abs(found + gap - 1.0) <= _TOLERANCE, f"a spectral gap of {gap:.6g}", fix)


def _edges(case: _Case) -> None:
    """`edges` is the number of pairs i < j that average with each other."""
    wanted = int(np.count_nonzero(np.triu(case.matrix, 1) > 0))
    expect(case.network.edges == wanted, f"{case.network.edges}, not {wanted}", "leave `edges` to Network.")


def _mixes_by_its_matrix(case: _Case) -> None:
    """The engine's mixing is the product Theta C; where C_t is drawn, C is its mean."""
    if isinstance(case.network, RandomNetwork):
        expect_mean(case.draws, case.matrix, "`matrix`", "let `sparse` be the mean of what is drawn.")
        return
    theta, mixed = case.mixed
    gap = float(np.abs(mixed - np.einsum("dkr,kj->djr", theta, case.matrix)).max())
    fix = "see that `sparse` and `uniform` say the same as `matrix`: C = sparse + uniform 11'/K."
    expect(gap <= _FLOAT32 * np.abs(theta).max(), f"a mixed Theta {gap:.3g} away from Theta C", fix)


def _keeps_the_mean(case: _Case) -> None:
    """Mixing keeps the mean of the clients, on which the whole theory rests."""
    theta, mixed = case.mixed
    gap = float(np.abs(mixed.mean(axis=1) - theta.mean(axis=1)).max())
    expect(gap <= _FLOAT32 * np.abs(theta).max(), f"a mean that moved by {gap:.3g}", "rows of C must sum to one.")


def _every_draw_is_a_mixing(case: _Case) -> None:
    """Every C_t that is drawn is symmetric and not negative, and its rows sum to one."""
    _, draws = case.random, case.draws
    fix = "take weight from both ends of a link alike: C_t = I - sum_e v_e L_e."
    gap = float(np.abs(draws - np.swapaxes(draws, 0, 1)).max())
    expect(gap <= _FLOAT32, f"a C_t {gap:.3g} away from its transpose", fix)
    expect(draws.min() >= -_FLOAT32, f"an entry of {draws.min():.3g}", "let a client's weights sum to one at most.")
    gap = float(np.abs(draws.sum(axis=1) - 1.0).max())
    expect(gap <= _FLOAT32, f"a row that sums to one up to {gap:.3g}", fix)


def _second_moments(case: _Case) -> None:
    """`spread` is what drawing C_t adds to second moments: E[C M C] - (E C) M (E C), with all clients and with some."""
    network, n = case.random, len(case.matrix)
    root = np.random.default_rng(1).standard_normal((n, n))
    second = root @ root.T
    some = np.arange(n) % 3 != 1
    for present in (None, some):
        links = case.draws if present is None else case.draws * (some[:, None] & some)[:, :, None]
        each = np.moveaxis(links, -1, 0) * (1.0 - np.eye(n))
        each += (1.0 - each.sum(axis=1))[:, None] * np.eye(n)  # a link that is down leaves its weight where it was
        mean = network.matrix if present is None else network.among(present)
        stated = mean.T @ second @ mean + network.spread(second, present)
        found = np.moveaxis(each.transpose(0, 2, 1) @ second @ each, 0, -1)
        expect_mean(found, stated, "E[C M C] by `spread`", "see `RandomNetwork.spread` for what `weight_cov` must be.")


def _repeated(case: _Case) -> None:
    """`repeated(m)` mixes m times: its matrix is C^m."""
    if isinstance(case.network, TamperedNetwork):
        not_applicable("a network is repeated before its messages are forged")
    if isinstance(case.network, RandomNetwork):
        not_applicable("a network is repeated before it becomes random")
    for times in (1, 3):
        found = case.network.repeated(times).matrix
        gap = float(np.abs(found - np.linalg.matrix_power(case.matrix, times)).max())
        expect(gap <= _TOLERANCE, f"C^{times} off by {gap:.3g}", "leave `repeated` to Network.")


def _shown(case: _Case) -> None:
    """`repr` is one short line that names the network and its clients."""
    shown = repr(case.network)
    got = f"{shown[:80]!r}, {len(shown)} characters"
    good = "\n" not in shown and len(shown) <= 200 and str(case.network.n_clients) in shown
    expect(good, got, "use repr=False for the dataclass.")


_RULES: Sequence[Any] = (
    _square, _symmetric, _doubly_stochastic, _contracts, _eigenvalue, _edges, _mixes_by_its_matrix, _keeps_the_mean,
    _every_draw_is_a_mixing, _second_moments, _repeated, _shown,
)  # fmt: skip
