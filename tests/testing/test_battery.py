"""What a battery reports, whatever it checks."""

import sys

import pytest

from fedgauss import testing
from fedgauss.testing import ConformanceError, Report
from fedgauss.testing.battery import checks, expect, not_applicable, run


def whole(part):
    """A part is whole."""
    expect(part == int(part), f"{part}", "round it.")


def _positive_(part):
    """A part is positive.

    This paragraph is for readers of the source.
    """
    expect(part > 0, f"{part}", "take its absolute value.")


def even_when_large(part):
    """A large part is even."""
    if part < 10:
        not_applicable("it is small")
    expect(part % 2 == 0, f"{part}", "add one.")


def reads_digits(part):
    """A part has digits."""
    part.digits  # noqa: B018


RULES = (whole, _positive_, even_when_large)


def test_a_sound_part_has_a_report_that_lists_every_check():
    report = run("four", checks(RULES, 4))
    assert isinstance(report, Report)
    assert str(report).splitlines() == [
        "four: all 3 checks passed (1 did not apply)",
        "passed   whole",
        "passed   positive",
        "skipped  even when large (it is small)",
    ]
    assert repr(report) == "<four: all 3 checks passed (1 did not apply)>"


def test_one_error_lists_every_broken_rule_with_what_was_found_and_the_fix():
    with pytest.raises(ConformanceError) as raised:
        run("a part", checks((*RULES, reads_digits), -1.5))
    assert isinstance(raised.value, AssertionError)
    assert str(raised.value).splitlines() == [
        "a part: 3 of 4 checks failed (1 did not apply)",
        "FAILED   whole",
        "         A part is whole.",
        "         Got: -1.5. Fix: round it.",
        "FAILED   positive",
        "         A part is positive.",
        "         Got: -1.5. Fix: take its absolute value.",
        "FAILED   reads digits",
        "         A part has digits.",
        "         Got: AttributeError: 'float' object has no attribute 'digits'. Fix: the error's traceback shows "
        "where it was raised.",
    ]
    assert [found.name for found in raised.value.report.failed] == ["whole", "positive", "reads digits"]
    assert isinstance(raised.value.report.failed[2].error, AttributeError)


def test_a_check_alone_raises_when_it_fails_and_is_silent_when_it_does_not_apply():
    first, second, third = checks(RULES, -2)
    assert str(second) == "positive"
    first()
    third()
    with pytest.raises(AssertionError, match=r"A part is positive\. Got: -2\. Fix: take its absolute value\."):
        second()


def test_a_part_that_ends_the_program_ends_its_check_alone():
    def leaves(part):
        """A part stays."""
        sys.exit("gone")

    with pytest.raises(ConformanceError, match="Got: SystemExit: gone"):
        run("a part", checks([leaves], 1))


@pytest.mark.parametrize("name", [name for name in testing.__all__ if name.startswith("check")])
def test_every_battery_says_what_it_takes_and_returns(name):
    words = getattr(testing, name).__doc__
    assert "Parameters\n" in words
    assert "Returns\n" in words
    assert ("Raises\n" in words) == name.startswith("check_")


@pytest.mark.parametrize("kind", ["attack", "channel", "family", "network", "observer", "problem", "sink"])
def test_what_is_not_of_the_kind_is_refused(kind):
    with pytest.raises(ValueError, match="must be"):
        getattr(testing, f"check_{kind}")(3)
