"""Mutants of a small module: each kind of change, and which of them its tests notice."""

import ast
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import mutants
from mutants import Mutant, Results, changes, draw, mutants_of, places

pytestmark = pytest.mark.study
MODULE = "src/small/sums.py"


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A project of one module and one file of tests."""
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "EQUIVALENT", tmp_path / "equivalent.toml")
    for folder in ("src/small", "src/fedgauss", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "src/fedgauss/__init__.py").write_text("")
    (tmp_path / "src/small/__init__.py").write_text("")
    (tmp_path / MODULE).write_text(
        "def at_most(left: int | str, right: int | str) -> bool:\n    return left <= right\n"
    )
    (tmp_path / "tests/test_sums.py").write_text(
        "from small.sums import at_most\n\n\ndef test_it():\n    assert at_most(1, 2)\n    assert not at_most(2, 1)\n"
    )
    return tmp_path


def made_of(text):
    """All texts that one change makes of another."""
    node = ast.parse(textwrap.dedent(text)).body[0]
    return {ast.unparse(other) for place in places(node) for other in changes(place)}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a < b", {"a <= b", "a >= b"}), ("a == b", {"a != b"}), ("a not in b", {"a in b"}),
        ("a and b", {"a or b", "a", "b"}), ("not a", {"a"}), ("-a", {"a"}), ("a + b", {"a - b"}), ("a ^ b", {"a | b"}),
        ("3", {"4", "2"}), ("True", {"False"}), ("'text'", set()), ("a if b else c", {"c if b else a"}),
        ("raise a", {"pass"}), ("a.b = c", {"pass"}), ("a = b", set()), ("return a", {"return None"}),
        ("f(a, b)", {"f(b, a)", "pass"}), ("a = f(b)", {"b"}), ("f(a, a)", {"pass"}), ("a: int | str = b", set()),
        ("zip(a, strict=True)", {"pass"}), ("np.maximum(a, b)", {"pass"}),
    ],
)  # fmt: skip
def test_changes_of_each_kind(text, wanted):
    assert made_of(text) == wanted


def test_a_check_is_made_always_never_and_left_out():
    text = "if a:\n    raise b"
    assert made_of(text) == {"if True:\n    raise b", "if False:\n    raise b", "pass"}
    assert "def f():\n    return\n    a()\n    b()" in made_of("def f():\n    'Words.'\n    a()\n    b()")


def test_mutants_are_whole_modules_with_one_change(tree):
    found = mutants_of(MODULE)
    assert {one.diff for one in found} == {
        "- return left <= right\n+ return left < right", "- return left <= right\n+ return left > right",
        "- return left <= right\n+ return None",
    }  # fmt: skip
    assert all(one.line == 2 for one in found)
    assert [one.diff for one in draw([MODULE], 2, 1)] == [one.diff for one in draw([MODULE], 3, 1)][:2]
    assert len(draw([MODULE], 100, 2)) == 3


def test_a_table_of_what_tests_notice(tree, capsys):
    """Only the boundary is not tested; once it is, the survivor is tested again and dies."""
    out, folder = tree / "out.jsonl", tree / "copies"
    found, tests = draw([MODULE], 10, 0), {MODULE: mutants.Tests.read(("tests/test_sums.py",))}
    mutants.run(found, tests, Results(out), 1, folder)
    mutants.report(found, tests, Results(out))
    text = capsys.readouterr().out
    assert text.splitlines()[1].split() == [MODULE, "3", "2", "1", "0", "0.667"]
    assert f"{MODULE}:2\n- return left <= right\n+ return left < right" in text
    diff = "- return left <= right\n+ return left < right"
    reason = f'[[mutant]]\nmodule = "{MODULE}"\ndiff = """{diff}"""\nreason = "It is not."'
    (tree / "equivalent.toml").write_text(reason)
    mutants.report(found, tests, Results(out))
    assert capsys.readouterr().out.splitlines()[1].split() == [MODULE, "3", "2", "0", "1", "1.000"]
    with open(tree / "tests/test_sums.py", "a") as file:
        file.write("    assert at_most(1, 1)\n")
    tests = {MODULE: mutants.Tests.read(("tests/test_sums.py",))}
    mutants.run(found, tests, Results(out), 1, tree / "more copies")
    mutants.report(found, tests, Results(out))
    assert capsys.readouterr().out.splitlines()[1].split() == [MODULE, "3", "3", "0", "0", "1.000"]
    assert len(out.read_text().splitlines()) == 4


def test_tests_must_pass_without_mutants(tree):
    (tree / "tests/test_sums.py").write_text("def test_it():\n    assert False\n")
    tests = {MODULE: mutants.Tests.read(("tests/test_sums.py",))}
    with pytest.raises(SystemExit, match=r"must pass before mutants are made; tests/test_sums\.py fails"):
        mutants.run(mutants_of(MODULE), tests, Results(tree / "out"), 1, tree / "c")


def test_each_module_has_its_share_and_a_change_elsewhere_leaves_the_others(tree):
    """Of 22 lines two are of the first module; of its three mutants the seed takes one."""
    other = "src/small/twice.py"
    text = "def twice(x: int) -> int:\n    return 2 * x\n" * 10
    (tree / other).write_text(text)
    drawn = draw([MODULE, other], 11, 0)
    assert [mutant.module for mutant in drawn] == [MODULE] + [other] * 10
    (tree / MODULE).write_text("# A comment.\n" + (tree / MODULE).read_text())
    assert [mutant.diff for mutant in draw([MODULE], 3, 0)][:1] == [drawn[0].diff]


def test_the_tests_that_run_a_line_come_first_and_the_quickest_of_them(tree):
    reach = mutants.Reach(
        {
            "tests/test_sums.py::slow": {"seconds": 9.0, "lines": {MODULE: [1, 2]}},
            "tests/test_sums.py::quick": {"seconds": 1.0, "lines": {MODULE: [2]}},
            "tests/test_other.py::other": {"seconds": 0.5, "lines": {MODULE: [2]}},
        }
    )
    mutant, files = next(one for one in mutants_of(MODULE) if "<=" in one.diff), ("tests/test_sums.py",)
    assert mutant.place == 2
    assert reach.tests(mutant, files) == ["tests/test_sums.py::quick", "tests/test_sums.py::slow"]
    assert reach.tests(mutant._replace(place=1), files) == ["tests/test_sums.py::slow"]
    assert reach.tests(mutant._replace(place=3), files) == files
    assert reach.limit(files) == 50.0
    assert reach.limit(["tests/test_sums.py::quick", "tests/test_sums.py::slow"]) == 50.0
    assert reach.limit(["tests/test_sums.py::quick"]) == 10.0


def test_results_are_read_up_to_a_line_that_was_cut_off(tree):
    one, two = (Mutant(MODULE, 1, diff, diff) for diff in "ab")
    tests = mutants.Tests(("tests/test_sums.py",), "digest")
    results = Results(tree / "out.jsonl")
    results.note(one, tests, True, 1.0)
    results.note(two, tests, False, 1.0)
    text = (tree / "out.jsonl").read_text()
    (tree / "out.jsonl").write_text(text + text[:20])
    again, other = Results(tree / "out.jsonl"), tests._replace(digest="another")
    assert (again.survived(one, tests), again.survived(two, tests)) == (True, False)
    assert (again.survived(one, other), again.survived(two, other)) == (None, False)


def test_where_tests_are_is_said_or_asked_for(tree):
    (tree / "tests/small").mkdir()
    (tree / "tests/small/test_sums.py").touch()
    assert mutants.tests_of("src/fedgauss/small/sums.py", {}) == ("tests/small/test_sums.py",)
    assert mutants.tests_of(MODULE, {MODULE: ("tests/test_sums.py",)}) == ("tests/test_sums.py",)
    with pytest.raises(SystemExit, match=r"must be there; .* is not. Use --tests"):
        mutants.tests_of("src/fedgauss/small/other.py", {})
