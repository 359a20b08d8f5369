"""`ClientMonitor`: watch every client of a run while its model learns, and be told who turned bad."""

from __future__ import annotations

import copy
import math
import secrets
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect import storage
from fedgauss.detect.channel import INVALID
from fedgauss.detect.clients.compared import Compared, Exclusion
from fedgauss.detect.clients.directions import Directions
from fedgauss.detect.clients.features import FEATURES, OF_MANY, WIRE, Feature, Known, rows_of
from fedgauss.detect.clients.gauge import Level, Question, Sending
from fedgauss.detect.clients.groups import chance
from fedgauss.detect.clients.moves import ClientMoves, checked_weights, flat_moves
from fedgauss.detect.clients.naming import named
from fedgauss.detect.clients.population import Population, are_many, strangers
from fedgauss.detect.clients.quarantine import Held, after_round, held
from fedgauss.detect.clients.reasons import reasons
from fedgauss.detect.clients.seen import SeenRounds
from fedgauss.detect.clients.shown import monitor_html
from fedgauss.detect.clients.sketch import Single, Sketch, width_for
from fedgauss.detect.clients.stored import FORMAT as FORMAT
from fedgauss.detect.clients.stored import ClientState
from fedgauss.detect.clients.surprise import LEAST_PAST, surprise_of
from fedgauss.detect.clients.verdict import ClientVerdict, Name, counted
from fedgauss.detect.clients.watch import FEWEST, LEFT_OUT_FIRST, ORDINARY, ClientWatch
from fedgauss.detect.locked import OwnLock, locked
from fedgauss.detect.spending import spent

_FIRST_JUDGED = LEFT_OUT_FIRST + LEAST_PAST + 1  # the first round in which anybody can be
_CHANGED = (
    "round",
    "compared",
    "_numbers",
    "_dim",
    "_watch",
    "_directions",
    "_held",
    "_population",
    "_strangers",
)  # by a round, without an alarm
_HOW = {"exclude": "excluded", "quarantine": "quarantined"}


class _NotANumber(Exception):
    """A statistic is not a number, which is no silence."""


