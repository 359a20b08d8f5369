"""Attacks that read rows or one site's sums from sites with policies by default and pinned keys, in few honest steps.

Each test says what must not be possible; those of what is still read are expected to fail.
"""

import numpy as np
import pytest
from campaigns import CORE, Steers, Watched, World, _without_others, plant_level, total_of
from scipy.optimize import least_squares
from scipy.special import ndtri

from fedgauss.federated.rows import SiteRows
from fedgauss.inference.formula.design import Design
from fedgauss.inference.formula.splines import normal_knots
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import right_hand_side
from fedgauss.inference.tables import Frame, FrameColumn

READ = pytest.mark.xfail(reason="this is read as yet", strict=True)
CURVES = "(ns(age, df=3) + ns(dose, df=3) + ns(bmi, df=3))**2"  # 36 functions of three columns
FEWER_CURVES = "ns(age, df=3) + ns(dose, df=3) + ns(bmi, df=3)"
BENT_AGE = "ns(age, knots=[50, {}], bounds=[10, 120])"
_CLOSE = 1e-6  # of a standard deviation


def sums_of_products(world, sites):
    """Names of columns, and the sums over some sites of products of any two, ones first, in the units of the tables."""
    first = next(one for one in world.rounds if _kind(one) == "sums")
    total, columns = _without_others(first, sites), first.question.content["columns"]
    units = np.diag([1.0, *columns.scale])
    units[0, 1:] = columns.mean
    return first.names, units.T @ total["information"] @ units, units.T @ total["score"]


def _kind(one):
    return one.question.content["ask"].kind if one.question.kind == "ask" else one.question.kind


def columns_at(world, model):
    """What anybody can work out: from rows of age, dose and bmi to all columns of a model of these, ones first."""
    design = next(one for one in world.rounds if one.question.kind == "design")
    agreed, n_rows = design.question.content["agreed"], sum(len(own["age"]) for own in world.tables.values())
    formula = right_hand_side(Frame(world.tables["a"]), model)
    made = Design(formula, dict.fromkeys(formula.columns), n_rows)

    def columns(rows):
        told = {name: FrameColumn(name, rows[:, j]) for j, name in enumerate(CORE)}
        return np.column_stack([np.ones(len(rows)), made.columns(told, agreed)])

    return columns


def solved(world, count, told, columns, combination=None, least=-np.inf, tries=25):
    """Rows of which sums of all columns, times a combination of the columns, are these, by least squares."""
    rows = np.concatenate([core(own) for own in world.tables.values()])
    mean, sd, size = rows.mean(axis=0), rows.std(axis=0), np.abs(columns(rows)).mean(axis=0)

    def apart(values):
        x = columns(values.reshape(count, -1) * sd + mean)
        weights = np.ones(count) if combination is None else x @ combination
        return (weights @ x - told) / size

    for _ in range(tries):
        start = 0.8 * world.rng.normal(size=(count, len(CORE)))
        start[:, 0] = np.maximum(start[:, 0], (least - mean[0]) / sd[0] + 0.5 * np.abs(start[:, 0]))
        found = least_squares(apart, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=80)
        if found.cost < 1e-16:
            return found.x.reshape(count, -1) * sd + mean
    return np.zeros((0, len(CORE)))


def core(table):
    return np.column_stack([table[name] for name in CORE])


def how_many_read(world, found, rows):
    """Rows that something found is close to, in all columns."""
    sd = np.concatenate([core(own) for own in world.tables.values()]).std(axis=0)
    return sum(bool(np.any(np.abs((found - row) / sd).max(axis=1, initial=0.0) < _CLOSE)) for row in rows)


def refused_for_functions(end, world):
    """Whether a run ended for its functions before any sum of columns was told."""
    return "so few columns" in end and not any(_kind(one) in ("design", "squares", "sums") for one in world.rounds)


