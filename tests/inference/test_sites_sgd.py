"""A fit between sites: the same numbers as on the pooled frame, and nothing that tells a row."""

import io
import json
from datetime import datetime
from functools import partial

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.inference.federated.coordinator import agreed_levels
from fedgauss.inference.federated.coordinator import fit_sites as fit_any
from fedgauss.inference.federated.lines import decoded, encoded, order_line, serve_lines
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site
from site_rows import Channel, asked_of, own

fit_sites = partial(fit_any, solver="sgd")
by_sgd = partial(fg.fit, solver="sgd")
RNG = np.random.default_rng(3)
SIZES = {"a": 60, "b": 60, "c": 150}  # sites of one size share their programs
N = sum(SIZES.values())
X = RNG.normal(size=(N, 2))
WARD = RNG.choice(["north", "south", "east"], N)
SIGNAL = 0.3 + X @ [0.6, -0.4] + 0.5 * (WARD == "south")
FRAME = pd.DataFrame(
    {
        "age": 50 + 10 * X[:, 0],
        "dose": X[:, 1],
        "ward": WARD,
        "died": (RNG.random(N) < 1 / (1 + np.exp(-SIGNAL))).astype(int),
        "cost": 1000 + 200 * SIGNAL + 100 * RNG.normal(size=N),
        "h": np.repeat(list(SIZES), list(SIZES.values())),
    }
)


MODEL = asked_of(target="died", family="logistic", features=["age"])
ORDERED = pd.CategoricalDtype(["south", "north", "east"])


@pytest.fixture(scope="module")
def fitted():
    """All columns, which come in another order at site b; wards have an order of their own."""
    frame = FRAME.drop(columns="cost").astype({"ward": ORDERED})
    channel = Channel(frame)
    channel.sites[1] = Site(own(frame, "b").iloc[:, ::-1])
    return channel, fit_sites(channel.ask, channel.names, "died", "logistic"), frame


def test_sites_give_what_the_pooled_frame_gives(fitted):
    _, found, frame = fitted
    pooled = by_sgd(frame, "died", "h", "logistic")
    assert found.names == pooled.names == ("const", "age", "dose", "ward[T.north]", "ward[T.east]")
    np.testing.assert_array_less(np.abs(found.params - pooled.params) / pooled.std_errors, 1e-3)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-3, atol=1e-9)
    assert found.facts == pooled.facts
    assert found.heterogeneity.statistic == pytest.approx(pooled.heterogeneity.statistic, rel=0.03)


@pytest.mark.study
@pytest.mark.parametrize(
    ("target", "family", "formula"),
    [
        ("cost", "linear", "cost ~ age + C(ward)"),
        ("ward", "one_versus_rest", None),
        ("cost", "huber", "cost ~ dose"),
    ],
    ids=["linear", "one_versus_rest", "huber"],
)
def test_other_families_too(target, family, formula):
    frame = pd.concat([FRAME] * 3)  # nine parameters of three classes need 18 rows in the burn-in of every site
    frame = frame.assign(cost=frame.cost / 200) if family == "huber" else frame
    features = ["age", "dose"] if formula is None else None
    channel = Channel(frame)
    found = fit_sites(channel.ask, channel.names, target, family, features, formula)
    pooled = by_sgd(frame, target, "h", family, features, formula)
    assert found.names == pooled.names
    np.testing.assert_array_less(np.abs(found.params - pooled.params) / pooled.std_errors, 1e-3)
    np.testing.assert_allclose(found.std_errors, pooled.std_errors, rtol=1e-3)


def test_a_site_can_be_put_away_between_two_orders(fitted):
    """As in frameworks that start a process for each message: the same replies, to the bit."""
    frame, said = own(FRAME, "a"), []
    others = Channel(FRAME)

    def ask(order, contents):
        replies = others.ask(order, contents)
        state = decoded(encoded(kept[-1])) if kept else None
        site = Site(frame) if state is None else Site.restored(frame, state)
        said.append((encoded(site.answer(order, decoded(encoded(contents[0])))), encoded(replies[0])))
        kept.append(site.state())
        return replies

    kept: list = []
    fit_sites(ask, others.names, "died", "logistic", ["age", "dose", "ward"])
    assert all(ours == theirs for ours, theirs in said)


