"""A world: machines, models, runs of honest and dishonest parties, all that happens to them, and an auditor, from one seed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fedgauss.federated import mailbox
from fedgauss.federated.journal import Journal
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Site
from fedgauss.federated.wire import Message, decode, encode
from fedgauss.inference.model import Model
from simulated import cohort
from simulated.auditor import Auditor, Failure
from simulated.course import Course
from simulated.dishonest import DISHONEST_SITES, PLOTS, SHADOW, Mailbox
from simulated.keychain import Keychain
from simulated.machine import Machine, Surroundings, try_start
from simulated.network import AT_A_SITE, HARMLESS, ON_THE_WAY, Clock, Fault, MailboxStops, Network

_ROWS = (60, 150)  # of a site; with fewer the ledger allows no fit, and with more it searches for seconds
_HOPELESS = 12  # runs of a world without a fit, after which it ends
RUNS = 60  # of a world
ASKER = "mailbox"
FIT, ODD = "fit, checked", "fit with a dishonest site"
_TURNS = 24  # about two a round
REASONS: Mapping[str, str] = {
    "budget": "takes? part in at most \\d+ runs|answers at most \\d+",
    "spans: too few rows": "must count at every parameter|must rest on at least|must leave single rows unknown|that few rows of this site have",
    "sites apart": "differ by",
    "rare levels": "levels must have at least|to be named",
    "too few rows": "rows .* for each parameter|takes part with at least|of either outcome",
    "column closed": "must name a column|is not open|opens|has no column|needs the column|must be a column|are not in|is not in the",
    "no estimate": "no finite estimate|separable|collinear|constant|must vary|one a sum of others|all but the same",
    "site gives no reply": "gave no reply",
    "unreadable on the way": "other than a reply|one line of JSON|in base64|must hold finite|must be nested|must begin with two|must be finite",
    "order out of turn": "orders must come in turn|have? its commitments already|The order|the order",
    "forged commitment": "is not signed by its key over",
    "another message than committed": "not the one that it committed to",
    "message repeated": "committed to one message",
    "message missing or surplus": "is missing|not in the roster",
    "masks do not cancel": "masks of .* must cancel",
    "message that is none": "sent something else|must send|sent a message|description that is none|gave no reason|it would rather",
    "key or name twice": "of its own, or one table",
    "one table twice": "have the same table",
    "forged roster or plan": "must be signed by its key for this run|have the entry that this site|an entry must|the keys of site|a digest and a length|have signed the plan|a plan must",
    "keys not pinned": "policy names the sites",
    "asker not known": "who may ask|another key",
    "forged past": "this past|cannot be continued|earlier run|the whole of it",
    "ledger lost lines": "lose lines",
    "one run at a time": "one run at a time",
    "disk": "written down first|can be written",
    "sums that are none": "information matrix|whole numbers|could not add up|below 2|must suit the rows of each|an identifier|must be able to give",
}  # fmt: skip


class MemoryJournal(Journal):
    """A journal on a disk in memory, whose last line may be torn when the mailbox is killed."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        super().__init__(Path("/nowhere"))

    def remove(self) -> None:
        """Once a fit is done."""
        self._runs, self._lines = [], []

    @property
    def runs(self) -> list[Message]:
        """All that there were, with their rounds."""
        return self._runs

    def killed(self, random: Random) -> None:
        """The process has gone: read again what there is."""
        if self._lines and random.random() < 0.5:
            self._lines[-1] = self._lines[-1][: random.randrange(len(self._lines[-1]))]
        self._runs, lines, self._lines = [], self._lines, []
        for line in lines:
            try:
                self._note(decode(line))
            except ValueError:
                break
            self._lines.append(line)

    def _append(self, line: Message) -> None:
        self._lines.append(encode(line))
        self._note(line)


