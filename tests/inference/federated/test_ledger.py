"""A dishonest coordinator that takes the difference of two runs, and a site that remembers the first."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.ledger import Ledger, differ_in_few, sketches

RNG = np.random.default_rng(2)
N = 120
TABLE = {
    "name": [f"patient {i}" for i in range(N)],
    "age": RNG.integers(20, 90, N).astype(float),
    "dose": RNG.normal(size=N),
    "smokes": (np.arange(N) % 3 == 0).astype(float),
    "died": (RNG.random(N) < 0.3).astype(float),
}
ALL = np.arange(N)
MODEL = ("age", "smokes", "died")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "answered.jsonl")


def told(rows=ALL, names=MODEL, **others):
    return {name: np.asarray(TABLE[name])[rows] for name in names} | {n: v[rows] for n, v in others.items()}


def changed(name, rows, by=None):
    values = np.array(TABLE[name])
    values[rows] = 1 - values[rows] if by is None else values[rows] + by
    return values


def test_a_run_may_be_repeated_and_other_columns_asked_for(ledger):
    signs = ledger.signs(TABLE)
    ledger.admit("1", told(), signs)
    ledger.admit("2", told(), signs)
    ledger.admit("3", told(names=("dose", "died")), signs)
    ledger.admit("4", told(half=np.arange(N) % 2 * 1.0, log_age=np.log(TABLE["age"])), signs)
    assert len(ledger) == 4


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_the_same_sums_without_a_few_rows(ledger, few):
    """Their difference is those rows: by a subset, by weights of 0, or where missing values drop other rows."""
    signs = ledger.signs(TABLE)
    ledger.admit("1", told(), signs)
    rest = np.delete(ALL, RNG.choice(N, few, replace=False))
    stolen = np.asarray(TABLE["age"]).sum() - np.asarray(TABLE["age"])[rest].sum()
    assert stolen > 0  # the ages of so few
    with pytest.raises(Refused, match=r"the rows of this run and the rows of the run of .* differ in fewer") as error:
        ledger.admit("2", told(rest), signs[rest])
    assert "patient" not in str(error.value)
    assert len(ledger) == 1
    with pytest.raises(Refused, match="'smokes' of this run and 'smokes'"):
        ledger.admit("3", told(ALL[6:]), signs[6:])  # six rows, but two smokers among them
    ledger.admit("4", told(ALL[40:]), signs[40:])


def test_rows_that_were_added_since(ledger):
    """One new patient between two runs: a site that reads its table again can tell, in whatever order it is."""
    before = {name: values[:-1] for name, values in TABLE.items()}
    first = ledger.signs(before)
    ledger.admit("1", {name: np.asarray(before[name]) for name in MODEL}, first)
    order = RNG.permutation(N)
    mixed = {name: np.asarray(values)[order] for name, values in TABLE.items()}
    with pytest.raises(Refused, match="the rows of this run and the rows"):
        ledger.admit("2", {name: mixed[name] for name in MODEL}, ledger.signs(mixed))


def test_a_value_that_was_corrected_since(ledger):
    ledger.admit("1", told(), ledger.signs(TABLE))
    table = TABLE | {"age": changed("age", 5, 1.0)}
    with pytest.raises(Refused, match="the rows of this run"):
        ledger.admit("2", {name: np.asarray(table[name]) for name in MODEL}, ledger.signs(table))


@pytest.mark.parametrize("few", [1, 4])
@pytest.mark.parametrize("turned", [False, True], ids=["the same", "the opposite"])
def test_columns_of_two_runs_that_differ_in_few_rows(ledger, few, turned):
    """X'y of one run less X'y of the other is the sum of y over those rows."""
    signs = ledger.signs(TABLE)
    ledger.admit("1", told(), signs)
    nearly = changed("smokes", RNG.choice(N, few, replace=False))
    with pytest.raises(Refused, match="'smoked' of this run and 'smokes' of the run of"):
        ledger.admit("2", told(names=("age", "died"), smoked=1 - nearly if turned else nearly), signs)


@pytest.mark.parametrize("few", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["offset", "row weights", "age:smoked"])
def test_offsets_weights_and_interactions_that_differ_in_few_rows(ledger, few, name):
    signs, rows = ledger.signs(TABLE), RNG.choice(N, few, replace=False)
    offset = RNG.normal(size=N)
    ledger.admit("1", told(**{name: offset}), signs)
    offset = offset.copy()
    offset[rows] = RNG.uniform(10, 20, few)
    with pytest.raises(Refused, match=f"'{name}' of this run and '{name}' of the run of"):
        ledger.admit("2", told(**{name: offset}), signs)


def pair(one, two, signs):
    return sketches({"one": one, "two": two}, signs).values()


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_no_difference_in_few_rows_is_missed(few):
    """0/1 columns, numbers, and numbers that all differ by the same, 300 times each with signs of their own.

    Equal differences in four rows are the hardest: the mean of 512 squares must fall to .64 of what is expected, 6.6
    standard errors. It would catch a bound that leaves no room for chance: 2 instead of 2.5 misses one in two.
    """
    rng = np.random.default_rng(few)
    for _ in range(300):
        signs = rng.choice([-1, 1], (N, 512)).astype(np.int8)
        rows = rng.choice(N, few, replace=False)
        assert differ_in_few(*pair(TABLE["smokes"], changed("smokes", rows), signs))
        assert differ_in_few(*pair(TABLE["dose"], changed("dose", rows, rng.normal(size=few)), signs))
        assert differ_in_few(*pair(TABLE["age"], changed("age", rows, 1.0), signs))


def test_differences_in_more_rows_are_no_reason_to_refuse():
    """0/1 columns from 6 rows on, numbers that differ by 8 numbers of their own; the chance that one of 600 is refused:

    six signs must never agree in 512 entries, (31/32)^512 = 9e-8; eight differences have 128 sizes, and to see fewer
    than nine of them in 512 entries is far rarer. It would catch a rule that looks at means instead of largest entries.
    """
    rng = np.random.default_rng(4)
    for few in (6, 20, 60):
        for _ in range(100):
            signs = rng.choice([-1, 1], (N, 512)).astype(np.int8)
            rows = rng.choice(N, few, replace=False)
            assert not differ_in_few(*pair(TABLE["smokes"], changed("smokes", rows), signs))
            assert not differ_in_few(*pair(TABLE["dose"], changed("dose", rows, rng.normal(size=few)), signs))


def test_short_columns_of_whole_numbers_are_told_apart():
    """Sums of 25 numbers 0 to 3 have few sizes too. One in 600 pairs is refused; more than 6 in 300: once in 1e6 seeds.

    Without the bound on the largest entry all would be refused.
    """
    rng = np.random.default_rng(8)
    refused = 0
    for _ in range(300):
        signs = rng.choice([-1, 1], (25, 512)).astype(np.int8)
        stage, smokes = rng.integers(0, 4, 25).astype(float), rng.integers(0, 2, 25).astype(float)
        refused += differ_in_few(*pair(stage, smokes, signs))
    assert refused <= 6


def test_columns_of_any_size_are_compared(ledger):
    """A difference in the twelfth digit is none; sums of 1e12 do not hide one of 1e6."""
    signs = ledger.signs(TABLE)
    large = RNG.normal(size=N) * 1e12
    ledger.admit("1", told(x=large), signs)
    ledger.admit("2", told(x=large * (1 + 1e-13)), signs)
    large = large.copy()
    large[3] += 1e6
    with pytest.raises(Refused, match="'x' of this run"):
        ledger.admit("3", told(x=large), signs)


def test_rows_that_say_the_same_have_signs_of_their_own(ledger):
    signs = ledger.signs({"a": [1.0] * 50 + [2.0] * 50})
    assert len(np.unique(signs, axis=0)) == 100
    assert signs.shape == (100, 512)
    assert set(np.unique(signs)) == {-1, 1}
    assert abs(signs.mean()) < 0.03  # 6.8 standard errors; the key is random: fails once in 1e11 times


def test_the_file_is_private_and_has_no_row(ledger):
    signs = ledger.signs(TABLE)
    ledger.admit("run 1", told(), signs)
    assert stat.S_IMODE(os.stat(ledger.path).st_mode) == 0o600
    text = ledger.path.read_text()
    assert "patient" not in text
    first, entry = map(json.loads, text.splitlines())
    assert set(first) == {"ledger", "key"}
    assert set(entry) == {"time", "run", "columns"}
    assert set(entry["columns"]) == {"the rows", *MODEL}
    assert Ledger(ledger.path).signs(TABLE).tolist() == signs.tolist()  # the same after a restart
    other = Ledger(ledger.path.with_name("other.jsonl"))
    assert other.signs(TABLE).tolist() != signs.tolist()  # and with another key others


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [lines[0], lines[1][:-20]], lambda lines: lines[1:], lambda lines: [*lines, "{}\n"],
        lambda lines: ["not json\n"], lambda lines: [lines[0], lines[1].replace('"time"', '"when"')],
        lambda lines: [lines[0], lines[1].replace('"sums":"', '"sums":"AAAA')],
        lambda lines: [*lines, "[" * 5000 + "\n"],
    ],
    ids=["cut short", "no key", "empty", "no JSON", "other names", "longer", "deep"],
)  # fmt: skip
def test_a_damaged_ledger_is_refused(ledger, damage):
    ledger.admit("1", told(), ledger.signs(TABLE))
    ledger.path.write_text("".join(damage(ledger.path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=r"a ledger must be as fedgauss wrote it; line \d of .*answered.jsonl is not"):
        Ledger(ledger.path).admit("2", told(), RNG.choice([-1, 1], (N, 512)))


def test_a_ledger_must_be_a_file_that_can_be_written(tmp_path):
    with pytest.raises(ValueError, match="must be a file that can be written"):
        Ledger(tmp_path / "none" / "answered.jsonl")
    with pytest.raises(ValueError, match="must be a file that can be written"):
        Ledger(tmp_path)


def test_of_two_runs_at_one_moment_one_is_refused(tmp_path):
    """Four processes ask at once, each for the rows but one of its own: one is answered, and no line is torn."""
    code = """
import sys, numpy as np
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.ledger import Ledger
ledger, rows = Ledger(sys.argv[1]), np.delete(np.arange(60), int(sys.argv[2]))
signs = ledger.signs({"x": np.arange(60.0)})
try:
    ledger.admit(sys.argv[2], {"x": rows * 1.0}, signs[rows])
    print("answered")
except Refused:
    print("refused")
"""
    path = str(tmp_path / "answered.jsonl")
    runs = [
        subprocess.Popen([sys.executable, "-c", code, path, str(i)], stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    said = sorted(run.communicate()[0].strip() for run in runs)
    assert said == ["answered", "refused", "refused", "refused"]
    assert len(Ledger(path)) == 1
