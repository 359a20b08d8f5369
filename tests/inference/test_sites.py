"""A fit between sites: the same numbers as on the pooled frame, and nothing that tells a row."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import order_line, serve_lines
from fedgauss.inference.federated.messages import decoded, encoded
from fedgauss.inference.federated.site import Site

RNG = np.random.default_rng(3)
SIZES = {"a": 60, "b": 90, "c": 120}
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


class Channel:
    """Sites that hear and say nothing but lines of JSON; all that they say is kept."""

    def __init__(self, frame=FRAME, least_rows=10):
        self.names = list(SIZES)
        self.sites = [Site(frame[frame.h == name].drop(columns="h"), least_rows) for name in self.names]
        self.said = []

    def ask(self, order, contents):
        texts = [
            encoded(site.answer(order, decoded(encoded(content))))
            for site, content in zip(self.sites, contents, strict=True)
        ]
        self.said += [(order, text) for text in texts]
        return [decoded(text) for text in texts]


@pytest.fixture(scope="module")
def fitted():
    channel = Channel()
    return channel, fit_sites(channel.ask, channel.names, "died", "logistic", ["age", "dose", "ward"])


def test_sites_give_what_the_pooled_frame_gives(fitted):
    found, pooled = fitted[1], fg.fit(FRAME, "died", "h", "logistic", ["age", "dose", "ward"])
    assert found.names == pooled.names
    np.testing.assert_allclose(found.params, pooled.params, atol=1e-4 * pooled.std_errors.min())
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(found.bias, pooled.bias, atol=1e-3)
    assert found.heterogeneity.statistic == pytest.approx(pooled.heterogeneity.statistic, rel=1e-3)
    assert found.facts == pooled.facts


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
    frame = FRAME.assign(cost=FRAME.cost / 200) if family == "huber" else FRAME
    features = ["age", "dose"] if formula is None else None
    channel = Channel(frame)
    found = fit_sites(channel.ask, channel.names, target, family, features, formula)
    pooled = fg.fit(frame, target, "h", family, features, formula)
    assert found.names == pooled.names
    np.testing.assert_allclose(found.params, pooled.params, atol=1e-3 * pooled.std_errors.min())
    np.testing.assert_allclose(found.std_errors, pooled.std_errors, rtol=1e-3)


def test_a_site_can_be_put_away_between_two_orders(fitted):
    """As in frameworks that start a process for each message: the same replies, to the bit."""
    frame, said = FRAME[FRAME.h == "a"].drop(columns="h"), []
    others = Channel()

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
    channel, _ = fitted
    numbers: list[float] = []
    for order, text in channel.said:
        for name, value in decoded(text).items():
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
    said = {(order, name) for order, text in fitted[0].said for name in decoded(text)}
    assert said == {
        ("describe", "rows"), ("describe", "levels"),
        ("design", "names"), ("design", "constant"), ("design", "classes"), ("design", "sums"),
        ("design", "response"), ("design", "marks"),
        ("squares", "squares"), ("squares", "response"), ("shape", "triangle"), ("shape", "overlaps"),
        ("begin", "hessian"), ("advance", "theta"),
        *(("report", name) for name in ("gradient_sum", "square_sum", "hessian_sum", "place_sum", "count", "average")),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "asked", "message"),
    [
        ({}, {"target": "dead"}, "site 'a': target must name a column of the frame; got 'dead'"),
        ({"age": None}, {}, r"site 'a': values must not be missing; they are in 'age' \(60\)"),
        ({"age": 3.0}, {}, r"columns must vary; constant is 'age' \(3\)"),
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
    channel = Channel(frame, options.pop("least_rows", 10))
    with pytest.raises(ValueError, match=message):
        fit_sites(channel.ask, channel.names, **options)


MODEL = {"target": "died", "family": "logistic", "features": ["age"], "formula": None, "intercept": True}
PLAN = {
    "means": np.zeros(1), "scales": np.ones(1), "intercept": True, "about": None, "eta": np.full(60, 0.1),
    "n_steps": 60, "burn_in": 12, "sync_every": 10, "seed": 0, "start": np.zeros(2), "warm": 10, "number": 0,
    "share": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([("begin", PLAN | {"sync_every": 4})], "at least 5 rows must be read between two synchronisations"),
        ([("begin", PLAN | {"warm": 1})], "the Hessian of the warm-up must be of at least 10 rows"),
        ([("begin", PLAN), ("advance", {"until": 1})], "a site stops at synchronisations"),
        ([("begin", PLAN), ("report", {})], "a site reports after the burn-in and at the end"),
        ([("begin", PLAN), ("begin", PLAN)], "a site takes part in one run"),
        ([("begin", PLAN), ("describe", MODEL)], "a site takes part in one run"),
    ],
    ids=["mixing", "warm-up", "single steps", "early report", "again", "another model"],
)
def test_orders_that_would_tell_of_single_rows_are_refused(orders, message):
    site = Site(FRAME[FRAME.h == "a"].drop(columns="h"))
    levels = site.answer("describe", MODEL)["levels"]
    site.answer("design", {"levels": levels, "total": N})
    replies = [site.answer(order, content) for order, content in orders]
    assert message in replies[-1]["error"]


@pytest.mark.parametrize("formula", ["died ~ C(age)", "died ~ name"])
def test_columns_whose_levels_are_single_rows_are_refused(formula):
    own = FRAME[FRAME.h == "a"].drop(columns="h").assign(name=[f"patient {i}" for i in range(60)])
    reply = Site(own).answer("describe", MODEL | {"features": None, "formula": formula})
    assert "levels must have at least 5 rows each" in reply["error"]
    assert "patient" not in reply["error"]


def test_a_site_may_keep_columns_to_itself():
    reply = Site(FRAME, columns=["died", "dose"]).answer("describe", MODEL)
    assert "features must name a column of the frame; got 'age'" in reply["error"]


def test_columns_of_two_kinds_are_refused():
    channel = Channel()
    other = FRAME[FRAME.h == "b"].drop(columns="h").assign(ward=1.0)
    channel.sites[1] = Site(other)
    with pytest.raises(ValueError, match="column 'ward' must be of one kind; it holds numbers at 'b'"):
        fit_sites(channel.ask, channel.names, "died", "logistic", ["age", "ward"])


def test_a_site_answers_nonsense_politely_and_goes_on():
    site, replies, log = Site(FRAME[FRAME.h == "a"]), io.StringIO(), io.StringIO()
    model = {"target": "died", "family": "logistic", "features": ["age"], "formula": None, "intercept": True}
    lines = ["not json\n", "[1]\n", '{"order":"describe"}\n', '{"order":"explode","content":{}}\n', "[" * 5000 + "\n"]
    lines += [order_line("advance", {"until": 3}), order_line("describe", model)]
    serve_lines(site, lines, replies, log)
    heard = [json.loads(line) for line in replies.getvalue().splitlines()]
    assert all("error" in reply for reply in heard[:-1])
    assert heard[-1]["rows"] == 60
    logged = [json.loads(line)["sent"] for line in log.getvalue().splitlines()]
    assert logged == heard


@pytest.mark.parametrize(
    "value",
    [
        {"shape": [2], "values": [1.0]},
        {"shape": [1], "values": ["x"]},
        {"shape": [-1], "values": [1.0]},
        {"shape": [1], "values": [[1.0]]},
    ],
    ids=["short", "text", "negative", "nested"],
)
def test_arrays_that_are_none_are_refused(value):
    with pytest.raises(ValueError, match="'theta' must hold"):
        decoded(json.dumps({"theta": value}))


def test_numbers_keep_every_bit():
    values = RNG.normal(size=(3, 4)) * 10.0 ** RNG.integers(-200, 200, (3, 4))
    np.testing.assert_array_equal(decoded(encoded({"m": values}))["m"], values)
