"""Scripts of a coordinator that wants a row: each gives a site orders that it may give, and works with what is said.

The secret is row 7 of site a. A script succeeds if a number that it works out is a value of that row.
"""

import numpy as np
import pandas as pd
import pytest
from fedgauss.inference.federated import masks
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site

from site_rows import asked_of

RNG = np.random.default_rng(23)
N, SECRET = 120, 7
SMOKES = (np.arange(N) % 3 == 0).astype(int)
BUT_ONE = np.where(np.arange(N) == SECRET, 1 - SMOKES, SMOKES)
ROWS = pd.DataFrame(
    {
        "age": RNG.uniform(20, 90, N).round(2),
        "income": RNG.lognormal(10, 0.4, N).round(2),
        "dose": RNG.normal(size=N),
        "smokes": SMOKES,
        "smoked": BUT_ONE,
        "never": 1 - BUT_ONE,
        "ill": (RNG.random(N) < 0.4).astype(int),
        "cost": RNG.gamma(4.0, 50.0, N),
        "visits": RNG.poisson(3.0, N),
        "ones": 1.0,
        "all_but": np.where(np.arange(N) == SECRET, 2.0, 1.0),
        "but_four": np.where(np.arange(N) % 40 == SECRET, 0.0, RNG.uniform(1.0, 2.0, N)),
        "gap": np.where(np.arange(N) == SECRET, np.nan, RNG.normal(size=N)),
        "blood": np.array(["A", "B", "O"])[RNG.integers(0, 3, N)],
        "house": np.where(np.isin(np.arange(N), [SECRET, 50]), 0, np.arange(N) + 1),
        "region": np.where(np.arange(N) == SECRET, 1, 0),
    }
)
ROWS["near"] = ROWS.cost + np.where(np.arange(N) == SECRET, 1.0, 0.0)  # the cost, but for one row
ROWS["is_a"] = np.where(np.arange(N) == SECRET, 1.0 * (ROWS.blood != "A"), 1.0 * (ROWS.blood == "A"))
RICH = ROWS.assign(income=np.where(np.arange(N) == SECRET, 4e9, ROWS.income))


class Script:
    """Orders to one site, by a coordinator that says what it likes about the others; all that is said is kept."""

    def __init__(self, frame=ROWS, policy=None):
        self.frame, self.site, self.said = frame, Site(frame, policy), []

    def ask(self, order, **content):
        reply = decoded(encoded(self.site.answer(order, decoded(encoded(content)))))
        self.said.append(reply)
        if "error" in reply:
            raise PermissionError(reply["error"])
        return reply

    def begin(self, target, family="gaussian", **model):
        """All that comes before sums; the units are those of the rows."""
        told = self.ask("describe", **asked_of(target=target, family=family, **model))
        needs = len(self.ask("levels", levels=told["levels"], total=10 * N)["needed"])
        if needs:
            self.ask("spread", means=np.full(needs, 50.0))
        told = self.ask("design", means=np.full(needs, 50.0), sds=np.full(needs, 10.0))
        p = len(told["sums"])
        self.ask("squares", means=np.zeros(p), response=0.0)
        self.ask("units", means=np.zeros(p), scales=np.ones(p))
        return told

    def knows(self):
        """Values of the secret row among the numbers said, and among their differences, sums and quotients."""
        numbers = []
        for reply in self.said:
            for value in reply.values():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    numbers += value.ravel().tolist()
                elif isinstance(value, float | int) and not isinstance(value, bool):
                    numbers.append(float(value))
        told = np.array(numbers)[np.abs(numbers) > 1e-6] if numbers else np.ones(1)
        secrets = self.frame.loc[SECRET, ["age", "income", "dose", "cost"]].to_numpy(dtype=float)
        both = [op(told[:, None], told[None]).ravel() for op in (np.subtract, np.add, np.divide)]
        pairs = np.concatenate([told, *both])
        return [secret for secret in secrets if np.any(np.abs(pairs / secret - 1.0) < 1e-5)]


def refused(script, target, family="gaussian", **model):
    """Why, and nothing of the row is known."""
    with pytest.raises(PermissionError) as error:
        script.begin(target, family, **model)
    words = str(error.value)
    assert script.knows() == []
    values = script.frame.select_dtypes("number").loc[SECRET].tolist()
    assert not any(repr(value) in words for value in values if abs(value) > 5)
    return words


