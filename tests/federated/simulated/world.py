"""A world from one seed: machines, models, honest and dishonest parties, all that happens to them, and an auditor."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

from fedgauss.federated import mailbox, masks, party
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.site import Site
from fedgauss.federated.wire import Message
from fedgauss.inference.model import Model
from simulated import cohort
from simulated.auditor import Auditor, Failure
from simulated.course import Course
from simulated.dishonest import DISHONEST_SITES, PLOTS, SHADOW, Mailbox
from simulated.keychain import Keychain, stream
from simulated.machine import Machine, Surroundings, try_start
from simulated.memory_journal import MemoryJournal
from simulated.network import AT_A_SITE, HARMLESS, ON_THE_WAY, Clock, Fault, MailboxStops, Network
from simulated.reasons import reason_of

_ROWS = (60, 150)  # of a site; with fewer the ledger allows no fit, and with more it searches for seconds
_HOPELESS = 12  # runs of a world without a fit, after which it ends
RUNS = 60  # of a world
ASKER = "mailbox"
CHANGES = ("consent withdrawn", "policy changed", "key lost", "ledger put back")
FIT, ODD = "fit, checked", "fit with a dishonest site"
_TURNS = 24  # about two a round
_PAIRS = 32  # of sites, and more


class World:
    """Some machines and a mailbox.

    Parameters
    ----------
    seed : int
    faults, ends : Counter
        What went wrong, and how runs ended; worlds may share them.
    trouble : float
        How much more goes wrong than usual.

    tell : callable, optional
        tell(line) for whatever happens.

    Attributes
    ----------
    number : int
        Of the run that goes on, from 1.
    digest : str
        Of all that was sent.
    """

    def __init__(
        self, seed: int, faults: Counter[str], ends: Counter[str], trouble: float = 1.0,
        tell: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self._random = random = Random(seed)
        self._trouble, self._tell = trouble, tell
        self.number = 0
        self._faults, self._ends = faults, ends
        self._sent = hashlib.sha256()
        self.auditor, self._clock = Auditor(), Clock()
        self._keys = Keychain(random, self.auditor.note_signature)
        self._around = Surroundings(random, self._keys, self._clock, self.auditor)
        rng = np.random.default_rng(random.getrandbits(64))
        count, hard = random.choice([3] * 8 + [4, 5]), random.random() < 0.35
        self._tables = cohort.tables(rng, [random.randint(*_ROWS) for _ in range(count + 2)], hard)
        self._models = cohort.models(rng, random.choice([1, 1, 2, 2, 3]), hard)
        self._tables = cohort.needed(self._tables, self._models)
        self._masked = random.random() < 0.8
        bad = random.random() < 0.4
        names = list("abcde"[:count])
        self._rules = self._draw_rules()
        self._machines = {name: self._machine(name, self._tables[i]) for i, name in enumerate(names)}
        self._bad = self._machines[random.choice(names)] if bad else None
        if self._bad is not None:
            self._bad.honest = False
        if random.random() < 0.5:
            pinned = {name: one.key.public for name, one in self._machines.items()}
            for one in self._machines.values():
                one.policy = Policy(**self._rules, sites=pinned)
        self._asker = self._keys.key()
        self._past: list[Message] = []
        self._answered: list[Model] = []
        self._has_fit = self._has_change = False
        self._course: Course | None = None

    @property
    def digest(self) -> str:
        """Of all that was sent."""
        return self._sent.hexdigest()

    def run(self, runs: int = RUNS) -> None:
        """All runs; `Failure` where something happens that must not."""
        with ExitStack() as stack:
            stack.callback(setattr, mailbox, "run_program", mailbox.run_program)
            mailbox.run_program = self._program
            stack.callback(setattr, party, "digest", party.digest)
            party.digest = self.auditor.digest
            stack.callback(setattr, masks, "stream", masks.stream)
            masks.stream = lru_cache(_PAIRS)(stream)  # which both sites of a pair work out
            for number in range(runs):
                if number >= _HOPELESS and not self._has_fit:
                    return
                self.auditor.note_run()
                if self._random.random() < 0.12 * self._trouble:
                    self._plot()
                else:
                    self._honest_run()

    def _draw_rules(self) -> dict[str, Any]:
        """What owners allow, for a `Policy`."""
        random = self._random
        secret = any("patient" in table for table in self._tables)
        return {
            "tries": random.choice([6, 12, 100, 100, 100, 100]),
            "parameters": random.choice([60, 300, 1000, 1000]),
            "matrices": random.choice([20, 60, 200]),
            "sites_apart": random.choice([2, 3]),
            "never": ("patient",) if secret and random.random() < 0.8 else (),
        }

    def _machine(self, name: str, table: cohort.Table) -> Machine:
        machine = Machine(name, table, Policy(**self._rules), self._around)
        self.auditor.machines[machine.key.public] = machine
        return machine

    def _start(self, machines: Mapping[str, Machine], afresh: bool) -> None:
        for machine in machines.values():
            machine.disk.error = machine.disk.crash_in = None  # somebody has made room
            if machine.site is not None and self._random.random() < 0.15:
                machine.close()
            killed = afresh or machine.site is None or self._random.random() < 0.15
            if killed and (why := try_start(machine)):
                raise Failure(f"site {machine.name} does not start again: {why}")

    def _honest_run(self) -> None:
        random, machines = self._random, self._machines
        model = self._draw_model()
        if self._bad is not None:
            self._turn_bad(self._bad)
        journal = MemoryJournal() if random.random() < 0.5 else None
        with self._change():
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

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Now and then an owner's consent, policy, key or ledger is another than before, as long as a run takes."""
        random = self._random
        if not self._answered or random.random() > 0.04 * self._trouble:
            yield
            return
        kind, machine = random.choice(CHANGES), random.choice(list(self._machines.values()))
        self._faults[f"owner: {kind}"] += 1
        self._say(f"the owner of {machine.name}: {kind}")
        self._has_change = True
        machine.close()
        if kind == "consent withdrawn":
            machine.consent(False)
            yield
            machine.consent(True)
        elif kind == "policy changed":
            before, machine.policy = machine.policy, Policy(**self._draw_rules(), sites=machine.policy.sites)
            yield
            machine.close()
            machine.policy = before
        elif kind == "key lost":
            key, machine.key = machine.key, self._keys.key()
            self.auditor.machines[machine.key.public] = machine
            yield
            machine.close()
            machine.key = key
        else:
            known, files = self.auditor.note_rollback(machine), machine.put_back(random)
            lost = self._ends["ledger lost lines"]
            yield
            machine.close()
            if self._ends["ledger lost lines"] > lost:
                machine.disk.files = files
                self.auditor.note_return(machine, known)
            self._answered.clear()  # what this table has forgotten it may refuse
        self._has_change = False

    def _turn_bad(self, bad: Machine) -> None:
        """The dishonest site behaves in this run, or does not, or has a neighbour's table."""
        random = self._random
        kind = random.choice(DISHONEST_SITES) if random.random() < 0.3 else Site
        neighbour = random.choice([one for one in self._machines.values() if one is not bad])
        table = bad.own if random.random() < 0.95 else neighbour.table
        if kind is not bad.kind or table is not bad.table:
            bad.close()
        bad.kind, bad.table = kind, table
        for one in DISHONEST_SITES:
            one.random = random

    def _draw_model(self) -> Model:
        """Mostly one that was answered before: a repeat is free, and a search over the rows takes a second."""
        return self._random.choice(self._answered if self._answered and self._random.random() < 0.9 else self._models)

    def _draw_faults(self, names: list[str]) -> list[Fault]:
        random, faults = self._random, []
        for kinds, share in ((HARMLESS, 0.5), (ON_THE_WAY, 0.08), (AT_A_SITE, 0.08)):
            while random.random() < min(0.6, share * self._trouble):
                faults.append(Fault(random.choice(kinds), random.randint(1, _TURNS), random.choice(names)))
        if random.random() < 0.06:
            faults.append(Fault("mailbox stops", random.randint(1, _TURNS), ""))
        return faults

    def _federate(
        self, model: Model, machines: Mapping[str, Machine], faults: list[Fault], journal: MemoryJournal | None
    ) -> bool:
        """One call of `federate`; whether the run has come to its end."""
        self._begin(model, machines)
        network = self._network(machines, faults)
        inside = [machines[name] for name in sorted(machines)]
        honest = all(one.behaves for one in inside)
        self._course = Course(self.auditor, inside, honest, self._faults)
        nonce = self._random.randbytes(16).hex()
        try:
            federate(
                model, network, masked=self._masked, asker=ASKER, key=self._asker, journal=journal, nonce=nonce,
                verify=self._keys.verify,
            )  # fmt: skip
        except MailboxStops:
            self._end("mailbox stopped")
            return False
        except ValueError as error:
            self._note_end(str(error), network.changed)
            certain = honest and self.auditor.pooled(model, inside)[1].certain
            if certain and "no finite estimate" in str(error):
                raise Failure(f"{model.formula} has an estimate, and the run ended with: {error}") from error
            if (
                certain
                and model in self._answered
                and len(inside) == len(self._machines)
                and journal is None
                and not self._has_change
                and not {one.kind for one in faults} - {*HARMLESS}
                and "refuses at most" not in str(error)  # which ends repeats, too
            ):
                raise Failure(f"a run that was answered before ended with: {error}") from error
            return not isinstance(error, LostSite)
        self._end(FIT if honest else ODD)
        self._has_fit = True
        if model not in self._answered and len(inside) == len(self._machines):
            self._answered.append(model)
        if journal is not None:
            self._past.extend(journal.runs)
        return True

    def _network(self, machines: Mapping[str, Machine], faults: list[Fault]) -> Network:
        return Network(
            machines, self._random, self._clock, faults, self._faults, self.auditor,
            lambda text: self._sent.update(text.encode()), self._tell,
        )  # fmt: skip

    def _program(self, plan: Plan, level: float = 0.95) -> Any:
        assert self._course is not None
        return self._course.run(plan, level)

    def _note_end(self, words: str, changed: bool) -> None:
        reason = reason_of(words) or ("changed on the way" if changed else None)
        if reason is None:
            raise Failure(f"a run ended without a reason: {words}")
        self._end(reason, words)

    def _begin(self, model: Model, machines: Mapping[str, Machine], plot: str = "") -> None:
        self._ends["runs"] += 1
        self.number += 1
        who = ", ".join(name if one.behaves else f"{name} ({one.kind.__name__})" for name, one in machines.items())
        how = "masked" if self._masked else "not masked"
        self._say(f"run {self.number}: {model.formula}, {model.family}, {how}, of {who}{plot and f'; {plot}'}")

    def _end(self, how: str, words: str = "") -> None:
        self._ends[how] += 1
        self._say(f"  ends: {how}{words and f': {words}'}")

    def _say(self, line: str) -> None:
        if self._tell is not None:
            self._tell(line)

    def _plot(self) -> None:
        """A run whose mailbox is dishonest."""
        random, machines = self._random, dict(self._machines)
        plot = random.choice(PLOTS)
        self._faults[f"mailbox: {plot}"] += 1
        model = self._draw_model()
        if self._bad is not None:
            self._turn_bad(self._bad)
        if plot == "one site less":
            self._start(machines, afresh=False)
            self._federate(model, machines, [], None)
            del machines[random.choice(sorted(machines))]
            self._start(machines, afresh=True)
            self._federate(model, machines, [], None)
            return
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
        self._begin(model, machines, f"a dishonest mailbox, {plot}")
        self._start(machines, afresh=False)
        plan = Plan(model, names, self._masked, ASKER, random.randbytes(16).hex())
        Mailbox(plot, random, self._keys, self._asker, colluding, self._past).carry(plan, self._network(machines, []))
        self._end("dishonest mailbox")

    def _stranger(self, name: str) -> Machine:
        """A site that nobody knew before, of whoever carries the messages."""
        machine = self._machine(name, self._random.choice(self._tables[-2:]))
        machine.honest = False
        return machine
