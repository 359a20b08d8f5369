"""A federated fit through Flower's own messages, apps and contexts, in one process."""

import json
import stat

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid

import fedgauss as fg
from fedgauss.federated.policy import Policy
from fedgauss.integrations.flower.sites import fit_nodes, site_app


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Where keys and ledgers of nodes without a file lie."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


COST = fg.Model("cost", family="gaussian")
COST_OF_TWO = fg.Model("cost ~ age + dose", family="gaussian")
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


def logged_app(folder, **options):
    return site_app(own, log_of=lambda context: folder / f"{named(context)}.jsonl", name_of=named, **options)


@pytest.mark.parametrize("masked", [False, True])
def test_nodes_give_what_the_pooled_frame_gives_and_log_what_they_sent(tmp_path, masked):
    found = fit_nodes(InProcessGrid(logged_app(tmp_path), 3), COST, n_sites=3, masked=masked)
    pooled = fg.fit(FRAME, COST, client="site")
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-12)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-11)
    assert found.facts == {name: fact for name, fact in pooled.facts.items() if name != "Rows per client" or not masked}
    lines = [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()]
    assert [line["order"] for line in lines[:5]] == ["name", "join", "meet", "open", "hear"]
    assert lines[-1]["sent"] == {"ended": True}
    assert stat.S_IMODE((tmp_path / "b.jsonl").stat().st_mode) == 0o600
    numbers = [line["sent"]["opening"] for line in lines if "numbers" in line["sent"].get("opening", {})]
    assert len(numbers) >= 5


def test_a_node_that_is_lost_ends_the_run_with_its_name():
    def lost(reply, partition, server_round):
        return None if partition == 2 else reply

    grid = InProcessGrid(site_app(own, name_of=named), 3, tamper=lost)
    with pytest.raises(ValueError, match="node 1002 did not answer the order 'name' within"):
        fit_nodes(grid, COST, n_sites=3)


@pytest.mark.parametrize("masked", [False, True])
def test_nodes_make_the_pass_of_sgd_of_one_process(masked):
    solver = fg.SGD(sync_every=15, network=fg.networks.complete(3) if masked else None)
    app = site_app(own, Policy(passes=1), name_of=named)
    found = fit_nodes(InProcessGrid(app, 3), COST_OF_TWO, n_sites=3, masked=masked, solver=solver)
    pooled = fg.fit(FRAME, COST_OF_TWO, client="site", solver=solver)
    np.testing.assert_array_less(np.abs(found.params - pooled.params) / pooled.std_errors, 1e-4)
    np.testing.assert_allclose(found.cov, pooled.cov, rtol=1e-5)
    assert found.facts == {name: fact for name, fact in pooled.facts.items() if name != "Rows per client" or not masked}


def test_a_node_without_passes_or_lost_in_one_is_named():
    unwilling = site_app(own, name_of=named)
    with pytest.raises(ValueError, match="site 'a': this site's policy has passes = 0"):
        fit_nodes(InProcessGrid(unwilling, 3), COST_OF_TWO, n_sites=3, solver=fg.SGD(sync_every=15))
    orders = []

    def lost(reply, partition, server_round):
        orders.append(partition)
        return (
            None if partition == 2 and len(orders) > 3 * 16 else reply
        )  # name, join, meet, six of ten rounds, and an open

    grid = InProcessGrid(site_app(own, Policy(passes=1), name_of=named), 3, tamper=lost)
    with pytest.raises(ValueError, match="node 1002 did not answer the order 'hear' within"):
        fit_nodes(grid, COST_OF_TWO, n_sites=3, solver=fg.SGD(sync_every=15))


def test_a_run_that_was_given_up_makes_room_for_another():
    grid = InProcessGrid(site_app(own, name_of=named), 3)
    asked, orders = grid.send_and_receive, []

    def stop_in_between(messages, **options):
        orders.append(messages[0].content["fedgauss"]["order"])
        if orders.count("open") == 6:
            raise KeyboardInterrupt
        return asked(messages, **options)

    grid.send_and_receive = stop_in_between
    with pytest.raises(KeyboardInterrupt):
        fit_nodes(grid, COST, n_sites=3)
    grid.send_and_receive = asked
    found = fit_nodes(grid, COST, n_sites=3)
    np.testing.assert_allclose(found.params, fg.fit(FRAME, COST, client="site").params, rtol=1e-12)


def test_a_table_remembers_whatever_app_answers_for_it(state):
    """Keys and ledgers lie in the state folder under the names of the nodes."""
    fit_nodes(InProcessGrid(site_app(own, name_of=named), 3), COST, n_sites=3)
    keys = {path: path.read_text() for path in state.rglob("*.key")}
    assert {path.stem for path in keys} == {"a", "b", "c", "coordinator"}
    fit_nodes(InProcessGrid(site_app(own, name_of=named), 3), COST, n_sites=3)
    assert keys == {path: path.read_text() for path in state.rglob("*.key")}


def test_a_node_that_refuses_is_named():
    few = site_app(own, Policy(least_rows=100), name_of=named)
    with pytest.raises(ValueError, match="site 'a': this site takes part with at least 100 rows; it has"):
        fit_nodes(InProcessGrid(few, 3), COST, n_sites=3)
    with pytest.raises(ValueError, match="4 sites must take part; 3 joined within 0 s"):
        fit_nodes(InProcessGrid(few, 3), COST, n_sites=4, timeout=0.0)


@pytest.mark.parametrize("part", ["frame_of", "name_of", "log_of", "home_of"])
def test_what_an_owner_s_code_raises_is_for_the_owner(part, capfd):
    """The row that its words quote reaches the node's own log, and nobody else."""

    def quoting(context):
        raise ValueError("could not parse row ('Jane Roe', 41, 'HIV')")

    options = {"name_of": named, part: quoting}
    app = site_app(options.pop("frame_of", own), **options)
    with pytest.raises(ValueError, match=r"failed at this node|not have|name") as raised:
        fit_nodes(InProcessGrid(app, 3), COST, n_sites=3)
    assert "Jane" not in str(raised.value)
    assert "Jane Roe" in capfd.readouterr().err