def test_an_honest_model_is_answered_and_knows_no_row():
    script = Script()
    script.begin("cost", features=["age", "income", "dose", "smokes"])
    script.ask("sums", theta=np.zeros(5))
    script.ask("final", theta=np.array([200.0, 0.0, 0.0, 0.0, 0.0]))
    script.ask("own", theta=np.zeros(5))
    assert script.knows() == []


def test_without_the_rules_two_columns_that_differ_in_one_row_are_that_row():
    """What the site is kept from: the sums of an honest fit, worked out here."""
    x = np.column_stack([np.ones(N), ROWS[["age", "income", "smokes", "smoked"]]])
    sums = x.T @ x
    stolen = np.abs(sums[4] - sums[3])[1:3]
    np.testing.assert_allclose(stolen, ROWS.loc[SECRET, ["age", "income"]].to_numpy(dtype=float), rtol=1e-9)


@pytest.mark.parametrize("values", [[0, 43217.25], ["no", "a rare disease"]], ids=["numbers", "text"])
@pytest.mark.parametrize("rows", [N, 2], ids=["many rows", "two rows"])
def test_questions_about_the_family_quote_no_single_row(values, rows):
    """A target of two values without a family is asked about: with its values only where many rows have each."""
    target = [values[i == SECRET % rows] for i in range(rows)]
    said = Site(ROWS[:rows].assign(status=target)).answer("describe", asked_of(target="status", features=["age"]))
    assert list(said) == ["error"]
    assert not any(str(value) in said["error"] for value in values if value != 0)


@pytest.mark.parametrize(
    ("target", "model", "message"),
    [
        ("cost", {"features": ["age", "income", "smokes", "smoked"]}, "'smokes' and 'smoked' do not"),
        ("cost", {"features": ["age", "smokes", "never"]}, "'smokes' and 'never' do not"),
        ("cost", {"features": ["age", "smokes", "never"], "intercept": False}, "'smokes' and 'never' do not"),
        ("cost", {"formula": "cost ~ age + age:smokes + age:smoked"}, "must be non-zero in at least 5 rows"),
        ("cost", {"formula": "cost ~ age*C(smokes) + C(smoked)"}, "do not"),
        ("smoked", {"features": ["age", "income", "smokes"], "family": "binomial"}, "'smokes' and 'smoked' do not"),
        ("cost", {"features": ["age", "near"]}, "one of 'near' and 'cost'"),
        ("cost", {"features": ["age", "income"], "offset": "near"}, "one of 'cost' and 'the offset'"),
        ("cost", {"features": ["age"], "row_weights": "all_but"}, "in 'the row weights' fewer do"),
        ("cost", {"features": ["age"], "row_weights": "but_four"}, "no row must have weight 0 at this site, or"),
        ("cost", {"features": ["age"], "exposure": "all_but"}, "in 'the offset' fewer do"),
        ("blood", {"features": ["age", "is_a"], "family": "multinomial"}, "\"blood == 'A'\" do not"),
        ("cost", {"features": ["age", "region"]}, "in 'region' fewer do"),
        ("cost", {"formula": "cost ~ age + scale(region)"}, "in 'region' fewer do"),
        ("cost", {"features": ["age"], "cluster": "house"}, "rows must share their cluster with others"),
        ("cost", {"features": ["age"], "cluster": "region"}, "be outside of the largest cluster"),
    ],
)  # fmt: skip
def test_columns_that_differ_in_one_row(target, model, message):
    assert message in refused(Script(), target, **model)


@pytest.mark.parametrize(
    ("target", "model", "message"),
    [
        ("cost", {"features": ["age", "income"]}, "of 'income' one row makes up more"),
        ("cost", {"features": ["age", "income"], "intercept": False}, "of 'income' one row makes up more"),
        ("cost", {"formula": "cost ~ age + scale(income)"}, "of 'income' one row makes up more"),
        ("cost", {"formula": "cost ~ ns(income, df=3)"}, "of 'income' one row makes up more"),
        ("cost", {"formula": "cost ~ age:income"}, "of 'age:income' one row makes up more"),
        ("cost", {"features": ["age"], "row_weights": "income"}, "of the row weights one row makes up more"),
        ("cost", {"features": ["age"], "offset": "income"}, "of 'the offset' one row makes up more"),
        ("income", {"features": ["age"]}, "of 'income' one row makes up more"),
    ],
)  # fmt: skip
def test_a_value_that_dominates(target, model, message):
    """Also where nothing but its mean would be told before the design is: 'levels' is refused."""
    words = refused(Script(RICH), target, **model)
    assert message in words or "one of column 'income' does" in words  # the wild value is noticed by itself


