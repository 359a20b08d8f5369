"""Peers without a server: one dies, stands still or sends nonsense, and the others must agree on what is left."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from typing import Any

from soak import invariants
from soak.invariants import demand
from soak.processes import Child, program
from soak.scenario import Fault, Scenario
from soak.workers import Orders

PEERS, STEPS, TAU = 6, 120, 10
_SETTLED = 5  # runs


class Gossip(Scenario):
    """Runs of six peers on a ring, one after the other in one process."""

    name = "gossip"

    def begin(self) -> None:
        """A process, and the undisturbed run."""
        self._runs = 0
        self._start()
        self._wanted = self._run()

    def _start(self) -> None:
        self._peers = self.start(program("gossip_program"), "gossip")
        self._orders, self._here = Orders(self._peers), 0

    def faults(self) -> dict[str, Fault]:
        """Of a peer, or of all."""
        return {
            "kill -9": self._killed,
            "site killed": self._peer_dies,
            "NaN": self._nan,
            "slow writers": self._slow_peer,
            "clock jump: frozen process": self._frozen,
        }

    def living(self) -> Sequence[Child]:
        """All peers at once."""
        return (self._peers,)

    def _run(self, **order: Any) -> Any:
        self._here += 1
        return self._orders.asked(**order)

    def _place(self, rng: random.Random) -> tuple[int, int]:
        return rng.randrange(PEERS), TAU * rng.randint(2, STEPS // TAU - 2)

    def _killed(self, rng: random.Random) -> None:
        self._orders.give()
        time.sleep(rng.uniform(0.0, 1.0))
        self._peers.end()
        self._start()

    def _peer_dies(self, rng: random.Random) -> None:
        """Survivors end alike whenever they hear of it; up to then they are where the undisturbed ones are."""
        peer, step = self._place(rng)
        other = (peer + rng.randint(1, PEERS - 1)) % PEERS
        once = self._run(die=[peer, step])
        again = self._run(die=[peer, step], freeze=[other, step, rng.uniform(0.05, 0.3)])
        self._check_survivors(once, again, peer, step)

    def _nan(self, rng: random.Random) -> None:
        """Who sends NaN is lost to its neighbours as if it had died before."""
        peer, step = self._place(rng)
        dead, spoilt = self._run(die=[peer, step]), self._run(spoil=[peer, step + TAU])
        spoilt[peer] = None
        self._check_survivors(dead, spoilt, peer, step)

    def _check_survivors(self, once: Any, again: Any, peer: int, step: int) -> None:
        demand(once[peer] is None, f"peer {peer} was to die after step {step}, and did not")
        invariants.same(again, once, "survivors")
        for number, survivor in enumerate(once):
            if number != peer:
                demand(len(survivor["rounds"]) == STEPS // TAU, f"peer {number} did not go on after the loss of {peer}")
                before, wanted = (_until(step, run) for run in (survivor, self._wanted[number]))
                invariants.same(before, wanted, f"rounds of peer {number} before the loss of {peer}")

    def _slow_peer(self, rng: random.Random) -> None:
        peer, step = self._place(rng)
        invariants.same(self._run(freeze=[peer, step, rng.uniform(0.2, 1.0)]), self._wanted, "peers beside a slow one")

    def _frozen(self, rng: random.Random) -> None:
        self._here += 1
        self._orders.give()
        time.sleep(rng.uniform(0.0, 0.5))
        self._peers.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 2.0))
        self._peers.signal(signal.SIGCONT)
        invariants.same(self._orders.answer(), self._wanted, "peers that stood still")

    def check(self) -> None:
        """The next run is the undisturbed one, to the bit."""
        invariants.same(self._run(), self._wanted, "peers")
        if self._here >= _SETTLED:
            self._peers.settle()


def _until(step: int, run: Any) -> list[Any]:
    return [row for row in run["rounds"] if row[0] <= step]
