"""An exact fit between sites: the pooled fit to rounding, from sums over all rows and nothing else."""

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.site import Site

RNG = np.random.default_rng(3)
SIZES = {"a": 60, "b": 60, "c": 150}
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

    def __init__(self, frame=FRAME):
        self.names = sorted(set(frame.h))
        self.sites = [Site(frame[frame.h == name].drop(columns="h")) for name in self.names]
        self.said = []

    def ask(self, order, contents):
        pairs = zip(self.sites, contents, strict=True)
        replies = [decoded(encoded(site.answer(order, decoded(encoded(content))))) for site, content in pairs]
        self.said.append((order, replies))
        return replies


@pytest.mark.parametrize(
    ("target", "family", "formula", "errors"),
    [
        ("died", "binomial", None, "HC0"),
        ("cost", "gaussian", "cost ~ age + C(ward)", "HC1"),
        ("cost", "gaussian", "cost ~ age + ward - 1", "site"),
        ("ward", "one_versus_rest", "ward ~ age + dose", "model"),
    ],
)
def test_sites_give_what_the_pooled_frame_gives(target, family, formula, errors):
    channel = Channel()
    found = fit_sites(channel.ask, channel.names, target, family, None, formula, errors=errors)
    pooled = fg.fit(FRAME, target, "h", family, None, formula, errors=errors)
    assert found.names == pooled.names
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-9, atol=1e-12 * np.abs(pooled.cov).max())
    assert found.facts == pooled.facts
    assert found.heterogeneity.statistic == pytest.approx(pooled.heterogeneity.statistic, rel=1e-9)
    assert [order for order, _ in channel.said[:5]] == ["describe", "levels", "design", "squares", "units"]
    assert len(channel.said) < 18


@pytest.fixture
def ready():
    """Site a, once it has answered what comes before the sums of a fit."""
    channel, orders = Channel(), []

    def ask(order, contents):
        orders.append((order, contents))
        if order == "final":
            raise KeyboardInterrupt
        return channel.ask(order, contents)

    with pytest.raises(KeyboardInterrupt):
        fit_sites(ask, channel.names, "died", "binomial", ["age", "dose"])
    return channel.sites[0], dict(orders)


def test_a_parameter_that_singles_out_rows_is_refused(ready):
    """Far along a direction all rows but those near a plane lose their weight: their sums would be a row's."""
    site, _ = ready
    for theta in ([0.0, 1e4, 0.0], [300.0, 500.0, 0.0]):
        reply = site.answer("sums", {"theta": np.array(theta)})
        assert reply["log_likelihood"] < -1e100
        assert not reply["score"].any()
        assert not reply["information"].any()
        assert "at least 5 rows must stand behind" in site.answer("final", {"theta": np.array(theta)})["error"]
    assert site.answer("sums", {"theta": np.zeros(3)})["information"].any()


def test_sums_are_not_told_for_ever(ready):
    site, _ = ready
    replies = [site.answer("sums", {"theta": np.array([0.0, 0.0, 1e-3 * i])}) for i in range(130)]
    assert "error" not in replies[50]
    assert "'sums' is answered at most 120 times in a fit" in replies[-1]["error"]
    assert "error" not in site.answer("final", {"theta": np.zeros(3)})
    assert "at most 3 times" in [site.answer("final", {"theta": np.zeros(3)}) for _ in range(3)][-1]["error"]


def test_what_belongs_to_another_run_is_refused(ready):
    site, _ = ready
    for order in ("describe", "begin", "advance", "units"):
        assert "is no part of it. Restart the site" in site.answer(order, {})["error"]
    assert "'theta' must be an array of d numbers" in site.answer("sums", {"theta": np.zeros(4)})["error"]


def test_a_site_with_few_rows_for_its_columns_takes_no_part():
    frame = pd.concat([FRAME[FRAME.h == "a"][:11], FRAME[FRAME.h != "a"]])
    frame = frame.assign(ward=np.where(np.arange(len(frame)) % 2, "north", "south"))
    wide = frame.assign(**{f"x{i}": RNG.normal(size=len(frame)) for i in range(4)})
    channel = Channel(wide)
    with pytest.raises(ValueError, match="site 'a': an exact fit of 7 parameters needs at least 14 rows at each site"):
        fit_sites(channel.ask, channel.names, "died", "binomial", ["age", "dose", "x0", "x1", "x2", "x3"])


def test_separable_classes_are_named_as_the_cause():
    frame = FRAME.assign(died=(FRAME.age > 50).astype(int))
    channel = Channel(frame)
    with pytest.raises(ValueError, match="'died' has no finite estimate"):
        fit_sites(channel.ask, channel.names, "died", "binomial", ["age", "dose"])


def test_a_site_can_be_put_away_between_two_orders():
    whole, parted = Channel(), Channel()

    def ask(order, contents):
        frames = [FRAME[FRAME.h == name].drop(columns="h") for name in parted.names]
        states = [decoded(encoded(site.state())) for site in parted.sites]
        parted.sites = [Site.restored(frame, state) for frame, state in zip(frames, states, strict=True)]
        return parted.ask(order, contents)

    found = fit_sites(ask, parted.names, "died", "binomial")
    np.testing.assert_array_equal(found.params, fit_sites(whole.ask, whole.names, "died", "binomial").params)
