"""A ring of peers without a server. Each is a process of its own that talks to its two neighbours only.

python ring.py                                  six peers, one of which turns malicious half-way
python ring.py --exclude                        the same, and who names it goes on without it
python ring.py --attacker -1 --kill 2 --at 200  a clean run in which peer 2 is killed after step 200
python ring.py --rank 3 --rendezvous ...        peer 3 alone, on a machine of its own
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import fedgauss as fg
from fedgauss.integrations.gossip import PeerRound, PeerRun, TorchLinks, run_peer


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=int, default=6, help="processes, at least 3")
    parser.add_argument("--steps", type=int, default=600, help="SGD steps of each, a multiple of --sync-every")
    parser.add_argument("--sync-every", type=int, default=10, help="steps between two exchanges")
    parser.add_argument(
        "--attacker", type=int, help="the peer that is poisoned half-way (the last but one); -1 for none"
    )
    parser.add_argument("--shift", type=float, default=2.0, help="how far its data are shifted then")
    parser.add_argument("--kill", type=int, default=-1, help="a peer that is killed (SIGKILL) on the way; -1 for none")
    parser.add_argument("--at", type=int, default=200, help="after this step")
    parser.add_argument("--chains", type=int, default=0, help="Client-GA chains that peers carry along")
    parser.add_argument("--alpha", type=float, default=0.01, help="chance of a false alarm, of each peer")
    parser.add_argument("--exclude", action="store_true", help="go on without a neighbour that was named")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank", type=int, help="run this peer, and start no others")
    parser.add_argument("--rendezvous", help="where peers meet: file:///a/new/file, or tcp://host:port of peer 0")
    parser.add_argument("--secret", help="a file that all peers have the same of; tcp:// beyond this machine needs one")
    asked = parser.parse_args()
    if asked.attacker is None:
        asked.attacker = asked.peers - 2
    try:
        check(asked)
    except ValueError as error:
        parser.error(str(error))
    return asked


def check(asked: argparse.Namespace) -> None:
    """Refuse what no peer could do, before any is started."""
    if asked.peers < 3:
        raise ValueError(f"--peers must be at least 3; got {asked.peers}.")
    if asked.sync_every < 1 or asked.steps < 1 or asked.steps % asked.sync_every:
        raise ValueError(f"--steps must be a multiple of --sync-every = {asked.sync_every}; got {asked.steps}.")
    for name, peer in (("--attacker", asked.attacker), ("--kill", asked.kill), ("--rank", asked.rank)):
        if peer is not None and not (0 if name == "--rank" else -1) <= peer < asked.peers:
            raise ValueError(f"{name} must be a peer, 0 to {asked.peers - 1}; got {peer}.")
    if asked.rank is not None and asked.rendezvous is None:
        raise ValueError("--rank must come with --rendezvous, where peers meet.")


def run_one(asked: argparse.Namespace) -> None:
    """A peer: a line of JSON for each round, and one at the end."""

    def show(seen: PeerRound) -> None:
        verdict = seen.verdict
        line = {
            "peer": asked.rank,
            "step": seen.step,
            "began": seen.began.tolist(),
            "sent": seen.sent.tolist(),
            "theta": seen.theta.tolist(),
            "shares": seen.shares,
            "lost": seen.lost,
            "excluded": seen.excluded,
            "statistic": verdict.statistic,
            "threshold": verdict.threshold,
            "alarm": verdict.alarm,
        }
        print(json.dumps(line), flush=True)

    problem = fg.problems.random_effects(n_clients=asked.peers, dim=2, heterogeneity=1.0, seed=1907)
    lin = fg.linearize(problem)
    if asked.attacker >= 0:
        problem = fg.problems.attacks.mean_shift(problem, [asked.attacker], asked.shift, start=asked.steps // 2 + 1)
    with TorchLinks(asked.rank, asked.peers, asked.rendezvous, secret=asked.secret) as links:
        run = run_peer(
            asked.rank,
            problem,
            fg.networks.ring(asked.peers),
            fg.step_sizes.polynomial(0.3, beta=0.75),
            asked.steps,
            links.exchange,
            lin,
            sync_every=asked.sync_every,
            seed=asked.seed,
            chains=asked.chains,
            alpha=asked.alpha,
            on_round=show,
            on_alarm="exclude" if asked.exclude else "go on",
        )
    alarm = run.alarm
    ending = {
        "peer": asked.rank,
        "finished": run.theta.tolist(),
        "chains": run.chains.tolist(),
        "neighbours": run.neighbours,
        "lost": run.lost,
        "excluded": [*run.excluded],
        "rounds": run.monitor.round,
        "alarm": None if alarm is None else {"step": alarm.step, "onset": alarm.onset},
        "suspects": suspects(run),
    }
    print(json.dumps(ending), flush=True)


def suspects(run: PeerRun) -> list[int]:
    """Who it was, as far as this peer can tell."""
    try:
        return [run.members[place] for place in run.monitor.suspects().malicious]
    except ValueError:  # no alarm, or too few rounds since
        return []


def run_all(asked: argparse.Namespace) -> bool:
    """Start every peer, kill one where that was asked for, and say how each ended. Whether all others finished."""
    endings: dict[int, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        own = [f"--rendezvous={asked.rendezvous or (Path(folder) / 'meeting').as_uri()}", *sys.argv[1:]]
        # One thread each: peers share this machine.
        alone = os.environ | {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        peers = [
            subprocess.Popen(
                [sys.executable, __file__, f"--rank={rank}", *own], stdout=subprocess.PIPE, text=True, env=alone
            )
            for rank in range(asked.peers)
        ]
        try:
            readers = [threading.Thread(target=follow, args=(peer, asked, endings)) for peer in peers]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
        finally:
            for peer in peers:
                peer.kill()
                peer.wait()
    for rank in range(asked.peers):
        print(describe(rank, endings.get(rank)))
    return all(rank in endings or rank == asked.kill for rank in range(asked.peers))


def follow(peer: subprocess.Popen[str], asked: argparse.Namespace, endings: dict[int, dict[str, object]]) -> None:
    """Read what a peer says until it ends."""
    assert peer.stdout is not None
    with peer.stdout as lines:
        for line in map(json.loads, lines):
            if "finished" in line:
                endings[line["peer"]] = line
            elif line["peer"] == asked.kill and line["step"] >= asked.at:
                peer.kill()
            elif line["lost"]:
                print(f"peer {line['peer']} lost {line['lost']} in the round up to step {line['step']}", flush=True)
            elif line["excluded"]:
                print(f"peer {line['peer']} leaves out {line['excluded']} after step {line['step']}", flush=True)


def describe(rank: int, ending: dict[str, object] | None) -> str:
    """One line about a peer."""
    if ending is None:
        return f"peer {rank}: did not finish"
    alarm = ending["alarm"]
    says = "no alarm"
    if isinstance(alarm, dict):
        names = f"left out {ending['excluded']}" if ending["excluded"] else f"suspects {ending['suspects']}"
        says = f"ALARM at step {alarm['step']}, onset {alarm['onset']}, {names}"
    return f"peer {rank}: finished with neighbours {ending['neighbours']}; {says}"


if __name__ == "__main__":
    chosen = arguments()
    if chosen.rank is None:
        sys.exit(0 if run_all(chosen) else 1)
    run_one(chosen)
