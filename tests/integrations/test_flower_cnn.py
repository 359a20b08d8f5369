"""The example with a convolutional network: what it draws and deals, a short run on the in-process grid, and the
commands of its pages as they are printed."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from fedgauss.data.digits import drawn

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower_cnn"
if str(EXAMPLE) not in sys.path:
    sys.path.append(str(EXAMPLE))

from flower_cnn import data  # noqa: E402
from flower_cnn.attack import attack_of, bad_clients, labelled, uploaded  # noqa: E402

CONFIG = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
SMALL = {"images": 60, "local-steps": 4, "batch-size": 16}
COMMAND = re.compile(r"^ *(flwr run \. .*)$", re.MULTILINE)


def needs(*names):
    missing = [name for name in names if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


# --- without Flower and PyTorch ---------------------------------------------------------------------------------------


def test_drawn_digits_can_be_told_apart_and_no_two_are_alike():
    """Fails if a glyph were missing, drawn outside its image or the same every time: a nearest neighbour among 1,000
    is then wrong about it. Chance would be right in 0.1."""
    labels = np.arange(1_200) % 10
    images = drawn(labels, seed=3)
    assert (images.shape, images.dtype) == ((1_200, 28, 28), np.uint8)
    assert np.array_equal(images, drawn(labels, seed=3))
    assert len(np.unique(images, axis=0)) == 1_200
    flat = images.reshape(len(images), -1).astype(np.float32)
    known, asked = flat[:1_000], flat[1_000:]
    distance = (known**2).sum(axis=1) - 2 * asked @ known.T
    right = labels[:1_000][distance.argmin(axis=1)] == labels[1_000:]
    assert all(right[labels[1_000:] == digit].mean() > 0.4 for digit in range(10))


def test_every_image_is_dealt_once_and_clients_are_unlike():
    labels = np.arange(4_000) % 10
    hands = data.dealt(labels, 10, 0.5, seed=0)
    assert sorted(np.concatenate(hands)) == list(range(4_000))
    assert largest_share(labels, hands) > 0.25
    assert largest_share(labels, data.dealt(labels, 10, 1e6, seed=0)) < 0.12


def largest_share(labels, hands):
    """Of a client's commonest digit, on average over clients; 0.1 where all are alike."""
    return np.mean([np.bincount(labels[hand]).max() / len(hand) for hand in hands])


