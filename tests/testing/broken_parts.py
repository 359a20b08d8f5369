"""A battery is only as good as what it finds: each rule is shown a part that breaks it."""

from __future__ import annotations

import inspect
import re


def outcome(battery, name):
    """The outcome of one check."""
    (check,) = [check for check in battery if check.name == name]
    return check.outcome()


def expect_failure(battery, name, pattern):
    """The check fails on this part, and says so with the rule, what was found, and a fix."""
    found = outcome(battery, name)
    assert found.status == "failed", found
    assert re.search(pattern, found.message), found.message
    assert re.search(r"Got: .+\. Fix: .+[.?]$", found.message, re.DOTALL), found.message
    assert found.rule.endswith(".")


def names(rules):
    """Names of the checks made of these rules."""
    return [rule.__name__.strip("_").replace("_", " ") for rule in rules]


def expect_every_rule_has_a_mutant(rules, tests):
    """The tests of a module name every rule."""
    source = inspect.getsource(tests)
    assert [name for name in names(rules) if f'"{name}"' not in source] == []
