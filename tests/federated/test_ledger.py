"""The ledger of a table against who adapts to it, against crashes, and against who deletes or edits it."""

import json
import stat
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from memory_disk import Crash, MemoryDisk

from fedgauss._files import place_of
from fedgauss.federated.budget import Budget
from fedgauss.federated.disk import RealDisk
from fedgauss.federated.keys import fingerprint
from fedgauss.federated.ledger import Admission, Ledger
from fedgauss.federated.privacy import Privacy, compose
from fedgauss.federated.refusal import Refused
from fedgauss.federated.shares import Share
from fedgauss.federated.span_rule import Told, about_the_same
from fedgauss.federated.spans import extend

EIGHT = [(f"site{j}", f"key{j}") for j in range(8)]
FILE = Path("/table.csv.ledger")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def hospital(n=300, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, n).round()
    return {
        "id": np.arange(float(n)), "age": age, "sex": (rng.random(n) < 0.5) * 1.0,
        "bmi": rng.lognormal(3.3, 0.15, n).round(1), "sbp": (100 + 0.5 * age + rng.normal(0, 15, n)).round(),
        "died": (rng.random(n) < 0.2) * 1.0, "name": np.array([f"patient {j}" for j in range(n)]),
    }  # fmt: skip


class Site:
    """A table with its ledger, which can be stopped and started, and asked in one line."""

    def __init__(self, table=None, disk=None, runs=0, **options):
        self.table = hospital() if table is None else table
        self.disk = MemoryDisk() if disk is None else disk
        self.options = {"disk": self.disk, "clock": lambda: NOON} | options
        self.runs = runs  # every one has another number
        self.start()

    def start(self):
        self.disk.restart()
        self.ledger = Ledger(FILE, **self.options)

    def run(
        self, columns, rows=slice(None), *, model=None, roster=EIGHT, masked=True, spend=(0, 0), question="?", passes=0,
        answered=True,
    ):  # fmt: skip
        """One run; where it is refused the ledger gets the reason, and so does the test."""
        numbers = self.ledger.digests(self.table)[rows]
        self.runs += 1
        about = {"columns": sorted(columns)} if model is None else model
        self.ledger.begin(f"run {self.runs}", "about", roster, "asker", about, masked=masked)
        try:
            told = {"1": np.ones(len(numbers))} | {name: np.asarray(own)[rows] for name, own in columns.items()}
            self.ledger.admit(Admission(told, numbers))
            self.ledger.spend(*spend, question, passes)
        except Refused as refusal:
            self.ledger.refuse([str(refusal)], refusal.counts)
            raise
        self.ledger.finish(answered)

    def columns(self, *names):
        return {name: self.table[name] for name in names}


@pytest.fixture
def site():
    return Site()


def changed(column, row, by=1.0):
    other = np.array(column, dtype=float)
    other[row] += by
    return other


class TestAdaptiveAttempts:
    """Runs that together tell of one row, each of which is fine alone."""

    def refused(self, site, *runs, restart=False):
        for columns in runs[:-1]:
            site.run(columns)
            if restart:
                site.start()
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run(runs[-1])

    @pytest.mark.parametrize("restart", [False, True])
    def test_a_column_rescaled_that_differs_in_a_row(self, site, restart):
        age = site.table["age"]
        self.refused(site, {"age": age}, {"dose": 3.0 - 2.5 * changed(age, 7)}, restart=restart)

    @pytest.mark.parametrize("transform", [np.log, np.square, np.sqrt, lambda x: x - x.mean()])
    def test_a_transformed_column(self, site, transform):
        age = site.table["age"]
        self.refused(site, {"a": transform(age)}, {"b": 2.0 * transform(changed(age, 7))} | site.columns("age"))

    def test_a_difference_in_one_run_and_a_sum_in_the_next(self, site):
        a, b = site.table["age"], site.table["sbp"]
        self.refused(site, {"d": a - b}, {"s": a + b}, {"a": changed(a, 3, 1e-3)})

    def test_three_columns_of_three_runs(self, site):
        a, b = site.table["age"], site.table["sbp"]
        self.refused(site, {"a": a}, {"b": b}, {"c": 0.3 * a - 0.7 * changed(b, 5)}, restart=True)

    def test_zeros_and_ones_that_differ_in_a_row(self, site):
        sex = site.table["sex"]
        self.refused(site, {"sex": sex}, {"female": 1.0 - np.where(site.table["id"] == 9, 1.0 - sex, sex)})

    def test_a_change_far_smaller_than_the_column(self, site):
        age = site.table["age"]
        self.refused(site, {"age": age}, {"a": changed(age, 9, 1e-9 * np.linalg.norm(age))})

    def test_one_row_that_is_dropped(self, site):
        site.run(site.columns("age", "died"))
        site.start()
        rows = np.flatnonzero(site.table["id"] != 17)
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run(site.columns("bmi"), rows)  # ones alone tell its weight in every sum
        site.run(site.columns("bmi"), np.flatnonzero(site.table["id"] >= 3))

    def test_a_table_that_was_sorted_or_grew_is_the_same(self, site):
        site.run(site.columns("age", "died"))
        order = np.argsort(site.table["bmi"])
        site.table = {name: own[order] for name, own in site.table.items()}
        site.start()
        site.run(site.columns("age", "bmi"))
        more = hospital(304, seed=0)
        site.table = {name: np.concatenate([own, more[name][300 : 300 + 1]]) for name, own in site.table.items()}
        site.start()
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run(site.columns("sbp"))  # the row that came

    def test_a_row_that_is_corrected_left_and_came(self, site):
        site.run(site.columns("age"))
        site.table = site.table | {"bmi": changed(site.table["bmi"], 4)}
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run(site.columns("bmi"))

    def test_a_table_with_more_columns_is_the_same(self, site):
        site.run(site.columns("age"))
        site.table = site.table | {"late": np.arange(300.0)}
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run({"age": changed(site.table["age"], 2)})

    def test_numbers_that_became_text_are_the_same_rows(self, site):
        numbers = site.ledger.digests(site.table)
        as_text = site.table | {"age": [f"{value:.0f}" for value in site.table["age"]]}
        assert np.array_equal(site.ledger.digests(as_text), numbers)
        assert len(set(numbers.tolist())) == 300

    def test_zero_has_two_signs_and_one_number(self, site):
        zeros = Site({"x": np.array([0.0, 1.0])}).ledger.digests
        assert np.array_equal(zeros({"x": np.array([0.0, 1.0])}), zeros({"x": np.array([-0.0, 1.0])}))

    def test_a_row_may_be_long(self):
        table = {f"c{j}": np.arange(5.0) * j for j in range(50)}
        numbers = [
            Site(table, random=lambda size, digit=digit: digit * 2 * size).ledger.digests(table) for digit in "12"
        ]
        assert len(set(np.concatenate(numbers).tolist())) == 10  # another key, other numbers

    def test_numbers_of_rows_have_a_key_of_their_own(self, site):
        assert len(site.ledger._history.key) == 32
        other = Site(disk=MemoryDisk())
        assert not set(site.ledger.digests(site.table).tolist()) & set(other.ledger.digests(other.table).tolist())

    def test_rows_differ_however_small_their_numbers_are(self, site):
        numbers = [site.ledger.digests({"x": [x]}) for x in (1e-300, 2e-300, 0.0, 1.0, 1.0 + 2**-52, np.nan, -np.inf)]
        assert len(np.unique(numbers)) == 7

    def test_rows_that_say_the_same_are_numbered(self, site):
        numbers = Site({"sex": np.array([1.0, 0.0, 1.0, np.nan, np.nan])}).ledger.digests
        first = numbers({"sex": np.array([1.0, 0.0, 1.0, np.nan, np.nan])})
        assert len(set(first.tolist())) == 5
        assert set(numbers({"sex": np.array([0.0, np.nan, 1.0])}).tolist()) <= set(first.tolist())

    def test_what_was_refused_was_not_told(self, site):
        for _ in range(2):
            with pytest.raises(Refused, match="'id9'"):
                site.run({"id9": site.table["id"] == 9})
        site.run(site.columns("age"))

    def test_columns_that_are_to_blame_are_named_and_no_others(self, site):
        with pytest.raises(Refused, match="combinations with 'id9' would"):
            site.run({"id9": site.table["id"] == 9} | site.columns("age", "bmi"))

    def test_what_was_told_before_is_not_searched_again(self, site, monkeypatch):
        site.run(site.columns("age", "bmi"))
        monkeypatch.setattr("fedgauss.federated.ledger.check_spans", None)
        site.run({"under another name": site.table["age"]})

    def test_what_a_run_told_that_never_ended_counts(self, site):
        numbers, age = site.ledger.digests(site.table), site.table["age"]
        site.ledger.begin("a", "about", EIGHT, "asker", {})
        site.ledger.admit(Admission({"1": np.ones(300), "age": age}, numbers))
        site.start()
        with pytest.raises(Refused, match="rest on at least 3"):
            site.run({"age": changed(age, 3)})

    def test_a_span_grows_by_what_is_new(self, site, monkeypatch):
        sizes = []

        def count(span, columns):
            sizes.append(columns.shape[1])
            return extend(span, columns)

        monkeypatch.setattr("fedgauss.federated.span_rule.extend", count)
        site.run(site.columns("age", "bmi"))
        site.run(site.columns("bmi", "sbp"))
        site.start()
        site.run(site.columns("died", "age"))
        assert sizes == [3, 1, 4, 1]

    def test_what_cannot_be_searched_through_is_refused(self, site, monkeypatch):
        monkeypatch.setattr("fedgauss.federated.spans._WORK", 1e5)
        rng = np.random.default_rng(2)
        site.run(site.columns("age"))
        with pytest.raises(Refused, match="which cannot be shown of so many columns"):
            site.run({f"x{j}": rng.standard_normal(300) for j in range(200)})

    def test_more_columns_than_rows_can_bear(self, site):
        rng = np.random.default_rng(1)
        for _ in range(10):
            site.run({f"x{j}": rng.standard_normal(300) for j in range(10)})
        with pytest.raises(Refused, match="rest on at least 3 rows"):
            site.run({f"x{j}": rng.standard_normal(300) for j in range(200)})
        site.run({})  # the column of ones still is

    @pytest.mark.parametrize("seed", range(10))
    def test_random_adaptive_asker_never_spans_a_row(self, seed):
        """An asker who combines, rescales and changes columns at will: all that was told never spans few rows."""
        rng = np.random.default_rng(seed)
        site, told, refusals = Site(hospital(120, seed)), [np.ones(120)], 0
        pool = [site.table[name] for name in ("age", "sex", "bmi", "sbp", "died")]
        for _ in range(25):
            column = sum(rng.standard_normal() * pool[j] for j in rng.choice(len(pool), 2, replace=False))
            if rng.random() < 0.4:
                column = changed(column, rng.choice(120, rng.integers(1, 3), replace=False), rng.standard_normal())
            try:
                site.run({"c": column})
            except Refused:
                refusals += 1
            else:
                told.append(column)
                pool.append(column)
        columns = np.column_stack(told)
        basis, values, _ = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), full_matrices=False)
        basis = basis[:, values > 1e-10]
        gram = basis @ basis.T
        a, c = np.diag(gram)[:, None], np.diag(gram)[None, :]
        pairs = (a + c + np.sqrt((a - c) ** 2 + 4.0 * gram**2)) / 2.0
        np.fill_diagonal(pairs, 0.0)
        assert refusals >= 3
        assert pairs.max() < 1.0 - 1e-3


