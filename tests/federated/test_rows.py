"""A site's answers, question by question: what it tells, what goes by the ledger first, and its reasons not to."""

import itertools
import json

import numpy as np
import pytest

from fedgauss.families.rows import Ask
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.mailbox import federate
from fedgauss.federated.plan import Plan, Question
from fedgauss.federated.policy import Policy
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.program import Counted
from fedgauss.federated.refusal import Refused
from fedgauss.federated.rows import SiteRows
from fedgauss.inference.model import Model
from fedgauss.inference.preparation import Location
from fedgauss.inference.tables import Frame
from site_rows import ROWS, Sites, own

HERE = own(ROWS, "a").reset_index(drop=True)
ROW = np.arange(len(HERE))
WARDS = ["east", "north", "south"]


class Asked:
    """The rows of site a in a run that has begun, asked in one line."""

    numbers = itertools.count()

    def __init__(self, folder, model, table=HERE, policy=None, masked=True, privacy=None):
        plan = Plan(model, ("a", "b"), masked, "me", "1", privacy)
        self.ledger = Ledger(folder / f"ledger {next(self.numbers)}")
        self.ledger.begin(plan.run, plan.about, [("a", "one"), ("b", "two")], "me", model.wire(), masked)
        frame = Frame(table)
        whole = {name: frame.column(name) for name in frame.names}
        self.rows = SiteRows(frame, whole, policy or Policy(), plan, "a", {"b": "tag"}, self.ledger)

    def ask(self, kind, **content):
        return self.rows.reply(Question(kind, content, {}))

    def told(self):
        return [one.name for one in self.ledger._history.runs[-1].told]

    def counts(self):
        return self.ledger._history.spent["refusals"]


@pytest.fixture
def asked(tmp_path):
    return lambda *arguments, **options: Asked(tmp_path, *arguments, **options)


def binomial(terms="age", **options):
    return Model(f"died ~ {terms}", family="binomial", **options)


def counted(n_rows=360, renamed=None, **levels):
    return Counted({"died": None, "age": None, **levels}, renamed or {}, n_rows)


def test_a_site_describes_its_columns(asked):
    site = asked(binomial("ward + age"))
    numbers, words = site.ask("describe")
    named = {"kind": "text", "named": WARDS}
    assert numbers is None
    assert words == {"levels": [["died", None], ["ward", named], ["age", None]], "reasons": [], "tags": {"b": "tag"}}
    assert site.told() == []
    numbers, words = site.ask("count", levels={})
    assert (numbers["rows"], numbers["dropped"], words) == (90.0, 0.0, {})
    assert site.told() == ["1"]


def test_rows_that_are_dropped_are_counted(asked):
    site = asked(binomial(missing="drop"), HERE.assign(age=HERE.age.where(ROW >= 5)))
    site.ask("describe")
    numbers, _ = site.ask("count", levels={})
    assert (numbers["rows"], numbers["dropped"]) == (85.0, 5.0)


def test_levels_are_counted_where_enough_rows_have_them(asked):
    """And what is counted goes by the ledger; if few rows have none of them, one level is not named there."""
    ward = np.where(ROW < 2, "attic", np.where(ROW < 10, "east", "south"))
    site = asked(binomial("ward", pool_rare=5), HERE.assign(ward=ward))
    site.ask("describe")
    numbers, _ = site.ask("count", levels={"ward": ["attic", "east", "south"]})
    assert numbers["ward"].tolist() == [0, 8, 80, 0]
    assert site.told() == ["1", "ward == 'south'"]
    site = asked(binomial("ward", pool_rare=5), HERE.assign(ward=np.where(ROW < 3, "attic", ward)))
    site.ask("describe")
    numbers, _ = site.ask("count", levels={"ward": ["east", "south"]})
    assert numbers["ward"].tolist() == [7, 80, 3]
    assert site.told() == ["1", "ward == 'east'", "ward == 'south'", "another ward"]


