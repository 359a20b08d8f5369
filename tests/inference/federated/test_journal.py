"""A fit that goes on from its rounds: only if sites still have the rows that these are of."""

import numpy as np
import pytest
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.journal import Journal

from site_rows import ROWS, Channel

MODEL = {"family": "gaussian", "features": ["age", "dose"]}  # whose scoring starts from zero, whatever the target is


class Stopped(Exception):
    """The coordinator is killed."""


def fitted(frame, path, stop_at=None, masked=False, **model):
    """A fit with a journal, stopped before it asks for this order; and the orders that sites heard."""
    channel = Channel(frame)

    def ask(order, contents):
        if order == stop_at:
            raise Stopped
        return channel.ask(order, contents)

    try:
        return fit_sites(ask, channel.names, "cost", journal=Journal(path), masked=masked, **MODEL | model), channel
    except Stopped:
        return None, channel


@pytest.mark.parametrize("masked", [False, True])
def test_rounds_of_the_same_rows_are_used_and_the_first_is_asked_again(tmp_path, masked):
    wanted, whole = fitted(ROWS, tmp_path / "whole.jsonl", masked=masked)
    fitted(ROWS, tmp_path / "rounds.jsonl", "final", masked)
    found, channel = fitted(ROWS, tmp_path / "rounds.jsonl", masked=masked)
    assert np.array_equal(found.params, wanted.params)
    assert np.array_equal(found.cov, wanted.cov)
    assert whole.orders.count("sums") > 1
    assert channel.orders.count("sums") == 1


@pytest.mark.parametrize("column", ["cost", "counts_for", "shift"])
def test_rounds_of_rows_that_were_changed_are_not_used(tmp_path, column):
    """The target, weights or an offset: the model is the same in words, with the same means of the covariates."""
    model = {"row_weights": "counts_for", "offset": "shift"}
    path = tmp_path / "rounds.jsonl"
    fitted(ROWS, path, "final", **model)
    assert len(Journal(path)) > 1
    changed = ROWS.assign(**{column: ROWS[column] + 0.03 * ROWS.age})
    found, _ = fitted(changed, path, **model)
    wanted, _ = fitted(changed, tmp_path / "new.jsonl", **model)
    assert np.array_equal(found.params, wanted.params)
    assert np.array_equal(found.cov, wanted.cov)


def test_clusters_that_were_changed_are_asked_for_again(tmp_path):
    """Squares of clusters enter no round of scoring."""
    model, path = {"cluster": "doctor", "errors": "cluster"}, tmp_path / "rounds.jsonl"
    fitted(ROWS, path, "own", **model)
    changed = ROWS.assign(doctor=ROWS.doctor % 5)
    found, _ = fitted(changed, path, **model)
    wanted, _ = fitted(changed, tmp_path / "new.jsonl", **model)
    assert np.array_equal(found.cov, wanted.cov)