def test_clients_share_no_image_with_the_test_and_a_file_takes_the_place_of_drawing(tmp_path):
    own = np.random.default_rng(0).integers(256, size=(1_700, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", images=own, labels=np.arange(1_700) % 10)
    config = CONFIG | SMALL | {"data": str(tmp_path / "own.npz")}
    parts = [data.held_out(config), *(data.of_client(config, k) for k in range(10))]
    assert [len(parts[0].labels), sum(len(part.labels) for part in parts[1:])] == [1_000, 600]
    pixels = np.concatenate([part.pixels for part in parts])
    assert len(np.unique(pixels, axis=0)) == 1_600
    assert np.isin(pixels.reshape(1_600, -1).sum(axis=1), own.reshape(1_700, -1).sum(axis=1)).all()
    with pytest.raises(ValueError, match="has 1700 images"):
        data.held_out(config | {"images": 71})


def test_bad_clients_are_honest_until_they_turn():
    assert [attack_of(CONFIG, 2, r) for r in (1, 20, 21, 40)] == ["none", "none", "flip", "flip"]
    assert {attack_of(CONFIG, k, 40) for k in (0, 1, 3, 4, 5, 6, 8, 9)} == {"none"}
    assert bad_clients(CONFIG | {"attack": "none"}) == []
    with pytest.raises(ValueError, match="attack must be one of"):
        bad_clients(CONFIG | {"attack": "swap"})


def test_attacks_do_what_they_are_called():
    labels, sent, trained = np.arange(10), {"w": np.ones(3)}, {"w": np.array([1.0, 2.0, 0.0])}
    assert labelled("flip", labels).tolist() == list(range(9, -1, -1))
    assert all(labelled(attack, labels) is labels for attack in ("sign", "scale", "none"))
    assert uploaded("sign", sent, trained)["w"].tolist() == [1, 0, 2]
    assert uploaded("scale", sent, trained)["w"].tolist() == [1, 6, -4]
    assert all(uploaded(attack, sent, trained) is trained for attack in ("flip", "none"))


# --- with both --------------------------------------------------------------------------------------------------------


@pytest.mark.study
@needs("torch", "flwr")
@pytest.mark.parametrize("changes", [{}, {"attack": "sign", "optimiser": "adam", "rate": 0.003}], ids=["flip", "sign"])
def test_those_who_turn_are_named_and_the_run_goes_on_without_them(changes):
    """Fails if partitions were mistaken for the monitor's numbers, the attack never began, or nobody went back."""
    from flower_cnn.client_app import app
    from flower_cnn.server_app import run
    from flower_grid import InProcessGrid

    config = CONFIG | {"n-rounds": 26} | changes
    outcome = run(InProcessGrid(app, 10, config), config)
    first = outcome["alarms"][0]
    assert {k for alarm in outcome["alarms"] for k in alarm["partitions"]} == {2, 7}
    assert 21 <= first["round"] <= 24
    assert first["back_to"] <= 20
    assert outcome["accuracy"][first["round"]] == outcome["accuracy"][first["back_to"]]
    assert outcome["words"][0] == f"Bad from round 21 on ({config['attack']}): partitions 2 and 7."
    assert outcome["words"][-1].startswith("Accuracy after round 26: ")


@needs("torch", "flwr")
def test_while_nobody_turns_a_protected_run_is_the_plain_one():
    from flower_cnn.client_app import app
    from flower_cnn.server_app import run
    from flower_grid import InProcessGrid

    config = CONFIG | SMALL | {"attack": "none", "n-rounds": 3}
    ours, plain = (run(InProcessGrid(app, 10, config | {"protect": p}), config | {"protect": p}) for p in (True, False))
    np.testing.assert_allclose(ours["accuracy"], plain["accuracy"], atol=0.01)  # sums are in the order of nodes
    assert (ours["words"][1], plain["words"][1]) == ("No alarm.", "Not watched.")


@pytest.mark.study
@needs("torch", "flwr", "ray")
@pytest.mark.parametrize("page", ["examples/flower_cnn/README.md", "docs/tutorials/protect_flower.md"])
def test_the_commands_run_as_they_are_printed(page, tmp_path):
    """Every `flwr run` of a page, with its own settings but for the length that the page mentions; the SuperLink that
    the first one starts has a port and a folder of its own, and is ended by its id."""
    from test_flower_processes import descendants, free_port

    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
    port = free_port()
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    commands = [shlex.split(found.replace("$PWD", str(app))) for found in COMMAND.findall((ROOT / page).read_text())]
    assert commands
    try:
        for command in commands:
            given = command.index("--run-config") + 1 if "--run-config" in command else None
            changes = f"{command[given] if given else ''} n-rounds=3 images=60"
            command = (command[: given - 1] + command[given + 1 :]) if given else command
            done = subprocess.run(
                [*command, "--run-config", changes], cwd=app, env=env, capture_output=True, text=True, timeout=300
            )
            said = done.stdout + done.stderr
            assert "Accuracy after round 3: " in said, said[-3000:]
            if output := re.search(r"output='([^']*)'", changes):
                assert len(json.loads(Path(output[1]).read_text())["accuracy"]) == 4
    finally:
        listed = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
        links = [
            int(line.split()[0]) for line in listed.splitlines() if "superlink" in line and f"--port {port}" in line
        ]
        for pid in [p for link in links for p in (*descendants(link), link)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