def test_cells_of_one_row():
    frame = ROWS.assign(sex=(np.arange(N) < 60).astype(int), icu=np.isin(np.arange(N), [SECRET, *range(70, 95)]) * 1)
    words = refused(Script(frame), "cost", features=["age", "sex", "icu"])
    assert "cells of two columns must have at least 3 rows or none" in words
    assert "'sex' and 'icu'" in words


def test_a_value_cannot_be_searched_for_by_what_is_refused():
    """A spline is refused until five rows lie below its middle knot, which the coordinator moves: to the fifth age."""
    script = Script()
    told = script.ask("describe", **asked_of(target="cost", family="gaussian", formula="cost ~ ns(age, df=2)"))
    script.ask("levels", levels=told["levels"], total=10 * N)
    script.ask("spread", means=np.array([50.0]))
    words = []
    for knot in np.arange(20.0, 30.0, 0.01):
        spread = (knot + 1000.0) / 1.6449  # the lower bound is far below, the upper far above
        with pytest.raises(PermissionError) as error:
            script.ask("design", means=np.array([knot]), sds=np.array([spread]))
        words.append(str(error.value))
    assert ["between two knots" in word for word in words[:5]] == [True, True, True, False, False]
    assert all("tried at most 3 times" in word for word in words[3:])


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_parameters_that_single_out_rows(family):
    """Whoever guesses a row well can put nearly all weight on it. 90 tries, near and far: no sums of few rows come.

    The weighted mean of a column, an entry of X'WX over another, would be the row's value.
    """
    target = "visits" if family == "poisson" else "ill"
    script = Script()
    script.begin(target, family, features=["age", "dose"])
    row = ROWS.loc[SECRET, ["age", "dose"]].to_numpy(dtype=float)
    told, x = 0, ROWS[["age", "dose"]].to_numpy()
    for i in range(90):
        direction = RNG.normal(size=2) / [20.0, 1.0]
        steep = 10.0 ** RNG.uniform(-1, 3) * direction
        theta = np.array([-steep @ row + RNG.normal(), *steep])
        reply = script.ask("sums", theta=theta)
        information = reply["information"]
        if not information.any():
            assert not reply["score"].any()
            assert reply["log_likelihood"] <= -1e100
            continue
        told += 1
        means = information[0, 1:] / information[0, 0]
        spread = np.sqrt(np.maximum(np.diag(information)[1:] / information[0, 0] - means**2, 0.0))
        assert np.all(spread > 0.05 * x.std(axis=0)), i  # several rows, not one
        if "error" in (final := script.site.answer("final", {"theta": theta})):
            assert "singl" in final["error"] or "times" in final["error"] or "reveal" in final["error"]
    assert 5 < told < 85
    assert "at most 100 rounds" in script.site.answer("sums", {"theta": np.zeros(3)}).get("error", "at most 100 rounds")


def test_differences_of_two_runs(tmp_path):
    """The same sums over all rows and over all but one tell that one; a ledger refuses the second run."""
    everyone = {"features": ["age", "income"]}
    first, second = Script(), Script()
    whole = first.begin("cost", **everyone)["sums"]
    rest = second.begin("cost", features=["age", "income", "gap"], missing="drop")["sums"][:2]
    np.testing.assert_allclose(whole - rest, ROWS.loc[SECRET, ["age", "income"]].to_numpy(dtype=float), rtol=1e-9)

    policy = Policy(ledger=str(tmp_path / "answered.jsonl"))
    Script(policy=policy).begin("cost", **everyone)
    assert "of this run and the rows of the run of" in refused(
        Script(policy=policy), "cost", features=["age", "income", "gap"], missing="drop"
    )
    # Means for a formula leave before the design does: they are in the ledger too.
    early = Script(policy=policy)
    with pytest.raises(PermissionError, match="the difference of two runs would reveal single rows"):
        early.begin("cost", formula="cost ~ scale(age) + gap", missing="drop")
    assert [list(reply) for reply in early.said] == [["rows", "dropped", "levels"], ["error"]]
    # Nor may columns of two runs differ in one row.
    Script(policy=policy).begin("cost", features=["age", "smokes"])
    assert "'smoked' of this run and 'smokes' of the run of" in refused(
        Script(policy=policy), "cost", features=["age", "smoked"]
    )
    # Where a run is asked for again, to the last column, it is told again.
    Script(policy=policy).begin("cost", **everyone)


