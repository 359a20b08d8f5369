"""Every attack that read rows of the first sites (benchmarks/recorded/attacks_on_first_sites.json), against these.

Keys are pinned, policies are the default ones. An attack is tried as it was; where it needs a freedom that nobody has
any more, that is what is tested.
"""

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.federated.home import Home
from fedgauss.federated.keys import Key
from fedgauss.federated.ledger import Ledger
from fedgauss.federated.local import LocalSites
from fedgauss.federated.mailbox import federate
from fedgauss.federated.party import RunRefused
from fedgauss.federated.policy import Policy
from fedgauss.inference import asks
from fedgauss.inference.model import Model
from site_rows import home, site_of

NAMES = ("north", "south", "west")
ASKER = Key.fresh()


def hospital(seed, n=300):
    """Continuous columns, 0/1 columns, ages in whole years, incomes to the cent."""
    rng = np.random.default_rng(seed)
    age, dose = np.round(rng.normal(58, 14, n)), rng.normal(3, 1, n)
    return pd.DataFrame(
        {
            "age": age, "dose": dose, "sex": rng.integers(0, 2, n),
            "income": np.round(np.exp(rng.normal(10, 0.5, n)), 2),
            "died": (rng.random(n) < 1 / (1 + np.exp(3 - 0.04 * age - 0.2 * dose))).astype(int),
            "cost": 1000 + 5 * age + 100 * rng.standard_t(4, n),
        }
    )  # fmt: skip


class Study:
    """Three tables whose policies pin each other's keys, and that outlive the processes of their sites."""

    def __init__(self, frames=None, **rules):
        self.frames = {name: hospital(k) for k, name in enumerate(NAMES)} if frames is None else frames
        self.rules = rules
        first = Policy(**rules)
        self.homes = {name: home(first, name) for name in self.frames}
        self.keys = {name: own.key.public for name, own in self.homes.items()}

    def sites(self):
        policy = Policy(sites=self.keys, askers={"coordinator": ASKER.public}, **self.rules)
        return LocalSites({name: site_of(own, policy, self.homes[name]) for name, own in self.frames.items()})

    def fit(self, model, masked=False):
        with self.sites() as sites:
            return federate(model, sites, masked=masked, key=ASKER)

    def refuses(self, model, words, masked=False):
        with pytest.raises(RunRefused, match=words) as refused:
            self.fit(model, masked)
        return refused.value.reasons


@pytest.mark.parametrize("masked", [False, True])
def test_c1_nobody_can_ask_for_a_parameter(masked):
    """A row's weight cannot be bisected: an order has no place for a parameter, and all messages are of the path."""
    with Study().sites() as sites:
        site = sites.sites["north"]
        for order in ("sums", "final", "goodness", "own", "ask"):
            assert "'join' is due" in site.answer(order, {"theta": np.zeros(3)})["error"]
        for order in ("join", "meet", "open", "hear"):
            assert "error" in site.answer(order, {"theta": np.zeros(3)})


def test_c2_a_table_has_one_name():
    study = Study()
    rows = study.frames["north"]
    thrice = Study(dict.fromkeys(NAMES, rows), fewest_sites=3, masks="required")
    with pytest.raises(ValueError, match="'north' and 'south' have the same table, which would count twice"):
        thrice.fit(Model("died ~ dose", family="binomial"), masked=True)
    one = study.homes["north"]
    sites = LocalSites({name: site_of(rows, Policy(), one) for name in NAMES})
    with pytest.raises(ValueError, match="every site must have a key of its own"):
        federate(Model("died ~ dose", family="binomial"), sites, masked=True, key=ASKER)


@pytest.mark.parametrize("masked", [False, True])
def test_c3_a_site_that_cannot_answer_voids_the_round_for_all(monkeypatch, masked):
    """The step is halved, as it is where the likelihood falls; no total is of some of the sites."""
    voids = []

    def answer(family, rows, ask):
        if ask.kind == "score" and not voids:
            voids.append(ask)
            return None
        return asks.answer(family, rows, ask)

    monkeypatch.setattr("fedgauss.federated.rows.answer", answer)
    study, model = Study(), Model("died ~ age + dose", family="binomial")
    with study.sites() as plain:
        spy = Numbered(plain.sites)
        found = federate(model, spy, masked=masked, key=ASKER)
    pooled = fg.fit(pd.concat([own.assign(h=name) for name, own in study.frames.items()]), model, client="h")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-8)
    assert len(voids) == 1
    assert [sum(of.values()) for of in spy.numbers].count(2) == 1  # and the next is of all again


class Numbered(LocalSites):
    """Sites of which it is seen who sent numbers."""

    numbers: list

    def ask(self, order, contents):
        replies = super().ask(order, contents)
        self.numbers = getattr(self, "numbers", [])
        if order == "open":
            self.numbers.append({name: "numbers" in reply["opening"] for name, reply in replies.items()})
        return replies


