"""Mutants: one change to a module at a time, and whether the module's own tests notice.

    python benchmarks/mutants.py --mutants 600 --seed 1 | tee benchmarks/recorded/mutants-2026-11-19.txt
    python benchmarks/mutants.py masks src/fedgauss/federated/keys.py --mutants 100

Mutants are drawn by a seed from all changes of the kinds below, of each module in proportion to its lines. A mutant is
the module as Python prints its changed syntax tree. Of the module's own tests those that run the changed line are run
in a copy of the tree, the quickest first, up to the first that fails; where a line runs before tests do, all are.
Mutants that no test can tell from the module stand in benchmarks/recorded/mutants_equivalent.toml, each with its
reason, and do not count. Ctrl-C stops; the same command goes on, and runs survivors again where tests have changed
since.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedgauss._progress import ProgressBar

ROOT = Path(__file__).parents[1]
EQUIVALENT = ROOT / "benchmarks" / "recorded" / "mutants_equivalent.toml"
COPIED = ("src", "tests", "docs", "benchmarks", "pyproject.toml")
# What makes a fit between sites safe: these names may stand for their modules.
GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(f"src/fedgauss/federated/{name}.py" for name in names.split())
    for group, names in {
        "masks": "masks",
        "keys": "keys",
        "protocol": "party roster plan wire site program fixed_point mailbox",
        "ledger": "ledger chain history column_file disk span_rule spans row_numbers budget home",
        "policy": "policy rules rows levels path shares",
        "privacy": "privacy private_fit private_rows private_families discrete_gaussian",
    }.items()
}
# The names of a module's tests where they are not its own name, those most likely to notice first.
_NAMED = {
    "party": "party transcript",
    "fixed_point": "fixed_point layout",
    "site": "site refusals resumed_runs recorded_attacks",
    "program": "program levels mailbox refusals exact_between_sites private_runs",
    "mailbox": "mailbox resumed_runs",
    "ledger": "ledger refusals",
    **dict.fromkeys(("chain", "column_file", "disk", "history", "row_numbers", "span_rule"), "ledger"),
    "spans": "spans ledger",
    "budget": "policy ledger",
    "home": "home ledger",
    "rows": "rows refusals rules exact_between_sites recorded_attacks counted_attacks sgd_between_sites",
    "levels": "levels",
    "privacy": "privacy plan",
    **dict.fromkeys(("private_rows", "private_families"), "private_fit"),
}
TESTS = {
    f"src/fedgauss/federated/{name}.py": tuple(f"tests/federated/test_{one}.py" for one in tests.split())
    for name, tests in _NAMED.items()
}
_PATIENCE = 5.0  # times the seconds of the processor that tests take without a mutant
_LEAST = 10.0  # such seconds
_MEMORY = 8 * 2**30  # bytes: a mutant may want any number of them
_PYTEST = (
    "import resource, sys, pytest; resource.setrlimit(resource.RLIMIT_CPU, 2 * (int(sys.argv[1]),)); "
    f"resource.setrlimit(resource.RLIMIT_AS, 2 * ({_MEMORY},)); sys.exit(pytest.main(sys.argv[2:]))"
)
_LINES = "lines.json"
_LONGEST = 600.0  # seconds of the processor for the tests of a file
_PASSED, _NOT_FOUND = 0, 4  # what pytest exits with: a mutant may change the names of tests
_FLAGS = ("-x", "-q", "-m", "not study", "-p", "no:cacheprovider", "-p", "no:xdist")

COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}  # fmt: skip
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr, ast.MatMult: ast.Mult,
}  # fmt: skip
EITHER_WAY = {"min", "max", "minimum", "maximum", "clip", "add"}  # their first two arguments may be swapped


class Mutant(NamedTuple):
    """A module with one change."""

    module: str  # its path in the tree
    line: int
    diff: str  # what goes and what comes, a line each
    source: str
    place: int = 0  # the line of what Python prints, which a test must run to notice

    @property
    def digest(self) -> str:
        """A name for this change to this module."""
        return hashlib.sha256(f"{self.module}\n{self.source}".encode()).hexdigest()


# ---- the changes


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    yield from _expressions(node)
    yield from _statements(node)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                for other in COMPARED[type(op)]:
                    yield _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            for i in range(len(node.values)):
                left = node.values[:i] + node.values[i + 1 :]
                yield left[0] if len(left) == 1 else _with(node, values=left)
        case ast.BinOp():
            yield _with(node, op=COUNTED[type(node.op)]())
        case ast.UnaryOp():
            yield node.operand
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)
        case ast.Constant(value=bool()):
            yield _with(node, value=not node.value)
        case ast.Constant(value=int() | float() as number):
            yield _with(node, value=number + 1)
            yield _with(node, value=number - 1)
        case ast.Call(args=[one], keywords=[]) if not isinstance(one, ast.Starred):
            yield one
        case ast.Call(args=[one, two, *rest]) if ast.dump(one) != ast.dump(two) and _name(node) not in EITHER_WAY:
            yield _with(node, args=[two, one, *rest])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Raise() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _with(node, value=ast.Constant(None))
        case ast.If():
            yield _with(node, test=ast.Constant(True))
            yield _with(node, test=ast.Constant(False))
        case ast.FunctionDef() if len(body := _without_docstring(node)) > 1:
            yield _with(node, body=[ast.Return(value=None), *body])


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _with(node: Any, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without_docstring(node: ast.FunctionDef) -> list[ast.stmt]:
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


class _Replace(ast.NodeTransformer):
    """Puts another node in the place of one, and leaves all else."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self._new if node is self._old else super().generic_visit(node)