def test_what_a_formula_needs_sums_of_goes_by_the_ledger(asked):
    site = asked(binomial("scale(age)"))
    site.ask("describe")
    site.ask("count", levels={})
    numbers, _ = site.ask("means", counted=counted())
    assert numbers["needed"] == pytest.approx([HERE.age.sum()])
    assert site.told() == ["1", "age"]
    mean = float(ROWS.age.mean())
    numbers, _ = site.ask("spread", counted=counted(), means=np.array([mean]))
    assert numbers["needed"] == pytest.approx([((HERE.age - mean) ** 2).sum()])
    _, words = site.ask("spread", counted=counted(), means=np.array([1e9]))
    assert "a million times off here" in words["refused"][0]


def test_a_mean_of_few_rows_is_not_told(asked):
    site = asked(binomial("center(age)"), HERE.assign(age=np.where(ROW < 2, 50.0, 0.0)))
    site.ask("describe")
    site.ask("count", levels={})
    numbers, words = site.ask("means", counted=counted())
    assert numbers is None
    assert "must rest on at least 3 rows" in words["refused"][0]
    assert site.rows.refusal_counts


def test_reasons_of_the_description_are_told_together_and_before_any_sum(asked):
    table = HERE.assign(ward=np.where(ROW == 3, "attic", HERE.ward), died=(ROW < 2).astype(int))
    site = asked(binomial("age + ward"), table, Policy(least_rows=100, families=("poisson",)))
    _, words = site.ask("describe")
    for reason, part in zip(words["reasons"], ("100 rows", "'poisson'", "either outcome", "'ward'"), strict=True):
        assert part in reason
    assert site.counts() == 1
    site.ask("count", levels={})
    numbers, last = site.ask("cells", counted=counted(ward=WARDS), agreed={})
    assert numbers is None
    assert set(words["reasons"]) <= set(last["refused"])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Model("nothing ~ age"), "target must name a column of the frame"),
        (Model("ward ~ age"), "family must be given for a target of text"),
        (binomial("I(age * 1.23)"), "constants and knots two digits"),
    ],
)
def test_what_a_model_cannot_be_is_said_at_once_and_tells_of_no_row(asked, model, words):
    site = asked(model)
    numbers, said = site.ask("describe")
    assert numbers is None
    assert words in said["refused"][0]
    assert site.rows.refusal_counts == ("family" in words)  # that a column is text is known from its rows


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (np.where(ROW == 3, 0, 1), "'ended' must have at least 3 rows of either outcome"),
        (np.where(ROW == 3, "lost", np.where(ROW % 2, "dead", "alive")), "levels must have .* some of 'ended'"),
    ],
)
def test_events_have_enough_rows_as_levels_too(asked, ended, words):
    site = asked(Model("months ~ age", event="ended"), HERE.assign(ended=ended))
    _, said = site.ask("describe")
    assert "'ended'" in said["reasons"][0]
    assert words.split(" .* ")[-1] in said["reasons"][0]
    assert [name for name, _ in said["levels"]] == ["months", "age", "ended"]
    assert site.counts() == 1


def test_a_target_of_another_family_is_refused_without_its_values(asked):
    site = asked(Model("visits ~ age", family="poisson"), HERE.assign(visits=-777.0))
    site.ask("describe")
    site.ask("count", levels={})
    _, words = site.ask("cells", counted=Counted({"visits": None, "age": None}, {}, 360), agreed={})
    assert words["refused"] == [
        "the target 'visits' must suit the family 'poisson', which needs counts; it does not at this site."
    ]
    site = asked(Model("full ~ age", trials="beds"), HERE.assign(full=HERE.beds + 1))
    site.ask("describe")
    site.ask("count", levels={})
    _, words = site.ask("cells", counted=Counted({"full": None, "age": None}, {}, 360), agreed={})
    assert "needs whole numbers from 0 to the trials of their row" in words["refused"][0]


