"""A machine with a table: a site that can be stopped at any moment, and started again from what is on its disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from fedgauss.federated.home import Home
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.plan import Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.rows import SiteRows
from fedgauss.federated.site import Parts, Site
from fedgauss.federated.wire import Message
from simulated.cohort import Table
from simulated.disk import Crash, FaultyDisk
from simulated.keychain import Keychain, SigningKey

LEDGER = Path("table.ledger")


class Surroundings(NamedTuple):
    """What all machines of a world share."""

    random: Random
    keys: Keychain
    clock: Callable[[], datetime]
    audit: Any  # an `Auditor`


class Gone(Exception):
    """No reply: the process is not there any more."""


@dataclass
class Machine:
    """A table, its key, its disk, its owner's policy, and the process that runs there, if one does."""

    name: str
    table: Table
    policy: Policy
    around: Surroundings
    kind: type[Site] = Site
    honest: bool = True
    site: Site | None = None
    consents: bool = True
    owner_heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key: SigningKey = self.around.keys.key()
        self.disk = FaultyDisk(self.around.random)
        self.own = self.table

    @property
    def behaves(self) -> bool:
        """Whether it keeps to the protocol at the moment, with its own rows."""
        return self.honest or (self.kind is Site and self.table is self.own)

    def start(self) -> None:
        """A new process."""
        self.stop()
        keys = self.around.keys
        parts = Parts(keys.verify, keys.fresh_run_key, keys.run_key, self._token, self._rows)
        ledger = self.ledger()
        self.around.audit.note_start(self, ledger.head, ledger.length)
        self.site = self.kind(self.table, Home(self.key, ledger), self.policy, self._tell_owner, parts)

    def ledger(self) -> Ledger:
        """What a process has of the ledger on this disk."""
        rules = self.policy.few, self.policy.sites_apart, self.policy.budget
        return Ledger(LEDGER, *rules, disk=self.disk, clock=self.around.clock, random=self._token)

    def second_process(self) -> None:
        """Another process begins a run on this table, while one goes on."""
        if self.site is None or not self.site._begun:
            return
        with suppress(Refused):
            self.ledger().begin("of another process", "", [(self.name, self.key.public)], "somebody", {})
            self.around.audit.note_second_run(self)

    def consent(self, given: bool) -> None:
        """The owner withdraws consent, or gives it again, while no process runs."""
        self.close()
        self.ledger().consent(given)
        self.consents = given

    def put_back(self, random: Random) -> dict[Path, bytearray]:
        """The owner loses the last lines of the ledger, or all of them; the files of before."""
        self.close()
        before = {path: bytearray(content) for path, content in self.disk.files.items()}
        lines = bytes(before.get(LEDGER, b"")).splitlines(keepends=True)
        kept = random.choice([0, random.randrange(len(lines) + 1)])
        self.disk.files[LEDGER] = bytearray(b"".join(lines[:kept]))
        return before

    def stop(self) -> None:
        """The process is killed, or the power fails; only the disk is left."""
        self.site = None
        self.disk.restart()

    def put_away(self) -> None:
        """Another process goes on from what this one kept, as a ClientApp does."""
        assert self.site is not None
        state = self.site.state()
        self.site.put_away()
        self.disk.unsure = None
        try:
            self.start()
            self.site.restore(state)
        except Crash:
            self.stop()

    def answer(self, order: str, content: Message) -> Message:
        """The reply to an order."""
        if self.site is None:
            raise Gone
        try:
            return self.site.answer(order, content)
        except Crash:
            self.stop()
            raise Gone from None

    def close(self) -> None:
        """The process ends as it should."""
        with suppress(Crash):
            if self.site is not None:
                self.site.close()
                self.disk.unsure = None
        self.stop()

    def _token(self, size: int) -> str:
        return self.around.random.randbytes(size).hex()

    def _rows(self, *arguments: Any) -> Rows:
        return Rows(self, *arguments)

    def _tell_owner(self, text: str) -> None:
        self.owner_heard = [text]
        if "Traceback" in text:
            self.around.audit.note_traceback(self, text)


class Rows(SiteRows):
    """Rows whose answers the auditor sees before they are masked."""

    def __init__(self, machine: Machine, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._machine = machine

    def reply(self, question: Question, again: bool = False) -> Any:
        """Numbers and words."""
        numbers, words = super().reply(question, again)
        self._machine.around.audit.note_answer(self._machine, question, numbers, words, again)
        return numbers, words


def try_start(machine: Machine) -> str | None:
    """Start a process; why it does not, if so."""
    try:
        machine.start()
    except Crash:
        machine.stop()
        return "the machine crashed"
    except Refused as error:
        return str(error)
    return None