def test_c4_the_path_is_a_function_of_the_model_and_the_rows():
    """Asked again, sites answer at the same parameters, and at no more of them."""
    study, model = Study(), Model("died ~ age", family="binomial")
    study.fit(model)
    ledger = study.homes["north"].ledger
    before = ledger.report().splitlines()
    spent = [line for line in before if line.startswith(("parameters", "matrices", "tries"))]
    study.fit(model)
    again = [line for line in ledger.report().splitlines() if line.startswith(("parameters", "matrices", "tries"))]
    assert again == spent


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("died ~ dose", "died ~ I(dose2 * 2)"),
        ("died ~ dose", "died ~ scale(dose2)"),
        ("died ~ dose + age", "died ~ age:dose2 + dose2"),
        ("died ~ sex", "died ~ sex2"),
        ("died ~ sex", "died ~ C(sex2)"),
        ("cost ~ dose", "cost ~ dose2"),
        ("dose ~ age", "dose2 ~ age"),
    ],
)
def test_h1_columns_that_differ_in_one_row(masked, first, second):
    frames = {name: hospital(k) for k, name in enumerate(NAMES)}
    for own in frames.values():
        own["dose2"], own["sex2"] = own["dose"].copy(), own["sex"].copy()
    frames["north"].loc[7, "dose2"] += 1.5
    frames["north"].loc[7, "sex2"] = 1 - frames["north"].loc[7, "sex2"]
    study = Study(frames)
    binomial = "binomial" if first.startswith("died") else "gaussian"
    study.fit(Model(first, family=binomial), masked)
    reasons = study.refuses(Model(second, family=binomial), "rest on", masked)
    assert list(reasons) == ["north"]


@pytest.mark.parametrize("masked", [False, True])
def test_h2_rows_that_one_run_leaves_out(masked):
    frames = {name: hospital(k).assign(lab=1.0 + hospital(k).dose ** 2) for k, name in enumerate(NAMES)}
    frames["north"].loc[11, "lab"] = np.nan
    study = Study(frames)
    study.fit(Model("died ~ age", family="binomial"), masked)
    model = Model("died ~ age + lab", family="binomial", missing="drop")
    assert "north" in study.refuses(model, "rest on", masked)


def test_h2_a_row_that_changed_or_came_between_two_runs():
    study, model = Study(), Model("died ~ age", family="binomial")
    study.fit(model)
    study.frames["north"] = study.frames["north"].iloc[1:]
    assert "north" in study.refuses(model, "rest on")
    study.frames["north"] = hospital(0)
    study.frames["north"].loc[5, "age"] += 1
    assert "north" in study.refuses(model, "rest on")
    study.frames["north"] = hospital(0).sample(frac=1.0, random_state=3)
    study.fit(model)


def test_h3_budgets_outlive_processes():
    study = Study(tries=3)
    for column in ("age", "dose", "income"):
        study.fit(Model(f"died ~ {column}", family="binomial"))
    assert set(study.refuses(Model("died ~ sex", family="binomial"), "at most 3 runs")) == set(NAMES)


def test_a_ledger_that_is_put_back_to_before_its_last_run_is_noticed_by_the_others():
    study = Study()
    study.fit(Model("died ~ age", family="binomial"))
    path = study.homes["north"].ledger.path
    before = path.read_bytes()
    study.fit(Model("died ~ dose", family="binomial"))
    path.write_bytes(before)
    again = Ledger(path)
    study.homes["north"] = Home(study.homes["north"].key, again)
    reasons = study.refuses(Model("died ~ sex", family="binomial"), "must not lose lines; that of site 'north'")
    assert set(reasons) == {"north", "south", "west"}


def test_a_ledger_that_was_deleted_is_noticed_however_long_the_new_one_has_grown():
    """The others see that it is no shorter, and tell the site how far it was."""
    study = Study()
    study.fit(Model("died ~ age", family="binomial"))
    ledger = study.homes["north"].ledger
    length = ledger.length
    ledger.path.unlink()
    again = Ledger(ledger.path)
    while again.length <= length:
        again.consent(given=True)
    study.homes["north"] = Home(study.homes["north"].key, again)
    reasons = study.refuses(Model("died ~ dose", family="binomial"), "and not the same. Put back")
    assert set(reasons) == {"north"}


def test_h4_knots_and_thresholds_have_two_digits():
    study = Study()
    for formula in (
        "died ~ ns(income, knots=[22345.67], bounds=[0, 99000])",
        "died ~ I(income * 1.0172524e-09 + 1000000000000 - 1000000000000)",
        "died ~ I((income - 22345.67) ** 3)",
    ):
        with pytest.raises(ValueError, match=r"two digits|formula"):
            study.fit(Model(formula, family="binomial"))
    study.fit(Model("died ~ ns(age, knots=[50, 60], bounds=[20, 100])", family="binomial"))


def test_h4_a_refusal_of_splines_does_not_say_which():
    """Ten splines in one formula would be ten answers."""
    study = Study()
    terms = " + ".join(f"ns(income, knots=[{k}000], bounds=[0, 990000])" for k in (24, 47, 90, 95, 97))
    reasons = study.refuses(Model(f"died ~ {terms}", family="binomial"), "knots")
    of_knots = [words for words in reasons["north"] if "knots" in words]
    assert len(of_knots) == 1
    assert of_knots[0].count("ns(") >= 3


def test_one_row_in_two_columns_or_with_nearly_all_of_a_column():
    frames = {name: hospital(k) for k, name in enumerate(NAMES)}
    for own in frames.values():
        own["twin"], own["gift"] = own["sex"], np.random.default_rng(5).uniform(0, 1, len(own))
    frames["north"].loc[3, "twin"] = 1 - frames["north"].loc[3, "sex"]
    frames["north"].loc[4, "gift"] = 1e6
    study = Study(frames)
    for formula in ("died ~ sex + twin", "died ~ gift", "gift ~ age", "died ~ age + offset(gift)"):
        family = "binomial" if formula.startswith("died") else "gaussian"
        assert "north" in study.refuses(Model(formula, family=family), "rest on|must count|outweigh all others")
