"""Columns for those who take part alone, where a server calls few of many clients a round.

All clients begin a round at W_r, the server's mean, and those who are absent stay there. So a run with m of K clients a
round needs m columns, the seats, each taken by a client that is drawn for the round, and W_r for everybody else. It is
the same run up to rounding: the same clients, who draw the same data.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.engine.loop import Algorithm, ResolvedStart
from fedgauss.engine.mixing import PresentMixing, ServerMixing
from fedgauss.engine.participation import Seats
from fedgauss.problems.base import claims


def seated(algorithms: Sequence[Algorithm], starts: Sequence[ResolvedStart]) -> list[Algorithm]:
    """Settings that run together, with seats in the place of clients if all of them allow it, as they are otherwise."""
    counts = {algorithm.presence.count for algorithm in algorithms if algorithm.presence is not None}
    if len(counts) != 1 or not all(map(_has_seats, algorithms, starts)):
        return list(algorithms)
    return [_seated(algorithm) for algorithm in algorithms]


def _has_seats(algorithm: Algorithm, start: ResolvedStart) -> bool:
    """Whether clients are alike but for their data where a round begins, and nobody asks for those who are absent."""
    presence, mixing, rules = algorithm.presence, algorithm.mixing, algorithm.rules
    return (
        presence is not None
        # A seat uses one of the two words of a hash: with more than half of the clients there is little to gain.
        and 2 * presence.count <= algorithm.problem.n_clients
        and isinstance(mixing, PresentMixing)
        and mixing.links is None
        and mixing.uniform == 1.0
        and (rules is None or not rules.keep_momentum)
        and start.fixed.shape[1] == 1
        and (start.sd is None or start.shared)
        and claims(algorithm.problem, "serves_some")
        and all(claims(observer, "mean_only") for observer in algorithm.observers)
    )


def _seated(algorithm: Algorithm) -> Algorithm:
    assert algorithm.presence is not None
    seats = Seats(algorithm.presence.rounds, int(algorithm.presence.count))
    return algorithm._replace(mixing=ServerMixing(), presence=None, seats=seats)