class ClientMonitor(ClientState):
    """Raises an alarm when clients turn bad, names them, and says since when, whatever the model and its optimiser.

    Each client is compared with the others in the round and with its own past: the direction, length and shape of what
    it changed. Both references move with training, so the model may still be learning. Nothing is needed of the loss,
    the optimiser or the rate.

    Parameters
    ----------
    alpha : float
        The chance of any false alarm: over the first `horizon` rounds, or for ever without a horizon.
    horizon : int, optional
        The number of rounds over which alpha holds.
    rate : float
        The chance of a wrong name in an alarm, by Holm's rule. Where few clients take part in a round it may be more
        (docs/limits.md).
    seed : int, optional
        Of the sketch that stands for models with more than 16,384 parameters, or 2,048 where a thousand clients are
        compared. Secret and random by default; keep one that you give from clients.
    features : sequence of Feature
        What is looked at in a client's move.
    clip : float, optional
        The length to which clients cut what they send, if they do.
    noise : float, optional
        The standard deviation of what each client adds to every parameter after that. Both only tell `would_see` what
        doubling a move would do.

    population : bool
        Where clients come back too rarely to have a past of their own, judge all of them together. Its level was
        measured, and does not hold where clients clip and add noise (docs/clients.md).

    Attributes
    ----------
    round : int
        The number of updates so far.
    clients : tuple
        The names of all clients seen, in the order in which they joined.
    left_out : tuple
        Those that `exclude` left out.
    alarm : ClientVerdict or None
        The first verdict of the current alarm, which lasts until `exclude` or `reset`.
    quarantined : tuple
        Those that `quarantine` holds: judged, but no part of what counts.
    exclusions : tuple of Exclusion
        Who was excluded, quarantined or accepted since the last `reset`, after which round, and which round the run
        went back to.
    compared : Compared or None
        What the clients of the last round were compared by, which another monitor's `update` takes in place of moves.
    seen : SeenRounds
        Surprises of the last 1,000 rounds and all alarms since the last `reset`, for `plot`.

    Notes
    -----
    Clients are judged from round 12 on; one that joins later, from its tenth round on. While nobody can be judged the
    verdict says so. A change that most clients share is no alarm; a sudden one of all lengths, as when the rate falls
    by ten, makes the watch begin anew.

    That alpha holds follows, by Bonferroni's inequality over clients and rounds, where features are Gaussian and
    independent over rounds, and clients nearly so given what they share; that real runs are tame enough is measured
    (docs/clients.md). A client that was bad from its first round on has a bad past, and is not seen.

    Values that a clip bounds, that tie or that barely vary have laws of their own (docs/clients.md). A client whose
    weight in the mean jumps is an alarm, if `update` is told weights.

    Memory is 35 kB a client, and inner products of the last 64 rounds; time a round does not grow. Several threads may
    call one monitor: calls wait for each other.

    Examples
    --------
    Ten clients with forty parameters; from round 21 on client 7 sends the opposite of what it learnt:

    >>> import numpy as np
    >>> import fedgauss as fg
    >>> rng = np.random.default_rng(0)
    >>> own = rng.normal(size=(10, 40))
    >>> monitor = fg.ClientMonitor(horizon=100)
    >>> for number in range(1, 25):
    ...     moves = own + 0.5 * rng.normal(size=(10, 40))  # what each client changed: its upload less what it was sent
    ...     if number > 20:
    ...         moves[7] = -moves[7]
    ...     verdict = monitor.update(moves)
    ...     if verdict.alarm:
    ...         break
    >>> number, verdict.suspects, verdict.onset, verdict.rollback
    (22, (7,), 21, 20)
    >>> monitor.exclude()  # go on without them, from the model of round 20
    (7,)
    """

    def __init__(
        self,
        alpha: float = 0.05,
        horizon: int | None = None,
        rate: float = 0.05,
        seed: int | None = None,
        features: Sequence[Feature] = FEATURES,
        *,
        clip: float | None = None,
        noise: float | None = None,
        population: bool = False,
    ) -> None:
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts rounds.")
        self.rate = _checks.probability("rate", rate, fix="Use 0.05, a wrong name in one alarm of 20?")
        seed = secrets.randbits(63) if seed is None else _checks.whole("seed", seed, at_least=0)
        self.features = tuple(features)
        self._seed = seed
        self.clip = None if clip is None else _checks.real("clip", clip, above=0.0)
        self.noise = None if noise is None else _checks.real("noise", noise, above=0.0)
        if not isinstance(population, bool):
            raise ValueError(f"population must be True or False; got {population!r}.")
        self.population = population
        if self.horizon is not None and self.horizon < _FIRST_JUDGED:
            warnings.warn(
                f"horizon must be at least {_FIRST_JUDGED} for anybody to be judged in it; got {self.horizon}. Use the "
                "number of rounds that the run may have, or None?",
                stacklevel=2,
            )
        self._lock = OwnLock()
        self._held: dict[int, Held] = {}
        self._begin(())

    def _begin(self, out: tuple[Name, ...]) -> None:
        self.round = 0
        self.alarm: ClientVerdict | None = None
        self.exclusions: tuple[Exclusion, ...] = ()
        self.compared: Compared | None = None
        self.seen = SeenRounds()
        self._question: Question | None = None  # of the last verdict
        self._watch_only(out)
        self._dim = 0
        self._directions = Directions(Sketch(width_for(0), self._seed), self.features)
        self._population: Population | None = None  # once clients are too many to have a past of their own
        self._strangers: tuple[float, ...] = ()  # of the last rounds, the share of clients that were new

    @locked
    def reset(self) -> None:
        """Forget all rounds and start with a fresh alpha. Clients that were left out stay out, or in quarantine."""
        self._begin(self._out())

    def _out(self) -> tuple[Name, ...]:
        """Clients that do not count, numbered anew."""
        out = (*self.quarantined, *self.left_out)
        self._held = {out.index(self.clients[k]): one for k, one in self._held.items()}
        return out

    def _watch_only(self, out: tuple[Name, ...]) -> None:
        """A watch without rounds, that knows who does not count."""
        self._numbers: dict[Name, int] = {name: k for k, name in enumerate(out)}
        self._watch = ClientWatch(1, len(out), self.features)
        self._watch.left_out[:] = True
        self._watch.held[0, [*self._held]] = True
        self._held = {client: one._replace(since=0, quiet=0) for client, one in self._held.items()}

    @property
    def clients(self) -> tuple[Name, ...]:
        """All clients seen, in the order in which they joined."""
        return tuple(self._numbers)

    @property
    def of_many(self) -> bool:
        """Whether clients come back too rarely to be judged by their own past, and are judged together."""
        return self._population is not None

    @property
    def blind(self) -> str:
        """Why an attack in the next round would not be seen though there were rounds enough; empty where it would."""
        if self.horizon is None or self.round <= self.horizon:
            return ""
        over = f"the horizon of {self.horizon} rounds is over, and no client is judged any more"
        return f"{over}. Use a longer --horizon?"

    @property
    def left_out(self) -> tuple[Name, ...]:
        """Clients that are no longer watched."""
        watch = self._watch
        return tuple(name for name, k in self._numbers.items() if watch.left_out[0, k] and not watch.held[0, k])

    @property
    def quarantined(self) -> tuple[Name, ...]:
        """Clients that are watched, but no part of what counts."""
        return tuple(name for name, k in self._numbers.items() if self._watch.held[0, k])

    def __repr__(self) -> str:
        state = "no alarm" if self.alarm is None else "ALARM"
        return f"<ClientMonitor of {len(self._numbers)} clients, round {self.round}: {state}>"

    def _repr_html_(self) -> str:
        return monitor_html(self)

    @locked
    def plot(self, accuracy: Mapping[int, float] | Sequence[float] | None = None) -> Any:
        """A figure of all clients by rounds, deeper in colour the more surprising, with alarms and names.

        Clients of an alarm are outlined from its onset on, those left out struck through, and a bar lies over rounds
        that were undone. Absent clients are blank, and those not judged yet are pale. Of more than 60 clients those
        named or left out are drawn, and the most surprising.

        Parameters
        ----------
        accuracy : mapping or sequence, optional
            What to draw below, by round; or in order, the last one being that of the last round.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> monitor.plot(accuracy={1: 0.3, 2: 0.5}).savefig("run.png")  # doctest: +SKIP
        """
        from fedgauss.detect.clients.figures import heat_figure

        if not len(self.seen.rounds):
            raise ValueError("plot needs a round; there is none yet. Call update first.")
        return heat_figure(self, accuracy)

    @locked
    def update(
        self,
        moves: ClientMoves | Compared,
        participants: Iterable[int] | None = None,
        round: int | None = None,
        weights: Mapping[Name, float] | None = None,
        model: Any = None,
    ) -> ClientVerdict:
        """Judge a round.

        Parameters
        ----------
        moves : (K, d) array_like, mapping or Compared
            What each client changed: its upload minus what it was sent. Rows in a fixed order, of NaN for clients that
            took no part; or by name, without those who took no part, an array, a list of arrays (layers) or arrays by
            layer, as `state_dict()` has them, of any library. Of several arrays those of integers and booleans are not
            judged, nor are running statistics that torch or Keras has named. Or what another monitor compared the
            clients of a round by.
        participants : iterable of int, optional
            The rows that took part, to be sure that no NaN is taken for an absence.
        round : int, optional
            The number of the round, where rounds before it were missed; one more than the last by default.
        weights : mapping, optional
            What each client counts for in the mean, by name or row, such as the examples that it claims.
        model : array_like, list or mapping, optional
            The parameters that clients were sent, in every round or in none, in the form of a move. Clients that are
            too many to have a past are judged more sharply with it.

        Returns
        -------
        ClientVerdict

        Raises
        ------
        ValueError
            If a move is not finite, or of another size than before; nothing is changed then.
        """
        number = self.round + 1 if round is None else _checks.whole("round", round, at_least=self.round + 1)
        if isinstance(moves, Compared):
            return self._judge(number, moves.checked(self._measured).without(self.left_out), None, self._dim)
        vectors = flat_moves(moves, participants, self.left_out)
        dim = self._checked_size(vectors)
        if not self._dim and dim:  # the first round
            self._directions = Directions(Sketch(width_for(len(vectors)), self._seed), self.features)
        sent = None if model is None else flat_moves({"model": model}, None, ())["model"]
        if sent is not None and dim and len(sent) != dim:
            raise ValueError(f"model must have the {dim} parameters of a move; it has {len(sent)}. Is a layer missing?")
        compared, sketches = self._directions.compared(vectors, self._numbers, checked_weights(weights, vectors), sent)
        return self._judge(number, compared.checked(self._measured), sketches, dim)

    def _judge(self, number: int, compared: Compared, sketches: Single | None, dim: int) -> ClientVerdict:
        """A checked round, all of it or nothing; without sketches whoever compared clients keeps their directions."""
        before = {name: getattr(self, name) for name in _CHANGED}
        if self._question is not None:
            self._question.close()
        self._numbers, self._watch = dict(self._numbers), self._watch.copied()
        self._directions = copy.copy(self._directions)
        self._population = None if self._population is None else self._population.copied()
        self.round, self._dim, self.compared = number, dim, compared
        try:
            return self._judged(compared, sketches)
        except _NotANumber as error:
            vars(self).update(before)
            threshold = surprise_of(spent(self.alpha, self.horizon, number))
            last = self.round
            return ClientVerdict(
                True, math.inf, threshold, INVALID, number, number, None, last, self.alpha, note=str(error)
            )  # fmt: skip
        except BaseException:
            vars(self).update(before)
            raise

    def _judged(self, compared: Compared, sketches: Single | None) -> ClientVerdict:
        names, held = compared.clients, set(self.quarantined)
        there = tuple(name for name in names if name not in held)
        if len(there) < FEWEST:
            few = self._verdict({}, f"At least {FEWEST} clients must take part in a round; {len(there)} did.")
            self.seen.add(few, {name: self._numbers[name] for name in names if name in self._numbers})
            return few
        self._strangers = (*self._strangers, strangers(there, self._numbers))[-4:]
        if self.population and self._population is None and self._come_once() and not self._any_past(there):
            self._give_up_names()
        if self._population is not None:
            return self._of_many(self._population, compared, sketches)
        self._join(names)
        who = np.array([self._numbers[name] for name in names])
        self._watch.round = self.round - 1  # rounds with fewer clients, or that were missed, count
        p, jumped = self._watch.update(compared.moves(who, self.features))
        if (lost := np.isnan(p[0]) & self._watch.has_past(0, who)).any():
            raise _NotANumber(f"The surprise of client {names[int(np.argmax(lost))]!r} would not be a finite number.")
        verdict = self._verdict(dict(zip(names, p[0].tolist(), strict=True)), self._remark(p[0], bool(jumped[0])))
        if sketches is not None:  # what a client in quarantine does that is not ordinary does not become its past
            turns = ~(self._watch.held[0, who] & (p[0] <= ORDINARY))
            self._directions.turn(who[turns], sketches[turns])
        self.seen.add(verdict, {name: self._numbers[name] for name in names})
        if jumped[0] and not verdict.alarm:
            self._watch.forget(jumped)
        return self._let_back(verdict, dict(zip(who.tolist(), p[0].tolist(), strict=True)))

    def _let_back(self, verdict: ClientVerdict, p: dict[int, float]) -> ClientVerdict:
        """The verdict with those in quarantine who behave like the others again: they count from the next round on."""
        self._held = after_round(self._watch, self._held, p)
        if not (back := [client for client, one in self._held.items() if one.back]):
            return verdict
        self._watch.take_back(0, back)
        self._held = {client: one for client, one in self._held.items() if client not in back}
        returned = tuple(self.clients[client] for client in back)
        words = f"Back from quarantine: {counted(returned)}."
        verdict = replace(verdict, returned=returned, note=f"{verdict.note} {words}".lstrip())
        self.alarm = verdict if self.alarm is not None and self.alarm.round == self.round else self.alarm
        return verdict

    def _come_once(self) -> bool:
        """Whether clients come back too rarely to have a past of their own."""
        return are_many(self.round, self._strangers)

    def _any_past(self, names: tuple[Name, ...]) -> bool:
        who = np.array([self._numbers[name] for name in names if name in self._numbers], dtype=np.int64)
        return bool(((self._watch.numbers[0, who] > 0).sum(axis=1) >= LEAST_PAST).any())

    def _give_up_names(self) -> None:
        """From here on all clients are judged together: none is remembered but those left out or in quarantine."""
        alarms = self.seen.alarms
        self._watch_only(self._out())
        self.seen = SeenRounds()
        self.seen.alarms = alarms
        self._population = self._new_population()
        self._directions = Directions(self._directions.sketch, self._measured)

    def _of_many(self, population: Population, compared: Compared, sketches: Single | None) -> ClientVerdict:
        """A round of clients that are judged together; without a past of its own nobody is back from quarantine."""
        if sketches is not None:
            counts = [name not in self.quarantined for name in compared.clients]
            self._directions.go_on(sketches[counts])
        compared = compared.without(self.quarantined)
        count = len(compared.clients)
        seen = rows_of(compared.moves(np.arange(count), WIRE), np.ones((1, count), dtype=np.bool_), OF_MANY)
        exact = np.where(seen.known[0] == Known.EXACTLY, seen.rows[0], np.nan)
        first = population.alarm is None
        said = population.update(compared.clients, exact, self.round, spent(1.0, self.horizon, self.round))
        onset = (said.onset, said.onset) if said.alarm else None
        verdict = ClientVerdict(
            said.alarm, surprise_of(said.chance), surprise_of(self.alpha), "population", self.round, self.round,
            said.onset if said.alarm else None, said.onset - 1 if said.alarm else None, self.alpha,
            note=population.note(count), onset_interval=onset, suspects=said.suspects, watched=said.judged,
            population=said,
        )  # fmt: skip
        self.alarm = verdict if said.alarm else None
        if said.alarm and first:
            self.seen.add_alarm(verdict)
        self.seen.add(verdict, {})
        return verdict

    def _checked_size(self, vectors: dict[Name, FloatArray]) -> int:
        """The number of parameters that all clients have: that of earlier rounds, or of most clients of the first."""
        sizes = {name: len(move) for name, move in vectors.items()}
        ((usual, _),) = Counter(sizes.values()).most_common(1) or [(0, 0)]
        dim = self._dim or usual
        for name, size in sizes.items():
            if size != dim:
                raise ValueError(
                    f"all moves must have {dim} parameters, {'as before' if self._dim else 'like most'}; "
                    f"that of client {name!r} has {size}. Is a layer missing?"
                )
        return dim if len(sizes) >= FEWEST else self._dim  # too few to be compared fix nothing

    def _join(self, names: tuple[Name, ...]) -> None:
        """Numbers for clients that are new."""
        for name in names:
            self._numbers.setdefault(name, len(self._numbers))
        count = len(self._numbers)
        if count > self._watch.left_out.shape[1]:
            self._watch.grow(count)
        if self._dim and self._population is None:
            self._directions.grow(count, self._dim)

    def _remark(self, p: FloatArray, jumped: bool) -> str:
        if jumped:
            return "All clients' moves changed in length at once: they are watched anew from here on."
        if not np.isfinite(p).any() and self._come_once():
            return (
                "Most clients come for the first time, so that nobody has a past to be judged by. "
                "ClientMonitor(population=True) judges all of them together."
            )
        if not np.isfinite(p).any():
            return f"A client needs {LEAST_PAST} earlier rounds of its own, after the run's first {LEFT_OUT_FIRST}."
        return ""

    def _verdict(self, each: dict[Name, float], note: str) -> ClientVerdict:
        """From the p-values of the clients that were there."""
        held = {name for name in each if self._watch.held[0, self._numbers[name]]}
        p = np.array([math.nan if name in held else x for name, x in each.items()])
        surprises = {name: surprise_of(x) for name, x in each.items() if math.isfinite(x)}
        watched = len(surprises.keys() - held)
        allowed = spent(self.alpha, self.horizon, self.round)
        smallest = float(chance(self._watch, p[None])[0]) if watched else 1.0
        if math.isnan(smallest):
            raise _NotANumber("The surprise of the round would not be a finite number.")
        statistic, threshold = surprise_of(smallest), surprise_of(allowed)
        if self.horizon is not None and self.round > self.horizon:
            note = f"The horizon of {self.horizon} rounds is over: no client is judged any more. {note}".rstrip()
        base = ClientVerdict(
            False, statistic, threshold, "clients", self.round, self.round, None, None, self.alpha,
            note=note, watched=watched, surprises=surprises,
        )  # fmt: skip
        if self.alarm is not None:
            since = f"The alarm of round {self.alarm.round} was not acted on: call exclude() or reset()."
            first = self.alarm
            return replace(
                base, alarm=True, onset=first.onset, onset_interval=first.onset_interval, rollback=first.rollback,
                suspects=first.suspects, reasons=first.reasons, note=f"{since} {note}".rstrip(),
            )  # fmt: skip
        if not watched or smallest > allowed or (found := named(self._watch, 0, self.rate)) is None:
            sending = Sending(self.clip, self.noise or 0.0, self._dim)
            self._question = Question(self._watch, self.round, Level(self.alpha, self.horizon), sending)
            return replace(base, question=self._question)
        names = tuple(self.clients[k] for k in found.clients)
        self.alarm = replace(
            base, alarm=True, onset=found.onset, onset_interval=(found.earliest, max(found.latest, found.earliest)),
            rollback=found.earliest - 1, suspects=names,
            reasons=dict(zip(names, reasons(self._watch, 0, found.clients, found.onset), strict=True)),
        )  # fmt: skip
        self.seen.add_alarm(self.alarm)
        return self.alarm

    @locked
    def suspects(self, rate: float | None = None) -> tuple[Name, ...]:
        """Clients of the last six rounds that stand out, the most surprising first.

        Parameters
        ----------
        rate : float, optional
            The chance that any of them is honest; that of the monitor by default.
        """
        share = self.rate if rate is None else _checks.probability("rate", rate)
        if self._population is not None:
            return () if self._population.alarm is None else self._population.alarm.suspects
        if not self._watch.recent:
            raise ValueError("suspects needs a round; there is none yet. Call update first.")
        found = named(self._watch, 0, share)
        return () if found is None else tuple(self.clients[k] for k in found.clients)

    @locked
    def exclude(self, names: Iterable[Name] | None = None, back_to: int | None = None) -> tuple[Name, ...]:
        """Go on without some clients, from the model of an earlier round; rounds are counted on.

        Parameters
        ----------
        names : iterable, optional
            By default the suspects of the alarm.
        back_to : int, optional
            The round whose model the run goes on from: by default the rollback of the alarm. What was seen after it is
            forgotten.

        Returns
        -------
        tuple
            The names.
        """
        return self._leave_out("exclude", names, back_to)

    @locked
    def quarantine(self, names: Iterable[Name] | None = None, back_to: int | None = None) -> tuple[Name, ...]:
        """Go on without some clients, as `exclude` does, but judge on what they do, and let them back.

        A client counts again (`verdict.returned`) once eight of its rounds in a row were ordinary and all of them
        together say that it has gone back to what it did before. One that goes on as when it was named, or half as far
        that way, is ever let back with a chance of .01. Who returns is judged as before; each further quarantine takes
        twice as many ordinary rounds. What changed for good and is honest is for `accept`.

        Parameters
        ----------
        names, back_to
            As in `exclude`.

        Returns
        -------
        tuple
            The names.
        """
        return self._leave_out("quarantine", names, back_to)

    @locked
    def accept(self, name: Name) -> None:
        """End a client's quarantine: what it does from now on is its new normal.

        Its past is forgotten, so it is judged again after eight rounds.
        """
        if name not in self.quarantined:
            raise ValueError(f"accept needs a client in quarantine; {name!r} is not. In it are {self.quarantined}.")
        client = self._numbers[name]
        self._watch, self._directions = self._watch.copied(), copy.copy(self._directions)
        self._watch.take_back(0, [client], anew=True)
        self._directions.forget(client)
        self._held = {other: one for other, one in self._held.items() if other != client}
        self.exclusions = (*self.exclusions, Exclusion((name,), self.round, self.round, "accepted"))

    def _leave_out(self, verb: str, names: Iterable[Name] | None, back_to: int | None) -> tuple[Name, ...]:
        if names is None and self.alarm is None:
            raise ValueError(f"{verb} needs names where there is no alarm to take them from.")
        chosen = self.alarm.suspects if names is None and self.alarm is not None else tuple(names or ())
        if unknown := [name for name in chosen if not self._was_seen(name)]:
            raise ValueError(f"names must be of clients that were seen; {unknown[0]!r} was not.")
        rollback = self.alarm.rollback if self.alarm is not None else self.round
        at = rollback if back_to is None else _checks.whole("back_to", back_to, at_least=0, at_most=self.round)
        back_to = self.round if at is None else at
        if self._population is not None:
            self._join(tuple(chosen))
            self._population.forget(back_to)
        clients = [self._numbers[name] for name in chosen]
        others = {client: one for client, one in self._held.items() if client not in clients}
        if verb == "quarantine":
            if gone := [name for name in chosen if name in self.left_out]:
                raise ValueError(f"quarantine needs clients that are not excluded; {gone[0]!r} is.")
            onset = self.alarm.onset if self.alarm is not None and self.alarm.onset else back_to + 1
            past = [out for out in self.exclusions if out.how == "quarantined"]
            often = [sum(name in out.clients for out in past) for name in chosen]
            others |= dict(zip(clients, held(self._watch, clients, onset, often), strict=True))
        self._held = others
        self._watch = self._watch.copied()  # a question may hold the other one
        self._watch.leave_out(0, clients, back_to, held=verb == "quarantine")
        self.exclusions = (*self.exclusions, Exclusion(chosen, self.round, back_to, _HOW[verb]))
        self.alarm = None
        return chosen

    def _was_seen(self, name: Name) -> bool:
        many = self._population
        return name in self._numbers or (many is not None and many.sightings.knows(name))

    @locked
    def save(self, path: storage.Place) -> None:
        """Write the monitor to one file, that only its owner can read; `load` goes on from it to the bit.

        It is written completely or not at all, and is on disk when this returns. It holds the sketch's secret seed.
        """
        storage.write(path, *self.state(), FORMAT)

    @classmethod
    def load(cls, path: storage.Place, features: Sequence[Feature] = FEATURES) -> ClientMonitor:
        """The monitor that `save` wrote, with its features; a ValueError says that the file is none, or is damaged."""
        words, arrays = storage.read(path, FORMAT, "ClientMonitor.save")
        try:
            given = (words["alpha"], words["horizon"], words["rate"], words["seed"], features)
            monitor = cls(*given, clip=words["clip"], noise=words["noise"], population=words["together"])
            monitor.restore(words, arrays)
        except Exception as error:  # a damaged file may break anything
            raise ValueError(f"{storage.called(path)} is not a whole client monitor: {error}.") from error
        return monitor