class World:
    """Some machines and a mailbox.

    Parameters
    ----------
    seed : int
    faults, ends : Counter
        What went wrong, and how runs ended; worlds may share them.

    Attributes
    ----------
    digest : str
        Of all that was sent.
    """

    def __init__(self, seed: int, faults: Counter[str], ends: Counter[str]) -> None:
        self._random = random = Random(seed)
        self._faults, self._ends = faults, ends
        self._sent = hashlib.sha256()
        self.auditor, self._clock = Auditor(), Clock()
        self._keys = Keychain(random, self.auditor.note_signature)
        self._around = Surroundings(random, self._keys, self._clock, self.auditor)
        rng = np.random.default_rng(random.getrandbits(64))
        count, hard = random.choice([3, 3, 3, 3, 4, 5]), random.random() < 0.35
        self._tables = cohort.tables(rng, [random.randint(*_ROWS) for _ in range(count + 2)], hard)
        self._models = cohort.models(rng, random.choice([1, 1, 2, 2, 3]), hard)
        self._masked = random.random() < 0.8
        bad = random.random() < 0.4
        names = list("abcde"[:count])
        policy = self._policy()
        self._machines = {name: self._machine(name, self._tables[i], policy) for i, name in enumerate(names)}
        self._bad = self._machines[random.choice(names)] if bad else None
        if self._bad is not None:
            self._bad.honest = False
        if random.random() < 0.5:
            pinned = {name: one.key.public for name, one in self._machines.items()}
            for one in self._machines.values():
                one.policy = self._policy(sites=pinned)
        self._asker = self._keys.key()
        self._past: list[Message] = []
        self._answered: list[Model] = []
        mailbox.run_program = self._program
        self._course: Course | None = None

    @property
    def digest(self) -> str:
        """Of all that was sent."""
        return self._sent.hexdigest()

    def run(self, runs: int = RUNS, tick: Callable[[], None] = lambda: None) -> None:
        """All runs; `Failure` where something happens that must not."""
        for number in range(runs):
            if number >= _HOPELESS and not self._answered:
                return
            self.auditor.note_run()
            self._ends["runs"] += 1
            if self._random.random() < 0.16:
                self._plot()
            else:
                self._honest_run()
            tick()

    def _policy(self, **more: Any) -> Policy:
        if "tries" not in self.__dict__.setdefault("_rules", {}):
            random = self._random
            self._rules.update(
                tries=random.choice([6, 12, 100, 100, 100, 100]), parameters=random.choice([60, 300, 1000, 1000]), matrices=random.choice([20, 60, 200]),
                sites_apart=random.choice([2, 3]), never=("patient",) if random.random() < 0.8 else (),
            )  # fmt: skip
        return Policy(**self._rules, **more)

    def _machine(self, name: str, table: cohort.Table, policy: Policy) -> Machine:
        machine = Machine(name, table, policy, self._around)
        self.auditor.machines[machine.key.public] = machine
        return machine

    def _start(self, machines: Mapping[str, Machine], afresh: bool) -> None:
        for machine in machines.values():
            machine.disk.error = None  # somebody has made room
            if machine.site is not None and (machine is self._bad or self._random.random() < 0.3):
                machine.close()
            if (machine.site is None or afresh or self._random.random() < 0.3) and (why := try_start(machine)):
                raise Failure(f"site {machine.name} does not start again: {why}")

    def _honest_run(self) -> None:
        random, machines = self._random, self._machines
        model = self._draw_model()
        if self._bad is not None:
            self._bad.kind = random.choice(DISHONEST_SITES) if random.random() < 0.35 else Site
            self._bad.kind.random = random  # type: ignore[attr-defined]
            self._bad.table = self._tables[
                list(machines).index(self._bad.name if random.random() < 0.95 else random.choice(list(machines)))
            ]
        journal = MemoryJournal() if random.random() < 0.5 else None
        for _ in range(3):
            self._start(machines, afresh=False)
            if self._federate(model, machines, self._draw_faults(list(machines)), journal):
                return
            if journal is None:
                return
            for machine in machines.values():
                if random.random() < 0.7:
                    machine.stop()
            journal.killed(random)

    def _draw_model(self) -> Model:
        """Mostly one that was answered before: a repeat is free, and a search over the rows takes a second."""
        return self._random.choice(self._answered if self._answered and self._random.random() < 0.9 else self._models)

    def _draw_faults(self, names: list[str]) -> list[Fault]:
        random, faults = self._random, []
        for kinds, share in ((HARMLESS, 0.5), (ON_THE_WAY, 0.1), (AT_A_SITE, 0.12)):
            while random.random() < share:
                faults.append(Fault(random.choice(kinds), random.randint(1, _TURNS), random.choice(names)))
        if random.random() < 0.08:
            faults.append(Fault("mailbox stops", random.randint(1, _TURNS), ""))
        return faults

    def _federate(
        self, model: Model, machines: Mapping[str, Machine], faults: list[Fault], journal: MemoryJournal | None
    ) -> bool:
        """One call of `federate`; whether the run has come to its end."""
        network = self._network(machines, faults)
        inside = [machines[name] for name in sorted(machines)]
        honest = all(one.honest or one.kind is Site for one in inside)
        self._course = Course(self.auditor, inside, honest, self._faults)
        nonce = self._random.randbytes(16).hex()
        try:
            federate(
                model, network, masked=self._masked, asker=ASKER, key=self._asker, journal=journal, nonce=nonce,
                verify=self._keys.verify,
            )  # fmt: skip
        except MailboxStops:
            self._ends["mailbox stopped"] += 1
            return False
        except ValueError as error:
            self._note_end(str(error))
            if honest and "no finite estimate" in str(error) and self.auditor.pooled(model, inside)[1].certain:
                raise Failure(f"{model.formula} has an estimate, and the run ended with: {error}") from error
            return not isinstance(error, LostSite)
        self._ends[FIT if honest else ODD] += 1
        if model not in self._answered:
            self._answered.append(model)
        if journal is not None:
            self._past.extend(journal.runs)
        return True

    def _network(self, machines: Mapping[str, Machine], faults: list[Fault]) -> Network:
        return Network(
            machines, self._random, self._clock, faults, self._faults, self.auditor,
            lambda text: self._sent.update(text.encode()),
        )  # fmt: skip

    def _program(self, plan: Plan, level: float = 0.95) -> Any:
        assert self._course is not None
        return self._course.run(plan, level)

    def _note_end(self, words: str) -> None:
        for reason, pattern in REASONS.items():
            if re.search(pattern, words):
                self._ends[reason] += 1
                return
        raise Failure(f"a run ended without a reason: {words}")

    def _plot(self) -> None:
        """A run whose mailbox is dishonest."""
        random, machines = self._random, dict(self._machines)
        plot = random.choice(PLOTS)
        model = self._draw_model()
        if self._bad is not None:
            self._bad.kind = Site
        if plot == "one site less":
            self._start(machines, afresh=False)
            self._federate(model, machines, [], None)
            self._ends["runs"] += 1
            del machines[random.choice(sorted(machines))]
            self._start(machines, afresh=True)
            self._federate(model, machines, [], None)
            return
        self._faults[f"mailbox: {plot}"] += 1
        victim = random.choice(sorted(machines))
        if plot == "another key":
            machines[victim] = self._stranger(victim)
        elif plot == "key twice":
            for name in ("y", "z"):
                machines[name] = self._stranger(name)
            machines["z"].key = machines["y"].key
        names = tuple(sorted(machines))
        colluding = None
        if plot == "two histories" and self._bad is not None:
            colluding = self._bad.name
            shadow = machines[SHADOW + colluding] = self._stranger(colluding)
            shadow.key, shadow.table = self._bad.key, self._bad.table
        self._start(machines, afresh=False)
        plan = Plan(model, names, self._masked, ASKER, random.randbytes(16).hex())
        Mailbox(plot, random, self._keys, self._asker, colluding, self._past).carry(plan, self._network(machines, []))
        self._ends["dishonest mailbox"] += 1

    def _stranger(self, name: str) -> Machine:
        """A site that nobody knew before, of whoever carries the messages."""
        machine = self._machine(name, self._random.choice(self._tables[-2:]), self._policy())
        machine.honest = False
        return machine
