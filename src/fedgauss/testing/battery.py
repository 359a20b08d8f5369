"""A battery: named rules, each checked on its own, and one report of all of them.

A rule is a function of the part under test. The first paragraph of its docstring is the rule in words, and it calls
`expect` with what it found and how to mend it, or `not_applicable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn

from fedgauss._shown import Shown

Rule = Callable[[Any], None]


class BrokenRule(AssertionError):
    """A rule does not hold: what was found, and how to mend it."""

    def __init__(self, got: str, fix: str) -> None:
        self.got, self.fix = got, fix
        super().__init__(f"Got: {got}. Fix: {fix}")


class NotApplicable(Exception):
    """The rule is about something that the part does not have."""


def expect(holds: Any, got: str, fix: str) -> None:
    """Break the rule unless `holds`."""
    if not holds:
        raise BrokenRule(got, fix)


def not_applicable(reason: str) -> NoReturn:
    """Leave the rule out, saying why."""
    raise NotApplicable(reason)


@dataclass(frozen=True)
class CheckOutcome:
    """What became of one check.

    Attributes
    ----------
    name, rule : str
        The check, and its rule in words.
    status : {"passed", "failed", "skipped"}
        A check is skipped when its rule is about something that the part does not have.
    message : str
        For a failure what was found and how to mend it, for a skipped check the reason.
    error : BaseException or None
        What a failed check raised, with its traceback.
    """

    name: str
    rule: str
    status: Literal["passed", "failed", "skipped"]
    message: str = ""
    error: BaseException | None = None

    def __str__(self) -> str:
        if self.status == "failed":
            return f"FAILED   {self.name}\n         {self.rule}\n         {self.message}"
        return f"{self.status:8} {self.name}" + (f" ({self.message})" if self.message else "")


@dataclass(frozen=True)
class Check:
    """One rule, ready to be checked. Call it: it raises an AssertionError if the rule is broken.

    Attributes
    ----------
    name : str
        A few words; also what `str` returns, so that `ids=str` names the cases of a parametrised test.
    rule : str
        The rule, in one sentence or two.
    """

    name: str
    rule: str
    test: Callable[[], None]

    def __call__(self) -> None:
        """Check the rule, and raise an AssertionError if it is broken."""
        found = self.outcome()
        if found.status == "failed":
            raise AssertionError(f"{self.rule} {found.message}") from found.error

    def __str__(self) -> str:
        return self.name

    def outcome(self) -> CheckOutcome:
        """Check the rule, and report rather than raise."""
        try:
            self.test()
        except NotApplicable as reason:
            return CheckOutcome(self.name, self.rule, "skipped", str(reason))
        except BrokenRule as broken:
            return CheckOutcome(self.name, self.rule, "failed", str(broken), broken)
        except (Exception, SystemExit) as error:  # a part under test may raise anything
            said = str(error).strip().partition("\n")[0]
            found = BrokenRule(f"{type(error).__name__}: {said}", "the error's traceback shows where it was raised.")
            return CheckOutcome(self.name, self.rule, "failed", str(found), error)
        return CheckOutcome(self.name, self.rule, "passed")


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """The outcome of every check of a battery. Printed, it lists them.

    Attributes
    ----------
    subject : str
        What was checked.
    outcomes : tuple of CheckOutcome
        One for each check, in order.
    """

    subject: str
    outcomes: tuple[CheckOutcome, ...]

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """The checks that failed."""
        return tuple(found for found in self.outcomes if found.status == "failed")

    def __str__(self) -> str:
        count = len(self.outcomes)
        verdict = f"{len(self.failed)} of {count} checks failed" if self.failed else f"all {count} checks passed"
        skipped = sum(found.status == "skipped" for found in self.outcomes)
        aside = f" ({skipped} did not apply)" if skipped else ""
        return "\n".join([f"{self.subject}: {verdict}{aside}", *map(str, self.outcomes)])


class ConformanceError(AssertionError):
    """A part breaks rules of its kind; the message lists every one, and `report` has the outcome of each check."""

    def __init__(self, report: Report) -> None:
        self.report = report
        head = str(report).partition("\n")[0]
        super().__init__("\n".join([head, *map(str, report.failed)]))


def checks(rules: Iterable[Rule], part: Any) -> list[Check]:
    """The rules as checks of one part, named after their functions."""
    return [Check(rule.__name__.strip("_").replace("_", " "), _in_words(rule), partial(rule, part)) for rule in rules]


def run(subject: str, battery: Iterable[Check]) -> Report:
    """Run every check, and raise one error if any failed."""
    report = Report(subject, tuple(check.outcome() for check in battery))
    if report.failed:
        raise ConformanceError(report) from report.failed[0].error
    return report


def _in_words(rule: Rule) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((rule.__doc__ or "").strip().partition("\n\n")[0].split())
