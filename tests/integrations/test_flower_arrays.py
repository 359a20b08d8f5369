"""Arrays as they come over the wire: read as Flower reads them, and refused where they are not what they say."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array

from fedgauss.integrations.flower.records import numbers, plain, viewed_like

LIKE = {"weight": np.zeros((1, 3))}

KINDS = {
    "C order": np.arange(6.0).reshape(2, 3),
    "Fortran order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "scalar": np.array(1.5),
    "nothing": np.zeros((0, 3)),
    "big-endian": np.arange(4, dtype=">i4"),
    "single precision": np.arange(3, dtype=np.float32),
    "booleans": np.array([True, False]),
}


@pytest.mark.parametrize("name", KINDS)
def test_numbers_are_those_that_flower_reads(name):
    array = Array(KINDS[name])
    for _ in range(2):  # the second time the header is known
        found, expected = numbers(array), array.numpy()
        assert found.dtype == expected.dtype
        assert found.flags.f_contiguous == expected.flags.f_contiguous
        np.testing.assert_array_equal(found, expected)


def file_with(header, body=bytes(24), version=b"\x01\x00"):
    """A NumPy file with a header of any words, that claims to be what was asked for."""
    words = header.encode("latin1")
    data = b"\x93NUMPY" + version + len(words).to_bytes(2, "little") + words + body
    return Array(dtype="float64", shape=(1, 3), stype="numpy.ndarray", data=data)


def described(descr="'<f8'", shape="(1, 3)"):
    return file_with(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n")


HOSTILE = {
    "too long for any machine": described(shape=f"({10**30},)"),
    "too long for its bytes": described(shape="(1, 4)"),
    "negative": described(shape="(-1, -3)"),
    "of any length": described(shape="(1, -1)"),
    "of any number of rows": described(shape="(-1, 3)"),
    "one length negative": described(shape="(1, -3)"),
    "objects": described(descr="'|O'"),
    "nothing to an item": described(descr="'|S0'"),
    "a type that does not exist": described(descr="'<q99'"),
    "no header": file_with(""),
    "nested": file_with("(" * 5000),
    "a long sum": file_with("-" * 9000 + "1"),
    "code": file_with("__import__('os').system('false')"),
    "too long a header": file_with(" " * 20000),
    "not NumPy's": Array(dtype="float64", shape=(1, 3), stype="numpy.ndarray", data=b"nothing"),
    "empty": Array(dtype="float64", shape=(1, 3), stype="numpy.ndarray", data=b""),
    "another kind": Array(dtype="float64", shape=(1, 3), stype="pickle", data=b"nothing"),
    "a version that does not exist": file_with("{}", version=b"\x09\x00"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_not_what_it_says_is_refused(name):
    with pytest.raises(ValueError, match="cannot be read"):
        viewed_like({"weight": HOSTILE[name]}, LIKE)


def test_a_shape_is_not_taken_from_a_claim():
    told = Array(dtype="float64", shape=(1, 3), stype="numpy.ndarray", data=Array(np.zeros((3, 1))).data)
    with pytest.raises(ValueError, match=r"^an array 'weight' of shape \(3, 1\) in place of \(1, 3\)$"):
        viewed_like({"weight": told}, LIKE)
    assert viewed_like({"weight": described()}, LIKE)["weight"].shape == (1, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e101, np.longdouble("1e4000")])
def test_numbers_are_finite_and_no_nonsense(value):
    with pytest.raises(ValueError, match=r"not finite, or above 1e\+100"):
        viewed_like({"weight": Array(np.full((1, 3), value))}, LIKE)


def test_foreign_words_are_cut():
    with pytest.raises(ValueError, match=r"^arrays \['w0', 'w1'.* \.\.\. in place of \['weight'\]$") as caught:
        viewed_like({f"w{i}": Array(np.zeros(1)) for i in range(300)}, LIKE)
    assert len(str(caught.value)) < 300
    assert plain("a\x1b[31m\nb\u202e") == "a [31m b "


def test_bfloat16_is_refused_with_a_way_out():
    """NumPy's files know it as two bytes of anything."""
    with pytest.raises(ValueError, match=r"an array 'weight' of type \|V2; bfloat16 must be sent as float32"):
        viewed_like({"weight": Array(np.zeros((1, 3), dtype="V2"))}, LIKE)