class TestBudgets:
    def test_tries_count_over_restarts_refused_ones_too(self):
        site = Site(budget=Budget(tries=4))
        site.run(site.columns("age"))
        for _ in range(2):
            with pytest.raises(Refused, match="rest on"):
                site.run({"id1": site.table["id"] == 1})
            site.start()
        site.run(site.columns("bmi"))
        for _ in range(3):
            site.start()
            with pytest.raises(Refused, match="at most 4 runs"):
                site.run(site.columns("sbp"))
        site.run(site.columns("age"))  # a repeat
        assert "tries: 4 of 4, 0 left" in site.ledger.report()
        site.options["budget"] = Budget(tries=3)
        site.start()
        assert "tries: 4 of 3, 0 left" in site.ledger.report()

    @pytest.mark.parametrize("what", ["parameters", "matrices"])
    def test_parameters_and_matrices(self, what):
        site = Site(budget=Budget(parameters=10, matrices=10))
        spend = (5, 0) if what == "parameters" else (0, 5)
        site.run(site.columns("age"), spend=spend)
        site.start()
        site.run(site.columns("bmi"), spend=spend)
        site.start()
        with pytest.raises(Refused, match=f"at most 10 {what}"):
            site.run(site.columns("sbp"), spend=(what == "parameters", what == "matrices"))
        site.run(site.columns("bmi"), spend=spend)  # a repeat

    def test_passes_are_none_unless_the_owner_wants_them(self):
        site = Site(budget=Budget(passes=1))
        site.run(site.columns("age"), spend=(0, 0), passes=1)
        site.start()
        with pytest.raises(Refused, match="at most 1 passes over all runs; it has answered 1") as refused:
            site.run(site.columns("bmi"), spend=(0, 0), passes=1)
        assert not refused.value.counts
        assert [run.passes for run in site.ledger._history.runs] == [1, 0]
        site.run(site.columns("age"), spend=(0, 0), passes=1)  # a repeat
        with pytest.raises(Refused, match="at most 0 passes"):
            Site().run({}, passes=1)

    def test_a_repeat_is_free_as_long_as_it_is_one(self):
        site = Site(budget=Budget(tries=2, parameters=10))
        site.run(site.columns("age"), spend=(5, 0))
        for _ in range(3):
            site.start()
            site.run(site.columns("age"), spend=(5, 0))
        assert "tries: 1 of 2, 1 left" in site.ledger.report()
        assert "parameters: 5 of 10" in site.ledger.report()
        site.run({"age": site.table["bmi"]}, spend=(5, 0))  # it has the model of the first and tells something else
        assert "tries: 2 of 2, 0 left" in site.ledger.report()
        assert "parameters: 10 of 10" in site.ledger.report()
        with pytest.raises(Refused, match="at most 2 runs"):
            site.run({"age": site.table["sbp"]})
        with pytest.raises(Refused, match="at most 2 runs"):
            site.run(site.columns("age"), roster=EIGHT[:5])
        with pytest.raises(Refused, match="at most 2 runs"):
            site.run(site.columns("age"), masked=False)
        site.run({"age": site.table["bmi"]}, spend=(5, 0))

    def test_another_question_in_a_repeat_counts(self):
        site = Site(budget=Budget(parameters=10))
        site.run(site.columns("age"), spend=(4, 0), question="at zero")
        site.run(site.columns("age"), spend=(4, 0), question="where a lie led")
        assert "parameters: 8 of 10" in site.ledger.report()
        site.start()
        site.run(site.columns("age"), spend=(4, 0), question="at zero")
        with pytest.raises(Refused, match="at most 10 parameters"):
            site.run(site.columns("age"), spend=(4, 0), question="where another led")

    def test_a_question_is_free_of_the_rows_that_it_was_told_of(self):
        site = Site()
        first = site.columns("age", "bmi")
        site.run(first, slice(0, 290), model={"y": "x"}, spend=(1, 1), question="one")
        site.run(first, slice(0, 300), model={"y": "x"}, spend=(1, 1), question="two")
        site.run(first, slice(0, 290), model={"y": "x"}, spend=(1, 1), question="two")
        assert "parameters: 3 of 200" in site.ledger.report()
        site.run(first, slice(0, 290), model={"y": "x"}, spend=(1, 1), question="one")
        site.run({"age": first["age"]}, slice(0, 290), model={"y": "x"}, spend=(1, 1), question="one")
        assert "parameters: 3 of 200" in site.ledger.report()
        assert "matrices: 3 of 50" in site.ledger.report()

    def test_a_repeat_of_a_repeat_is_free_of_what_that_was_told(self):
        site = Site(budget=Budget(parameters=10))
        site.run(site.columns("age"), spend=(4, 0), question="the last, of a run that went on")
        site.run(site.columns("age"), spend=(4, 0), question="the first")
        for _ in range(3):
            site.run(site.columns("age"), spend=(4, 0), question="the first")
        assert "parameters: 8 of 10" in site.ledger.report()

    def test_a_repeat_is_free_of_what_was_told_before_its_run_went_on(self):
        site = Site(budget=Budget(parameters=12))
        site.run(site.columns("age"), spend=(4, 0), question="the first", answered=False)
        site.run(site.columns("age"), spend=(4, 0), question="the last")
        for question in ("the first", "the last"):
            site.start()
            site.run(site.columns("age"), spend=(4, 0), question=question)
        assert "parameters: 8 of 12" in site.ledger.report()
        site.run(site.columns("age"), spend=(4, 0), question="another")
        assert "parameters: 12 of 12" in site.ledger.report()

    @pytest.mark.parametrize("other", [{"rows": slice(0, 290)}, {"roster": EIGHT[:4]}, {"masked": False}])
    def test_a_repeat_is_not_free_of_what_another_run_told_before(self, other):
        site = Site(budget=Budget(parameters=10))
        site.run(site.columns("age"), spend=(4, 0), question="the first", answered=False, **other)
        site.run(site.columns("age"), spend=(4, 0), question="the last")
        with pytest.raises(Refused, match="at most 10 parameters"):
            site.run(site.columns("age"), spend=(4, 0), question="the first")

    def test_a_repeat_that_was_put_away_is_free(self):
        site = Site(budget=Budget(parameters=10))
        site.run(site.columns("age"), spend=(4, 0), question="one")
        site.ledger.begin("again", "about", EIGHT, "asker", {"columns": ["age"]})
        for _ in range(3):
            site.ledger.close()
            site.start()
            site.ledger.resume("again")
            numbers = site.ledger.digests(site.table)
            site.ledger.admit(Admission({"1": np.ones(300)} | site.columns("age"), numbers))
            site.ledger.spend(4, 0, "one")
        assert "parameters: 4 of 10" in site.ledger.report()

    @pytest.mark.parametrize("size", [1.0, 1e-14, 1e-300])
    def test_other_columns_are_no_repeat_however_small_they_are(self, site, size):
        for name, tries in (("age", 1), ("age", 1), ("bmi", 2)):
            site.run({"x": size * site.table[name]}, model={"same": 1})
            assert site.ledger._history.spent["tries"] == tries

    def test_nothing_is_free_once_a_repeat_tells_something_new(self, site):
        numbers, age = site.ledger.digests(site.table), site.table["age"]
        site.run({"age": age}, model={"y": "x"}, spend=(1, 0))
        site.ledger.begin("again", "about", EIGHT, "asker", {"y": "x"})
        site.ledger.admit(Admission({"1": np.ones(300), "age": age}, numbers))
        site.ledger.admit(Admission({"1": np.ones(300), "bmi": site.table["bmi"]}, numbers))
        site.ledger.admit(Admission({"1": np.ones(300), "age": age}, numbers))
        site.ledger.spend(1, 0, "?")
        site.ledger.finish(answered=True)
        assert "parameters: 2 of 200" in site.ledger.report()
        assert "tries: 2 of 60" in site.ledger.report()

    def test_refusals_count_over_restarts_and_stop_repeats_too(self):
        """In a repeat a site that lies could ask what would be refused as often as it likes."""
        site = Site(budget=Budget(refusals=3))
        site.run(site.columns("age"))
        for row in range(3):
            with pytest.raises(Refused, match="rest on"):
                site.run({"guess": site.table["id"] == row})
            site.start()
        for name in ("bmi", "age"):
            with pytest.raises(Refused, match="refuses at most 3 runs for what its rows say"):
                site.run(site.columns(name))
        with pytest.raises(Refused, match="refuses at most 3"):  # under the name of an answered model
            site.run(site.columns("bmi"), model={"columns": ["age"]})
        assert "refusals: 3 of 3, 0 left" in site.ledger.report()
        site.options["budget"] = Budget(refusals=4)  # its owner has raised it
        site.start()
        site.run(site.columns("bmi"))
        site.run(site.columns("age"))

    def test_rounds_without_numbers_count_as_refusals_and_the_last_ends_the_run(self):
        site = Site(budget=Budget(refusals=3))
        site.ledger.begin("first", "about", EIGHT, "asker", {})
        site.ledger.note_silence()
        site.ledger.note_silence()
        with pytest.raises(Refused, match="refuses at most 3 runs for what its rows say"):
            site.ledger.note_silence()
        site.ledger.finish(answered=False)
        assert "refusals: 3 of 3, 0 left" in site.ledger.report()
        with pytest.raises(Refused, match="refuses at most 3"):
            site.ledger.begin("second", "about", EIGHT, "asker", {})

    def test_a_run_ends_with_its_fourth_round_without_numbers(self, site):
        site.ledger.begin("first", "about", EIGHT, "asker", {})
        for _ in range(3):
            site.ledger.note_silence()
        with pytest.raises(Refused, match="no finite estimate"):
            site.ledger.note_silence()
        assert "refusals: 4 of 20" in site.ledger.report()

    def test_silence_that_was_told_before_is_free_in_a_repeat(self, site):
        def run(name, *questions):
            site.ledger.begin(name, "about", EIGHT, "asker", {})
            numbers = site.ledger.digests(site.table)
            site.ledger.admit(Admission({"1": np.ones(300), **site.columns("age")}, numbers))
            for question in questions:
                site.ledger.spend(1, 0, question)
                site.ledger.note_silence()
            site.ledger.finish(answered=True)

        run("first", "far", "farther")
        for k in range(5):
            run(f"repeat {k}", "far", "farther")
        site.start()
        run("again", "far")
        assert "refusals: 2 of 20" in site.ledger.report()
        run("elsewhere", "far", "farthest")
        assert "refusals: 3 of 20" in site.ledger.report()

    def test_refusals_that_depend_on_no_row_do_not_count(self, site):
        for counts in (False, True):
            site.ledger.begin(f"{counts}", "about", EIGHT, "asker", {})
            site.ledger.note_reasons(["no such column"], counts=False)
            site.ledger.refuse(["no such column", "another"], counts)
            assert f"refusals: {int(counts)} of 20" in site.ledger.report()
        assert "another" in site.ledger.report()

    def test_reasons_that_were_told_count_once_and_without_an_end(self, site):
        for ends in (True, False):
            site.ledger.begin(f"{ends}", "about", EIGHT, "asker", {})
            site.ledger.note_reasons(["a level is rare"])
            if ends:
                site.ledger.refuse(["a level is rare"])
            site.start()
        assert "refusals: 2 of 20" in site.ledger.report()

    def test_reasons_of_budgets_do_not_count(self):
        site = Site(budget=Budget(tries=1, parameters=1))
        with pytest.raises(Refused) as refusal:
            site.run(site.columns("age"), spend=(2, 0))
        assert not refusal.value.counts
        with pytest.raises(Refused) as refusal:
            site.run(site.columns("bmi"))
        assert not refusal.value.counts
        assert "refusals: 0 of 20" in site.ledger.report()

    def test_a_repeat_of_a_sorted_table_is_one(self):
        site = Site(budget=Budget(tries=1))
        site.run(site.columns("age") | {"centred": site.table["age"] - 60.1})
        order = np.argsort(site.table["bmi"])
        site.table = {name: own[order] for name, own in site.table.items()}
        site.run(site.columns("age") | {"centred": (site.table["age"] - 60.1) * (1.0 + 1e-15)})

    def test_a_model_is_the_same_in_any_order_of_its_fields(self):
        site = Site(budget=Budget(tries=1))
        site.run(site.columns("age"), model={"a": 1, "b": {"c": 2, "d": 3}})
        site.run(site.columns("age"), model={"b": {"d": 3, "c": 2}, "a": 1})

    def test_a_refused_run_is_not_repeated_for_free(self):
        site = Site(budget=Budget(tries=2))
        for _ in range(2):
            with pytest.raises(Refused, match="rest on"):
                site.run({"id1": site.table["id"] == 1})
        with pytest.raises(Refused, match="at most 2 runs"):
            site.run({"id1": site.table["id"] == 1})

    def test_budgets_are_positive(self):
        with pytest.raises(ValueError, match="tries of a budget must be at least 1; got 0"):
            Budget(tries=0)
        with pytest.raises(ValueError, match="passes of a budget must be at least 0; got -1"):
            Budget(passes=-1)
        assert Budget(tries=1, refusals=1, parameters=1, matrices=1).passes == 0


