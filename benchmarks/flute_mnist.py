"""The logistic MNIST task of FLUTE's README in this engine and in FedJAX: rounds a second, and time to an accuracy.

    python benchmarks/flute_mnist.py --images mnist_train.npz --fedjax fedjax-venv/bin/python

1,000 clients, 10 of them a round, batches of 10, one pass of a client over its rows a round, 100 rounds, steps of .03;
softmax regression on 784 pixels and an intercept. Of the 60,000 images 10,000 are held out, and every client has two
pieces of 25 rows from the others, sorted by digit: most clients know two digits. Clients are drawn without
replacement, and the server takes the plain mean. Both sides draw their own clients and batches.

`--fedjax` is a Python that has FedJAX (0.0.17 wants jax 0.4.25, optax 0.2.2 and dm-haiku 0.0.12); this program then
runs in it too, in turn with ours. A first call compiles. Then each side runs `--repeats` times with another seed.
Seconds are those of the processor, in one thread, for 100 rounds without the evaluation, which both do afterwards by
the same NumPy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

CLIENTS, A_ROUND, BATCH, ROUNDS, ETA, HELD_OUT = 1000, 10, 10, 100, 0.03, 10_000
CLASSES, ACCURACY = 10, 0.80
REFERENCE = {"FLUTE": 0.50, "Flower 1.0": 1 / 18}  # rounds a second in FLUTE's README, on machines of its own

Arrays = dict[str, np.ndarray]
Train = Callable[[int], np.ndarray]  # a seed gives the server's model after every round, (rounds, 785, 10)


def split(path: Path) -> Arrays:
    """Rows of each client (clients, rows, 785) with labels (clients, rows), and the rows that are held out."""
    with np.load(path) as held:
        pixels, labels = held["images"].reshape(len(held["labels"]), -1), held["labels"].astype(np.int32)
    features = np.column_stack([pixels / np.float32(255.0), np.ones(len(pixels), np.float32)]).astype(np.float32)
    generator = np.random.default_rng(0)
    order = generator.permutation(len(labels))
    test, train = order[:HELD_OUT], order[HELD_OUT:]
    pieces = train[np.argsort(labels[train], kind="stable")].reshape(2 * CLIENTS, -1)
    rows = pieces[generator.permutation(2 * CLIENTS)].reshape(CLIENTS, -1)
    return {"x": features[rows], "y": labels[rows], "test_x": features[test], "test_y": labels[test]}


def accuracies(models: np.ndarray, data: Arrays) -> np.ndarray:
    """Of each model on the rows held out."""
    return np.array([np.mean(np.argmax(data["test_x"] @ model, axis=1) == data["test_y"]) for model in models])


# --- this engine ---


def ours(data: Arrays) -> Train:
    """FedAvg. The problem serves some clients alone, so that those who are absent from a round cost nothing."""
    import jax
    import jax.numpy as jnp

    import fedgauss as fg
    from fedgauss.engine.observers import path
    from fedgauss.problems.base import Problem, pytree

    n_rows, n_features = data["x"].shape[1:]
    steps = n_rows // BATCH

    @pytree
    class Softmax(Problem):
        """Softmax regression by batches of a client's rows, which it goes through once a round."""

        x: Any  # (clients * rows, 785)
        y: Any  # (clients * rows,)
        weights: Any
        serves_some = True

        @property
        def dim(self) -> int:
            return n_features * CLASSES

        def sample(self, noise: Any, t: Any) -> Any:
            """Rows x (K, R, batch, 785) and labels: step t is batch (t - 1) % steps of round (t - 1) // steps."""
            of_round = noise.of_run.at_step((t - 1) // steps)
            order = jnp.argsort(of_round.stream("rows").words(n_rows), axis=0)  # a pass in an order of its own
            batch = jax.lax.dynamic_slice_in_dim(order, (t - 1) % steps * BATCH, BATCH)
            row = jnp.moveaxis(n_rows * noise.per_client(np.arange(CLIENTS)) + batch, 0, -1)
            return self.x[row], self.y[row]

        def gradient(self, theta: Any, batch: Any) -> Any:
            """x (softmax(x' theta) - y)' over the batch."""
            x, y = batch
            model = jnp.moveaxis(theta.reshape(n_features, CLASSES, *theta.shape[1:]), (0, 1), (-2, -1))
            residual = jax.nn.softmax(x @ model) - jax.nn.one_hot(y, CLASSES)
            gradient = jnp.swapaxes(x, -1, -2) @ residual / BATCH
            return jnp.moveaxis(gradient, (-2, -1), (0, 1)).reshape(theta.shape)

    rows = data["x"].reshape(-1, n_features), data["y"].ravel()
    problem, server = Softmax(*rows, np.full(CLIENTS, 1.0 / CLIENTS)), fg.networks.complete(CLIENTS)
    etas = np.full(ROUNDS * steps, ETA)

    def train(seed: int) -> np.ndarray:
        found = fg.simulate(
            problem,
            server,
            etas,
            len(etas),
            sync_every=steps,
            participation=A_ROUND,
            seed=seed,
            observe=[path(steps)],
            progress=False,
        )
        return found.path.reshape(ROUNDS, n_features, CLASSES)

    return train


# --- FedJAX ---


def fedjax(data: Arrays) -> Train:
    """Its federated averaging, as its examples write it."""
    import fedjax as fj
    import jax
    import jax.numpy as jnp

    clients = {f"{k:04d}".encode(): {"x": data["x"][k], "y": data["y"][k]} for k in range(CLIENTS)}
    federation = fj.InMemoryFederatedData(clients)

    def loss(model: Any, batch: Any, key: Any) -> Any:
        logs = jax.nn.log_softmax(batch["x"] @ model)
        return -jnp.mean(jnp.take_along_axis(logs, batch["y"][:, None], axis=1))

    algorithm = fj.algorithms.fed_avg.federated_averaging(
        jax.grad(loss),
        fj.optimizers.sgd(ETA),
        fj.optimizers.sgd(1.0),
        fj.ShuffleRepeatBatchHParams(batch_size=BATCH),
    )

    def train(seed: int) -> np.ndarray:
        sampler = fj.client_samplers.UniformGetClientSampler(federation, A_ROUND, seed)
        state = algorithm.init(jnp.zeros((data["x"].shape[-1], CLASSES)))
        models = []
        for number in range(ROUNDS):
            sampler.set_round_num(number)
            state, _ = algorithm.apply(state, sampler.sample())
            models.append(np.asarray(state.params))
        return np.stack(models)

    return train


# --- both ---


def measure(name: str, data: Arrays, repeats: int) -> dict[str, Any]:
    """Seconds of the first call and of the others, and when and where accuracies arrive."""
    train = {"ours": ours, "fedjax": fedjax}[name](data)
    packages = ("jax", "jaxlib", "numpy", {"ours": "fedgauss", "fedjax": "fedjax"}[name])
    seconds, curves = [], []
    for seed in range(repeats + 1):
        began = time.process_time()
        models = train(seed)
        seconds.append(time.process_time() - began)
        curves.append(accuracies(models, data))
    reached = [int(np.argmax(curve >= ACCURACY)) + 1 for curve in curves if np.any(curve >= ACCURACY)]
    last, busy = np.array([curve[-1] for curve in curves]), float(np.median(seconds[1:]))
    return {
        "first call, s": seconds[0],
        "100 rounds, s": seconds[1:],
        "100 rounds, median s": busy,
        "rounds a second": ROUNDS / busy,
        "runs": len(curves),
        "runs that reach .80": len(reached),
        "rounds to .80, median": float(np.median(reached)),
        "s to .80": busy * float(np.median(reached)) / ROUNDS,
        "accuracy after 100 rounds, mean and error": [float(last.mean()), float(last.std(ddof=1) / len(last) ** 0.5)],
        "versions": {package: metadata.version(package) for package in packages},
    }


def in_process(python: str, name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a process of its own, with one thread."""
    order = ["--images", str(arguments.images), "--repeats", str(arguments.repeats)]
    one = {"PJRT_NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # JAX 0.4 knows no PJRT_NPROC: it is held to one thread by the flag.
    if name == "fedjax":
        one["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    command = [python, __file__, "--only", name, *order]
    done = subprocess.run(command, env=os.environ | one, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Both in turn, or one of them in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--fedjax", help="a Python that has FedJAX")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=("ours", "fedjax"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, split(arguments.images), arguments.repeats)))
        return
    figures = {"fedgauss": in_process(sys.executable, "ours", arguments)}
    if arguments.fedjax:
        figures["FedJAX"] = in_process(arguments.fedjax, "fedjax", arguments)
        figures["fedgauss again"] = in_process(sys.executable, "ours", arguments)
        figures["FedJAX again"] = in_process(arguments.fedjax, "fedjax", arguments)
    document = {
        "command": "python benchmarks/flute_mnist.py --images mnist_train.npz --fedjax fedjax-venv/bin/python",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "task": "1,000 clients, 10 a round, batch 10, 50 rows a client, 100 rounds; processor time of one thread",
        "rounds a second in FLUTE's README": REFERENCE,
        "figures": figures,
    }
    text = json.dumps(document, indent=1)
    print(text)
    if arguments.out:
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