def places(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes whose change could be noticed: no annotations, decorators, or words of an f-string.

    Nor whether `zip` compares lengths: that is an assertion, which no test can see fail.
    """
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "format_spec") or getattr(node, "arg", "") == "strict":
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from places(child)


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module, each once."""
    text = (ROOT / module).read_text()
    before = ast.unparse(ast.parse(text))
    found: dict[str, Mutant] = {}
    pairs = zip(places(ast.parse(text)), places(ast.parse(before)), strict=True)
    for at, (place, there) in enumerate(pairs):
        for which, _ in enumerate(changes(place)):
            tree = ast.parse(text)  # anew, or changes would add up
            old = list(places(tree))[at]
            tree = ast.fix_missing_locations(_Replace(old, list(changes(old))[which]).visit(tree))
            source = ast.unparse(tree) + "\n"
            changed = list(difflib.unified_diff(before.splitlines(), source.splitlines(), n=0, lineterm=""))[3:]
            diff = "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed if not line.startswith("@@"))
            if diff:
                first = _without_docstring(there)[0] if isinstance(there, ast.FunctionDef) else there
                lines = (getattr(node, "lineno", 0) for node in (place, first))
                found.setdefault(source, Mutant(module, next(lines), diff, source, next(lines)))
    return list(found.values())


def draw(modules: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """So many mutants, of each module by its share of all lines; each of a module is as likely as any other.

    Which come first depends on the seed and their own lines alone: a change elsewhere leaves the others as they are.
    """
    lines = np.array([len((ROOT / module).read_text().splitlines()) for module in modules])
    shares = np.diff(np.rint(count * np.cumsum(lines) / lines.sum()).astype(int), prepend=0)

    def place(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.module} {mutant.diff}".encode()).digest()

    return [
        mutant
        for module, share in zip(modules, shares.tolist(), strict=True)
        for mutant in sorted(mutants_of(module), key=place)[:share]
    ]


# ---- the tests


class Tree:
    """A copy of the project in which one worker tests mutants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: subprocess.Popen[bytes] | None = None
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "out"))
            elif source.exists():
                shutil.copy(source, folder / name)
        told = self._python("-c", "import fedgauss; print(fedgauss.__file__)")
        if not Path(told.decode().strip()).is_relative_to(folder):
            raise SystemExit(f"tests must load the copy in {folder}; they load {told.decode().strip()}.")

    def passes(self, mutant: Mutant, tests: Sequence[str], files: Sequence[str], limit: float) -> bool:
        """Whether tests, or where they are not found all of some files, pass with a mutant in so many seconds."""
        file = self.folder / mutant.module
        text = file.read_text()  # of the copy: the tree may change meanwhile
        try:
            self._put(file, mutant.source)
            ended = self._run_tests(tests, limit)
            return (self._run_tests(files, _LONGEST) if ended == _NOT_FOUND else ended) == _PASSED
        finally:
            self._put(file, text)

    def lines(self, modules: Sequence[str], file: str) -> Any:
        """Which lines the tests of a file run; they must pass with the modules as Python prints them."""
        texts = {module: (self.folder / module).read_text() for module in modules}
        try:
            for module, text in texts.items():
                self._put(self.folder / module, ast.unparse(ast.parse(text)) + "\n")
            if self._run_tests(("-p", "lines_of_tests", file), _LONGEST) != _PASSED:
                raise SystemExit(f"tests must pass before mutants are made; {file} fails.")
        finally:
            for module, text in texts.items():
                self._put(self.folder / module, text)
        return json.loads((self.folder / _LINES).read_text())

    def stop(self) -> None:
        """End what runs here."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def _put(self, file: Path, text: str) -> None:
        file.write_text(text)
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()  # its date has whole seconds, and a mutant may be as long as the last one

    def _run_tests(self, tests: Sequence[str], limit: float) -> int | None:
        command = [sys.executable, "-c", _PYTEST, str(round(limit)), *_FLAGS, *tests]
        self._running = subprocess.Popen(
            command, cwd=self.folder, env=self._environment(), start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            return self._running.wait(10.0 * limit)  # it may wait for what never comes, or for other work
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.stop()
            self._running.wait()
            self._running = None

    def _python(self, *words: str) -> bytes:
        command = [sys.executable, *words]
        return subprocess.run(
            command, cwd=self.folder, env=self._environment(), check=True, stdout=subprocess.PIPE
        ).stdout

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": os.pathsep.join([str(self.folder / "src"), str(Path(__file__).parent)]),
            "LINES_OF_TESTS": str(self.folder / _LINES), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip


def tests_of(module: str, given: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The test files of a module."""
    path = Path(module)
    usual = str(Path("tests", *path.parent.parts[2:], f"test_{path.name}"))
    tests = given.get(module) or TESTS.get(module) or (usual,)
    for test in tests:
        if not (ROOT / test).exists():
            raise SystemExit(f"the tests of {module} must be there; {test} is not. Use --tests {module}=FILE,FILE?")
    return tests


# ---- the run


class Tests(NamedTuple):
    """The test files of a module, and a digest of what stood in them when the run began."""

    files: tuple[str, ...]
    digest: str

    @classmethod
    def read(cls, files: tuple[str, ...]) -> Tests:
        """With the digest of now."""
        return cls(files, hashlib.sha256(b"\0".join((ROOT / file).read_bytes() for file in files)).hexdigest())


class Reach:
    """Which tests run a line, and how long all may take."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._seconds = {test: one["seconds"] for test, one in found.items()}
        self._by_line: dict[tuple[str, int], list[str]] = {}
        for test in sorted(found, key=self._seconds.__getitem__):
            for module, lines in found[test]["lines"].items():
                for line in lines:
                    self._by_line.setdefault((module, line), []).append(test)

    @classmethod
    def of(cls, tree: Tree, tests: dict[str, Tests], kept: Path) -> Reach:
        """What is kept of files that are as they were, and anew of all others."""
        sources = b"".join(file.read_bytes() for file in sorted((ROOT / "src").rglob("*.py")))
        held = json.loads(kept.read_text()) if kept.exists() else {}
        files = list(dict.fromkeys(file for one in tests.values() for file in one.files))
        with ProgressBar("tests without mutants", len(files)) as bar:
            for file in files:
                digest = hashlib.sha256(sources + (ROOT / file).read_bytes()).hexdigest()
                if held.get(file, {}).get("digest") != digest:
                    held[file] = {"digest": digest, "tests": tree.lines(list(tests), file)}
                    kept.write_text(json.dumps(held))
                bar.advance(1)
        return cls({test: one for file in files for test, one in held[file]["tests"].items()})

    def tests(self, mutant: Mutant, files: Sequence[str]) -> Sequence[str]:
        """The tests of these files that run a mutant's line, the quickest first; all where none does."""
        places = self._by_line.get((mutant.module, mutant.place), ())
        return [test for test in places if test.partition("::")[0] in files] or files

    def limit(self, tests: Sequence[str]) -> float:
        """How many seconds of the processor these tests, or those of these files, may take."""
        own = (seconds for test, seconds in self._seconds.items() if {test, test.partition("::")[0]} & set(tests))
        return max(_LEAST, _PATIENCE * sum(own))


class Results:
    """What became of mutants, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock, self._found = path, threading.Lock(), dict[str, dict[str, Any]]()
        if path.exists():
            for line in path.read_text().splitlines():
                with suppress(ValueError):  # of a line that a kill cut off
                    self._found.update({(one := json.loads(line))["digest"]: one})

    def survived(self, mutant: Mutant, tests: Tests) -> bool | None:
        """Whether no test noticed a mutant; None if that is not known, or was so with other tests."""
        one = self._found.get(mutant.digest)
        return None if one is None or (one["survived"] and one["tests"] != tests.digest) else bool(one["survived"])

    def note(self, mutant: Mutant, tests: Tests, survived: bool, seconds: float) -> None:
        """Write down what became of a mutant."""
        one = {"digest": mutant.digest, "module": mutant.module, "line": mutant.line, "diff": mutant.diff}
        one |= {"survived": survived, "tests": tests.digest, "seconds": round(seconds, 2)}
        with self._lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
            self._found[mutant.digest] = one


def run(mutants: Sequence[Mutant], tests: dict[str, Tests], results: Results, workers: int, folder: Path) -> None:
    """Test all mutants of which nothing is known yet."""
    left = [mutant for mutant in mutants if results.survived(mutant, tests[mutant.module]) is None]
    if not left:
        return
    trees = [Tree(folder / str(i)) for i in range(workers)]
    reach = Reach.of(trees[0], tests, results.path.with_suffix(".lines.json"))
    free, stop = list(trees), threading.Event()

    def test(mutant: Mutant) -> None:
        if stop.is_set():
            return
        tree, began = free.pop(), time.monotonic()
        files = tests[mutant.module].files
        chosen = reach.tests(mutant, files)
        survived = tree.passes(mutant, chosen, files, reach.limit(chosen))
        if not stop.is_set():
            results.note(mutant, tests[mutant.module], survived, time.monotonic() - began)
        free.append(tree)

    with ThreadPoolExecutor(workers) as threads, ProgressBar("mutants", len(left)) as bar:
        try:
            for one in as_completed([threads.submit(test, mutant) for mutant in left]):
                one.result()
                bar.advance(1)
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            for tree in trees:
                tree.stop()
            raise


def _processor_seconds() -> float:
    """Of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def equivalents() -> dict[tuple[str, str], str]:
    """Reasons why no test can tell a mutant from its module, by module and diff."""
    listed = tomllib.loads(EQUIVALENT.read_text())["mutant"] if EQUIVALENT.exists() else []
    return {(one["module"], one["diff"].strip()): one["reason"] for one in listed}


def report(mutants: Sequence[Mutant], tests: dict[str, Tests], results: Results) -> None:
    """A table of modules, and every survivor."""
    reasons, survivors = equivalents(), list[Mutant]()
    print(f"{'module':<44} mutants  killed  survived  equivalent   rate")
    rows = []
    for module in tests:
        own = [mutant for mutant in mutants if mutant.module == module]
        alive = [mutant for mutant in own if results.survived(mutant, tests[module])]
        equal = sum((mutant.module, mutant.diff) in reasons for mutant in alive)
        survivors += [mutant for mutant in alive if (mutant.module, mutant.diff) not in reasons]
        rows.append((len(own), len(own) - len(alive), len(alive) - equal, equal))
        _print_row(module, rows[-1])
    _print_row("all", tuple(map(sum, zip(*rows, strict=True))))
    for mutant in survivors:
        print(f"\n{mutant.module}:{mutant.line}\n{mutant.diff}")


def _print_row(name: str, row: tuple[int, ...]) -> None:
    drawn, killed, survived, equal = row
    rate = f"{killed / (killed + survived):6.3f}" if killed + survived else "     -"
    print(f"{name:<44} {drawn:7} {killed:7} {survived:9} {equal:11} {rate}")


def main() -> None:
    """Draw mutants, test them, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", default=[*GROUPS],
        help=f"paths from the root of the project, or {', '.join(GROUPS)}; by default all of these",
    )  # fmt: skip
    parser.add_argument("--mutants", type=int, default=100, help="how many are drawn, over all modules")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes that test at the same time")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out" / "mutants.jsonl")
    parser.add_argument(
        "--tests", action="append", default=[], metavar="MODULE=FILE,FILE", help="in place of the usual"
    )
    arguments = parser.parse_args()
    given = {module: tuple(files.split(",")) for module, files in (one.split("=", 1) for one in arguments.tests)}
    modules = list(dict.fromkeys(path for one in arguments.modules for path in GROUPS.get(one, (one,))))
    tests = {module: Tests.read(tests_of(module, given)) for module in modules}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    results = Results(arguments.out)
    mutants = draw(modules, arguments.mutants, arguments.seed)
    for end in (signal.SIGINT, signal.SIGTERM):  # the first is ignored where a shell runs this in the background
        signal.signal(end, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            run(mutants, tests, results, arguments.workers, Path(folder).resolve())
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on from {arguments.out}.", file=sys.stderr)
        raise SystemExit(130) from None
    print(f"{len(mutants)} mutants by seed {arguments.seed}")
    report(mutants, tests, results)
    print(f"\n{_processor_seconds():,.0f} seconds of the processor for what was not known before")


if __name__ == "__main__":
    main()