class Masked:
    """Three sites in a masked run, and a coordinator that says something else to each."""

    def __init__(self, policy=None):
        self.scripts = {name: Script(policy=policy) for name in "abc"}
        keys = {name: script.ask("keys", name=name)["public"] for name, script in self.scripts.items()}
        for script in self.scripts.values():
            script.ask("meet", run="run 1", publics=keys)
        self.round = 0
        model = {"target": "ill", "family": "binomial", "features": ["age", "dose"]}
        levels = {name: script.ask("describe", **asked_of(name, **model)) for name, script in self.scripts.items()}
        self.total("levels", levels=levels["a"]["levels"], total=3 * N)
        self.total("design", means=np.zeros(0), sds=np.zeros(0))
        self.total("squares", means=np.zeros(2), response=0.0)
        for script in self.scripts.values():
            script.ask("units", means=np.array([55.0, 0.0]), scales=np.array([20.0, 1.0]))

    def each(self, order, own=None, sites="abc", attempt=0, **content):
        self.round += attempt == 0
        masking = {"round": self.round, "attempt": attempt, "sites": list(sites)}
        return {
            name: self.scripts[name].ask(order, **{**content, **(own or {}).get(name, {})}, masking=masking)["masked"]
            for name in sites
        }

    def total(self, order, **content):
        return masks.total(list(self.each(order, **content).values()))


def test_masked_sites_tell_totals_and_nothing_else():
    run, theta = Masked(), np.zeros(3)
    honest = run.total("sums", theta=theta)
    assert honest["information"][0, 0] == pytest.approx(0.25 * 3 * N)
    with pytest.raises(ValueError, match="masks of 3 sites must cancel; they do not"):  # a at another parameter
        run.total("sums", own={"a": {"theta": np.array([0.1, 0.0, 0.0])}}, theta=theta)
    with pytest.raises(PermissionError, match="its own estimate would tell of them"):
        run.scripts["a"].ask("own", theta=np.zeros(3))
    with pytest.raises(PermissionError, match="sums of this run leave the site masked"):
        run.scripts["a"].ask("sums", theta=theta)
    run.round -= 2
    with pytest.raises(PermissionError, match="answers a round once for each attempt"):
        run.each("sums", theta=theta)
    run.round += 5
    with pytest.raises(PermissionError, match="a total must be over at least 2 sites"):
        run.each("sums", sites="a", theta=theta)
    with pytest.raises(PermissionError, match="sites must be those that still take part"):
        run.each("sums", sites=["a", "b", "z"], theta=theta)
    with pytest.raises(PermissionError, match="is no part of it"):
        run.scripts["a"].ask("describe", **asked_of(target="ill"))
    assert all(script.knows() == [] for script in run.scripts.values())


def test_a_coordinator_cannot_be_a_site_of_its_own_fit():
    """Its invented sites have keys, but names in 'describe' must be those that have met."""
    script = Script()
    public = script.ask("keys", name="a")["public"]
    others = {name: Script().ask("keys", name=name)["public"] for name in "bc"}
    script.ask("meet", run="run 1", publics={"a": public, **others})
    with pytest.raises(PermissionError, match="must be those that have met"):
        script.ask("describe", **asked_of(target="cost", sites=["a", "b"]))
    with pytest.raises(PermissionError, match="must be those that have met"):
        script.ask("describe", **asked_of("b", target="cost", sites=["a", "b", "c"]))


def test_a_site_that_is_said_to_be_lost_is_not_told_apart_where_drop_outs_are_refused():
    """Two totals at one parameter, with and without c, would be c's sums."""
    open_run, theta = Masked(), np.zeros(3)
    whole = open_run.total("sums", theta=theta)
    rest = masks.total(list(open_run.each("sums", sites="ab", theta=theta).values()))
    alone = open_run.scripts["c"].frame[["age"]].to_numpy()
    stolen = (whole["information"] - rest["information"])[0, 1] / 0.25
    np.testing.assert_allclose(stolen, ((alone - 55.0) / 20.0).sum(), rtol=1e-9)  # documented, and why there is a rule
    strict = Masked(Policy(drop_outs="refused"))
    strict.total("sums", theta=theta)
    with pytest.raises(PermissionError, match="this site does not go on without others"):
        strict.each("sums", sites="ab", theta=theta)
