"""The battery for detector channels: every shipped one passes, and every rule finds a broken one."""

import sys

import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure

from fedgauss.detect import Channel, ClientChannel, MeanChannel, Peak, SpreadChannel
from fedgauss.testing import channel, check_channel, checks_for_channel

SHIPPED = {
    "mean": MeanChannel(),
    "spread": SpreadChannel(),
    "clients": ClientChannel(),
    "mean, another share": MeanChannel(share=0.5),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_channels_conform(name):
    report = check_channel(SHIPPED[name])
    assert [found.status for found in report.outcomes] == ["passed"] * 15


def test_no_shipped_channel_is_left_out():
    shipped = {each for each in Channel.__subclasses__() if each.__module__.startswith("fedgauss.")}
    assert shipped == {type(each) for each in SHIPPED.values()}


class Shewhart(Channel):
    """The newest round against the mean of all before: a sound channel, for mutants to spoil."""

    name, share, alarm_words = "shewhart", 0.1, "newest round stands out"
    saved = ("rounds", "total")

    def begin(self, conditions):
        self.rounds = 0
        self.total = np.zeros((conditions.dim, conditions.replicates))

    def update(self, seen):
        gap = seen.x - self.total / max(self.rounds, 1)
        self.rounds += 1
        self.total = self.total + seen.x
        statistic = np.sqrt(seen.weight * (gap**2).sum(axis=0))
        return Peak(statistic, np.full(len(statistic), seen.before), np.full(len(statistic), self.rounds - 1))


def spoiled(**attributes):
    """The sound channel with other attributes."""
    return type("Spoiled", (Shewhart,), attributes)()


def changed(**parts):
    """Peaks of which a part is changed by a function."""

    def update(self, seen):
        peak = Shewhart.update(self, seen)
        return peak._replace(**{name: change(getattr(peak, name)) for name, change in parts.items()})

    return update


class Shared(Shewhart):
    """Keeps its state in the template."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def update(self, seen):
        self.seen.append(seen.before)
        return super().update(seen)


class Hoarding(Shewhart):
    saved = ("rounds", "total", "everything")

    def begin(self, conditions):
        super().begin(conditions)
        self.everything = np.zeros((0, conditions.dim, conditions.replicates))

    def update(self, seen):
        self.everything = np.concatenate([self.everything, seen.x[None]])
        return super().update(seen)


class Uploaded(Shewhart):
    def update(self, seen):
        peak = super().update(seen)
        return peak if seen.uploads is None else peak._replace(statistic=np.array([seen.uploads.max()]))


class Trusting(Shewhart):
    """Takes whatever is in a file."""

    def restore(self, arrays):
        self.rounds, self.total = int(arrays["rounds"]), arrays["total"]


class Tabulated(Shewhart, tabulated=True):
    pass


class Impatient(Shewhart):
    """Takes every round to have twenty steps."""

    def update(self, seen):
        assert seen.weight == 20.0, f"a round of {seen.weight} steps"
        return super().update(seen)


def test_the_sound_channel_conforms():
    check_channel(Shewhart())


MUTANTS = [
    ("named", spoiled(name="a/b"), "letters, digits, spaces"),
    ("named", spoiled(share=-1.0), "must be greater than 0"),
    ("named", spoiled(alarm_words=""), "alarm_words = ''"),
    ("template", Shared(), "another seen"),
    ("peak", spoiled(update=changed(statistic=np.max)), r"shapes \[\(\), \(4,\), \(4,\)\]"),
    ("peak", spoiled(update=changed(step=lambda step: step.astype(float))), r"types \['f', 'f', 'i'\]"),
    ("finite", spoiled(update=changed(statistic=lambda top: np.full_like(top, np.inf))), r"\[inf\] after round 1"),
    ("points back", spoiled(update=changed(step=lambda step: step + 1)), r"step 21 .* in round 1"),
    ("moves", spoiled(update=changed(statistic=np.zeros_like)), "the same statistic in every round"),
    ("runs apart", spoiled(update=changed(statistic=lambda top: top - top.min())), "when run 0 is watched alone"),
    ("weights", Impatient(), r"AssertionError: a round of 5\.0 steps"),
    ("everything known", Uploaded(), r"\[nan\]"),
    ("everything known", spoiled(may_be_travel=lambda self, peak, contraction: 0), "may_be_travel of type int64"),
    ("saved", spoiled(saved=("rounds",)), "after it was restored"),
    ("saved", spoiled(saved=("rounds", "total", "nothing")), "AttributeError"),
    ("damaged", Trusting(), "total restored with NaN"),
    ("memory", Hoarding(), "259 numbers after 128 rounds and 1027 after 512"),
    ("dof", spoiled(dof=lambda self, dim: dim / 2), r"dof\(1\) = 0\.5"),
    ("thresholds", Tabulated(), "no table for 'shewhart'"),
    ("thresholds", spoiled(update=changed(statistic=np.zeros_like)), r"thresholds \[inf, inf\]"),
    ("in a monitor", spoiled(saved=("rounds",)), "from the loaded monitor"),
]


@pytest.mark.parametrize(("name", "broken", "pattern"), MUTANTS)
def test_every_rule_finds_a_broken_channel(name, broken, pattern):
    expect_failure(checks_for_channel(broken), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(channel._RULES, sys.modules[__name__])
