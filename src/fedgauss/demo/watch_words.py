"""The watched attack in sentences, for the terminal and the page alike, whatever the run shows.

Clients are numbered from 1 here, as in the picture of the network; the library counts from 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fedgauss._types import FloatArray
from fedgauss.demo.attack import Attack
from fedgauss.demo.repeats import Repeats
from fedgauss.detect.attribution import Attribution, Suspect
from fedgauss.detect.verdict import Verdict

TITLE = "Watched: five of ten clients turn malicious"


def what_was_run(attack: Attack, sync_every: int) -> str:
    """The setting, and what the monitor is told."""
    sd = attack.noise_sd
    return (
        f"The same clients on the same ring, with noise of standard deviation {sd.min():g} to {sd.max():g}, start at "
        f"the optimum. From step {attack.begins} on, {_clients(attack.attackers)} send updates from data whose "
        f"coefficients are shifted by {attack.shift:g} each. Once in a round of {sync_every} steps a monitor sees what "
        "every client uploads, and their mean. It knows the Hessians and the gradient noise of honest clients, and "
        "nothing of the attack."
    )


def last_word(verdicts: Sequence[Verdict]) -> str:
    """What the monitor said: its first alarm, or its last verdict."""
    words = str(next((verdict for verdict in verdicts if verdict.alarm), verdicts[-1]))
    return words[:1].upper() + words[1:]


def judged(alarm: Verdict | None, attack: Attack) -> tuple[str, bool]:
    """What became of the watch in a few words, and whether it went well."""
    if alarm is None:
        return "The attack is not seen.", False
    if alarm.step < attack.begins:
        return "A false alarm.", False
    return f"The attack is seen after {_steps(alarm.step - attack.begins + 1)}.", True


def beside_truth(alarm: Verdict | None, attack: Attack, sync_every: int) -> str:
    """Alarm, onset and rollback beside what really happened."""
    if alarm is None or alarm.onset is None or alarm.rollback is None:  # an alarm has both
        return f"The clients turned at step {attack.begins}, and no alarm rang up to step {attack.n_steps}."
    if alarm.step < attack.begins:
        return f"All clients are honest until step {attack.begins}: here was nothing to find."
    clean = (attack.begins - 1) // sync_every  # rounds without a malicious step
    onset = _onset(alarm.onset, attack.begins, clean * sync_every + 1)
    return f"The clients turned at step {attack.begins}: {onset} {_rollback(alarm.rollback, clean, attack, sync_every)}"


def _onset(estimate: int, truth: int, round_begins: int) -> str:
    off = estimate - truth
    far = f"{_steps(abs(off))} {'early' if off < 0 else 'late'}" if off else "exact"
    where = ", at the beginning of that round" if off and estimate == round_begins else ""
    return f"the estimated onset, {estimate}, is {far}{where}."


def _rollback(back: int, clean: int, attack: Attack, sync_every: int) -> str:
    if back == clean:
        return f"Round {back} is indeed the last without a malicious step."
    if back < clean:
        return f"Round {back} is safe, but honest work up to round {clean} would be lost with the rest."
    malicious = back * sync_every - attack.begins + 1
    return f"But round {back} already holds {_steps(malicious, 'malicious ')}; the last clean one is {clean}."


def who(found: Attribution, attackers: Collection[int]) -> str:
    """The clients named, beside those who are malicious by then."""
    named, guilty = set(found.malicious), set(attackers)
    if not named and not guilty:
        return "No client is named, and none is malicious yet."
    if named == guilty:
        return f"Named malicious: {_clients(named)}. These are all the attackers, and nobody else."
    words = [f"Named malicious: {_clients(named)}." if named else "No client is named."]
    if missed := guilty - named:
        words.append(f"Missed: {_clients(missed)}, also malicious.")
    if wrong := named - guilty:
        words.append(f"Wrongly named: {_clients(wrong)}, in truth honest.")
    return " ".join(words)


def basis(found: Attribution) -> str:
    """What the naming of clients rests on."""
    return (
        f"{found.rounds_after} rounds after the alarm against {found.baseline_rounds} before the onset; of the clients "
        f"named, a share of {found.rate:g} at most should be honest."
    )


HEADER = ("client", "noise sd", "statistic", "q", "in truth")


def client_row(row: Suspect, attackers: Collection[int], noise_sd: FloatArray) -> Sequence[str]:
    """A line of the table of clients."""
    q = "< 0.001" if row.q_value < 0.001 else f"{row.q_value:.3f}"
    return (str(row.client + 1), f"{noise_sd[row.client]:g}", f"{row.statistic:.2f}", q, outcome(row, attackers))


def outcome(row: Suspect, attackers: Collection[int]) -> str:
    """What a client is, and whether the monitor saw it."""
    if row.client in attackers:
        return "malicious, named" if row.malicious else "malicious, missed"
    return "honest, wrongly named" if row.malicious else "honest"


def over_runs(repeats: Repeats, alpha: float) -> str:
    """How often runs alarm, with the attack and without."""
    r = repeats
    delay = f" (half of them within {r.delay:.0f} steps)" if r.after else ""
    return (
        f"Of {r.runs} such runs, the one above among them, {r.after} alarm after the clients turned{delay}, {r.before} "
        f"before and {r.never} never. Of the same runs without an attack {r.honest} alarm, where a share of {alpha:g}, "
        f"{alpha * r.runs:.0f} of them, is allowed."
    )


def clients_over_runs(repeats: Repeats, attack: Attack) -> str:
    """Whom they name."""
    r = repeats
    if not r.asked:
        return f"In none of them were there {attack.wait} steps after such an alarm to name clients from."
    return (
        f"Asked {attack.wait} steps after the alarm, in {r.asked} of the attacked runs, the monitor names "
        f"{r.found:.2f} of the {len(attack.attackers)} attackers on average, and {r.accused} times an honest client "
        f"too; of the names in a run a share of {r.wrong:.3f} is wrong on average, where {r.rate:g} is allowed."
    )


def _numbers(clients: Collection[int]) -> str:
    *first, last = (str(k + 1) for k in sorted(clients))
    return f"{', '.join(first)} and {last}" if first else last


def _clients(clients: Collection[int]) -> str:
    return f"client{'s' if len(clients) > 1 else ''} {_numbers(clients)}"


def _steps(count: int, kind: str = "") -> str:
    return f"{count} {kind}step{'s' if count != 1 else ''}"
