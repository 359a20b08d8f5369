"""Which lines of a package each test runs, and how long it takes: a plugin of pytest that `mutants.py` uses.

    LINES_OF_TESTS=lines.json PYTHONPATH=benchmarks:src python -m pytest -p lines_of_tests tests/federated/test_keys.py

writes, for each test, its seconds and the lines of each file below src. What runs before the first test is left out.
"""

import json
import os
import sys
import time
from pathlib import Path

import pytest

_SOURCE = str(Path.cwd() / "src")
_found: dict[str, dict[str, object]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    lines: dict[str, set[int]] = {}

    def begin(frame, event, value):
        file = frame.f_code.co_filename
        if not file.startswith(_SOURCE):
            return None
        own = lines.setdefault(file[len(_SOURCE) - 3 :], set())

        def step(frame, event, value):
            own.add(frame.f_lineno)
            return step

        return step(frame, event, value)

    began = time.monotonic()
    sys.settrace(begin)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        seconds = time.monotonic() - began
        _found[item.nodeid] = {"seconds": seconds, "lines": {file: sorted(own) for file, own in lines.items()}}


def pytest_sessionfinish():
    Path(os.environ["LINES_OF_TESTS"]).write_text(json.dumps(_found))