def test_no_row_of_data_leaves_a_site(fitted):
    """Neither a value of a column nor a row of standardised ones is among the numbers said, and no reply has N numbers.

    Levels of a column and the 0 and 1 of its sums aside: ages, doses and their standardised values are all distinct.
    """
    numbers: list[float] = []
    for order, texts in fitted[0].said:
        for name, value in ((name, value) for text in texts for name, value in decoded(text).items()):
            if isinstance(value, np.ndarray):
                assert value.size <= 25, (order, name)  # d x d, d = 5
                numbers += value.ravel().tolist()
    said = np.array(numbers)
    for column in ("age", "dose"):
        raw = FRAME[column].to_numpy()
        for values in (raw, (raw - raw.mean()) / raw.std()):
            nearest = np.abs(said[:, None] - values[None]).min(axis=0)
            assert nearest.min() > 1e-9  # a maximum, say, would be a value of somebody


def test_what_is_said_is_what_a_site_says_it_says(fitted):
    said = [(order, frozenset(decoded(texts[0]))) for order, texts in fitted[0].said]
    assert said[:6] == [
        ("describe", {"rows", "dropped", "levels"}), ("levels", {"needed"}),
        ("design", {"names", "sums", "response", "marks"}), ("squares", {"squares", "response"}),
        ("shape", {"triangle", "overlaps"}), ("begin", {"hessian"}),
    ]  # fmt: skip
    assert set(said[6:-1]) == {
        ("advance", frozenset({"theta"})),
        ("advance", frozenset()),
        ("report", frozenset({"hessian_sum"})),
    }
    assert said.count(("advance", frozenset())) == 1  # after the burn-in, between two mixings
    assert said[-1] == ("report", {"gradient_sum", "square_sum", "hessian_sum", "average"})


def changed(**values):
    return lambda reply: reply | values


def huge_gradients(reply):
    """A sum that the squares of its terms do not allow; the fit used to be of NaN."""
    return reply | {"gradient_sum": np.full(5, 1e12)} if "gradient_sum" in reply else reply


WIDE, MINUS = np.zeros((2, 2)), -np.eye(5)


@pytest.mark.parametrize(
    ("order", "change", "message"),
    [
        ("describe", lambda reply: {}, "'rows', 'dropped' and 'levels' must be there"),
        ("describe", changed(rows="x"), "'rows' must be a whole number from 1"),
        ("describe", changed(rows=10**400), "'rows' must be a whole number from 1"),
        ("describe", changed(levels=[]), "'levels' must be the levels of every column"),
        ("describe", changed(levels={"age": [["nested"]]}), "'levels' must be the levels of every column"),
        ("design", changed(sums=np.zeros(1)), r"'sums' must be an array of p numbers .* \(p = 4\); got an array"),
        ("design", changed(response="x"), "'response' must be a number .*; got a value of type str"),
        ("squares", changed(squares=-np.ones(4)), "'squares' must be an array of p numbers from 0 to"),
        ("shape", changed(triangle=WIDE), "'triangle' must be"),
        ("shape", changed(overlaps=[]), "'overlaps' must be a list of s truths"),
        ("begin", changed(hessian=MINUS), "'hessian' must be a symmetric matrix"),
        ("advance", lambda reply: {}, "'theta' must be there"),
        ("advance", changed(theta=np.full(5, 1e300)), "'theta' must be an array of d numbers"),
        ("report", changed(hessian_sum=WIDE), "'hessian_sum' must be"),
        ("report", changed(count=7), "'count' must not be there"),
        ("report", huge_gradients, "'gradient_sum' must be a sum of .* gradients whose squares"),
    ],
)  # fmt: skip
def test_a_wrong_reply_is_refused_with_the_name_of_the_site(fitted, order, change, message):
    """What the sites of the fit said is said again, but for one reply of site b."""
    said = iter(fitted[0].said)

    def ask(asked, contents):
        replies = [decoded(text) for text in next(said)[1]]
        return [replies[0], change(replies[1]), replies[2]] if asked == order else replies

    with pytest.raises(ValueError, match=f"site 'b' sent a wrong reply to {order!r}: {message}"):
        fit_sites(ask, fitted[0].names, "died", "logistic")


