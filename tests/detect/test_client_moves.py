"""What of a client's move is judged: parameters, in whatever container and type they come."""

import ml_dtypes
import numpy as np
import pytest

import fedgauss as fg

K = 10
SHAPES = {"conv.weight": (5, 6), "norm.weight": (6,), "norm.bias": (4,)}


class Tensor:
    """As much of a torch tensor as is asked for: it gives its numbers only when it is off the graph and the GPU."""

    def __init__(self, array, dtype=None, ready=()):
        self.array, self.ready = array, ready
        self.dtype = dtype or f"torch.{array.dtype}"

    def detach(self):
        return Tensor(self.array, self.dtype, (*self.ready, "detached"))

    def cpu(self):
        return Tensor(self.array, self.dtype, (*self.ready, "here"))

    def float(self):
        return Tensor(self.array.astype(np.float32), None, self.ready)

    def numpy(self):
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        assert self.ready == ("detached", "here")
        return self.array

    def __array__(self, *args, **kwargs):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


def rounds(n_rounds, onset=31, seed=0):
    """Moves of layers by name; clients 2 and 7 turn round."""
    rng = np.random.default_rng(seed)
    own = {name: rng.normal(size=(K, *shape)) for name, shape in SHAPES.items()}
    for number in range(1, n_rounds + 1):
        sign = np.where((number >= onset) & np.isin(np.arange(K), (2, 7)), -1.0, 1.0)
        moved = {name: u + 0.5 * rng.normal(size=u.shape) for name, u in own.items()}
        yield {k: {name: sign[k] * u[k] for name, u in moved.items()} for k in range(K)}


def verdicts(change=lambda move, number, k: move, **options):
    """Of a monitor that is given what `change` makes of the moves."""
    monitor = fg.ClientMonitor(horizon=60, seed=1)
    return [
        monitor.update({k: change(move, number, k) for k, move in moves.items()})
        for number, moves in enumerate(rounds(36, **options), 1)
    ]


def with_buffers(move, number, k):
    """What `state_dict()` holds beside parameters; the counter alone is longer than everything that is learnt."""
    rng = np.random.default_rng([number, k])
    return move | {
        "norm.num_batches_tracked": np.array(50 + rng.integers(3)),
        "norm.running_mean": 100.0 * rng.normal(size=6),
        "norm.running_var": 100.0 * rng.normal(size=6) ** 2,
        "block/batch_normalization/moving_mean:0": 100.0 * rng.normal(size=6),
        "moving_variance": 100.0 * rng.normal(size=6),
        "mask": rng.random(6) < 0.5,
        "seed": np.array([number], dtype=np.uint32),
    }


@pytest.mark.parametrize("seed", range(8))
def test_counters_and_running_statistics_change_no_verdict(seed):
    """The sign flip of round 31 was seen ten rounds late or never beside one counter."""
    plain = verdicts(seed=seed)
    assert verdicts(with_buffers, seed=seed) == plain
    assert next(v.round for v in plain if v.alarm) == 31


CONTAINERS = {
    "other order": lambda move: dict(reversed(move.items())),
    "tensors": lambda move: {name: Tensor(u) for name, u in move.items()},
    "list": lambda move: [move[name] for name in sorted(move)],
    "tuple of tensors": lambda move: tuple(Tensor(move[name]) for name in sorted(move)),
    "list with a counter": lambda move: [*(move[name] for name in sorted(move)), np.array(50)],
    "one array": lambda move: np.concatenate([move[name].ravel() for name in sorted(move)]),
    "one tensor": lambda move: Tensor(np.concatenate([move[name].ravel() for name in sorted(move)])),
    "numbers": lambda move: {name: u.tolist() for name, u in move.items()},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_move_may_come_in_any_container(name):
    assert verdicts(lambda move, number, k: CONTAINERS[name](move)) == verdicts()


TYPES = {
    "float16": lambda u: u.astype(np.float16),
    "bfloat16": lambda u: u.astype(ml_dtypes.bfloat16),
    "a tensor of bfloat16": lambda u: Tensor(u.astype(ml_dtypes.bfloat16), "torch.bfloat16"),
    "big-endian": lambda u: u.astype(">f8"),
    "extended": lambda u: u.astype(np.longdouble),
}


@pytest.mark.parametrize("name", TYPES)
def test_types_are_right(name):
    """As if the same numbers had come in a type that holds them."""

    def exact(u):
        sent = TYPES[name](u)
        return sent.array.astype(np.float32) if isinstance(sent, Tensor) else sent.astype(np.float64)

    found = verdicts(lambda move, number, k: {layer: TYPES[name](u) for layer, u in move.items()})
    expected = verdicts(lambda move, number, k: {layer: exact(u) for layer, u in move.items()})
    assert found == expected
    assert found[30].alarm


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int16, ml_dtypes.bfloat16])
def test_small_types_do_not_overflow(dtype):
    """Sums over 200,000 parameters are beyond them; int8 ended in a math domain error."""
    monitor, exact = fg.ClientMonitor(seed=1), fg.ClientMonitor(seed=1)
    rng = np.random.default_rng(0)
    for _ in range(14):
        moves = rng.integers(-120, 120, size=(6, 200_000)).astype(dtype)
        assert monitor.update(moves) == exact.update(moves.astype(np.float64))
        assert monitor.compared.fields["evenness"].max() < np.sqrt(200_000)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (np.zeros(4, dtype=np.uint8), "unsigned integers, in which differences wrap round; got uint8"),
        (Tensor(np.zeros(4, dtype=np.uint8)), "unsigned integers"),
        (np.zeros(4, dtype=np.complex64), "must consist of real numbers; got complex64"),
        (np.zeros(4, dtype=ml_dtypes.float8_e4m3fn), "must consist of real numbers; got float8_e4m3fn"),
        ({"w": np.array(["x"])}, "must consist of real numbers"),
        ({"params": {"w": np.zeros(3)}}, "must consist of real numbers"),
        ({"count": np.array(3), "running_mean": np.zeros(4)}, "must have at least one parameter to judge"),
        ({}, "must have at least one parameter to judge"),
    ],
)
def test_what_holds_no_move_is_refused_in_words(move, words):
    with pytest.raises(ValueError, match=words):
        fg.ClientMonitor().update({"a": move})


def test_a_lone_client_fixes_no_size(tmp_path):
    """A first round of three parameters had all later honest ones refused."""
    monitor = fg.ClientMonitor(seed=1)
    monitor.update({"stranger": np.ones(3)})
    monitor.save(tmp_path / "monitor")
    for known in (monitor, fg.ClientMonitor.load(tmp_path / "monitor")):
        verdict = [known.update(moves) for moves in rounds(14)][-1]
        assert verdict.watched == K


@pytest.mark.parametrize("place", [0, 9])
def test_the_size_is_that_of_most_clients(place):
    """Whoever comes first: else a client could have all others named in its place."""
    moves = {k: np.ones(3 if k == place else 40) for k in range(K)}
    monitor = fg.ClientMonitor()
    with pytest.raises(ValueError, match=rf"40 parameters, like most; that of client {place} has 3\."):
        monitor.update(moves)
    del moves[place]
    monitor.update(moves)
    with pytest.raises(ValueError, match=r"40 parameters, as before; that of client 0 has 3\."):
        monitor.update(dict.fromkeys(range(K), np.ones(3)))