class TestPlaces:
    """What rows count for where fits end: several may reach no row that none reaches alone, and none twice."""

    def ends(self, site, columns, *places, model=None, finish=True):
        """A run of these columns that ends where rows count for this."""
        numbers = site.ledger.digests(site.table)
        site.runs += 1
        about = {"columns": sorted(columns)} if model is None else model
        site.ledger.begin(f"run {site.runs}", "about", EIGHT, "asker", about)
        site.ledger.admit(Admission({"1": np.ones(300), **columns}, numbers))
        try:
            for place in places:
                site.ledger.admit_place(Admission({"score 0": place}, numbers))
        finally:
            site.ledger.finish(answered=True)

    def counts_for(self, site, row=None, seed=1):
        """A column that no other has, but for a row."""
        column = np.random.default_rng(seed).normal(size=300)
        return column if row is None else changed(column, row, 0.5)

    @pytest.mark.parametrize("restart", [False, True])
    def test_two_that_differ_in_a_row_are_refused(self, site, restart):
        self.ends(site, site.columns("age"), self.counts_for(site))
        if restart:
            site.start()
        before = site.ledger.length
        with pytest.raises(Refused, match="at the ends of several fits must rest on at least 3 rows") as refused:
            self.ends(site, site.columns("bmi"), self.counts_for(site, 7))
        assert refused.value.counts
        assert site.ledger.length == before + 3  # the run, its columns and its end
        self.ends(site, site.columns("sbp"), self.counts_for(site, seed=2))

    def test_a_row_that_one_run_reaches_is_reached_by_no_other(self, site):
        age = site.table["age"]
        self.ends(site, {"age": age}, changed(age, 7, 0.5))
        self.ends(site, {"age": age}, changed(age, 7, 0.5))  # the same again
        self.ends(site, site.columns("sbp"), changed(site.table["sbp"], 9, 0.5))
        with pytest.raises(Refused, match="at the ends of several fits"):
            self.ends(site, site.columns("bmi"), changed(site.table["bmi"], 7, 0.5))
        site.start()
        with pytest.raises(Refused, match="at the ends of several fits"):
            self.ends(site, site.columns("bmi"), changed(site.table["bmi"], 9, 0.5))
        runs = site.ledger._history.runs
        rows = site.ledger.digests(site.table)
        reach = [[site.ledger._columns.read(own).tolist() for own in run.reach.values()] for run in runs[:3]]
        assert reach == [[[rows[7]]], [[rows[7]]], [[rows[9]]]]
        assert [len(run.places) for run in runs] == [1, 1, 1, 0, 0]

    def test_a_run_that_ends_where_another_did_may_go_on_from_there(self, site):
        """Of the row that both reach it tells nothing at another place."""
        age = site.table["age"]
        self.ends(site, {"age": age}, changed(age, 7, 0.5))
        self.ends(site, site.columns("age", "bmi"), changed(age, 7, 0.5), self.counts_for(site))
        assert [len(run.places) for run in site.ledger._history.runs] == [1, 2]

    def test_two_places_of_one_run_are_taken_together(self, site):
        self.ends(site, site.columns("age"), self.counts_for(site), self.counts_for(site, 7))
        with pytest.raises(Refused, match="at the ends of several fits"):
            self.ends(site, site.columns("bmi"), changed(site.table["bmi"], 7, 0.5))

    def test_a_repeat_that_ends_elsewhere_is_a_try_and_no_more_of_them_than_other_runs_are_refused(self, site):
        age = {"age": site.table["age"]}
        self.ends(site, age, self.counts_for(site))
        spent = site.ledger._history.spent
        self.ends(site, age, self.counts_for(site))
        assert spent["tries"] == 1
        self.ends(site, age, self.counts_for(site, seed=2), self.counts_for(site, seed=3))
        assert spent["tries"] == 2
        site.options["budget"] = Budget(tries=2)
        site.start()
        with pytest.raises(Refused, match="at most 2 runs"):
            self.ends(site, age, self.counts_for(site, seed=4))
        self.ends(site, age, self.counts_for(site))

    def test_it_belongs_to_a_run(self, site):
        with pytest.raises(ValueError, match="call begin first"):
            site.ledger.admit_place(Admission({}, np.zeros(0, np.uint64)))