@pytest.mark.parametrize("how_many", [30, pytest.param(2_000, marks=pytest.mark.study)])
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value", "ignore:divide by zero")
def test_a_mutated_reply_gives_a_finite_fit_or_is_refused(fitted, how_many):
    """One number of one reply of site b is another, from 1e-30 to 1e30 times as large or more."""
    rng, counts = np.random.default_rng(12), {"refused": 0, "taken": 0}
    for _ in range(how_many):
        said, at = iter(fitted[0].said), int(rng.integers(len(fitted[0].said)))
        place = iter(range(10**6))

        def ask(asked, contents, said=said, at=at, place=place):
            replies = [decoded(text) for text in next(said)[1]]
            numbers = [name for name, value in replies[1].items() if isinstance(value, np.ndarray) and value.size]
            if next(place) == at and numbers:
                array = replies[1][str(rng.choice(numbers))]
                array.flat[rng.integers(array.size)] = rng.choice([-1.0, 1.0]) * 10.0 ** rng.uniform(-30, 30)
            return replies

        try:
            found = fit_sites(ask, fitted[0].names, "died", "logistic")
        except ValueError as error:
            assert str(error).isprintable()  # noqa: PT017
            counts["refused"] += 1
            continue
        counts["taken"] += 1
        assert np.isfinite(found.params).all()
        assert np.isfinite(found.cov).all()
    assert min(counts.values()) > 0.05 * how_many


def test_control_characters_of_a_site_reach_no_terminal(fitted):
    with pytest.raises(ValueError, match=r"site 'a': \\x1b\[31mred") as raised:
        fit_sites(lambda order, contents: [{"error": "\x1b[31mred\x07"}] * 3, list("abc"), "died")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("change", "asked", "message"),
    [
        ({}, {"target": "dead"}, "site 'a': target must name a column of the frame; got 'dead'"),
        ({"age": None}, {}, r"site 'a': values must not be missing; they are in 'age' \(60\)"),
        ({"age": 3.0}, {}, r"columns must vary; column 'age' is constant \(3\)"),
        ({"dose": FRAME.age * 2 + 1}, {}, "columns must not be collinear"),
        ({"died": 1}, {}, "is constant"),
        ({}, {"sync_every": 1000}, "sync_every must be at most the 90 steps of a pass; got 1000"),
        ({}, {"least_rows": 80}, "site 'a': this site takes part with at least 80 rows; it has 60"),
    ],
    ids=["column", "missing", "constant", "collinear", "target", "sync", "rows"],
)
def test_bad_input_is_refused_by_the_site_or_by_who_asks(change, asked, message):
    frame = FRAME.assign(**change)
    options = {"target": "died", "family": "logistic", "features": ["age", "dose", "ward"]} | asked
    channel = Channel(frame, Policy(least_rows=options.pop("least_rows", 10)))
    with pytest.raises(ValueError, match=message):
        fit_sites(channel.ask, channel.names, **options)


ONE, TWO, START = np.zeros(1), np.eye(2), np.zeros(2)
LEVELS = {"died": None, "age": None}
NO_MEANS = {"means": np.zeros(0), "sds": np.zeros(0)}  # which no formula needs here
PLAN = {
    "means": ONE, "scales": np.ones(1), "about": None, "n_steps": 60, "sync_every": 10, "seed": 0, "start": START,
    "warm": 60, "number": 0, "share": 1.0,
}  # fmt: skip
PREPARED = [
    ("describe", MODEL),
    ("levels", {"levels": LEVELS, "total": N}),
    ("design", NO_MEANS),
    ("squares", {"means": ONE, "response": 0.0}),
    ("shape", {"means": ONE, "scales": np.ones(1)}),
]
FIRST = {"until": 10, "matrix": TWO}


@pytest.fixture
def site():
    return Site(own(FRAME, "a"))


