"""Runs scenarios side by side, each in a thread, and writes down what came of every fault."""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from soak.processes import end_marked
from soak.scenario import Scenario
from soak.schedule import Planned, planned

_FAILURES = 10  # of one scenario: then there is more to mend than to find


class Outcome(NamedTuple):
    """What came of a fault: the story is empty where everything that must hold did."""

    fault: Planned
    seconds: float
    story: str = ""


class Soak:
    """Scenarios of these kinds, until the time is over, each has had `faults` faults, or `stop` is set.

    A scenario that failed is begun anew in another folder, and the old one is kept; after ten failures it is given up.
    """

    def __init__(
        self, kinds: Sequence[type[Scenario]], folder: Path, seed: int, seconds: float, faults: int | None = None
    ) -> None:
        self._kinds, self._folder, self._seed, self._faults = kinds, folder, seed, faults
        self.mark = f"{seed}-{time.monotonic_ns():x}"
        self.stop = threading.Event()
        self.outcomes: list[Outcome] = []
        self.began = time.monotonic()
        self._end = self.began + seconds
        self._threads = [threading.Thread(target=self._run, args=(kind,), name=kind.name) for kind in kinds]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> list[str]:
        """Scenarios that are not over."""
        return [thread.name for thread in self._threads if thread.is_alive()]

    def join(self, seconds: float | None = None) -> None:
        """Wait for all scenarios."""
        for thread in self._threads:
            thread.join(seconds)

    def clear(self) -> None:
        """Kill what is left over, and remove the folders of scenarios that did not fail."""
        end_marked(self.mark)
        failed = {outcome.fault.scenario for outcome in self.outcomes if outcome.story}
        for kind in self._kinds:
            if kind.name not in failed:
                for folder in self._folder.glob(f"{kind.name}-*"):
                    shutil.rmtree(folder, ignore_errors=True)

    def _over(self, number: int) -> bool:
        late = time.monotonic() > self._end
        return self.stop.is_set() or late or (self._faults is not None and number > self._faults)

    def _run(self, kind: type[Scenario]) -> None:
        number, begun = 1, 0
        while not self._over(number) and begun < _FAILURES:
            begun += 1
            folder = self._folder / f"{kind.name}-{begun}"
            scenario = kind(folder, self._seed, self.mark)
            fault = Planned(self._seed, kind.name, number, "(beginning)")
            if self._tried(fault, folder, scenario.begin):
                while not self._over(number):
                    fault = planned(self._seed, kind.name, scenario.faults(), number)
                    number += 1
                    if not self._tried(fault, folder, lambda: _one(scenario, fault), count=True):  # noqa: B023
                        break
                else:
                    self._tried(Planned(self._seed, kind.name, number, "(end)"), folder, scenario.end)
            else:
                number += 1
            scenario.close()

    def _tried(self, fault: Planned, folder: Path, act: Callable[[], None], count: bool = False) -> bool:
        began = time.monotonic()
        try:
            act()
        except BaseException as error:
            (folder / "story.txt").write_text(f"{fault}, seed {fault.seed}\n{traceback.format_exc()}")
            story = f"{fault}; seed {fault.seed}, logs in {folder}\n{_shortened(error)}"
            self.outcomes.append(Outcome(fault, time.monotonic() - began, story))
            return False
        if count:
            self.outcomes.append(Outcome(fault, time.monotonic() - began))
        return True


def _one(scenario: Scenario, fault: Planned) -> None:
    scenario.faults()[fault.kind](fault.rng())
    scenario.check_all()


def _shortened(error: BaseException) -> str:
    """Where it happened in the scenario, and what; the whole is in the story's file."""
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if "soak" in Path(frame.filename).parts]
    way = " > ".join(f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in places[2:])
    return f"  {way}\n  {type(error).__name__}: {error}"