class TestPrivacy:
    """What private runs cost, over the whole life of a table."""

    ONE = Privacy(1.0, 1e-5)
    COST = ONE.cost({"first": 0.3, "last": 0.7})

    def begin(self, site, number):
        site.ledger.begin(f"run {number}", "about", EIGHT, "asker", {"model": 1})

    def private(self, site, number):
        self.begin(site, number)
        site.ledger.spend_privacy(self.ONE, self.COST)
        site.ledger.finish(answered=True)

    def test_runs_add_up_over_restarts_and_nothing_is_free(self):
        """By the closed form two runs of epsilon 1 are one of 1.465, and three one of 1.835."""
        site = Site(privacy=Privacy(1.6, 1e-5))
        for number in (1, 2):
            self.private(site, number)
            site.start()
        report = site.ledger.report()
        assert "epsilon: 1.46 of 1.6 at delta 1e-05. Another run may have epsilon 0.55 at that delta" in report
        assert "tries: 2 of 60" in report
        assert report.count("epsilon 1, delta 1e-05") == 2
        self.begin(site, 3)
        with pytest.raises(
            Refused, match=r"epsilon 1.6 of this table in all, .* be 1.83\. Another run .* 0.55"
        ) as refused:
            site.ledger.spend_privacy(self.ONE, self.COST)
        assert not refused.value.counts

    def test_a_budget_can_be_spent_to_its_end(self):
        site = Site(privacy=self.ONE)
        whole = self.ONE.cost({"all": 1.0})
        exact = Privacy(compose([], whole, 1e-5).epsilon, 1e-5)
        site = Site(privacy=exact)
        site.ledger.check_privacy(whole)
        self.begin(site, 1)
        site.ledger.spend_privacy(exact, whole)
        with pytest.raises(Refused, match="Nothing is left for another run"):
            site.ledger.check_privacy(whole)

    def test_a_run_is_paid_for_once_and_before_it_answers(self, site):
        self.begin(site, 1)
        before = site.ledger.length
        for _ in range(2):
            site.ledger.spend_privacy(self.ONE, self.COST)
        assert site.ledger.length == before + 1
        assert site.ledger._history.costs == [self.COST]

    def test_without_a_budget_there_are_no_private_runs(self):
        site = Site(privacy=None)
        self.begin(site, 1)
        with pytest.raises(Refused, match="epsilon = 0: it takes no part in private runs") as refused:
            site.ledger.spend_privacy(self.ONE, self.COST)
        assert not refused.value.counts

    def test_it_belongs_to_a_run(self, site):
        with pytest.raises(ValueError, match="call begin first"):
            site.ledger.spend_privacy(self.ONE, self.COST)


