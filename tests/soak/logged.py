"""A watcher that follows a log: cut, rotated, torn, repeated, and read again after a kill."""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from soak import invariants
from soak.invariants import demand, eventually
from soak.processes import Child, command
from soak.scenario import Fault, Scenario
from soak.twins import ClientTwin, damaged
from soak.watching import Address, Told

_RUN = 160  # rounds; then another run begins
_SETTLED = 30
_YEAR = 365.25 * 86400


class Logged(Scenario):
    """`fedgauss watch run.jsonl --save`: what it judges is what stands in the log, each round once."""

    name = "logged"

    def begin(self) -> None:
        """A first run."""
        self._runs, self.told = 0, Told(self.folder / "notices.jsonl")
        self._begin_run()

    def _begin_run(self) -> None:
        self._runs += 1
        rng = random.Random(f"{self.seed}/{self.name}/run {self._runs}")
        self.twin = ClientTwin(rng.randrange(2**31), last_honest=rng.randint(_RUN // 4, _RUN // 2))
        endings = ("db", "npz", "jsonl")
        self.save, self._fresh, self.log = (self.folder / f"run-{self._runs}.{ending}" for ending in endings)
        self.twin.save_fresh(self._fresh)
        self.written, self._rotated = 0, 0
        self.log.touch()
        self.told.begin()
        self._start()

    def _start(self) -> None:
        self.watcher = self.start(self._words(), "watch")
        self.address = Address(self.watcher)
        self._since = self.written

    def _words(self) -> list[str]:
        options = ["--monitor", self._fresh, "--save", self.save, "--port", 0, *self.told.options()]
        return command("watch", self.log, *options)

    def faults(self) -> dict[str, Fault]:
        """What may happen to a log, a watcher and its save."""
        return {
            "kill -9": self._killed,
            "SIGTERM": self._asked_to_end,
            "save cut short": lambda rng: self._unusable_save(lambda held: held[: rng.randrange(len(held))], False),
            "save damaged": lambda rng: self._unusable_save(lambda held: damaged(held, rng), True),
            "full disk": self._full_disk,
            "log cut short": self._log_cut_short,
            "log rotated": self._rotate,
            "NaN": lambda rng: self._noise(self.twin.with_nan(self.written + 1) + b"\n", rng),
            "replayed round": self._replayed,
            "implausible round": self._implausible,
            "duplicated line": self._duplicated,
            "line cut in half": self._cut_in_half,
            "endless line": self._endless,
            "slow writers": self._slowly,
            "clock jump: file times": self._file_times,
            "clock jump: frozen process": self._frozen,
        }

    def living(self) -> Sequence[Child]:
        """The watcher."""
        return (self.watcher,)

    # --- lines --------------------------------------------------------------------------------------------------------

    def _append(self, content: bytes) -> None:
        with self.log.open("ab") as log:
            log.write(content)

    def _write(self, count: int) -> None:
        """So many more rounds."""
        for _ in range(count):
            self.written += 1
            self._append(self.twin.line(self.written) + b"\n")

    def _state(self) -> dict[str, Any]:
        return self.address.state()

    def _caught_up(self) -> None:
        def there() -> bool:
            demand(self.watcher.alive, f"the watcher ended: {self.watcher.said()[-1000:]}")
            return self._round() >= self.written

        eventually(there, lambda: f"the watcher is at {self._round()} of {self.written} rounds")

    # --- faults -------------------------------------------------------------------------------------------------------

    def _killed(self, rng: random.Random) -> None:
        self._end_while_writing(signal.SIGKILL, rng)
        self._check_save()
        self._start()

    def _asked_to_end(self, rng: random.Random) -> None:
        self._end_while_writing(signal.SIGTERM, rng)
        demand("Traceback" not in self.watcher.said(), f"SIGTERM ends with a traceback: {self.watcher.said()[-2000:]}")
        self._check_save()
        self._start()

    def _end_while_writing(self, kind: signal.Signals, rng: random.Random) -> None:
        self._write(rng.randint(0, 10))
        time.sleep(rng.uniform(0.0, 0.4))
        self.watcher.signal(kind)
        self._write(rng.randint(0, 5))
        self.watcher.wait()

    def _unusable_save(self, spoil: Callable[[bytes], bytes], harmless: bool) -> None:
        """Refused; or harmless, since some bytes of such a file mean nothing."""
        self.watcher.signal(signal.SIGTERM)
        self.watcher.wait()
        good = self.save.with_suffix(".good")
        shutil.copyfile(self.save, good)
        self.save.write_bytes(spoil(self.save.read_bytes()))
        self.watcher = self.start(self._words(), "watch")
        eventually(lambda: not self.watcher.alive or "Ctrl-C ends" in self.watcher.said(), "the watcher does not begin")
        if harmless and self.watcher.alive:
            self.watcher.end()
            self._check_save()
        else:
            invariants.plain_refusal(self.watcher.wait(), self.watcher.said(), "a save that is no save")
        shutil.copyfile(good, self.save)
        self._start()
        self._write(3)

    def _full_disk(self, rng: random.Random) -> None:
        """It goes on judging, and saves when it can."""
        self.watcher.leave_room(rng.choice([0, rng.randrange(2000)]))
        self._write(rng.randint(1, 5))
        time.sleep(rng.uniform(0.3, 1.0))
        self._check_save()
        self.watcher.leave_room(None)
        self._write(3)

    def _log_cut_short(self, rng: random.Random) -> None:
        """As after a crash of the machine that writes it; the run then writes again what is missing."""
        self._write(3)
        self._caught_up()
        size = self.log.stat().st_size
        os.truncate(self.log, rng.randrange(size // 2, size))
        time.sleep(rng.uniform(0.0, 0.6))
        kept = self.log.read_bytes()
        whole = kept[: kept.rfind(b"\n") + 1]
        os.truncate(self.log, len(whole))
        last = max((json.loads(line).get("round", 0) for line in whole.splitlines() if _is_round(line)), default=0)
        first = max(last + 1, 1) if whole else self._first_here
        for number in range(first, self.written + 1):
            self._append(self.twin.line(number) + b"\n")
        self._write(3)
        self._restart_if_ended()

    def _restart_if_ended(self) -> None:
        """A watcher may say that its log is another one now, and end: a supervisor starts it again."""
        eventually(
            lambda: not self.watcher.alive or self._round() >= self.written,
            lambda: f"the watcher neither ends nor goes on: it is at {self._round()} of {self.written} rounds",
        )
        if not self.watcher.alive:
            invariants.plain_refusal(self.watcher.wait(), self.watcher.said(), "a log that is another one")
            self._check_save()
            self._start()

    def _round(self) -> int:
        """Where the watcher is; -1 where it does not say."""
        try:
            return int(self._state()["round"])
        except (OSError, http.client.HTTPException):
            return -1

    @property
    def _first_here(self) -> int:
        """The first round of the log as it is since it was rotated."""
        return self._rotated + 1

    def _rotate(self, rng: random.Random) -> None:
        """By rename, as logrotate does; the last lines of the old one were read before."""
        self._write(2)
        self._caught_up()
        self.log.rename(self.log.with_suffix(f".{self.written}.jsonl"))
        time.sleep(rng.uniform(0.0, 0.5))
        self._rotated = self.written
        self._write(3)
        self._restart_if_ended()

    def _noise(self, content: bytes, rng: random.Random) -> None:
        """Something that is no round, between rounds."""
        self._write(rng.randint(0, 2))
        self._append(content)
        self._write(rng.randint(1, 3))

    def _replayed(self, rng: random.Random) -> None:
        self._write(2)
        first = rng.randint(max(1, self.written - 10), self.written)
        self._noise(b"".join(self.twin.line(j) + b"\n" for j in range(first, self.written + 1)), rng)

    def _implausible(self, rng: random.Random) -> None:
        far = self.written + rng.choice([20_000, 9_999_999])
        said = json.loads(self.twin.line(self.written + 1)) | {"round": far}
        self._noise(json.dumps(said).encode() + b"\n", rng)

    def _duplicated(self, rng: random.Random) -> None:
        for _ in range(rng.randint(1, 4)):
            self._write(1)
            self._append(self.twin.line(self.written) + b"\n")

    def _cut_in_half(self, rng: random.Random) -> None:
        """A line whose writer was killed, then the same line whole."""
        line = self.twin.line(self.written + 1)
        self._append(line[: rng.randrange(1, len(line))])
        time.sleep(rng.uniform(0.0, 0.5))
        self._append(b"\n")
        self._write(3)

    def _endless(self, rng: random.Random) -> None:
        """Thirty megabytes without an end of line; then the log goes on."""
        for _ in range(30):
            self._append(b"x" * 2**20)
            time.sleep(0.01)
        self._append(b"\n")
        self._write(3)

    def _slowly(self, rng: random.Random) -> None:
        """Some bytes at a time."""
        for _ in range(2):
            line, at = self.twin.line(self.written + 1) + b"\n", 0
            while at < len(line):
                size = rng.randint(1, len(line) // 3)
                self._append(line[at : at + size])
                at += size
                time.sleep(rng.uniform(0.0, 0.1))
            self.written += 1

    def _file_times(self, rng: random.Random) -> None:
        """Files from years ago, or from the future."""
        for path in (self.log, self.save):
            then = time.time() + rng.choice([-30.0, -1.0, 1.0, 30.0]) * _YEAR
            os.utime(path, (then, then))
        self._write(3)

    def _frozen(self, rng: random.Random) -> None:
        self.watcher.signal(signal.SIGSTOP)
        self._write(2)
        time.sleep(rng.uniform(0.5, 3.0))
        self.watcher.signal(signal.SIGCONT)
        self._write(2)

    # --- invariants ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything in the log is judged, as the twin judges it."""
        self._caught_up()
        state = self._state()
        invariants.same(state["round"], self.written, "rounds on the page")
        first = self.twin.first_alarm(self.written)
        invariants.same((state["alarm"] or {}).get("round"), first, "the alarm's round on the page")
        self.address.check_health()
        if first is not None:
            self.told.check_alarm()
        eventually(
            lambda: self.twin.round_of(self.save) == self.written,
            lambda: f"the save has round {self.twin.round_of(self.save)} as the twin, of {self.written}",
        )
        if self.written - self._since >= _SETTLED:
            self.watcher.settle()
        if self.written >= _RUN:
            self.end()
            self._begin_run()

    def _check_save(self) -> None:
        """Whatever is saved, the twin held it once."""
        demand(self.twin.round_of(self.save) is not None, f"{self.save.name} holds nothing that the twin ever held")

    def end(self) -> None:
        """Politely; then everything is in the save."""
        self.watcher.signal(signal.SIGTERM)
        self.watcher.wait()
        invariants.same(self.twin.round_of(self.save), self.written, "rounds in the save at the end")


def _is_round(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