@pytest.mark.parametrize(("curves", "is_told"), [(CURVES, False), (FEWER_CURVES, True)])
def test_one_honest_fit_of_many_functions_of_three_columns_does_not_tell_the_rows_of_a_level(curves, is_told):
    """Sums of 36 functions over a level's 8 rows are 36 equations for 24 values, and those of 9 are 9.

    The mailbox asks for one masked fit, and nobody lies.
    """
    world = World(1, honest=3, rows=(150, 151))
    plant_level(world, 8)
    end = world.ask(Model(f"cost ~ rare + {curves}"), world.honest)
    assert refused_for_functions(end, world) != is_told
    if not is_told:
        return
    names, products, _ = sums_of_products(world, world.honest)
    told = np.delete(products[1 + names.index("rare")], 1 + names.index("rare"))
    found = solved(world, 8, told, columns_at(world, Model(f"cost ~ {curves}")), tries=5)
    table = world.tables["a"]
    assert how_many_read(world, found, core(table)[table["rare"] == 1.0]) == 0


def test_functions_of_one_column_in_several_fits_are_counted_together():
    """Four models, each of which a level of 8 rows may be in by itself."""
    world = World(1, honest=3, rows=(150, 151))
    plant_level(world, 8)
    curves = ["ns(age, df=3)", "ns(age, df=2) + ns(dose, df=4)", "ns(age, df=4)", "ns(age, df=4) + dose"]
    ends = [world.ask(Model(f"cost ~ rare + {terms}"), world.honest) for terms in curves]
    assert [end == "answered" for end in ends] == [True, True, False, False]
    assert all("so many functions of so few columns" in end for end in ends[2:])


class Liar(SiteRows):
    """A site that knows the world around it."""

    def __init__(self, world, name, *arguments):
        super().__init__(*arguments)
        self._world = world


class Shifts(Liar):
    """A site that moves the knots of a spline of age by half a spread from run to run."""

    def reply(self, question, again=False):
        """Numbers and words."""
        numbers, words = super().reply(question, again)
        if question.kind == "means":
            rows = sum(len(own["age"]) for own in self._world.tables.values())
            numbers = {"needed": numbers["needed"] + 8.0 * self._world.runs * rows}
        return numbers, words


def test_splines_with_other_knots_are_other_functions():
    """Three fits of one model are three fits of it, or nine functions of one column where somebody moves the knots."""
    model, ends = Model("cost ~ rare + dose + ns(age, df=3)"), {}
    for liar in (SiteRows, Shifts):
        world = World(1, honest=3, dishonest=1, rows=(150, 151), liar=liar if liar is Shifts else Steers)
        plant_level(world, 8)
        ends[liar] = [world.ask(model, [*world.honest, *world.own]) for _ in range(3)]
    assert ends[SiteRows] == ["answered"] * 3
    assert ends[Shifts][0] == "answered"
    assert ends[Shifts][-1] != "answered"


def test_a_rare_outcome_does_not_tell_the_rows_that_have_it():
    """Where scoring starts the score is of all columns over the rows with the outcome, which is no covariate."""
    world = World(1, honest=3, rows=(150, 151))
    plant_level(world, 8)
    for curves, is_told in ((CURVES, False), (FEWER_CURVES, True)):
        model = Model(f"rare ~ {curves}", family="binomial")
        assert refused_for_functions(world.ask(model, world.honest), world) != is_told
    _, products, score = sums_of_products(world, world.honest)
    told = score + (8.0 - score[0]) * products[0] / products[0, 0]  # means of all rows, times what is taken off
    found = solved(world, 8, told, columns_at(world, model), tries=5)
    table = world.tables["a"]
    assert how_many_read(world, found, core(table)[table["rare"] == 1.0]) == 0


def test_two_splines_make_no_level_of_the_oldest():
    """Their columns differ by one that is zero up to the first of two knots: a level of five rows that no column has.

    The mailbox asks for one fit without masks. Each spline has ten or more rows between any two of its knots.
    """
    world = World(1, honest=3, rows=(200, 201))
    products = "(ns(dose, df=3) + ns(bmi, df=3))**2 + age:ns(dose, df=3) + age:ns(bmi, df=3)"
    splines = f"{BENT_AGE.format(83)} + {BENT_AGE.format(85)}"
    assert refused_for_functions(world.ask(Model(f"cost ~ {splines} + {products}"), world.honest, masked=False), world)
    assert world.ask(Model(f"cost ~ {BENT_AGE.format(83)} + dose + bmi"), world.honest, masked=False) == "answered"


