"""What a watch begins with: a monitor from a file, from an earlier watch, or a warm-up."""

import io

import numpy as np

from fedgauss import _checks, step_sizes
from fedgauss._types import FloatArray
from fedgauss.detect import storage
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.clients.monitor import FORMAT as CLIENT_FORMAT
from fedgauss.detect.monitor import Monitor
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.saving import Kept
from fedgauss.integrations.live.warm_up import FORMAT as WARM_UP
from fedgauss.integrations.live.warm_up import WarmUp

Found = Monitor | WarmUp | ClientMonitor


def starting_point(options: WatchOptions, kept: Kept | None = None) -> Found:
    """The watcher that an earlier watch kept, where it belongs to these options; else what they ask for."""
    if kept is None:
        return _given(options)
    found = _loaded(io.BytesIO(kept.watcher))
    if wrong := _difference(_given(options), found):
        raise ValueError(
            f"--save {options.save} must be absent, or what an earlier watch of this run wrote; {wrong}. Use another "
            "file, or move it away."
        )
    return found


def _difference(wanted: Found, found: Found) -> str:
    """Why a saved monitor cannot have come of this beginning; empty where it may."""
    if isinstance(wanted, ClientMonitor) and isinstance(found, ClientMonitor):
        return ""  # alpha, horizon and rate may be those of the log
    if isinstance(wanted, ClientMonitor) or isinstance(found, ClientMonitor):
        return f"it holds a {type(found).__name__}"
    for name in ("sync_every", "alpha", "horizon"):
        if getattr(wanted, name) != getattr(found, name):
            return f"its {name} is {getattr(found, name)}, and not {getattr(wanted, name)}"
    if isinstance(found, WarmUp):
        same = isinstance(wanted, WarmUp) and np.array_equal(wanted.hessian, found.hessian)
        return "" if same else "it holds a warm-up with another Hessian"
    if isinstance(wanted, Monitor):
        if found.step < wanted.step:
            return f"it has seen step {found.step}, and --monitor step {wanted.step}"
        same = wanted.lin.client_hessians.shape == found.lin.client_hessians.shape and np.array_equal(
            wanted.lin.client_hessians, found.lin.client_hessians
        )
        return "" if same else "it has other Hessians than --monitor"
    hessian = wanted.hessian * np.eye(found.lin.dim) if wanted.hessian.ndim == 0 else wanted.hessian
    same = hessian.shape == found.lin.hessian.shape and np.allclose(hessian, found.lin.hessian)
    return "" if same else "it has another Hessian than --hessian"


def _loaded(place: storage.Place) -> Found:
    form = storage.format_of(place)
    if form == WARM_UP:
        return WarmUp.load(place)
    return ClientMonitor.load(place) if form == CLIENT_FORMAT else Monitor.load(place)


def _given(options: WatchOptions) -> Found:
    if options.monitor is not None:
        if options.hessian is not None or options.eta0 is not None:
            raise ValueError("--monitor brings its own A and step sizes; leave out --hessian and --eta0.")
        if not options.monitor.is_file():
            raise ValueError(
                "--monitor must be a file that Monitor.save or ClientMonitor.save wrote; "
                f"{options.monitor} is not there."
            )
        return _loaded(options.monitor)
    if options.hessian is None and options.eta0 is None:
        return ClientMonitor(options.alpha, options.horizon, options.rate)
    if options.hessian is None or options.eta0 is None:
        raise ValueError("a warm-up needs --hessian and --eta0; leave out both to watch clients.")
    eta0, beta = options.eta0, options.beta
    steps = step_sizes.constant(eta0) if beta == 0 else step_sizes.polynomial(eta0, beta, options.shift)
    return WarmUp(
        _hessian(options.hessian),
        steps,
        _checks.whole("sync-every", options.sync_every),
        _checks.whole("warm-up", options.warm_up),
        _checks.probability("alpha", options.alpha, fix="Use 0.05, one false alarm in 20 runs?"),
        None if options.horizon is None else _checks.whole("horizon", options.horizon),
    )


def _hessian(text: str) -> FloatArray:
    """A from a .npy file, or c for c times the identity."""
    try:
        return np.array(_checks.real("hessian", float(text), above=0.0))
    except ValueError:
        if not text.endswith(".npy"):
            raise ValueError(f"--hessian must be a .npy file with A, or a positive number; got {text}.") from None
    try:
        with open(text, "rb") as file:
            matrix = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # a damaged file may break anything in NumPy's reader
        raise ValueError(f"--hessian must be a .npy file with A, (d, d); {text} cannot be read.") from error
    return _checks.covariance("hessian", matrix, definite=True)