class TestSitesApart:
    """Totals over several sets of sites, of which some set would be told that is too small."""

    def refused(self, site, roster, names=("age",), match="join or leave together", **options):
        columns = {f"{name} rescaled": 2.0 - site.table[name] * 3.0 for name in names}
        with pytest.raises(Refused, match=match):
            site.run(columns, roster=roster, **options)

    def test_three_sets_that_overlap(self, site):
        """With A = 0..3, B = 4, 5, pads C = 6..8 and D = 9..11: the sums of B are (T_AB + T_BC - T_AC) / 2."""
        sites = [(f"site{j}", f"key{j}") for j in range(12)]
        ab, ac, bc = sites[:6], sites[:4] + sites[6:], sites[4:]
        site.run(site.columns("age"), roster=ab)
        for roster in (ac, bc):
            self.refused(site, roster)
        site.run(site.columns("age"), roster=sites)

    def test_sites_that_join(self, site):
        site.run(site.columns("age"), roster=EIGHT[:3])
        self.refused(site, EIGHT[:4])
        self.refused(site, EIGHT[:5])
        site.run(site.columns("age"), roster=EIGHT[:6])
        site.run(site.columns("age"), roster=EIGHT[:3])
        self.refused(site, EIGHT[:7], match="'site6' came, and nothing left")
        self.refused(site, [*EIGHT[:3], *EIGHT[5:]])

    def test_two_sets_that_share_no_site(self, site):
        """All less 1, 2, 3 less 4, 5, 6 would be the sums of two: no site of one sees the other, so each has half."""
        site.run(site.columns("age"))
        self.refused(site, EIGHT[:3])
        site.run(site.columns("age"), roster=EIGHT[:4])

    def test_sites_that_leave(self, site):
        site.run(site.columns("age", "died"))
        self.refused(site, EIGHT[:7], match="nothing came, and 'site7' left")
        self.refused(site, EIGHT[:6])
        self.refused(site, [*EIGHT[:1], ("a", "b")], match=", ".join(f"'site{j}'" for j in range(1, 7)))
        site.run(site.columns("bmi"), roster=EIGHT[:7])  # about something else
        site.run(site.columns("age"), roster=EIGHT[:5])

    def test_sites_that_leave_while_others_come(self, site):
        site.run(site.columns("age"))
        self.refused(site, [*EIGHT[:7], ("new", "newkey")], match="'new' came, and 'site7' left")
        self.refused(site, [*EIGHT[:5], *((f"new{j}", f"newkey{j}") for j in range(3))])

    def test_names_do_not_matter_and_keys_do(self, site):
        site.run(site.columns("age"))
        site.run(site.columns("age", "bmi"), roster=[(f"other{j}", key) for j, (_, key) in enumerate(EIGHT)])
        self.refused(site, [*EIGHT[:7], ("site7", "changed")])

    def test_an_owner_may_let_one_leave(self):
        site = Site(sites_apart=3)
        site.run(site.columns("age"))
        site.options["sites_apart"] = 1
        site.start()
        site.run(site.columns("age"), roster=EIGHT[:7])
        self.refused(site, [*EIGHT[:6], ("new", "newkey")])

    def test_without_masks_sums_of_sites_are_seen_anyway(self, site):
        site.run(site.columns("age"), masked=False)
        site.run(site.columns("age"), masked=False, roster=EIGHT[:7])
        self.refused(site, EIGHT[:6], masked=True)
        site.run(site.columns("bmi"), masked=True)
        self.refused(site, EIGHT[:7], ["bmi"], masked=False)

    def test_it_is_remembered_over_restarts_and_of_runs_that_did_not_end(self, site):
        numbers = site.ledger.digests(site.table)
        site.ledger.begin("a", "about", EIGHT, "asker", {})
        site.ledger.admit(Admission({"1": np.ones(300), "age": site.table["age"]}, numbers))
        site.start()
        self.refused(site, EIGHT[:7])

    def test_a_combination_in_common_is_enough(self, site):
        a, b = site.table["age"], site.table["sbp"]
        site.run({"a": a, "b": b})
        with pytest.raises(Refused, match="join or leave together"):
            site.run({"c": a - 2.0 * b, "d": site.table["bmi"]}, roster=EIGHT[:7])

    def test_what_several_runs_told_is_taken_together(self, site):
        a, b = site.table["age"], site.table["sbp"]
        site.run({"a": a})
        site.run({"b": b})
        with pytest.raises(Refused, match="join or leave together"):
            site.run({"c": a - 2.0 * b}, roster=EIGHT[:7])
        site.run({"c": a - 2.0 * b}, roster=EIGHT[:5])

    def test_what_one_run_tells_bit_by_bit_is_taken_together(self, site):
        a, b = site.table["age"], site.table["sbp"]
        site.run({"c": a - 2.0 * b})
        numbers, ones = site.ledger.digests(site.table), np.ones(300)
        site.ledger.begin("a", "about", EIGHT[:7], "asker", {})
        site.ledger.admit(Admission({"1": ones, "a": a}, numbers))
        with pytest.raises(Refused, match="join or leave together"):
            site.ledger.admit(Admission({"1": ones, "b": b}, numbers))


