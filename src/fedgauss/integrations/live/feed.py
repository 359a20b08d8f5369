"""What stands between the lines of a log and whatever judges them: one feed for parameters, one for clients."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from fedgauss._types import FloatArray
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watcher import Watcher
from fedgauss.integrations.live.history import History, Kind, Roll
from fedgauss.integrations.live.lines import Line, line_from_json

Part = dict[str, Any]  # of a page: rows of cells under a head, and a note


class Outcome(NamedTuple):
    """What came of a line, in one word and in a sentence, and the verdict if it was judged."""

    kind: Kind
    words: str
    verdict: Verdict | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """Of the verdict."""
        return {} if self.verdict is None else self.verdict.parts()


class Who(NamedTuple):
    """Names of those who took part in a round, None for everybody, and of all clients as far as they are known."""

    present: Collection[Any] | None
    everybody: tuple[str, ...] | None = None


class Feed(ABC):
    """Feeds a watcher with lines. Whatever is wrong with one is a ValueError, and nothing has changed then."""

    by_client: ClassVar[bool] = False  # whether each client is judged in each round
    longest_gap: ClassVar[int]  # steps from one round to the next
    sync_every: int = 1  # steps in a round
    seen_before: int  # steps that were judged in an earlier session
    seen_round: int | None = None  # their last round, where that is known
    history: History
    roll: Roll
    note = ""  # what the watcher warns of

    @property
    @abstractmethod
    def watcher(self) -> Watcher:
        """That is fed."""

    @property
    def monitor(self) -> Any:
        """What can be saved of it; None as long as there is a warm-up."""
        return self.watcher

    @property
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on, in the log's numbers of rounds as far as they are known."""
        return self.watcher.alarm

    @property
    def n_clients(self) -> int | None:
        """How many there are, where that is known."""
        return None

    def read(self, text: bytes) -> Line:
        """What a line says."""
        return line_from_json(text)

    @abstractmethod
    def set(self, settings: Mapping[str, Any], begun: bool) -> None:
        """Take up what a log says of its run's own monitor, unless this one has begun with other settings."""

    @abstractmethod
    def check(self, line: Line, step: int) -> Who:
        """Who took part in a round that may come next."""

    def prepare(self, line: Line, step: int) -> Outcome | None:
        """What takes long, and needs nothing that a page looks at; it may come to a judgement."""
        return None

    @abstractmethod
    def judge(self, line: Line, step: int, who: Who) -> Outcome:
        """Judge a checked round."""

    @abstractmethod
    def seen(self, line: Line, step: int, who: Who) -> str:
        """Count a round that was judged in an earlier session; says so in words."""

    def stretch(self, means: FloatArray, kind: Kind) -> tuple[int, FloatArray | None]:
        """Take plain rounds that come to what the last one came to: how many, and statistics over thresholds."""
        return 0, None

    def plain(self, lines: Iterable[Line | ValueError], kind: Kind) -> FloatArray | None:
        """Of plain rounds that follow the last one, Y after each (n, d); None where one by one is better."""
        return None

    def words(self) -> dict[str, Any]:
        """What goes on after a restart and is not in the monitor."""
        return {}

    def resume(self, words: Mapping[str, Any]) -> None:  # noqa: B027 - there may be nothing
        """Take up what `words` returned."""

    @abstractmethod
    def stuck(self, unjudged: int, begun_anew: int, words: str) -> str:
        """Why nothing is judged after so many rounds in a row without; empty where that is usual."""

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """What a page shows of it beside the verdict."""