@pytest.mark.parametrize("masked", [False, True])
def test_columns_go_by_the_ledger_before_their_sums_are_told(asked, masked):
    site = asked(binomial("age + dose"), masked=masked)
    site.ask("describe")
    site.ask("count", levels={})
    about = {"counted": counted(dose=None), "agreed": {}}
    cells = None
    if masked:
        cells, _ = site.ask("cells", **about)
        assert cells["both"].shape == (3, 3)
        assert cells["both"].tolist() == np.diag([0, 0, HERE.died.sum()]).tolist()  # age and dose are not said
        assert cells["valued"].tolist() == [1, 1, 0]
        cells = {name: 4.0 * own for name, own in cells.items()}
    numbers, _ = site.ask("design", **about, cells=cells)
    assert site.told() == ["1", "age", "dose", "died"]
    np.testing.assert_allclose(numbers["sums"], [HERE.age.sum(), HERE.dose.sum()])
    assert numbers["response"] == HERE.died.sum()
    means = np.array([50.0, 0.0])
    numbers, _ = site.ask("squares", means=means, response=0.5)
    np.testing.assert_allclose(numbers["squares"], ((HERE[["age", "dose"]] - means) ** 2).sum())
    assert numbers["response"] == 22.5
    _, words = site.ask("squares", means=np.array([1e9, 0.0]), response=0.5)
    assert "a million times off" in words["refused"][0]


def test_of_a_parameter_off_the_path_nothing_is_told_and_it_costs_as_much(asked):
    site = asked(binomial("age"), masked=False)
    site.ask("describe")
    site.ask("count", levels={})
    site.ask("design", counted=counted(), agreed={}, cells=None)
    columns = Location(np.array([HERE.age.mean()]), np.array([HERE.age.std()]))
    told = []
    for slope in (0.0, 0.5, 0.501, 0.502, 0.503, 1.5):
        ask = Ask("score", np.array([0.0, slope]), parts=(), compared=False)
        numbers, words = site.ask("ask", ask=ask, columns=columns)
        assert words == {}
        told.append(numbers is not None)
    assert told == [True] * 5 + [False]
    run = site.ledger._history.runs[-1]
    assert (run.parameters, run.matrices) == (6, 0)


def test_cells_of_all_sites_are_looked_at_under_masks(asked):
    site = asked(binomial("ward"), policy=Policy(cells=4))
    site.ask("describe")
    site.ask("count", levels={})
    about = {"counted": Counted({"died": None, "ward": WARDS}, {}, 360), "agreed": {}}
    cells, _ = site.ask("cells", **about)
    few = {"both": np.where(np.eye(len(cells["both"])) == 1, 90.0, 2.0), "valued": cells["valued"]}
    numbers, words = site.ask("design", **about, cells=few)
    assert numbers is None
    assert "every cell of two columns must have at least" in words["refused"][0]


def test_of_events_and_classes_cells_are_counted(asked):
    """Beside the covariates stand whether there was an event, or a column for each class; not months, or codes."""
    site = asked(Model("months ~ age", event="ended"))
    site.ask("describe")
    site.ask("count", levels={})
    levels = {"months": None, "age": None, "ended": None}
    cells, _ = site.ask("cells", counted=Counted(levels, {}, 360), agreed={})
    assert cells["both"].diagonal().tolist() == [0, HERE.ended.sum()]
    assert site.told() == ["1", "age", "months", "event 0"]
    site = asked(Model("blood ~ age", family="multinomial"))
    site.ask("describe")
    site.ask("count", levels={})
    cells, _ = site.ask("cells", counted=Counted({"blood": ["A", "B", "O"], "age": None}, {}, 360), agreed={})
    assert cells["both"].diagonal().tolist() == [0, *HERE.blood.value_counts().sort_index()]
    assert site.told() == ["1", "age", "blood == 'A'", "blood == 'B'", "blood == 'O'"]


def test_weighted_columns_are_told_beside_plain_ones(asked):
    site = asked(binomial(row_weights="counts_for", offset="shift"))
    site.ask("describe")
    site.ask("count", levels={})
    site.ask("cells", counted=counted(), agreed={})
    told = site.told()
    assert {"1", "age", "died", "the offset", "the row weights"} <= set(told)
    assert {"weighted 1", "weighted age", "weighted died"} <= set(told)
    read = {one.name: site.ledger._columns.read(one.values) for one in site.ledger._history.runs[-1].told}
    np.testing.assert_allclose(np.sort(read["weighted 1"] ** 2), np.sort(HERE.counts_for))


