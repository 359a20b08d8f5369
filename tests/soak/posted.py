"""A watcher that rounds are POSTed to, killed and started again; and one that stays up under everything else."""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence

from soak import invariants, rude
from soak.invariants import demand, eventually
from soak.processes import Child, command
from soak.receiver import Mood
from soak.scenario import Fault, Scenario
from soak.twins import ParameterTwin, damaged
from soak.watching import ANSWER, Address, Told, patiently

_RUN = 160  # rounds; then another run begins
_SETTLED = 30  # rounds after which a watcher's memory is taken down


class Posted(Scenario):
    """`fedgauss watch --listen --save`: every round that was answered 200 is in the save, whatever happens."""

    name = "posted"
    longest: int | None = _RUN

    def begin(self) -> None:
        """A first run."""
        self._runs, self.told = 0, Told(self.folder / "notices.jsonl")
        self._begin_run()

    def _begin_run(self) -> None:
        self._runs += 1
        rng = random.Random(f"{self.seed}/{self.name}/run {self._runs}")
        honest = {} if self.longest is None else {"last_honest": rng.randint(self.longest // 4, self.longest // 2)}
        self.twin = ParameterTwin(rng.randrange(2**31), **honest)
        self.save, self._fresh = (self.folder / f"run-{self._runs}.{ending}" for ending in ("db", "npz"))
        self.twin.save_fresh(self._fresh)
        self.accepted = 0
        self.told.begin()
        self._start()

    def _start(self) -> None:
        self.watcher = self.start(self._words(), "watch")
        self.address = Address(self.watcher)
        self._since = self.accepted

    def _words(self) -> list[str]:
        options = ["--monitor", self._fresh, "--save", self.save, "--port", 0, *self.told.options()]
        return command("watch", "--listen", *options)

    def faults(self) -> dict[str, Fault]:
        """Deadly ones, and those of a watcher that stays up."""
        return {
            "kill -9": self._killed,
            "SIGTERM": self._asked_to_end,
            "save cut short": self._save_cut_short,
            "save damaged": self._save_damaged,
            "rounds cut short": self._rounds_cut_short,
            "full disk at an alarm": self._full_disk_at_an_alarm,
            **self.survived(),
        }

    def survived(self) -> dict[str, Fault]:
        """Those that a watcher lives through."""
        return {
            "full disk": self._full_disk,
            "slow writers": lambda rng: self._beside(lambda: rude.slow_writers(self.address.port, rng), rng),
            "slow readers": lambda rng: self._beside(lambda: rude.slow_readers(self.address.port, rng), rng),
            "endless line": lambda rng: self._beside(lambda: rude.endless(self.address.port, rng), rng),
            "line cut in half": lambda rng: self._beside(lambda: rude.half(self.address.port, self._next(), rng), rng),
            "NaN": self._nan,
            "replayed round": self._replayed,
            "implausible round": self._implausible,
            "two writers on one save": self._second_writer,
            "receiver down": self._receiver_down,
            "receiver answers 500": lambda rng: self._receiver_in("500", rng),
            "receiver slow": lambda rng: self._receiver_in("slow", rng),
            "clock jump: frozen process": self._frozen,
        }

    def living(self) -> Sequence[Child]:
        """The watcher."""
        return (self.watcher,)

    # --- rounds -------------------------------------------------------------------------------------------------------

    def _next(self) -> bytes:
        return self.twin.line(self.accepted + 1)

    def _post(self, count: int) -> None:
        """So many more rounds; each must be accepted."""
        for _ in range(count):
            status, said = patiently(self.address, self._next())
            demand(status == 200, f"round {self.accepted + 1} was answered {status}: {said}")
            self.accepted += 1

    def _post_until_lost(self, count: int) -> None:
        """The same while the watcher may vanish: the first round without an answer is the last."""
        for _ in range(count):
            try:
                status, said = self.address.ask("POST", "/rounds", self._next())
            except (OSError, http.client.HTTPException):
                return
            if status == 503:  # it is about to stop
                return
            demand(status == 200, f"round {self.accepted + 1} was answered {status}: {said}")
            self.accepted += 1

    def _under_load(self, act: Callable[[], None], rng: random.Random) -> None:
        """Do something at a random moment while rounds come in."""
        failed: list[BaseException] = []

        def send() -> None:
            try:
                self._post_until_lost(200)
            except BaseException as error:
                failed.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        time.sleep(rng.uniform(0.0, 0.4))
        act()
        sender.join()
        if failed:
            raise failed[0]

    def _beside(self, rudeness: Callable[[], rude.Visit], rng: random.Random) -> None:
        """Rounds are accepted while somebody else behaves badly."""
        with rudeness():
            self._post(rng.randint(5, 15))

    # --- faults -------------------------------------------------------------------------------------------------------

    def _killed(self, rng: random.Random) -> None:
        self._under_load(lambda: self.watcher.signal(signal.SIGKILL), rng)
        self._restart()

    def _asked_to_end(self, rng: random.Random) -> None:
        self._under_load(lambda: self.watcher.signal(signal.SIGTERM), rng)
        self._check_end(self.watcher.wait())
        self._restart()

    def _check_end(self, code: int) -> None:
        """The exit code says whether an alarm is on; a round may have been taken whose answer got lost."""
        said = self.watcher.said()
        alarms = {self.twin.first_alarm(number) is not None for number in (self.accepted, self.accepted + 1)}
        demand(code in {3 if alarm else 0 for alarm in alarms}, f"after SIGTERM the watcher ended with {code}: {said}")
        demand("Traceback" not in said, f"SIGTERM ends with a traceback: {said[-2000:]}")

    def _restart(self) -> None:
        """What a supervisor does; before that, the save must have every round that was accepted."""
        self.watcher.wait()
        self._check_save()
        self._start()
        self._post(5)

    def _rounds_cut_short(self, rng: random.Random) -> None:
        """Rounds that were on disk are gone: what is left must be a beginning of the run, and senders send again."""
        self._post(rng.randint(1, 10))
        self.watcher.signal(signal.SIGKILL)
        self.watcher.wait()
        rounds = self.save.with_name(f"{self.save.name}-wal")
        os.truncate(rounds, rng.randint(0, rounds.stat().st_size))
        left = self.twin.round_of(self.save)
        demand(left is not None, "what is left of rounds is no beginning of the run")
        self.accepted = min(self.accepted, left or 0)
        self._start()
        self._post(5)

    def _save_cut_short(self, rng: random.Random) -> None:
        self._unusable_save(lambda content: content[: rng.randrange(len(content))])

    def _save_damaged(self, rng: random.Random) -> None:
        """Refused, or harmless: some bytes of such a file mean nothing."""
        self._unusable_save(lambda content: damaged(content, rng), harmless=True)

    def _unusable_save(self, spoil: Callable[[bytes], bytes], harmless: bool = False) -> None:
        self.watcher.signal(signal.SIGTERM)
        self.watcher.wait()
        good = self.save.with_suffix(".good")
        shutil.copyfile(self.save, good)
        self.save.write_bytes(spoil(self.save.read_bytes()))
        self.watcher = self.start(self._words(), "watch")
        eventually(lambda: not self.watcher.alive or "Ctrl-C ends" in self.watcher.said(), "the watcher does not begin")
        if harmless and self.watcher.alive:
            self.watcher.end()
            invariants.same(self.twin.round_of(self.save), self.accepted, "rounds in a save with changed bytes")
        else:
            invariants.plain_refusal(self.watcher.wait(), self.watcher.said(), "a save that is no save")
        shutil.copyfile(good, self.save)
        self._start()
        self._post(5)

    def _full_disk(self, rng: random.Random) -> None:
        """A round that cannot be saved is not accepted; when there is room again, it is."""
        self.watcher.leave_room(rng.choice([0, rng.randrange(2000)]))
        try:
            status, said = self.address.ask("POST", "/rounds", self._next())
            self.accepted += status == 200  # there may have been room enough
            demand(status == 200 or 500 <= status < 600, f"on a full disk a round was answered {status}: {said}")
            invariants.same(self.twin.round_of(self.save), self.accepted, "rounds in the save on a full disk")
        finally:
            self.watcher.leave_room(None)
        self._post(5)

    def _full_disk_at_an_alarm(self, rng: random.Random) -> None:
        """The alarm is told though its round cannot be saved, and though no other round follows."""
        if self.twin.first_alarm(self.accepted) is not None:
            self.end()
            self._begin_run()
        self._post(self.twin.next_alarm(self.accepted) - self.accepted - 1)
        self.watcher.leave_room(0)
        status, said = self.address.ask("POST", "/rounds", self._next())
        self.watcher.leave_room(None)
        demand(500 <= status < 600, f"on a full disk a round was answered {status}: {said}")
        self._post(1)
        self.told.check_alarm()

    def _nan(self, rng: random.Random) -> None:
        """Not a round, but an alarm."""
        with self.told.arrives("invalid update"):
            self._post_nan()
        self._post(rng.randint(1, 5))

    def _post_nan(self) -> None:
        status, said = patiently(self.address, self.twin.with_nan(self.accepted + 1))
        demand(400 <= status < 500, f"a round with NaN was answered {status}: {said}")

    def _receiver_down(self, rng: random.Random) -> None:
        with self.told.arrives("invalid update"):
            self.told.receiver.down()
            try:
                self._post_nan()
                self._post(3)
                time.sleep(rng.uniform(0.0, 2.0))
            finally:
                self.told.receiver.up()

    def _receiver_in(self, mood: Mood, rng: random.Random) -> None:
        with self.told.arrives("invalid update"):
            self.told.receiver.mood = mood
            try:
                self._post_nan()
                self._post(3)
                time.sleep(rng.uniform(0.0, 2.0))
            finally:
                self.told.receiver.mood = "well"

    def _replayed(self, rng: random.Random) -> None:
        """The same round again is harmless; another round under an old number is refused."""
        self._post(3)
        number = rng.randint(max(1, self.accepted - 10), self.accepted)
        status, said = patiently(self.address, self.twin.line(number))
        demand(status in (200, 409), f"round {number} again was answered {status}: {said}")
        other = self.twin.line(number).replace(b'"parameters": [', b'"parameters": [1', 1)
        status, said = patiently(self.address, other)
        demand(400 <= status < 500, f"another round {number} was answered {status}: {said}")
        self._post(3)

    def _implausible(self, rng: random.Random) -> None:
        """A number that no round has, which would leave all that follow behind."""
        far = str(self.accepted + rng.choice([20_000, 9_999_999])).encode()
        line = self._next().replace(f'"round": {self.accepted + 1}'.encode(), b'"round": ' + far, 1)
        status, said = patiently(self.address, line)
        demand(400 <= status < 500, f"round {far.decode()} was answered {status}: {said}")
        self._post(3)

    def _second_writer(self, rng: random.Random) -> None:
        second = self.start(self._words(), "second")
        try:
            eventually(
                lambda: not second.alive or "Ctrl-C ends" in second.said(), "the second watcher does not begin", ANSWER
            )
            demand(not second.alive, "a second watcher writes to the same save")
            invariants.plain_refusal(second.wait(), second.said(), "a second watcher on the same save")
        finally:
            second.end()
        self._post(3)

    def _frozen(self, rng: random.Random) -> None:
        """For the process, all clocks jump, as when a virtual machine is suspended and goes on elsewhere."""
        self.watcher.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.5, 3.0))
        self.watcher.signal(signal.SIGCONT)
        self._post(3)

    # --- invariants ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whoever would load the save now would go on exactly where the undisturbed twin is."""
        self._check_save()
        state = self.address.state()
        invariants.same(state["round"], self.accepted, "rounds on the page")
        first = self.twin.first_alarm(self.accepted)
        invariants.same((state["alarm"] or {}).get("round"), first, "the alarm's round on the page")
        self.address.check_health()
        if first is not None:
            self.told.check_alarm()
        if self.accepted - self._since >= _SETTLED:
            self.watcher.settle()
        if self.longest is not None and self.accepted >= self.longest:
            self.end()
            self._begin_run()

    def _check_save(self) -> None:
        """Rounds that were accepted are there, to the bit; one more may be, whose answer got lost."""
        saved = self.twin.round_of(self.save)
        demand(saved is not None, f"what is saved in {self.save.name} is nothing that the twin ever held")
        invariants.none_lost(self.accepted, saved or 0)
        demand((saved or 0) <= self.accepted + 1, f"{saved} rounds are saved, of {self.accepted} accepted")

    def end(self) -> None:
        """Politely, and the save must be whole then too."""
        self.watcher.signal(signal.SIGTERM)
        self._check_end(self.watcher.wait())
        self._check_save()


class Steady(Posted):
    """One watcher for the whole soak: what it lives through must not make it grow."""

    name = "steady"
    longest = None

    def faults(self) -> dict[str, Fault]:
        """Only those that it lives through."""
        return self.survived()