class Means(Liar):
    """A site that sends the mean that the attacker wants, and ends the run by a number that is none."""

    def reply(self, question, again=False):
        """Numbers and words."""
        world = self._world
        numbers, words = super().reply(question, again)
        if question.kind == "means":
            numbers = {"needed": np.array([world.wanted])}
        elif question.kind == "spread":
            world.mean = float(question.content["means"][0])
            numbers = {"needed": np.array([np.nan])}
        return numbers, words


def test_whether_a_mean_suits_the_rows_of_a_site_does_not_tell_its_largest_value():
    """Each of 25 masked runs tells whether a millionth of the mean is above the largest income of a site."""
    world = World(1, honest=3, dishonest=1, liar=Means)
    n_rows = sum(len(own["age"]) for own in world.tables.values())
    low, high = np.log([2e4, 1e6])
    model = Model("died ~ scale(income)", family="binomial")
    while np.exp(high) - np.exp(low) > 0.1:
        world.wanted = n_rows * 1e6 * np.exp(0.6 * low + 0.4 * high)
        end = world.ask(model, [*world.honest, *world.own])
        if "at most" in end:
            break
        at = np.log(world.mean / 1e6)
        low, high = (low, at) if "site 'a': means" in end else (at, high)
    largest = np.max(world.tables["a"]["income"])
    assert np.exp(high) - np.exp(low) > 100.0 or not np.exp(low) <= largest <= np.exp(high)


class Knots(Liar):
    """A site that puts a knot of ns() where the attacker wants it, by lies about mean and spread."""

    def reply(self, question, again=False):
        """Numbers and words; what others add to sums and sums of squares is known after the first run."""
        world = self._world
        numbers, words = super().reply(question, again)
        if question.kind == "means":
            world.lie = (world.wanted - world.quantile * world.sd) * world.n_rows - world.total
            numbers = {"needed": np.array([world.lie])}
        elif question.kind == "spread":
            mean = float(question.content["means"][0])
            world.total = mean * world.n_rows - world.lie
            world.rest = 2 * mean * world.total - world.others * mean**2
            world.lie = world.sd**2 * world.n_rows - world.squares + world.rest
            numbers = {"needed": np.array([world.lie])}
        elif question.kind == "cells":
            mean, sd = question.content["agreed"]["income"]
            world.knot = normal_knots(mean, sd, world.df)[-2]
            world.squares = sd**2 * world.n_rows - world.lie + world.rest
            numbers = numbers if "refused" in words else None
        return numbers, words


@pytest.mark.parametrize("df", [1, 3, 4])
def test_knots_by_mean_and_spread_are_not_put_beside_a_row(df):
    """Whether three incomes of a site lie above a knot tells its third largest on a coarse grid, and no better.

    The attacker takes the least spread that the site lets pass, which it is told.
    """
    world = World(1, honest=3, dishonest=1, liar=Knots)
    world.n_rows = sum(len(own["age"]) for own in world.tables.values())
    world.others = world.n_rows - len(world.tables["x"]["age"])
    world.total = world.squares = 0.0
    world.df, world.quantile = df, ndtri(np.linspace(0.05, 0.95, df + 1))[-2]
    income = world.tables["a"]["income"]
    least, low, high = 1.001 * 2.0 ** np.floor(np.log2(income.std())) / 2.0, 2e4, 1e6
    world.wanted, world.sd, world.knot = 1e6, 1e9, None
    model = Model(f"died ~ ns(income, df={df})", family="binomial")
    world.ask(model, [*world.honest, *world.own])
    world.sd, asked = least, set()
    while True:
        world.wanted = (low + high) / 2.0
        end = world.ask(model, [*world.honest, *world.own])
        if "at most" in end or world.knot in asked:
            break
        asked.add(world.knot)
        low, high = (low, min(high, world.knot)) if "site 'a'" in end else (max(low, world.knot), high)
    assert len(asked) > 3
    assert high - low > income.std() / 16.0 or not low <= np.sort(income)[-3] <= high


