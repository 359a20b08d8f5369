"""What the client monitor says after a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedgauss import _checks
from fedgauss.detect.clients.gauge import Question, WouldSee
from fedgauss.detect.clients.reasons import Reason
from fedgauss.detect.verdict import Verdict

Name = str | int

_LISTED = 10  # names in a sentence


class PopulationVerdict(NamedTuple):
    """Whether the clients of the last rounds are like those of earlier ones.

    Attributes
    ----------
    alarm : bool
    chance : float
        That honest rounds ever do as much: an alarm from alpha down.
    round : int
    judged : int
        Clients of the round that were compared with earlier ones; 0 while there are too few of these.
    feature, direction : int
        The feature that gave the alarm, and whether clients are higher in it (1) or lower (-1).
    onset : int
        The first round that the bets that gave it won from; 0 without an alarm.
    share : float
        Of the clients since the onset, how many at least are not like those before.
    suspects : tuple of str or int
        Those who can be named by now, the most surprising first; at most 50.
    """

    alarm: bool
    chance: float
    round: int
    judged: int
    feature: int = 0
    direction: int = 1
    onset: int = 0
    share: float = 0.0
    suspects: tuple[Name, ...] = ()

    @classmethod
    def from_words(cls, words: Mapping[str, Any], n_features: int) -> PopulationVerdict:
        """The alarm of a file, or a ValueError."""
        at = _checks.whole("round", words["round"], at_least=0)
        names = words["suspects"]
        if not isinstance(names, list | tuple) or any(type(name) not in (str, int) for name in names):
            raise ValueError("names of clients must be text or whole numbers")
        return cls(
            True,
            _checks.real("chance", words["chance"]),
            at,
            _checks.whole("judged", words["judged"], at_least=0),
            _checks.whole("feature", words["feature"], at_least=0, at_most=n_features - 1),
            1 if _checks.whole("direction", words["direction"], at_least=-1, at_most=1) > 0 else -1,
            _checks.whole("onset", words["onset"], at_least=0, at_most=at),
            _checks.real("share", words["share"]),
            tuple(names),
        )

    def __str__(self) -> str:
        if not self.alarm:
            return f"population: no alarm (chance {self.chance:.2g} of as much among honest rounds)."
        who = f"so far {listed(self.suspects)}" if self.suspects else "nobody can be named yet"
        return (
            f"population: ALARM, clients since round {self.onset} are not like those before "
            f"(chance {self.chance:.2g}); at least {self.share:.0%} of them act, {who}."
        )


@dataclass(frozen=True, repr=False)
class ClientVerdict(Verdict):
    """One round, judged client by client. Printed, it says so in words.

    Attributes
    ----------
    alarm : bool
        Whether clients stand out, now or since an alarm that was not acted on.
    suspects : tuple of str or int
        The clients behind the alarm, the most surprising first.
    round, step : int
        The round, counted from 1; both are the same here.
    onset : int or None
        The most likely first bad round; None without an alarm.
    onset_interval : (int, int) or None
        The rounds in which it may have begun.
    rollback : int or None
        The last round before that interval, 0 for the start.
    statistic, threshold : float
        -log10 of the chance of such a round among honest clients, and the value above which it is an alarm.
    watched : int
        Clients that could be judged in this round; the others have too short a past.
    surprises : dict
        -log10 of the p-value of each of them in this round, by name.
    reasons : dict
        What changed at each suspect and what that looks like, a `Reason` by name; a hint, for which nobody is spared.
    returned : tuple of str or int
        Clients whose quarantine ended with this round: they count from the next one on.
    alpha : float
        The chance of any false alarm while the monitor watches.
    note : str
        Further remarks, such as that no client can be judged yet.
    population : PopulationVerdict or None
        What is said of all clients together, where they come back too rarely to be judged by their own past.
    """

    suspects: tuple[Name, ...] = ()
    watched: int = 0
    surprises: Mapping[Name, float] = field(default_factory=dict, hash=False, metadata={"drawn": True})
    returned: tuple[Name, ...] = ()
    reasons: Mapping[Name, Reason] = field(default_factory=dict, hash=False)
    population: PopulationVerdict | None = None
    question: Question | None = field(default=None, compare=False, repr=False, metadata={"drawn": True})

    @property
    def would_see(self) -> WouldSee:
        """What the monitor would see if clients turned bad now.

        It is computed when it is asked for, about half a second for ten clients, and kept then; ask before the next
        round, since nothing large is kept with old verdicts.
        """
        if self.population is not None:
            return WouldSee(self.round, why="Clients come back too rarely to be judged by their own past.")
        if self.question is None:
            return WouldSee(self.round, why="No rounds that can be taken for honest were judged, or an alarm stands.")
        return self.question.answer()

    def __str__(self) -> str:
        if self.invalid:
            words = f"ALARM after round {self.round}: invalid update, not used; the last good round is {self.rollback}."
        elif self.population is not None:
            words = f"round {self.round}, {self.population}"
        elif self.alarm and self.onset_interval is not None:
            first, last = self.onset_interval
            began = f"in round {self.onset}" if first == last else f"near round {self.onset} ({first} to {last})"
            its, it = ("its", "it") if len(self.suspects) == 1 else ("their", "them")
            words = (
                f"ALARM at round {self.round}: {named(self.suspects)} like the others or like {its} own past "
                f"(surprise {self.statistic:.1f}, threshold {self.threshold:.1f}; {self.alpha:g} is the chance of any "
                f"false alarm). It began {began}: roll back to round {self.rollback} and go on without {it}."
            )
            shown = [f"Client {name}: {reason}." for name, reason in self.reasons.items()][:_LISTED]
            words = " ".join([words, *shown])
        elif not self.watched:
            words = f"round {self.round}: nobody is watched."
        else:
            words = (
                f"round {self.round}: no alarm among {self.watched} clients "
                f"(surprise {self.statistic:.1f}, threshold {self.threshold:.1f})."
            )
        return f"{words} {self.note}".rstrip()


def named(clients: tuple[Name, ...]) -> str:
    """Clients as the subject of a sentence."""
    each = [str(client) for client in clients]
    if len(each) == 1:
        return f"client {each[0]} no longer moves"
    return f"clients {', '.join(each[:-1])} and {each[-1]} no longer move"


def listed(names: Iterable[Name]) -> str:
    """Names in a sentence, as a, b and c; of many, the first ten."""
    each = [str(name) for name in names] or ["nobody"]
    if len(each) > _LISTED:
        return f"{', '.join(each[:_LISTED])} and {len(each) - _LISTED} more"
    return " and ".join([", ".join(each[:-1]), each[-1]]) if len(each) > 1 else "".join(each)


def counted(names: tuple[Name, ...]) -> str:
    """The same after its noun, as client a, or clients a and b."""
    return f"client{'s' if len(names) > 1 else ''} {listed(names)}"