@pytest.mark.parametrize(
    ("after", "order", "content", "message"),
    [
        (0, "levels", {"levels": LEVELS, "total": N}, "orders must come in turn, once each; describe or keys is due"),
        (0, "describe", {}, "'target', 'family', 'link', 'features', 'formula' and 11 more must be there"),
        (0, "describe", MODEL | {"name": "z"}, "a site must be among the sites of its fit"),
        (1, "describe", MODEL, "orders must come in turn, once each; levels is due"),
        (1, "levels", {"levels": LEVELS | {"age": []}, "total": N}, "'levels' must be the levels of every column"),
        (1, "levels", {"levels": {"died": None, "ward": ["x"]}, "total": N}, "levels must be those of the columns"),
        (1, "levels", {"levels": LEVELS | {"age": ["x"]}, "total": N}, "the levels of 'age' must be those of all"),
        (2, "spread", {"means": ONE}, "'means' must be an array of m numbers"),
        (2, "design", {"means": ONE, "sds": ONE}, "'means' must be an array of m numbers"),
        (3, "squares", {"means": np.zeros((1, 1, 1)), "response": 0.0}, "'means' must be an array of p numbers"),
        (3, "squares", {"means": ONE, "response": np.zeros(60)}, "'response' must be a number"),
        (4, "shape", {"means": ONE, "scales": ONE}, "'scales' must be an array of p numbers above 0"),
        (5, "begin", PLAN | {"start": np.zeros(7)}, "'start' must be an array of d numbers"),
        (5, "begin", PLAN | {"start": np.ones(2)}, "a run starts from the model with an intercept alone"),
        (5, "begin", PLAN | {"eta": np.ones(60)}, "'eta' must not be there"),
        (5, "begin", PLAN | {"burn_in": 1}, "'burn_in' must not be there"),
        (5, "begin", PLAN | {"sync_every": 4}, "at least 5 rows must be read between two synchronisations"),
        (5, "begin", PLAN | {"warm": 1}, "the Hessian of the warm-up must be of at least 10 rows"),
        (5, "begin", PLAN | {"warm": 13}, "warm-up and burn-in must read the same rows, or differ in at least 5"),
        (5, "begin", PLAN | {"warm": 61}, "warm-up and burn-in must read the same rows, or differ in at least 5"),
        (5, "advance", FIRST, "orders must come in turn, once each; begin is due"),
    ],
)  # fmt: skip
def test_orders_that_would_tell_of_single_rows_are_refused(site, after, order, content, message):
    for ready, about in PREPARED[:after]:
        assert "error" not in site.answer(ready, about)
    assert message in site.answer(order, content)["error"]


def test_a_run_is_one_run_and_its_steps_are_not_for_others_to_choose(site):
    for order, content in [*PREPARED, ("begin", PLAN)]:
        assert "error" not in site.answer(order, content)
    assert site.begun
    theta = {"theta": START}

    def refused(order, content):
        return site.answer(order, content).get("error", "")

    assert "a site takes part in one run" in refused("begin", PLAN)
    assert "a site takes part in one run" in refused("describe", MODEL)
    assert "a site reports after the burn-in and at the end" in refused("report", {})
    assert "a site stops at synchronisations" in refused("advance", FIRST | {"until": 1})
    assert "a site stops at synchronisations" in refused("advance", FIRST | {"until": 60})
    assert "'theta' must not be there" in refused("advance", FIRST | theta)
    assert "'matrix' must be an array" in refused("advance", FIRST | {"matrix": np.eye(3)})
    assert set(site.answer("advance", FIRST)) == {"theta"}
    assert "a site stops at synchronisations" in refused("advance", {"until": 10} | theta)  # these rows once more
    assert "'matrix' must not be there" in refused("advance", {"until": 12} | theta | {"matrix": TWO})
    assert site.answer("advance", {"until": 12} | theta) == {}
    assert set(site.answer("report", {})) == {"hessian_sum"}
    assert "'theta' must not be there" in refused("advance", {"until": 20} | theta | {"matrix": TWO})
    assert set(site.answer("advance", {"until": 20, "matrix": TWO})) == {"theta"}
    assert "the run diverged" in refused("advance", {"until": 30, "theta": np.full(2, 3e38)})
    assert "error" in site.answer("advance", {"until": 40} | theta)  # sums would be over what is left
    assert "a site reports after the burn-in and at the end" in refused("report", {})


