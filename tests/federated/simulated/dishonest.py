"""Parties with the source in hand who do not keep to it: sites, and who carries the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.federated.plan import Plan
from fedgauss.federated.roster import Entry
from fedgauss.federated.site import Site
from fedgauss.federated.wire import Message, digest
from simulated.keychain import Keychain, SigningKey
from simulated.network import Network

MOST_ROUNDS = 25
SHADOW = "shadow of "


class Liar(Site):
    """It says that its sums are others than they are."""

    random = Random(0)

    def _masked(self, row: FloatArray) -> Any:
        factors = [self.random.choice([1.0, 1.0, 0.0, -1.0, 10.0, 1e9]) for _ in row]
        return super()._masked(row * factors)


class Hesitant(Site):
    """It changes its message once the others have opened theirs."""

    random = Random(0)

    def _open(self, commitments: Message) -> Message:
        opening = super()._open(commitments)["opening"]
        if self.random.random() < 0.3:
            opening = {**opening, "salt": self.random.randbytes(16).hex()}
        return {"opening": opening}


class Babbler(Site):
    """It commits to messages that are none."""

    random = Random(0)

    def _commit(self) -> Message:
        reply = super()._commit()
        if self.random.random() > 0.2:
            return reply
        self._message = self._nonsense(dict(self._message))
        commitment = digest(self._message)
        statement = self._party.transcript.statement(commitment, reply["head"], reply["length"])
        return {**reply, "commitment": commitment, "signature": self.home.key.sign(statement)}

    def _nonsense(self, message: Message) -> Message:
        numbers = message.get("numbers", np.zeros((1, 4), np.uint64))
        huge = np.full_like(numbers, 2**64 - 1)
        huge[..., -1] = 2**62
        return self.random.choice(
            [
                {**message, "numbers": huge}, {**message, "numbers": numbers[:-1]}, {**message, "numbers": "nan"},
                {**message, "numbers": numbers.astype(float)}, {**message, "numbers": None},
                {**message, "words": {"rows": -1, "dropped": 0, "levels": [], "tags": {}}}, {**message, "words": []},
                {**message, "words": {"refused": ["it would rather not, says this site"]}}, {"salt": ""},
                {**message, "words": {**message["words"], "levels": [["age", {"kind": "text", "named": ["a", "a"]}]]}},
                {**message, "words": {**message["words"], "reasons": 7}}, {**message, "words": {"refused": 7}},
            ]
        )  # fmt: skip


DISHONEST_SITES = (Liar, Hesitant, Babbler)
PLOTS = (
    "forged total", "forged commitment", "old messages", "two histories", "another key", "swapped key",
    "swapped run key", "other names", "key twice", "site twice", "forged past", "out of turn", "another asker",
    "old plan", "one site less", "site left out", "two rosters",
)  # fmt: skip


class Mailbox:
    """Who carries the messages, and follows a plot as long as an honest site answers.

    Parameters
    ----------
    plot : str
        One of `PLOTS`.
    random : Random
    keys : Keychain
    asker : SigningKey
    colluding : str, optional
        A site that has a second process, called `SHADOW` of it, so that two histories can be signed.
    past : sequence of dict
        Earlier runs, as honest mailboxes have kept them.
    """

    def __init__(
        self,
        plot: str,
        random: Random,
        keys: Keychain,
        asker: SigningKey,
        colluding: str | None,
        past: Sequence[Message],
    ) -> None:
        self._plot, self._random, self._keys, self._asker = plot, random, keys, asker
        self._colluding, self._past = colluding, list(past)
        self._before: list[tuple[dict[str, Message], dict[str, Message]]] = []

    def carry(self, plan: Plan, network: Network) -> None:
        """A whole run."""
        random, plot = self._random, self._plot
        key = self._keys.key() if plot == "another asker" else self._asker
        asked = {"plan": plan.to_wire(), "key": key.public, "signature": key.sign(plan.statement)}
        if plot == "old plan" and self._past:
            asked["plan"] = random.choice(self._past)["plan"]
        names = list(plan.sites)
        called = dict(zip(names, random.sample(names, len(names)), strict=True)) if plot == "other names" else {}
        joined = network.ask("join", {name: {**asked, "name": called.get(name, name)} for name in names})
        here = {called.get(name, name): reply["entry"] for name, reply in joined.items() if "entry" in reply}
        place = {called.get(name, name): name for name in names}
        if not here:
            return
        victim = random.choice(sorted(here))
        roster = self._roster(plan, here, victim)
        past = self._forged_past() if plot == "forged past" else []
        about = {"roster": roster, "past": past}
        told = {place[name]: about for name in here}
        if plot == "two rosters":  # the site knows the second, and half of the others see the first
            again = network.ask("join", {place[victim]: {**asked, "name": victim}}).get(place[victim], {})
            entries = here | {victim: again.get("entry", here[victim])}
            second = {"roster": self._roster(plan, entries, victim), "past": past}
            told |= dict.fromkeys([place[victim], *random.sample(sorted(told), len(told) // 2)], second)
        replies = network.ask("meet", told | self._to_shadow(network, about))
        for turn in range(MOST_ROUNDS):
            commitments = {name: replies[place[name]] for name in here if "commitment" in replies.get(place[name], {})}
            if not commitments:
                return
            self._forge_commitments(commitments, victim, turn)
            to = [place[name] for name in commitments if name in here]
            shown = self._two_histories("commitments", commitments, replies, to)
            openings = network.ask("open", shown)
            if plot == "out of turn" and random.random() < 0.3:
                network.ask(random.choice(["join", "meet", "open", "hear"]), {to[0]: {"openings": {}}})
            messages = {
                name: openings[place[name]]["opening"] for name in here if "opening" in openings.get(place[name], {})
            }
            told = self._forge_openings(messages, victim, turn)
            apart = {site: reply.get("opening") for site, reply in openings.items()}
            replies = network.ask("hear", self._two_histories("openings", told, apart, to))
            self._before.append((commitments, messages))

    def _to_shadow(self, network: Network, about: Message) -> dict[str, Message]:
        """Let a second process of the colluding site begin from where the first one is."""
        if self._plot != "two histories" or self._colluding is None:
            return {}
        first, second = network.machines[self._colluding], network.machines[SHADOW + self._colluding]
        second.start()
        second.site.restore(first.site.state())
        return {SHADOW + self._colluding: about}

    def _two_histories(
        self, what: str, messages: dict[str, Message], each: Mapping[str, Any], to: Sequence[str]
    ) -> dict[str, Message]:
        """Every second site, and the second process of the colluding one, are shown what that has signed."""
        one = {what: messages}
        if self._plot != "two histories" or each.get(SHADOW + str(self._colluding)) is None:
            return dict.fromkeys(to, one)
        other = {what: {**messages, str(self._colluding): each[SHADOW + str(self._colluding)]}}
        honest = [name for name in to if name != self._colluding]
        return {**dict.fromkeys(to, one), **dict.fromkeys([*honest[::2], SHADOW + str(self._colluding)], other)}

    def _roster(self, plan: Plan, entries: Mapping[str, Message], victim: str) -> list[Message]:
        roster = [dict(entry) for entry in entries.values()]
        one = next(entry for entry in roster if entry["name"] == victim)
        if self._plot == "swapped key":
            fake = Entry.signed(plan.run, victim, self._keys.key(), self._keys.fresh_run_key().public, "", 0)
            one.update(fake._asdict())
        elif self._plot == "swapped run key":
            one["run_key"] = self._keys.fresh_run_key().public
        elif self._plot == "site twice":
            roster.append(dict(one))
        elif self._plot == "site left out":
            roster.remove(one)
        return roster

    def _forge_commitments(self, commitments: dict[str, Message], victim: str, turn: int) -> None:
        """A commitment of its own in the name of a site, or one of before."""
        if victim not in commitments or self._random.random() < 0.5:
            return
        if self._plot == "forged commitment":
            mine = {"words": {}, "salt": "", "numbers": np.zeros((1, 4), np.uint64)}
            signature = self._random.choice([self._random.randbytes(64).hex(), commitments[victim]["signature"]])
            commitments[victim] = {**commitments[victim], "commitment": digest(mine), "signature": signature}
        elif self._plot == "old messages" and turn:
            commitments[victim] = self._before[-1][0].get(victim, commitments[victim])

    def _forge_openings(self, messages: Mapping[str, Message], victim: str, turn: int) -> dict[str, Message]:
        told = dict(messages)
        if self._plot == "forged total" and victim in told and isinstance(told[victim].get("numbers"), np.ndarray):
            numbers = told[victim]["numbers"].copy()
            numbers[self._random.randrange(len(numbers)), 2] += np.uint64(1)
            told[victim] = {**told[victim], "numbers": numbers}
        elif self._plot == "old messages" and turn and victim in told:
            told[victim] = self._before[-1][1].get(victim, told[victim])
        return told

    def _forged_past(self) -> list[Message]:
        """Rounds that took place, of which one was changed, left out or told twice."""
        if not self._past:
            return [{"plan": {}, "roster": [], "rounds": []}]
        run = dict(self._random.choice(self._past))
        rounds = list(run["rounds"])
        if rounds:
            i = self._random.randrange(len(rounds))
            rounds = self._random.choice(
                [rounds[:i], rounds[:i] + rounds[i + 1 :], rounds[: i + 1] + rounds[i:], rounds[::-1]]
            )
        return [{**run, "rounds": rounds}]
