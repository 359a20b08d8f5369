"""The law of the noise, and that no floating-point number comes into it."""

import random
import secrets
import time

import numpy as np
import pytest
from scipy import stats

from fedgauss.federated import discrete_gaussian as module
from fedgauss.federated.discrete_gaussian import discrete_gaussian


def law(variance, reach):
    """P(X = x) for |x| <= reach, from its definition."""
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    return x, weights / weights.sum()


@pytest.mark.parametrize("variance", [1, 3, 10])
def test_small_variances_have_the_law_of_the_definition(variance):
    """Chi-squared over 20,000 draws, wrong with 1e-5: a minus zero that counts twice, or a scale without its one."""
    drawn = np.array(discrete_gaussian(variance, 20_000, random.Random(variance).randrange))
    x, p = law(variance, int(5 * variance**0.5) + 2)
    keep = p * len(drawn) > 5
    counts = np.array([np.sum(drawn == value) for value in x[keep]])
    counts, expected = np.append(counts, len(drawn) - counts.sum()), np.append(p[keep], 1 - p[keep].sum()) * len(drawn)
    expected = np.maximum(expected, 1e-9)
    assert stats.chi2.sf(np.sum((counts - expected) ** 2 / np.maximum(expected, 0.5)), len(counts) - 1) > 1e-5


def test_large_variances_are_normal_to_the_eye():
    """Kolmogorov's test over 10,000 draws, wrong with 1e-5: half the standard deviation, or one sign only."""
    sigma = 2**27
    drawn = np.array(discrete_gaussian(sigma**2, 10_000, random.Random(3).randrange), dtype=float)
    assert stats.kstest(drawn / sigma, "norm").pvalue > 1e-5


def test_the_lowest_bits_are_uniform():
    """Rounded floating-point noise of this size would have zeros there."""
    drawn = discrete_gaussian(2**120, 2_000, random.Random(4).randrange)
    counts = np.bincount([value % 8 for value in drawn], minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-5


def test_draws_are_from_the_source_for_secrets_by_default():
    assert discrete_gaussian.__defaults__ == (secrets.randbelow,)
    assert discrete_gaussian(100**2, 50) != discrete_gaussian(100**2, 50)  # equal with about 1e-120


def test_all_draws_are_whole_numbers():
    """A float anywhere would end in a float, or in an error."""
    asked = []

    def below(n):
        assert type(n) is int
        asked.append(n)
        return random.Random(len(asked)).randrange(n)

    assert all(type(value) is int for value in discrete_gaussian(2**80 + 1, 20, below))
    assert max(asked) > 2**160  # a ratio of whole numbers, finer than floats are


def test_no_module_for_floats_is_used():
    names = vars(module)
    assert not {"math", "np", "numpy", "random", "sqrt", "exp"} & names.keys()


def test_a_variance_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1; got 0"):
        discrete_gaussian(0, 1)


@pytest.mark.study
def test_a_thousand_numbers_take_a_tenth_of_a_second():
    began = time.process_time()
    discrete_gaussian(2**54, 1_000)
    assert time.process_time() - began < 0.2