def test_a_begin_that_fails_is_not_tried_again(site, monkeypatch):
    def fails(*inputs):
        raise RuntimeError("row 0 is 53")

    monkeypatch.setattr("fedgauss.inference.federated.sgd_site.warm_hessians", fails)
    for order, content in PREPARED:
        site.answer(order, content)
    assert site.answer("begin", PLAN) == {"error": "the order 'begin' failed at this site (RuntimeError)."}
    assert "a site takes part in one run" in site.answer("begin", PLAN | {"seed": 1})["error"]


def test_small_sites_are_told_how_many_rows_would_be_enough():
    frame = FRAME.groupby("h").head(10)
    channel = Channel(frame)
    with pytest.raises(ValueError, match=r"site 'a': the burn-in must read at least 10 .* 50 rows would be enough"):
        fit_sites(channel.ask, channel.names, "cost", features=["age"], sync_every=5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            {"target": "age", "features": ["dose"]},
            "the target 'age' must suit the family 'logistic', which needs 0 and 1; it does not",
        ),
        (
            {"target": "age", "features": ["cost"], "trials": "dose"},
            "the family 'logistic', which needs whole numbers from 0 to the trials of their row; it does not",
        ),
        (
            {"target": "dose", "family": "poisson"},
            "the target 'dose' must suit the family 'poisson', which needs counts; it does not",
        ),
        (
            {"target": "cost", "family": "huber"},
            "'huber', which needs numbers whose median absolute deviation is at most 6.725, for its threshold 1.345",
        ),
    ],
    ids=["logistic", "trials", "poisson", "huber"],
)
def test_errors_quote_no_row(site, model, message):
    model = MODEL | model
    levels = site.answer("describe", model)["levels"]
    assert "error" not in site.answer("levels", {"levels": levels, "total": N})
    error = site.answer("design", NO_MEANS)["error"]
    assert message in error
    assert not any(repr(value)[:5] in error for name in ("age", "dose", "cost") for value in own(FRAME, "a")[name])


def test_a_value_that_sets_a_few_rows_apart_is_refused():
    """Sums of products with a column that is 1 for one patient and 0 for all others are that patient's row."""
    rare = own(FRAME, "a").assign(rare=(np.arange(60) < 4).astype(float))
    assert "in 'rare' fewer do" in Site(rare).answer("describe", MODEL | {"features": ["age", "rare"]})["error"]
    rare["rare"] = (np.arange(60) < 5).astype(float)
    assert "error" not in Site(rare).answer("describe", MODEL | {"features": ["age", "rare"]})


@pytest.mark.parametrize("formula", ["died ~ C(age)", "died ~ name"])
def test_columns_whose_levels_are_single_rows_are_refused(formula):
    site = Site(own(FRAME, "a").assign(name=[f"patient {i}" for i in range(60)]))
    reply = site.answer("describe", MODEL | {"features": None, "formula": formula})
    assert "levels must have at least 5 rows each" in reply["error"]
    assert "patient" not in reply["error"]
    assert "describe or keys is due" in site.answer("levels", {"levels": {}, "total": N})["error"]  # nothing is left


def test_a_site_may_keep_columns_to_itself():
    reply = Site(FRAME, Policy(columns=("died", "dose"))).answer("describe", MODEL)
    assert "features must name a column of the frame; got 'age'" in reply["error"]
    with pytest.raises(ValueError, match="the policy names the column 'nope', which the table does not have"):
        Site(FRAME, Policy(columns=("died", "nope")))


@pytest.mark.parametrize("some", [pd.to_datetime(["2020-01-01", "2021-01-01"]), ["a", 1]], ids=["dates", "mixed"])
def test_categories_that_cannot_be_compared_are_refused_in_words(some):
    days = pd.Categorical(list(some) * 30)
    reply = Site(own(FRAME, "a").assign(day=days)).answer("describe", MODEL | {"features": ["day"]})
    assert "those of 'day' are not. Make them text" in reply["error"]


