"""What a Flower client may send: arrays as they came, and answers to what the server asked."""

import numpy as np
from flwr.app import Array
from hypothesis import strategies as st

from fedgauss.integrations.flower.records import plain, read, viewed_like
from fuzz.damaged import byte_mutants, fuzzed, nasty, refused_or

LIKE = {"a": np.zeros((2, 3)), "b": np.zeros(0)}
ONES = np.ones((2, 3))
DATA = [Array(values).data for values in (ONES, np.asfortranarray(ONES), np.arange(6), np.zeros(0))]
arrays = st.builds(
    lambda data, stype, dtype, shape: Array(dtype=dtype, shape=shape, stype=stype, data=data),
    st.one_of(st.sampled_from(DATA), byte_mutants(*DATA), st.binary(max_size=200)),
    st.sampled_from(["numpy.ndarray", "pickle", ""]),
    st.sampled_from(["float64", "O", "nonsense"]),
    st.sampled_from([(2, 3), (-1,), (10**9, 10**9), ()]),
)


@fuzzed(st.dictionaries(st.sampled_from(["a", "b", "c", "\x1b"]), arrays, max_size=3), few=80, many=10_000)
def test_arrays_are_viewed_or_refused(folder, sent):
    views = refused_or(viewed_like, sent, LIKE)
    if views is not None:
        assert {name: view.shape for name, view in views.items()} == {name: want.shape for name, want in LIKE.items()}
        assert all(np.all(np.isfinite(view)) for view in views.values())


@fuzzed(st.dictionaries(st.sampled_from(["hessian", "noise"]), nasty), st.sampled_from([(), (2,), (2, 2), (0,)]))
def test_an_answer_is_read_or_refused(folder, given, shape):
    found = refused_or(read, given, "hessian", shape)
    assert found is None or (found.shape == shape and np.all(np.abs(found) <= 1e50))


@fuzzed(st.text(max_size=500))
def test_text_of_a_client_is_printable_in_a_log(folder, text):
    assert plain(text).isprintable()
