"""`GroupSums` between real processes: what clients must remember lies in Flower's state from message to message."""

import json

import pytest

pytest.importorskip("flwr")

from test_flower_processes import flower, free_port

CLIENT = """
import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from fedgauss.integrations.flower import group_sums_mod

app = ClientApp(mods=[group_sums_mod(size=3)])

@app.train()
def train(message, context):
    k = int(context.node_config["partition-id"])
    after = message.content["arrays"]["w"].numpy() + np.float32(k + 1) * np.ones((2, 3), np.float32)
    arrays = ArrayRecord({"w": Array(after)})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": k + 1})}), reply_to=message)
"""
SERVER = """
import json
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fedgauss.integrations.flower import GroupSums

app = ServerApp()

@app.main()
def main(grid, context):
    inner = FedAvg(min_train_nodes=3, min_available_nodes=3, fraction_evaluate=0.0)
    strategy = GroupSums(inner, size=3)
    first = ArrayRecord({"w": Array(np.ones((2, 3), np.float32))})
    result = strategy.start(grid, first, num_rounds=2)
    told = {"w": result.arrays["w"].numpy().tolist(), "void": strategy.void, "groups": strategy.groups}
    Path(context.run_config["output"]).write_text(json.dumps(told))
"""
PROJECT = """
[project]
name = "summed"
version = "1.0.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.flwr.app]
publisher = "fedgauss"

[tool.flwr.app.components]
serverapp = "summed.server_app:app"
clientapp = "summed.client_app:app"

[tool.flwr.app.config]
output = ""
"""


@pytest.mark.study
def test_three_supernodes_are_added_up(tmp_path):
    """The weighted mean of moves 1, 2 and 3 with weights 1, 2 and 3 is 14 / 6, twice."""
    example = tmp_path / "example"
    (example / "summed").mkdir(parents=True)
    (example / "pyproject.toml").write_text(PROJECT)
    for name, text in (("__init__", ""), ("client_app", CLIENT), ("server_app", SERVER)):
        (example / "summed" / f"{name}.py").write_text(text)
    (tmp_path / "flower").mkdir()
    with flower(tmp_path / "flower", example=example) as link:
        for k in range(3):
            link.begin(
                "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{link.port}", "--host", "127.0.0.1",
                "--port", str(free_port()), "--node-config", f"partition-id={k} num-partitions=3",
            )  # fmt: skip
        found = link.run_with({})
    print(json.dumps(found))
    assert found["void"] == {}
    assert len(found["groups"]) == 1
    assert found["w"] == [[pytest.approx(1 + 2 * 14 / 6, abs=1e-6)] * 3] * 2
