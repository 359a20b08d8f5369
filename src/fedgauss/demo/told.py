"""The sentences of the first chapter, which page, picture and terminal share."""

from __future__ import annotations

from collections.abc import Collection

from fedgauss.demo.healing import BAD, ROUNDS, TURNED, Healing
from fedgauss.report.text import listed


def in_words(clients: Collection[str]) -> str:
    """Clients, as in Cork, Ghent and Izmir."""
    return listed(sorted(clients))


def turning() -> str:
    """What is staged."""
    return (
        f"Ten clients train one network to read digits, each with images of its own. From round {TURNED} on "
        f"{in_words(BAD)} send the opposite of what they learnt."
    )


def headline(healing: Healing) -> str:
    """What became of it, in a few words."""
    alarms = healing.protected.alarms
    if not alarms:
        return f"No alarm in {ROUNDS} rounds, though clients turn bad in round {TURNED}"
    if alarms[0].round < TURNED:
        return f"A false alarm in round {alarms[0].round}: clients turn bad only in round {TURNED}"
    if set(healing.named) == set(BAD):
        return f"Alarm in round {alarms[0].round}: all who turned bad are named and left out"
    return f"Alarm in round {alarms[0].round}: {in_words(healing.named)} left out"


def names(healing: Healing) -> str:
    """The clients that were left out beside those that are bad."""
    named, bad = set(healing.named), set(BAD)
    if named == bad:
        return "All who turned bad are named, and nobody else."
    missed, wrong = bad - named, named - bad
    parts = [f"{in_words(missed)} turned bad and {'is' if len(missed) == 1 else 'are'} not named."] if missed else []
    parts += [f"{in_words(wrong)} {'is' if len(wrong) == 1 else 'are'} named and in truth honest."] if wrong else []
    return " ".join(parts)


def ending(healing: Healing) -> str:
    """Accuracy in the end."""
    return (
        f"In the last ten rounds accuracy is {healing.protected.final:.2f} with protection and "
        f"{healing.unprotected.final:.2f} without; had {in_words(BAD)} never taken part, {healing.without.final:.2f}."
    )


def honest(healing: Healing) -> str:
    """The same clients, all honest."""
    alarms = healing.honest.alarms
    if not alarms:
        return f"With honest clients the same run has no alarm in {ROUNDS} rounds."
    left = in_words({str(name) for alarm in alarms for name in alarm.suspects})
    return f"With honest clients the same run has a false alarm in round {alarms[0].round}, and goes on without {left}."
