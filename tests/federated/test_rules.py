"""Each reason of a site not to take part: refused below its threshold, answered at it, masked and not."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from fedgauss.cli import app
from fedgauss.families import family
from fedgauss.federated import rules
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.plan import Plan
from fedgauss.federated.policy import Policy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.spans import span_of
from fedgauss.federated.wire import order_line
from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import Summary
from fedgauss.inference.model import Model
from fedgauss.inference.preparation import Location
from fedgauss.inference.sgd import SGD
from fedgauss.inference.tables import Frame, FrameColumn
from site_rows import ROWS, Sites, own, site_of

AGE = Model("died ~ age", family="binomial")
BOTH = pytest.mark.parametrize("masked", [False, True])


def fit_with(policy, model=AGE, frame=ROWS, masked=False):
    """A fit in which site a has this policy."""
    sites = {name: site_of(own(frame, name), policy if name == "a" else None) for name in sorted(set(frame.h))}
    with LocalSites(sites) as reached:
        return federate(model, reached, masked=masked)


def refused(call, *arguments, words):
    with pytest.raises(Refused, match=words):
        call(*arguments)


def formula_of(terms):
    return parse(f"y ~ {terms}", Frame({"x": np.arange(90.0), "y": np.arange(90.0)}), "y", [])


LEVELS = ROWS.assign(
    ill=np.where(np.arange(len(ROWS)) % 12 == 0, "yes", "no"),  # 8 of the 90 rows of a
    rare=(np.arange(len(ROWS)) % 18 == 0).astype(int),  # 5 of them
)


@BOTH
@pytest.mark.parametrize(
    ("rule", "kept", "broken", "model", "words"),
    [
        ("least_rows", 90, 91, AGE, r"at least 91 rows; it has fewer of this kind"),
        ("few", 8, 9, Model("died ~ age + ill", family="binomial"), "at least 9 rows at this site, or none; .*'ill'"),
        ("few", 5, 6, Model("rare ~ age", family="binomial"), "'rare' must have at least 6 rows of either outcome"),
        ("fewest_sites", 3, 4, AGE, "at least 4 sites; this one has 3"),
        ("columns", ("age", "died"), ("dose", "died"), AGE, "'age'"),
        ("never", ("dose",), ("age",), AGE, "'age'"),
        ("families", ("logistic",), ("poisson",), AGE, "allows the families 'poisson'; got 'logistic'"),
        ("families", ("binomial",), ("gaussian",), AGE, "allows the families 'gaussian'"),
    ],
)
def test_a_rule_of_a_policy_is_kept(masked, rule, kept, broken, model, words):
    fit_with(Policy(**{rule: kept}), model, LEVELS, masked)
    with pytest.raises(RunRefused, match=words) as all_of:
        fit_with(Policy(**{rule: broken}), model, LEVELS, masked)
    assert list(all_of.value.reasons) == ["a"]


def test_rows_for_each_parameter_are_counted_here_without_masks_and_everywhere_with_them():
    model = Model("died ~ age + dose", family="binomial")
    fit_with(Policy(rows_per_parameter=30), model)
    fit_with(Policy(rows_per_parameter=120), model, masked=True)
    with pytest.raises(
        RunRefused, match=r"31 rows at this site .* 90 rows are enough for 2, and this model has 3.*--masked"
    ):
        fit_with(Policy(rows_per_parameter=31), model)
    with pytest.raises(RunRefused, match=r"121 rows of all sites .* 360 rows are enough for 2, and this model has 3"):
        fit_with(Policy(rows_per_parameter=121), model, masked=True)


@pytest.mark.parametrize(
    ("masks", "sites", "masked", "words"),
    [
        ("allowed", 2, False, None),
        ("allowed", 2, True, None),
        ("required", 2, True, None),
        ("off", 2, False, None),
        ("off", 2, True, 'masks = "off". Fit without --masked'),
        ("required", 2, False, 'masks = "required": it sends no sums of its own. Fit with --masked'),
        ("allowed", 1, True, "masks hide a site among others; this run has one site"),
    ],
)
def test_masks_are_as_the_policy_has_them(masks, sites, masked, words):
    plan = Plan(AGE, tuple("ab"[:sites]), masked, "asker", "nonce")
    policy = Policy(masks=masks, fewest_sites=1)
    if words is None:
        rules.check_plan(policy, plan)
    else:
        refused(rules.check_plan, policy, plan, words=words)


def test_so_many_sites_there_must_be():
    for fewest in (1, 2, 3):
        rules.check_plan(Policy(fewest_sites=fewest), Plan(AGE, tuple("abc"), False, "asker", "nonce"))
    refused(
        rules.check_plan, Policy(fewest_sites=3), Plan(AGE, tuple("ab"), False, "asker", "nonce"),
        words="at least 3 sites; this one has 2",
    )  # fmt: skip
    rules.check_plan(Policy(fewest_sites=1), Plan(AGE, ("a",), False, "asker", "nonce"))


def test_a_pass_of_sgd_is_for_sites_whose_owners_allow_it():
    plan = Plan(AGE, tuple("ab"), False, "asker", "nonce", sgd=SGD())
    rules.check_plan(Policy(passes=1), plan)
    refused(rules.check_plan, Policy(), plan, words="passes = 0: it makes no pass of SGD")


def test_rows_of_weight_zero_are_none_or_enough():
    policy = Policy(least_rows=10, few=4)
    for weightless in (0, 4, 5):
        rules.check_rows(policy, 10, weightless)
    for weightless in (1, 3):
        refused(rules.check_rows, policy, 10, weightless, words="no row must have weight 0 at this site, or at least 4")
    refused(rules.check_rows, policy, 9, 0, words="at least 10 rows; it has fewer of this kind")


def test_a_family_goes_by_any_of_its_names():
    for name in ("gaussian", "linear"):
        rules.check_family(Policy(families=(name,)), family("linear"))
    rules.check_family(Policy(), family("poisson"))
    refused(rules.check_family, Policy(families=("linear",)), family("poisson"), words="'linear'; got 'poisson'")


@pytest.mark.parametrize(
    ("terms", "answered"),
    [
        ("x", True), ("I(x**2)", True), ("I(x**3)", True), ("log(x + 1)", True), ("log(x + 0.5)", True),
        ("I(x - 12)", True), ("I(x - 0)", True), ("center(x)", True), ("scale(x)", True), ("I(x * 2.5)", True),
        ("offset(x / 1200)", True), ("ns(x, knots=[20, 35], bounds=[0, 90])", True), ("ns(x, df=3)", True),
        ("I(x - 123)", False), ("I(x * 1.23)", False), ("offset(x - 1.23)", False), ("scale(x - 123)", False),
        ("ns(x, knots=[20.5], bounds=[0, 90])", False), ("ns(x, knots=[20], bounds=[0, 99.5])", False),
    ],
)  # fmt: skip
def test_constants_are_round(terms, answered):
    formula = formula_of(terms)
    if answered:
        rules.check_constants(formula)
    else:
        refused(rules.check_constants, formula, words="constants and knots two digits, or they could be put between")


@pytest.mark.parametrize("within", ["x", "log(x)", "log1p(x)"])
def test_a_spline_has_no_constants_but_knots(within):
    rules.check_constants(formula_of(f"ns({within}, df=3)"))
    for more in (f"{within} - 12", f"{within} * 3", f"{within} ** 2"):
        refused(rules.check_constants, formula_of(f"ns(I({more}), df=3)"), words="a column or one function of it")


def test_an_expression_has_one_constant():
    rules.check_constants(formula_of("I((x - 2)**2)"))
    refused(rules.check_constants, formula_of("I((x - 2) * 3)"), words="may have one constant")


def coded(*counts):
    levels = tuple(f"l{j}" for j in range(len(counts)))
    return FrameColumn("ward", np.repeat(np.arange(len(counts)), counts).astype(float), levels)


def test_levels_have_enough_rows_or_none():
    rules.check_levels(5, coded(20, 5, 0))
    rules.check_levels(5, FrameColumn("age", np.arange(3.0)))
    for counts in ((20, 4), (20, 1), (4, 20)):
        refused(rules.check_levels, 5, coded(*counts), words=r"at least 5 rows at this site.*'ward'.*pool_rare=5")


@pytest.mark.parametrize("flip", [False, True])
def test_an_outcome_has_enough_of_both_or_one_alone(flip):
    def outcome(ones, zeros=20):
        values = np.repeat([1.0, 0.0], [ones, zeros])
        return FrameColumn("died", 1.0 - values if flip else values)

    for ones in (0, 5, 20):
        rules.check_outcome(5, outcome(ones))
    for ones in (1, 4):
        refused(rules.check_outcome, 5, outcome(ones), words="'died' must have at least 5 rows of either outcome")
    rules.check_outcome(5, FrameColumn("count", np.repeat([1.0, 0.0, 2.0], [2, 20, 30])))
    rules.check_outcome(5, coded(20, 2))  # whose levels are looked at


def test_parameters_have_enough_rows():
    policy = Policy(rows_per_parameter=2.5)
    rules.check_parameters(policy, 4, 10, masked=False)
    refused(rules.check_parameters, policy, 4, 9, False, words=r"2.5 rows at this site .*enough for 3.*--masked")
    refused(rules.check_parameters, policy, 4, 9, True, words=r"2.5 rows of all sites .* pool levels\.$")


def test_cells_of_two_columns_are_counted():
    x, y, z = [1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, 2.5, 0.0, 1.0]
    cells = rules.Cells.of(np.column_stack([x, y, z]))
    np.testing.assert_array_equal(cells.both, [[2, 1, 1], [1, 2, 1], [1, 1, 2]])
    np.testing.assert_array_equal(cells.valued, [0, 0, 1])


def cells_of(both, first, second, neither, value=1.0):
    """Two columns with so many rows in each of their four cells; the first has a value in the place of one."""
    x = np.repeat([value, value, 0.0, 0.0], [both, first, second, neither])
    y = np.repeat([1.0, 0.0, 1.0, 0.0], [both, first, second, neither])
    return rules.Cells.of(np.column_stack([x, y])), float(len(x))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_cells_of_two_columns_have_enough_rows_or_none(place, count):
    """Zeros and ones have four cells; with other values two, and these are looked at where counts may be told."""
    counts = [9, 9, 9, 9]
    counts[place] = count
    for value, of_levels, looked_at in ((1.0, 5, range(4)), (1.0, 1, ()), (2.5, 5, (0, 1)), (2.5, 1, (0, 1))):
        cells, n_rows = cells_of(*counts, value=value)
        if 0 < count < 5 and place in looked_at:
            refused(
                rules.check_cells, 5, ["ill", "old"], cells, n_rows, of_levels,
                words="every cell of two columns must have at least 5 rows, or none; 'ill' and 'old' have one",
            )  # fmt: skip
        else:
            rules.check_cells(5, ["ill", "old"], cells, n_rows, of_levels)


def test_stretches_between_knots_have_enough_rows():
    rules.check_stretches(5, {"ns(age)": 5, "ns(dose)": 9})
    rules.check_stretches(5, {})
    refused(
        rules.check_stretches, 5, {"ns(age)": 9, "ns(dose)": 4},
        words=re.escape("must lie between two knots of a spline; for one of ns(age) and ns(dose) fewer do"),
    )  # fmt: skip


@BOTH
def test_a_spline_between_two_rows_is_refused(masked):
    fit_with(Policy(), Model("died ~ ns(age, knots=[50], bounds=[20, 80])", family="binomial"), masked=masked)
    assert 0 < np.sum(own(ROWS, "a").age > 64) < 8
    with pytest.raises(RunRefused, match=r"between two knots of a spline|must rest on at least"):
        fit_with(Policy(few=8), Model("died ~ ns(age, knots=[64], bounds=[20, 80])", family="binomial"), masked=masked)


def test_combinations_of_columns_have_as_many_rows_as_functions_need():
    """Of columns that are six rows apart, one row of another and one more, and of too many to search through."""
    rng = np.random.default_rng(0)
    dose = rng.normal(size=200)
    corrected = dose + 0.5 * (np.arange(200) < 6)
    span = span_of(np.column_stack([np.ones(200), rng.normal(size=(200, 2)), dose, corrected]))
    rules.check_functions(6, span)
    refused(rules.check_functions, 7, span, words="unless there are 7 at this site; this could not be shown")
    many = span_of(rng.normal(size=(60, 30)))
    refused(rules.check_functions, 25, many, words="unless there are 25 at this site")


def test_clusters_share_enough_rows():
    def clusters(*counts):
        return np.repeat(np.arange(len(counts)), counts)

    rules.check_clusters(5, None)
    rules.check_clusters(5, clusters(*[1] * 20))  # all alone
    rules.check_clusters(5, clusters(20))  # one for all
    rules.check_clusters(5, clusters(20, 5))
    rules.check_clusters(5, clusters(5, *[1] * 20))
    for counts in ((20, 4), (2, 2, *[1] * 20), (20, 1)):
        refused(
            rules.check_clusters, 5, clusters(*counts), words=r"at least 5 rows must share their cluster.*errors='HC0'"
        )


def test_means_are_near_the_rows():
    """To an order of magnitude: columns whose largest values are 2 and 999 are refused alike."""
    for largest in (2.0, 999.0):
        columns = [np.array([-largest, 1.0]), np.zeros(2)]
        rules.check_means(columns, np.array([1e6, 1e99]))  # of a column of zeros nothing is lost
        refused(rules.check_means, columns, np.array([1.1e6, 0.0]), words="a million times off here")
        refused(rules.check_means, columns, np.array([-1.1e6, 0.0]), words="a million times off here")
        refused(rules.check_means, columns, np.array([np.nan, 0.0]), words="a million times off here")
    rules.check_means([np.array([-1001.0])], np.array([1.1e6]))


def test_scales_are_those_of_the_rows():
    """To an order of magnitude of how far rows lie apart, and of where they are in multiples of it."""
    for more in (0.0, 0.9, 50.0):
        x = np.array([[1.0, 10.0], [3.0, 30.0]]) + more

        def units(mean, scale):
            return Location(np.array(mean), np.array(scale))

        rules.check_units(x, units([2.0, 20.0], [1.0, 1.1e-3]))
        refused(rules.check_units, x, units([2.0, 20.0], [1.0, 0.9e-3]), words="a million times off")
        refused(rules.check_units, x, units([2.0, 20.0], [0.0, 1.0]), words="a million times off")
        refused(rules.check_units, x, units([2.0, 20.0], [-1.0, 1.0]), words="a million times off")
        refused(rules.check_units, x, units([2.0, 20.0], [np.nan, 1.0]), words="a million times off")
        refused(rules.check_units, x, units([3.1e6, 20.0], [1e9, 1.0]), words="a million times off")
    nothing = np.zeros((2, 1))
    rules.check_units(nothing, Location(np.array([0.0]), np.array([1.0])))
    refused(rules.check_units, nothing, Location(np.array([0.0]), np.array([0.0])), words="a million times off")
    same = np.full((2, 1), 2020.0)  # the year of a site
    rules.check_units(same, Location(np.array([2017.0]), np.array([1.0])))
    refused(rules.check_units, same, Location(np.array([2e6]), np.array([1.0])), words="a million times off")


def test_a_spread_far_below_that_of_the_rows_places_no_knots():
    """To a power of two: of columns with spreads of 8 and 15.9 the same spreads are refused."""
    free = formula_of("ns(x, df=3)")
    for spread in (8.0, 15.9):
        needed = {"x": np.array([-spread, spread])}
        rules.check_spreads(free, needed, {"x": Summary(0.0, 4.0)})
        rules.check_spreads(formula_of("scale(x)"), needed, {"x": Summary(0.0, 3.9)})
        refused(
            rules.check_spreads, free, needed, {"x": Summary(0.0, 3.9)},
            words="that of x is less than half of what it is at this site",
        )  # fmt: skip
    rules.check_spreads(free, {}, {})  # where all knots are written
    rules.check_spreads(free, {"x": np.ones(2)}, {"x": Summary(0.0, 1e-9)})


RNG = np.random.default_rng(2)
PLAIN = RNG.normal(size=(40, 2))
OF_MODEL = span_of(np.ones((40, 1)))


def on(count, n=40):
    """A column that counts for so many rows."""
    return np.where(np.arange(n) < count, 1.0, 0.0)


@pytest.mark.parametrize(
    "group", ["information 0 x0", "observed 0 x0", "score 0", "deviance", "pearson", "squares 0 x0"]
)
def test_what_counts_at_a_parameter_rests_on_enough_rows(group):
    """Each kind of number, by itself and combined with those that are told beside it."""
    beside = {"information 0 x1": PLAIN[:, 0]} if group != "squares 0 x0" else {"squares 0 x1": PLAIN[:, 0]}
    rules.check_parameter(3, {group: on(3), **beside}, OF_MODEL)
    refused(
        rules.check_parameter, 3, {group: on(2), **beside}, OF_MODEL, words="at least 3 rows of this site must count"
    )
    refused(
        rules.check_parameter,
        3,
        {group: PLAIN[:, 0] + on(2), **beside},
        OF_MODEL,
        words="at least 3 rows of this site must count",
    )
    rules.check_parameter(3, {group: PLAIN[:, 0] + on(3), **beside}, OF_MODEL)


def test_numbers_that_are_told_apart_are_not_combined():
    """Squared scores with the rest; plain scores and one number of goodness with another."""
    x = PLAIN[:, 0]
    for one, other in (("squares 0 x0", "information 0 x0"), ("score 0", "deviance"), ("deviance", "pearson")):
        rules.check_parameter(3, {one: x, other: x + on(1)}, OF_MODEL)


def test_a_parameter_at_which_nothing_is_finite_voids_the_round():
    rules.check_parameter(3, {"score 0": np.array([np.inf, 1.0, 0.0])}, OF_MODEL)
    rules.check_parameter(3, {}, OF_MODEL)


def test_scores_and_columns_together_rest_on_enough_rows():
    """Residuals are outcomes less means: where all means but two are zero they tell these two rows."""
    of_model = span_of(np.column_stack([np.ones(len(PLAIN)), PLAIN[:, 1]]))
    for rows, words in ((3, None), (2, "at least 3 rows of this site must count")):
        scores = {"score 0": PLAIN[:, 1] - on(rows)}
        if words is None:
            rules.check_parameter(3, scores, of_model)
        else:
            refused(rules.check_parameter, 3, scores, of_model, words=words)


def test_reasons_are_gathered_with_whether_they_depend_on_rows():
    reasons = {}
    for text, counts in (("one", True), ("two", False)):
        with rules.noted(reasons, counts):
            raise ValueError(text)
    with rules.noted(reasons):
        raise Refused("three", counts=False)
    with rules.noted(reasons):
        pass
    assert reasons == {"one": True, "two": False, "three": False}


@BOTH
@pytest.mark.parametrize(
    ("rows", "words"), [([7], "no single value may outweigh"), ([7, 8], "must rest on at least 3 rows")]
)
def test_rows_far_from_all_others_are_refused_and_not_named(masked, rows, words):
    frame = ROWS.assign(age=ROWS.age.where(~np.isin(np.arange(len(ROWS)), rows), 34567.0))
    with pytest.raises(RunRefused, match=words) as all_of:
        fit_with(Policy(), AGE, frame, masked)
    assert "345" not in str(all_of.value)


def test_a_site_whose_squared_scores_rest_on_few_rows_is_not_compared():
    """Combinations of those of three rows rest on one. Errors that do not need them are told, and others are not."""
    frame = ROWS.assign(cost=ROWS.cost.where(~np.isin(np.arange(len(ROWS)), [7, 20, 33]), 30_000.0))
    model = Model("cost ~ age + dose", family="gaussian", errors="model")
    with Sites(frame) as sites:
        found = federate(model, sites)
    with Sites() as sites:
        before = federate(model, sites)
    assert len(before.sites.params) == 3
    assert len(found.sites.params) == 2
    assert found.heterogeneity.dof < before.heterogeneity.dof
    with Sites(frame) as sites, pytest.raises(RunRefused, match="at least 3 rows of this site must count"):
        federate(Model("cost ~ age + dose", family="gaussian", errors="HC0"), sites)


def test_columns_that_are_closed_have_no_role_either():
    for role in ("offset", "exposure", "row_weights", "cluster", "trials"):
        with pytest.raises(RunRefused, match=f"{role} must name a column of the frame; got 'years'"):
            fit_with(Policy(never=("years",)), Model("died", family="binomial", features=["age"], **{role: "years"}))
    few = ROWS[["age", "dose", "years", "died", "h"]]
    with pytest.raises(ValueError, match="sites must have the same columns; 'b' and 'a' differ in 'years'"):
        fit_with(Policy(never=("years",)), Model("died", family="binomial"), few)  # of all columns a has one less


def test_masks_need_the_secret_of_the_owners(tmp_path):
    """Where a has another secret than b and c the masks do not cancel, and no total can be read."""
    (tmp_path / "word").write_text("a word between owners\n")
    policy = Policy(secret=str(tmp_path / "word"))
    with pytest.raises(ValueError, match=r"the masks of 3 sites must cancel; in round .* they do not"):
        fit_with(policy, masked=True)
    with Sites(policy=policy) as sites:
        federate(AGE, sites, masked=True)
        assert not any("a word between" in text for _, said in sites.said for text in said.values())
    (tmp_path / "word").unlink()
    with pytest.raises(RunRefused, match="this site's secret could not be read; its owner must"):
        fit_with(policy, masked=True)


def test_what_is_refused_is_in_the_log_of_the_command(tmp_path):
    own(ROWS, "a").to_csv(tmp_path / "a.csv", index=False)
    files = [str(tmp_path / "a.csv"), "--log", str(tmp_path / "log.jsonl")]
    asked = {"plan": {}, "name": "a", "key": "", "signature": ""}
    done = CliRunner().invoke(app, ["site", *files], input=order_line("join", asked))
    assert done.exit_code == 0
    (line,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert line["order"] == "join"
    assert line["asked"] == asked
    assert "a plan must have model, sites" in line["sent"]["error"]
    assert json.loads(done.stdout) == line["sent"]
