"""A federated fit through Flower's own messages, apps and contexts, in one process."""

import json
import stat

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid

import fedgauss as fg
from fedgauss.inference.federated.policy import Policy
from fedgauss.integrations.flower.sites import fit_nodes, site_app

RNG = np.random.default_rng(4)
X = RNG.normal(size=(180, 2))
FRAME = pd.DataFrame(
    {
        "age": 50 + 10 * X[:, 0],
        "dose": X[:, 1],
        "cost": 100 + 20 * X[:, 0] + 10 * RNG.normal(size=180),
        "visits": RNG.poisson(np.exp(0.5 + 0.4 * X[:, 0])),
        "site": np.repeat(["a", "b", "c"], 60),
    }
)


def own(context):
    return FRAME[FRAME.site == "abc"[context.node_config["partition-id"]]].drop(columns="site")


def named(context):
    return "abc"[context.node_config["partition-id"]]


def test_nodes_give_what_the_pooled_frame_gives_and_log_what_they_sent(tmp_path):
    app = site_app(own, log_of=lambda context: tmp_path / f"{named(context)}.jsonl", name_of=named)
    found = fit_nodes(InProcessGrid(app, 3), "cost", n_sites=3)
    pooled = fg.fit(FRAME, "cost", "site")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-12)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-11)
    assert found.facts == pooled.facts
    orders = [json.loads(line)["order"] for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert orders[:7] == ["name", "describe", "levels", "design", "squares", "units", "sums"]
    assert orders[-2:] == ["goodness", "own"]
    assert stat.S_IMODE((tmp_path / "b.jsonl").stat().st_mode) == 0o600


def test_nodes_mask_their_sums(tmp_path):
    app = site_app(own, log_of=lambda context: tmp_path / f"{named(context)}.jsonl", name_of=named)
    found = fit_nodes(InProcessGrid(app, 3), "cost", n_sites=3, masked=True)
    pooled = fg.fit(FRAME, "cost", "site")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-12)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-11)
    logged = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    orders = [line["order"] for line in logged]
    assert orders[:9] == ["name", "keys", "meet", "describe", "levels", "design", "squares", "units", "sums"]
    assert "own" not in orders
    for line in logged[4:]:
        assert line["order"] == "units" or "masked" in line["sent"]


@pytest.mark.parametrize("masked", [False, True])
def test_a_node_that_is_lost_is_left_behind(masked):
    """Node c answers nothing from the third round of sums on."""
    orders = []

    def lost(reply, partition, server_round):
        return None if partition == 2 and orders.count("sums") >= 3 else reply

    grid = InProcessGrid(site_app(own, name_of=named), 3, tamper=lost)
    asked = grid.send_and_receive

    def counting(messages, **options):
        orders.append(messages[0].content["fedgauss"]["order"])
        return asked(messages, **options)

    grid.send_and_receive = counting
    options = {"family": "poisson", "features": ["age", "dose"], "masked": masked}
    found = fit_nodes(grid, "visits", n_sites=3, lost="leave", **options)
    rest = FRAME[FRAME.site != "c"]
    pooled = fg.fit(rest, "visits", "site", "poisson", ["age", "dose"])
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-9)
    assert any("node 1002 did not answer the order 'sums'" in note for note in found.notes)
    orders.clear()
    grid = InProcessGrid(site_app(own, name_of=named), 3, tamper=lost)
    asked, grid.send_and_receive = grid.send_and_receive, counting
    with pytest.raises(ValueError, match="node 1002 did not answer the order 'sums' within"):
        fit_nodes(grid, "visits", n_sites=3, **options)


def test_a_node_takes_part_in_one_run_of_an_app():
    """Its Context remembers: what asks again begins no other run on the same rows."""
    grid = InProcessGrid(site_app(own, name_of=named), 3)
    asked = grid.send_and_receive
    orders = []

    def stop_in_between(messages, **options):
        orders.append(messages[0].content["fedgauss"]["order"])
        if orders[-1] == "sums":
            raise KeyboardInterrupt
        return asked(messages, **options)

    grid.send_and_receive = stop_in_between
    with pytest.raises(KeyboardInterrupt):
        fit_nodes(grid, "cost", n_sites=3)
    grid.send_and_receive = asked
    with pytest.raises(ValueError, match="site 'a': a site takes part in one run; 'describe' is no part of it"):
        fit_nodes(grid, "cost", n_sites=3)


def test_a_node_that_refuses_or_fails_is_named():
    few = site_app(own, Policy(least_rows=100), name_of=named)
    with pytest.raises(ValueError, match="site 'a': this site takes part with at least 100 rows; it has 60"):
        fit_nodes(InProcessGrid(few, 3), "cost", n_sites=3)
    lost = site_app(lambda context: FRAME["nowhere"])
    with pytest.raises(ValueError, match="node 1000 failed on the order 'describe'"):
        fit_nodes(InProcessGrid(lost, 3), "cost", n_sites=3)
    with pytest.raises(ValueError, match="4 sites must take part; 3 joined within 0 s"):
        fit_nodes(InProcessGrid(few, 3), "cost", n_sites=4, timeout=0.0)
