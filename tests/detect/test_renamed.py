"""Names of 0.1.0 go on working, with a warning that says what replaces them."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect import boundary, watch_runs


def test_channels_under_their_old_attributes():
    limits = boundary(2, 20, 0.05, 500)
    for name in ("mean", "spread"):
        with pytest.warns(DeprecationWarning, match=rf'Boundary\.{name} is deprecated; use levels\["{name}"\]'):
            assert getattr(limits, name) is limits.levels[name]
    lin = fg.linearization([np.eye(2)], [np.eye(2)])
    seen = watch_runs(lin, fg.step_sizes.constant(0.1), np.zeros((1, 5, 2)), 20, limits)
    with pytest.warns(DeprecationWarning, match=r"WatchedRuns\.mean is deprecated"):
        assert seen.mean is seen.statistics["mean"]


def test_degrees_of_freedom_under_their_old_name():
    lin = fg.linearization([np.eye(2)], [np.eye(2)], n_warmup=40)
    with pytest.warns(DeprecationWarning, match=r"Linearization\.freedom is deprecated; use dof"):
        assert lin.freedom == lin.dof


def test_classes_of_integrations_under_their_old_names():
    gossip = pytest.importorskip("fedgauss.integrations.gossip")
    with pytest.warns(DeprecationWarning, match="use PeerRound"):
        assert gossip.Round is gossip.PeerRound
    pytest.importorskip("flwr")
    from fedgauss.integrations import flower

    with pytest.warns(DeprecationWarning, match="use GoodRound"):
        assert flower.Good is flower.GoodRound
    with pytest.raises(AttributeError, match="no attribute 'Better'"):
        _ = flower.Better