@pytest.mark.parametrize(
    ("told", "levels"),
    [
        ([["b", "a"], ["b", "a"]], ["b", "a"]),
        ([["b"], ["b", "c", "a"], ["b", "a"]], ["b", "c", "a"]),
        ([["low", "high"], ["low", "mid"], ["mid", "high"]], ["low", "mid", "high"]),
        ([["b", "a"], ["a", "b"]], ["a", "b"]),
        ([["a", "c"], ["b"]], ["a", "b", "c"]),
        ([[False, True], [True]], [False, True]),
        ([[0, 1, 2], [0.0, 0.5, 1.0]], [0.0, 0.5, 1.0, 2.0]),
        ([[0, 1], [1.0, 2.0]], [0, 1, 2]),
        ([None, None], None),
    ],
)
def test_levels_of_all_sites_keep_the_order_that_all_agree_on(told, levels):
    (found,) = agreed_levels([{"w": own} for own in told], list("abc")[: len(told)]).values()
    assert found == levels
    assert levels is None or [type(level) for level in found] == [type(level) for level in levels]


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([["a"], None], "it holds text at 'a', numbers at 'b'"),
        ([[True, False], ["True", "False"]], "it holds true and false at 'a', text at 'b'"),
        ([[0, 1], ["0", "1"]], "it holds categories of numbers at 'a', text at 'b'"),
    ],
)
def test_columns_of_two_kinds_are_refused(told, message):
    with pytest.raises(ValueError, match=f"column 'w' must be of one kind; {message}"):
        agreed_levels([{"w": own} for own in told], ["a", "b"])


def test_a_site_answers_nonsense_politely_and_goes_on(site):
    replies, log = io.StringIO(), io.StringIO()
    lines = ["not json\n", "[1]\n", '{"order":"describe"}\n', '{"order":"explode","content":{}}\n', "[" * 5000 + "\n"]
    lines += ['{"order":"\\ud800","content":{}}\n', '{"order":"squares","content":{"response":NaN}}\n']
    lines += ['{"order":"squares","content":{"response":1e999}}\n']
    lines += [order_line("advance", {"until": 3}), order_line("describe", MODEL)]
    serve_lines(site, lines, replies, log)
    heard = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert all("error" in reply for reply in heard[:-1])
    assert heard[-1]["rows"] == 60
    logged = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["sent"] for line in logged] == heard
    assert logged[-1]["asked"] == MODEL
    assert datetime.fromisoformat(logged[-1]["time"]).tzinfo is not None


@pytest.mark.parametrize(
    "value",
    [
        {"$array": [[2], [1.0]]},
        {"$array": [[1], ["x"]]},
        {"$array": [[-1], [1.0]]},
        {"$array": [[1], [[1.0]]]},
        {"$array": [[1], [10**400]]},
        {"$array": [[2**32, 2**32], []]},
        {"$array": [[1], [1.0], [1.0]]},
        {"$array": 1.0},
        {"$words": [[1], "AAAA"]},
    ],
    ids=["short", "text", "negative", "nested", "400 digits", "overflow", "three", "number", "words"],
)
def test_arrays_that_are_none_are_refused(value):
    with pytest.raises(ValueError, match="'theta' must hold"):
        decoded(json.dumps({"theta": value}))


@pytest.mark.parametrize(
    "names", [("shape", "values"), ("shape", "words"), ("$array", "$words"), ("$", "$$array"), ("$array",), ("$words",)]
)
def test_columns_of_any_names_can_be_told(names):
    """Of a table with just the columns `shape` and `values`, their levels used to be taken for an array."""
    told = {"levels": dict.fromkeys(names), "m": np.arange(3.0), "w": np.arange(3, dtype=np.uint64)}
    heard = decoded(encoded(told))
    assert heard["levels"] == told["levels"]
    np.testing.assert_array_equal(heard["m"], told["m"])
    np.testing.assert_array_equal(heard["w"], told["w"])
    with pytest.raises(ValueError, match="a name that begins with \\$ must begin with two"):
        decoded('{"levels": {"$array": null, "x": null}}')


def test_a_table_of_the_columns_shape_and_values_can_be_federated():
    frame = pd.DataFrame({"shape": FRAME["age"], "values": FRAME["died"], "h": FRAME["h"]})
    channel = Channel(frame)
    found = fit_any(channel.ask, channel.names, "values", family="binomial")
    np.testing.assert_allclose(found.params, fg.fit(frame, "values", "h", family="binomial").params, rtol=1e-9)


def test_numbers_keep_every_bit():
    values = RNG.normal(size=(3, 4)) * 10.0 ** RNG.integers(-200, 200, (3, 4))
    np.testing.assert_array_equal(decoded(encoded({"m": values}))["m"], values)