class TestFunctions:
    """Sums over rows that share a level, of functions of one column or several."""

    AGE = frozenset({"age"})

    def ask(self, site, name, functions, **shares):
        numbers = site.ledger.digests(site.table)
        site.runs += 1
        site.ledger.begin(f"run {site.runs}", "about", EIGHT, "asker", {"columns": name})
        told = {"1": np.ones(len(numbers)), name: site.table[name]}
        try:
            site.ledger.admit(Admission(told, numbers, dict.fromkeys(functions, self.AGE), shares))
        except Refused as refusal:
            site.ledger.refuse([str(refusal)], refusal.counts)
            raise
        site.ledger.finish(answered=True)

    def test_those_of_all_runs_are_counted_together_whatever_their_levels(self, site):
        rare = Share("rare", ("",), 8, 3, 3, 0)
        self.ask(site, "age", ["age", "age**2", "log(age)"], rare=rare)
        self.ask(site, "bmi", ["age", "sqrt(age)", "age**3", "age**4"], rare=rare)
        site.start()
        with pytest.raises(Refused, match=r"there must be 10 rows of one of 'rare', and here are fewer") as refusal:
            self.ask(site, "sbp", ["age**5"], rare=rare)
        assert refusal.value.counts
        with pytest.raises(Refused, match="there must be 10 rows"):
            self.ask(site, "sbp", ["age**5"], other=rare)
        self.ask(site, "sbp", ["age**5"], other=rare._replace(rows=11))
        self.ask(site, "age", ["age", "age**2", "log(age)"], rare=rare)  # a repeat tells nothing new

    def test_levels_times_functions_need_more_rows(self, site):
        with pytest.raises(Refused, match="there must be 7 rows"):
            self.ask(site, "age", ["age", "age**2"], rare=Share("rare", ("", "age", "age**2"), 6, 3, 3, 0))
        self.ask(site, "age", ["age", "age**2"], rare=Share("rare", ("", "age", "age**2"), 7, 3, 3, 0))


class TestOthersLedgers:
    def test_a_ledger_that_got_shorter_or_other_is_noticed(self, site):
        site.ledger.note_peers({"south": ("k", "aa", 10), "north": ("n", "bb", 3)})
        site.start()
        site.ledger.note_peers({"south": ("k", "aa", 10)})
        site.ledger.note_peers({"south": ("k", "cc", 12)})
        for head, length, words in (("aa", 10, "10"), ("cc", 1, "1"), ("dd", 12, "12 others")):
            with pytest.raises(Refused, match=rf"that of site 'south' had 12 and has {words}\."):
                site.ledger.note_peers({"south": ("k", head, length)})
        with pytest.raises(Refused, match="'renamed'"):
            site.ledger.note_peers({"renamed": ("n", "bb", 2)})
        assert site.ledger.seen(["south", "unknown"]) == {"k": ("cc", 12)}

    def test_what_was_seen_before_is_not_written_again(self, site):
        site.ledger.note_peers({"south": ("k", "aa", 10)})
        length = site.ledger.length
        site.ledger.note_peers({"south": ("k", "aa", 10)})
        assert site.ledger.length == length

    def test_a_deleted_ledger_is_noticed_by_what_others_saw_even_after_it_has_grown(self, site):
        site.run(site.columns("age"))
        seen = {"south": (site.ledger.head, site.ledger.length)}
        site.run(site.columns("bmi"))
        site.ledger.check_own(seen)
        site.disk.files.clear()
        site.start()
        with pytest.raises(Refused, match="'south'"):
            site.ledger.check_own(seen)
        for name in ("age", "bmi", "sbp"):
            site.run(site.columns(name))
        assert site.ledger.length > seen["south"][1]
        with pytest.raises(Refused, match="'south'"):
            site.ledger.check_own(seen)
        with pytest.raises(Refused, match="'south'"):
            site.ledger.check_own({"south": (site.ledger.head, 0)})

    def test_head_and_length_are_those_of_another_instance(self, site):
        site.run(site.columns("age"))
        head, length = site.ledger.head, site.ledger.length
        site.start()
        assert (site.ledger.head, site.ledger.length) == (head, length)


class TestAskersAndOwners:
    def test_the_first_key_of_a_name_is_trusted_until_its_owner_says_otherwise(self, site):
        first, other = "ab" * 32, "cd" * 32
        site.ledger.note_asker("coordinator", first)
        length = site.ledger.length
        site.start()
        site.ledger.note_asker("coordinator", first)
        assert site.ledger.length == length
        assert any(line.split()[:2] == ["asks", "coordinator"] for line in site.ledger.report().splitlines())
        with pytest.raises(
            Refused, match=f"{fingerprint(first)}, as at.*{fingerprint(other)}.*forget FILE coordinator"
        ):
            site.ledger.note_asker("coordinator", other)
        site.ledger.note_peers({"south": (first, "aa", 10), "north": (other, "bb", 3)})
        with pytest.raises(Refused, match="this site has"):
            site.ledger.note_peers({"south": (other, "aa", 10)})
        for name in ("coordinator", "south"):
            site.ledger.forget(name)
        site.start()
        assert site.ledger.seen(["north", "south"]) == {other: ("bb", 3)}
        site.ledger.note_asker("coordinator", other)
        site.ledger.note_peers({"south": ("ef" * 32, "cc", 1)})
        shown = [line.split() for line in site.ledger.report().splitlines()]
        assert any(words[:2] == ["site", "south"] and words[-2:] == ["1", "lines"] for words in shown)

    def test_a_key_under_another_name_keeps_the_name_of_before(self, site):
        """Who carries the messages chooses names: a detour by another one must not make room for a stranger."""
        first, stranger = "ab" * 32, "cd" * 32
        site.ledger.note_peers({"south": (first, "aa", 10)})
        site.ledger.note_peers({"detour": (first, "bb", 11)})
        site.start()
        with pytest.raises(Refused, match="'south' must have the key"):
            site.ledger.note_peers({"south": (stranger, "cc", 1)})
        site.ledger.note_peers({"south": (first, "dd", 12)})

    def test_consent_can_be_withdrawn_and_given_again(self, site):
        site.ledger.consent(False)
        site.start()
        assert "Consent is withdrawn" in site.ledger.report()
        with pytest.raises(Refused, match="has withdrawn consent"):
            site.run(site.columns("age"))
        site.ledger.consent(True)
        site.run(site.columns("age"))
        assert "withdrawn" not in site.ledger.report()


class TestResume:
    def test_a_run_goes_on_after_a_restart(self, site):
        site.run(site.columns("bmi"))
        numbers = site.ledger.digests(site.table)
        site.ledger.begin("late", "about", EIGHT, "asker", {})
        site.ledger.close()
        site.start()
        site.ledger.resume("late")
        site.ledger.admit(Admission({"1": np.ones(300), "age": site.table["age"]}, numbers))
        site.ledger.spend(3, 1, "?")
        site.ledger.finish(answered=True)
        words = next(line.split() for line in site.ledger.report().splitlines() if "late" in line)
        assert words[1:] == ["late", "answered", "8", "3", "1", "1,", "age"]

    def test_it_has_the_sites_that_it_began_with(self, site):
        site.run(site.columns("age"))
        site.ledger.begin("late", "about", EIGHT[:7], "asker", {})
        site.ledger.close()
        site.start()
        site.ledger.resume("late")
        with pytest.raises(Refused, match="'site7' left"):
            site.ledger.admit(Admission({"age": site.table["age"]}, site.ledger.digests(site.table)))

    def test_another_run_does_not(self, site):
        site.ledger.begin("first", "about", EIGHT, "asker", {})
        site.ledger.finish(answered=False)
        site.ledger.begin("late", "about", EIGHT, "asker", {})
        site.ledger.close()
        for name in ("first", "never"):
            with pytest.raises(Refused, match="the last run that it began"):
                site.ledger.resume(name)
        site.ledger.resume("late")
        site.ledger.finish(answered=True)
        with pytest.raises(Refused, match="that run is over"):
            site.ledger.resume("late")
        with pytest.raises(Refused, match="a number of its own"):
            site.ledger.begin("late", "about", EIGHT, "asker", {})
        site.run(site.columns("age"))  # nothing holds the ledger


