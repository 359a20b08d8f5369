"""Peers that gossip, as threads of one process: `python -m soak.gossip_program`; an order is a run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gossip_threads import Hung, Threads

import fedgauss as fg
from fedgauss.integrations.gossip.peer import run_peer
from soak.gossip import PEERS, STEPS, TAU
from soak.workers import serve


def run(order: dict[str, Any]) -> list[dict[str, Any] | None]:
    """What each peer ended with.

    die      [peer, step]: it is gone after this step
    spoil    [peer, step]: what it sends in the round that ends there is NaN
    freeze   [peer, step, seconds]: it stands still after this step
    """
    problem = fg.problems.random_effects(n_clients=PEERS, dim=2, heterogeneity=1.0, seed=3)
    lin, network = fg.linearize(problem.reference()), fg.networks.ring(PEERS)
    threads = Threads(PEERS)
    kept: list[list[Any]] = [[] for _ in range(PEERS)]

    def peer_program(peer: int, exchange: Any) -> Any:
        at = 0  # step after which the peer is

        def exchanged(messages: Any) -> Any:
            if order.get("spoil") == [peer, at + TAU] and kept[peer]:
                messages = {other: np.full_like(sent, np.nan) for other, sent in messages.items()}
            return exchange(messages)

        def on_round(seen: Any) -> None:
            nonlocal at
            at = seen.step
            kept[peer].append([seen.step, seen.theta.tolist(), seen.verdict.statistic, seen.verdict.alarm])
            if order.get("die") == [peer, seen.step]:
                raise Hung
            if (order.get("freeze") or [None])[:2] == [peer, seen.step]:
                time.sleep(order["freeze"][2])

        steps = fg.step_sizes.polynomial(0.3, beta=0.75)
        return run_peer(
            peer, problem, network, steps, STEPS, exchanged, lin, sync_every=TAU, seed=5, on_round=on_round
        )  # fmt: skip

    finished = threads.run(peer_program)
    return [
        None if one is None else {"rounds": rounds, "lost": sorted(one.lost.items()), "theta": one.theta.tolist()}
        for one, rounds in zip(finished, kept, strict=True)
    ]


if __name__ == "__main__":
    serve(run)