class Seen(Watched):
    """An exchange that keeps who opened a message without numbers, with the parameter."""

    def ask(self, order, contents):
        """The replies of all sites."""
        question = self._world.sites[self._world.own[0]]._party.question if order == "open" else None
        replies = super().ask(order, contents)
        if question is not None and question.kind == "ask":
            for name, reply in replies.items():
                there = "numbers" in reply["opening"]
                self._world.seen.append((name, float(abs(question.content["ask"].theta[1])), there))
        return replies


def test_who_is_silent_at_a_parameter_does_not_tell_its_spread_under_masks(monkeypatch):
    """A site is silent where its predictors spread too far: steps that are halved bisect a power of two, and no more.

    Each time counts as a refusal.
    """
    monkeypatch.setattr("campaigns.Watched", Seen)
    world = World(1, honest=3, dishonest=1, liar=Steers)
    world.seen = []

    def aims(turn, theta):
        silent = [at for _, at, there in world.seen if not there]
        return [np.array([theta[0], min(silent, default=40.0) if turn else 7.0])]

    world.aims = aims
    world.ask(Model("died ~ age", family="binomial"), [*world.honest, *world.own])
    scale = next(one for one in world.rounds if one.question.kind == "ask").question.content["columns"].scale[0]
    for name in world.honest:
        most = max(at for who, at, there in world.seen if who == name and there)
        silent = [at for who, at, there in world.seen if who == name and not there]
        spent = world.sites[name]._ledger._history.spent["refusals"]
        assert spent - 1 <= len(silent) <= spent <= world.policy.budget.refusals  # the last of all ends the run
        spread, told = world.tables[name]["age"].std(), 2.0 ** np.ceil(np.log2(world.tables[name]["age"].std()))
        assert min(silent, default=np.inf) >= 8.0 * scale / told >= most
        assert not 0.999 < told / spread < 1.001


def test_cells_of_columns_less_a_number_do_not_tell_who_has_that_number():
    """`I(age - 58)` is zero in the rows of 58: counts of rows in which two columns are not zero are a table of ages.

    The mailbox asks for one masked run. It has the ages of a level's 8 rows, and of all rows age with visits.
    """
    world = World(1, honest=3)
    plant_level(world, 8)
    ages, visits = np.arange(18, 100), np.arange(1, 20)
    terms = [f"I(age - {c})" for c in ages] + [f"I(visits - {c})" for c in visits]
    world.ask(Model(f"died ~ rare + {' + '.join(terms)}", family="binomial"), world.honest)
    cells = [total_of(one)["both"] for one in world.rounds if one.question.kind == "cells"]
    if not cells:
        return
    both, n_rows = cells[0], sum(len(own["age"]) for own in world.tables.values())
    alone = np.diag(both)
    of_level = np.repeat(ages, np.rint(alone[0] - both[0, 1 : 1 + len(ages)]).astype(int))
    table = world.tables["a"]
    assert of_level.tolist() != np.sort(table["age"][table["rare"] == 1.0]).tolist()
    pairs = (n_rows - alone[:, None] - alone + both)[1 : 1 + len(ages), 1 + len(ages) :][:, : len(visits)]
    rows = np.concatenate([np.column_stack([own["age"], own["visits"]]) for own in world.tables.values()])
    true = np.array([[np.sum((rows == (age, count)).all(axis=1)) for count in visits] for age in ages])
    assert not np.all(pairs == true)


def test_a_column_and_its_corrections_are_no_level_of_the_rows_that_were_corrected():
    """Of `dose` and `dose2`, which differ in 8 rows, products with other columns differ by sums over these rows."""
    world = World(1, honest=3, rows=(150, 151))
    for name, table in world.tables.items():
        table["dose2"] = table["dose"].copy()
        if name == "a":
            table["dose2"][world.rng.choice(150, 8, replace=False)] += 0.25
        world.start(name)
    assert refused_for_functions(world.ask(Model(f"cost ~ dose + dose2 + {CURVES}"), world.honest), world)
    assert world.ask(Model("cost ~ dose + dose2 + age + bmi"), world.honest) == "answered"
    assert world.ask(Model("cost ~ dose + dose2 + ns(age, df=3)"), world.honest) == "answered"
    end = world.ask(Model("cost ~ dose + dose2 + ns(age, df=4)"), world.honest)  # eight functions in all
    assert "so few columns" in end
    assert "unless there are 11 at this site" in end