class TestTheFile:
    def test_an_edited_line_is_noticed(self, site):
        site.run(site.columns("age"))
        content = site.disk.files[FILE]
        for position in range(0, len(content) - 1, 7):
            edited = bytearray(content)
            edited[position] ^= 1
            site.disk.files[FILE] = bytes(edited)
            line = content.count(b"\n", 0, position) + 1
            with pytest.raises(Refused, match=f"as it was written; line {line} of {FILE} is not"):
                site.start()

    def test_lines_taken_out_swapped_or_twice_are_noticed(self, site):
        site.run(site.columns("age"))
        lines = site.disk.files[FILE].splitlines(keepends=True)
        for other in (
            [*lines[:2], *lines[3:]],
            [lines[0], *lines[2:]],
            [*lines, lines[-1]],
            [*lines[1::-1], *lines[2:]],
        ):
            site.disk.files[FILE] = b"".join(other)
            with pytest.raises(Refused, match="as it was written"):
                site.start()

    def test_a_file_cut_short_while_it_is_open_is_noticed(self, site):
        site.run(site.columns("age"))
        site.disk.files[FILE] = b"".join(site.disk.files[FILE].splitlines(keepends=True)[:3])
        with pytest.raises(Refused, match="must not lose lines"):
            site.run(site.columns("bmi"))
        site.disk.files.clear()
        with pytest.raises(Refused, match="must not lose lines"):
            site.run(site.columns("bmi"))

    def test_columns_that_are_lost_or_edited_are_noticed(self, site):
        site.run(site.columns("age", "sex"))
        path = FILE.with_name("table.csv.ledger.columns")
        content = site.disk.files[path]
        for other in (b"", content[:-1], content.replace(content[-3:], b"abc"), None):
            if other is None:
                del site.disk.files[path]
            else:
                site.disk.files[path] = other
            site.start()
            with pytest.raises(Refused, match="columns"):
                site.run(site.columns("bmi"))

    def test_columns_take_as_few_bytes_as_they_need(self, site):
        path, sizes = FILE.with_name("table.csv.ledger.columns"), [0]
        for column in ("sex", np.arange(300.0) % 90, np.arange(300.0) * 100, np.arange(300.0) * 1000, "bmi"):
            site.run({"x": site.table[column] if isinstance(column, str) else column})
            sizes.append(len(site.disk.files[path]))
        assert np.diff(sizes).tolist() == [8 * 300 + 38 + 38, 300, 600, 1200, 2400]

    def test_two_at_once(self, site):
        other = Ledger(FILE, disk=site.disk)
        site.ledger.begin("a", "about", EIGHT, "asker", {})
        for busy in (site.ledger, other):
            with pytest.raises(Refused, match="one run at a time"):
                busy.begin("b", "about", EIGHT, "asker", {})
        site.ledger.finish(answered=False)
        other.begin("b", "about", EIGHT, "asker", {})
        with pytest.raises(Refused, match="one run at a time"):
            site.ledger.begin("c", "about", EIGHT, "asker", {})
        other.finish(answered=False)
        assert site.ledger.length + 2 == other.length
        site.ledger.begin("c", "about", EIGHT, "asker", {})
        assert "b " in site.ledger.report()

    def test_what_another_process_told_is_known(self, site):
        other = Site(site.table, disk=site.disk, runs=100)
        site.run(site.columns("age"))
        with pytest.raises(Refused, match="rest on"):
            other.run({"age": changed(site.table["age"], 3)})

    def test_a_run_must_have_begun(self, site):
        numbers = site.ledger.digests(site.table)
        for call in (
            lambda: site.ledger.admit(Admission({}, numbers)), lambda: site.ledger.spend(1, 0, "?"),
            lambda: site.ledger.refuse(["no"]), lambda: site.ledger.note_reasons(["no"]),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="call begin first"):
                call()

    def test_columns_must_fit_their_rows(self, site):
        numbers = site.ledger.digests(site.table)
        site.ledger.begin("a", "about", EIGHT, "asker", {})
        with pytest.raises(ValueError, match="finite number for each of 300"):
            site.ledger.admit(Admission({"x": np.ones(299)}, numbers))
        with pytest.raises(ValueError, match="finite number for each of 300"):
            site.ledger.admit(Admission({"x": np.full(300, np.nan)}, numbers))
        with pytest.raises(ValueError, match="some are twice"):
            site.ledger.admit(Admission({"x": np.ones(2)}, numbers[[0, 0]]))

    def test_the_report_is_for_reading(self, site):
        site.run(site.columns("age", "died"), spend=(6, 2))
        with pytest.raises(Refused):
            site.run({"id1": site.table["id"] == 1})
        report = site.ledger.report()
        assert report.splitlines()[1].split() == [
            "2026-01-01T12:00:00+00:00", "run", "1", "answered", "8", "6", "2", "1,", "age,", "died",
        ]  # fmt: skip
        assert "refused" in report
        assert "rest on at least 3 rows" in report
        assert "parameters: 6 of 200, 194 left" in report
        assert "refusals: 1 of 20, 19 left" in report
        assert "matrices: 2 of 50, 48 left" in report


def script(site):
    """What a site does in two runs; yields after every call that has returned."""
    table, ledger = site.table, site.ledger
    numbers = ledger.digests(table)
    yield
    for name in ("age", "bmi"):
        ledger.begin(name, "about", EIGHT, "asker", {"x": name})
        yield
        ledger.note_peers({"south": ("k", name, len(name) + ledger.length)})
        yield
        ledger.admit(Admission({"1": np.ones(300), name: table[name]}, numbers))
        yield
        ledger.spend(2, 1, name)
        yield
        ledger.finish(answered=True)
        yield


def follow(site, lines):
    """Go through the script; `lines` is what was on disk after the last call that returned."""
    for _ in script(site):
        lines[:] = lines_of(site.disk)


def lines_of(disk):
    return disk.files[FILE].split(b"\n")[:-1]


def state(ledger):
    return ledger.head, ledger.length, ledger.report()


def number_of_writes():
    site = Site()
    for _ in script(site):
        pass
    return site.disk.writes


@pytest.mark.parametrize("at", range(number_of_writes()))
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_at_any_write_leaves_all_that_was_acknowledged(at, seed):
    disk = MemoryDisk(seed)
    disk.crash_at = at
    lines: list[bytes] = []
    with pytest.raises(Crash):  # of the machine, in the first line of the file or later
        follow(Site(disk=disk), lines)
    site = Site(disk=disk)
    assert lines_of(disk)[: len(lines)] == lines
    assert site.ledger.length <= max(1, len(lines)) + 1
    site.run({"late": site.table["sbp"]})  # and it goes on
    site.start()
    assert "late" in site.ledger.report()
    told = [name for name in ("age", "bmi") if f"1, {name}" in site.ledger.report()]
    for name in told:
        with pytest.raises(Refused, match="rest on"):
            site.run({"x": changed(site.table[name], 3)})