def test_a_private_run_tells_ranges_and_no_column(asked):
    privacy = Privacy(1.0, 1e-6)
    site = asked(binomial("age + ward"), policy=Policy(ranges={"age": (18, 100)}), privacy=privacy)
    _, words = site.ask("describe")
    assert words["ranges"] == {"age": [18.0, 100.0]}
    site.ask("count", levels={})
    assert site.told() == []
    assert site.ask("bound", counted=counted(ward=["east", "south"])) == (None, {})
    missing = np.isnan(site.rows._private_rows.x).all(axis=1)
    assert missing.tolist() == (HERE.ward == "north").tolist()
    _, words = asked(binomial(), policy=Policy(), privacy=privacy).ask("describe")
    assert words["ranges"] == {}
    assert "ranges" not in asked(binomial(), policy=Policy(ranges={"age": (18, 100)})).ask("describe")[1]


def test_a_private_run_that_the_budget_has_no_room_for_says_so_first(asked):
    site = asked(binomial(), privacy=Privacy(20.0, 1e-6))
    _, words = site.ask("describe")
    assert "private runs may tell epsilon 10 of this table" in words["reasons"][0]
    assert not site.rows.refusal_counts
    assert site.counts() == 0


def test_what_is_wrong_here_is_raised_and_not_told(asked):
    site = asked(binomial())
    with pytest.raises(KeyError):
        site.ask("nothing")
    with pytest.raises(Refused):
        site.ledger.begin("2", "about", [("a", "one"), ("b", "two")], "me", {})


def test_a_site_whose_own_estimate_rests_on_few_rows_is_not_compared():
    """Without two rows its outcome would be age below or above 50; at the estimate of all sites every row counts."""
    x = np.concatenate([np.linspace(-10, -4, 44), [-0.01, 0.01], np.linspace(4, 10, 44)])
    died = np.concatenate([np.zeros(44), [1, 0], np.ones(44)]).astype(int)
    rng = np.random.default_rng(3)
    frame = ROWS.assign(age=50 + 6 * rng.normal(size=len(ROWS)), died=rng.integers(0, 2, len(ROWS)))
    frame.loc[frame.h == "a", ["age", "died"]] = np.column_stack([50 + x, died])
    with Sites(frame.astype({"died": int})) as sites:
        found = federate(binomial(errors="model"), sites)
    assert len(found.sites.params) == 2
    with Sites(ROWS) as sites:
        assert len(federate(binomial(errors="model"), sites).sites.params) == 3


@pytest.mark.parametrize(
    ("model", "places"),
    [
        (binomial(errors="model"), [["score 0"], ["information 0 x0", "information 0 x1"]]),
        (binomial(), [["score 0"], [f"{what} 0 x{j}" for what in ("observed", "squares 0") for j in (0, 1)]]),
        (Model("cost ~ age"), [["score 0", *(f"{what} 0 x{j}" for what in ("observed", "squares 0") for j in (0, 1))]]),
    ],
)
def test_what_rows_count_for_where_sums_become_exact_goes_by_the_ledger(model, places):
    """From the first short step on scores tell all digits, and where the path ends matrices do."""
    with Sites() as sites:
        federate(model, sites)
        run = sites.sites["a"].home.ledger._history.runs[-1]
    assert len(run.reach) == len(places)
    assert {one.name for one in run.places} == {name for own in places for name in own}


def test_a_ledger_has_no_reasons_of_a_run_that_has_none(tmp_path):
    with Sites() as sites:
        federate(binomial(), sites)
        ledger = sites.sites["a"].home.ledger
        assert [run.reasons for run in ledger._history.runs] == [[]]
        kinds = {json.loads(line.rpartition(" ")[0])["is"] for line in ledger.path.read_text().splitlines()}
        assert {"begin", "finish"} <= kinds
        assert "reasons" not in kinds