@pytest.mark.parametrize("at", range(2, number_of_writes()))  # the first two made the file
def test_a_full_disk_refuses_in_words_and_loses_nothing(at):
    site = Site()
    site.disk.fail_at = at
    lines = lines_of(site.disk)
    with pytest.raises(Refused, match=r"could not be \(No space left on device\)"):
        follow(site, lines)
    with suppress(ValueError):  # of a run that has not begun
        site.ledger.refuse(["the disk was full"])
    site.run(site.columns("sbp"))
    site.start()
    assert lines_of(site.disk)[: len(lines)] == lines
    assert "sbp" in site.ledger.report()


class TestRealDisk:
    def test_only_the_owner_reads_it(self, tmp_path):
        path = tmp_path / "t.ledger"
        site = Site(disk=MemoryDisk())
        ledger = Ledger(path)
        ledger.begin("a", "about", EIGHT, "asker", {})
        ledger.admit(Admission({"age": site.table["age"]}, ledger.digests(site.table)))
        ledger.finish(answered=True)
        assert sorted(file.name for file in tmp_path.iterdir()) == ["t.ledger", "t.ledger.columns"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}
        again = Ledger(path)
        assert state(again) == state(ledger)
        assert np.array_equal(again.digests(site.table), ledger.digests(site.table))

    def test_it_does_as_the_one_in_memory(self, tmp_path):
        memory, real = MemoryDisk(), RealDisk()
        path = tmp_path / "file"
        assert real.read(path) is None
        for content, at in ((b"abcdef", 0), (b"gh", 6), (b"x", 3), (b"", 2)):
            memory.append(path, content, at)
            real.append(path, content, at)
            assert real.read(path) == memory.read(path)
        let_go = real.lock(path)
        with pytest.raises(BlockingIOError):
            real.lock(path)
        let_go()
        real.lock(path)()

    def test_files_are_closed_again(self, tmp_path):
        real, path = RealDisk(), tmp_path / "file"
        folder = Path("/proc/self/fd")
        if not folder.exists():
            pytest.skip("open files are counted where the system shows them")
        let_go = real.lock(path)
        before = len(list(folder.iterdir()))
        for at in range(20):
            real.append(path, b"x", at)
            with pytest.raises(BlockingIOError):
                real.lock(path)
        assert len(list(folder.iterdir())) == before
        let_go()

    def test_a_second_process_is_refused_until_the_first_ends(self, tmp_path):
        path = tmp_path / "t.ledger"
        ledger = Ledger(path)
        held = (
            "import sys; from fedgauss.federated.ledger import Ledger; ledger = Ledger(sys.argv[1]); "
            "ledger.begin('a', 'about', [('x', 'y')], 'asker', {}); print('held', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", held, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "held\n"
            with pytest.raises(Refused, match="another process holds"):
                ledger.begin("b", "about", EIGHT, "asker", {})
            Ledger(path).report()  # who only reads need not wait
            process.kill()
        ledger.begin("b", "about", EIGHT, "asker", {})
        ledger.finish(answered=False)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(Refused, match="can be written"):
            Ledger(tmp_path / "none" / "t.ledger")

    def test_nothing_in_it_runs(self, tmp_path):
        ledger = Ledger(tmp_path / "t.ledger")
        for line in ledger.path.read_bytes().splitlines():
            json.loads(line[:-65])
        assert json.loads(ledger.path.read_bytes().splitlines()[0][:-65])["version"] == 1


class TestPlace:
    def test_beside_the_table(self, tmp_path):
        assert place_of(tmp_path / "a.csv", None) == tmp_path / "a.csv.ledger"
        assert place_of(tmp_path / "a.csv", "name") == tmp_path / "a.csv.ledger"

    def test_in_the_state_folder_where_there_is_no_file(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        assert place_of(None, "south") == tmp_path / "state" / "fedgauss" / "south.ledger"
        assert stat.S_IMODE((tmp_path / "state" / "fedgauss").stat().st_mode) == 0o700
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert place_of(None, "south") == tmp_path / "home" / ".local" / "state" / "fedgauss" / "south.ledger"

    def test_in_the_state_folder_where_the_table_s_is_read_only(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setattr("os.access", lambda path, mode: False)
        one, other = place_of(tmp_path / "a.csv", None), place_of(tmp_path / "b" / "a.csv", None)
        assert one.parent == other.parent == tmp_path / "state" / "fedgauss"
        assert one != other
        assert place_of(tmp_path / "a.csv", "south").name == "south.ledger"

    @pytest.mark.parametrize("name", [None, "", "../up", "a/b", ".hidden", "a\0b"])
    def test_a_name_must_be_one_of_a_file(self, name):
        with pytest.raises(ValueError, match="must have a name"):
            place_of(None, name)


def test_few_must_be_two_at_least():
    with pytest.raises(ValueError, match="few must be at least 2"):
        Ledger(FILE, few=1, disk=MemoryDisk())
    Ledger(FILE, few=2, disk=MemoryDisk())


def test_a_ledger_has_one_run_at_a_time(site):
    site.ledger.begin("run 1", "about", EIGHT, "asker", {})
    with pytest.raises(Refused, match="one is going on"):
        site.ledger.begin("run 2", "about", EIGHT, "asker", {})
    site.ledger.finish(answered=True)


def test_what_was_told_is_not_refused_by_rules_that_came_later(site):
    rare = (np.arange(300) < 4) * 1.0
    site.run({"rare": rare})
    site.options["few"] = 5
    site.start()
    site.run({"rare": rare}, model={"another": "model"})
    with pytest.raises(Refused, match="combinations with 'rarer' would rest on fewer"):
        site.run({"rare": rare, "rarer": (np.arange(300) >= 296) * 1.0})


def test_whole_numbers_beyond_32_bits_are_kept(site):
    large = np.arange(300.0) + 2.0**31 - 299.0
    site.run({"large": large})
    assert large.max() == 2.0**31
    site.start()
    (told,) = (one for one in site.ledger._history.runs[0].told if one.name == "large")
    np.testing.assert_array_equal(np.sort(site.ledger._columns.read(told.values)), large)


def test_runs_about_other_rows_are_the_same_where_they_share_a_column():
    """Rows 0 to 19 and 10 to 29: ones over each are no column in common, and one over rows 10 to 19 is."""
    rows = {"ours": np.arange(20, dtype=np.uint64), "theirs": np.arange(10, 30, dtype=np.uint64)}
    values = {name: np.random.default_rng(j).normal(size=20) for j, name in enumerate("xyz")}
    values |= {"left": np.where(np.arange(20) < 10, 0.0, 7.0), "right": np.where(np.arange(20) < 10, 7.0, 0.0)}
    read = {**rows, **values, "1": np.ones(20)}.__getitem__

    def are_same(ours, theirs):
        return about_the_same(
            [Told(name, "ours", name) for name in ours], [Told(name, "theirs", name) for name in theirs], read
        )

    assert not are_same(["1", "x"], ["1", "y"])
    assert not are_same(["1", "x", "z"], ["y"])
    assert are_same(["1", "x", "left"], ["y", "right"])
