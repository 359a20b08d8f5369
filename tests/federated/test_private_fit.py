"""Private fits: what a row can change, that sites add up to one table, that noise is as stated and is counted."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from fedgauss.federated.plan import Heard
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_families import Gaussian, Poisson, clipped_normal
from fedgauss.federated.private_fit import private_program, shares_of
from fedgauss.federated.private_rows import (
    STEPS,
    PrivateRows,
    answer,
    bounds,
    in_ranges,
    parts,
    sensitivity,
    share,
    whole,
)
from fedgauss.federated.wire import digest
from fedgauss.inference.fit_result import Fit

NAMES, RANGES = ("a", "b"), {"a": (-4.0, 4.0), "b": (0.0, 1.0), "y": (-8.0, 8.0)}
TRUTH = np.array([-0.8, 0.5, 0.6])
FAMILIES = ("gaussian", "binomial", "poisson")


def silent(_, size):
    return [0] * size


def normal(rng, sites):
    """The noise of so many sites at once: rounded normals, which at this size no test tells from discrete Gaussians."""
    return lambda variance, size: np.rint(rng.normal(0, math.sqrt(sites * variance), size))


def table(family, n, seed):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=n), rng.random(n) < 0.4])
    line = TRUTH[0] + x @ TRUTH[1:]
    if family == "gaussian":
        return PrivateRows(x, line + rng.normal(size=n))
    if family == "binomial":
        return PrivateRows(x, (rng.random(n) < special.expit(line)).astype(float))
    return PrivateRows(x, rng.poisson(np.exp(line)).astype(float))


def program(family, n, epsilon=1.0, sites=4):
    return private_program(NAMES, "y", family, RANGES, Privacy(epsilon), sites, n)


def play(steps, answer_to):
    """All questions, and the result."""
    questions = [next(steps)]
    try:
        while True:
            questions.append(steps.send(Heard(answer_to(questions[-1]), {}, [])))
    except StopIteration as end:
        return questions, end.value


def fitted(family, n=20_000, epsilon=1.0, sites=4, seed=0, noise=None):
    rows = table(family, n, seed)
    noise = noise or normal(np.random.default_rng(seed + 1), sites)
    return play(program(family, n, epsilon, sites), lambda question: answer(question, rows, noise))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_row_moves_a_total_by_more_than_the_sensitivity(family):
    """Any row: ordinary, in corners, outside all ranges, infinite, or no number. Its vector is whole, and short."""
    questions, _ = fitted(family)
    ends = (-1e300, -5.0, -4.0, -0.3, 0.0, 1.0, 2.0, 4.0, 30.0, 1e300, math.inf, -math.inf, math.nan)
    a, b, y = np.array(list(itertools.product(ends, (-1e9, 0.0, 0.5, 1.0, math.nan), ends))).T
    reached = {}
    for question in questions:
        found = bounds(question.kind, question.content, 3)
        assert {name: (part.length,) for name, part in found.items()} == question.shapes
        with np.errstate(invalid="ignore", over="ignore"):
            vectors = parts(question, *in_ranges(question, np.column_stack([a, b]), y))
        assert vectors.keys() == found.keys()
        for name, part in found.items():
            steps = whole(vectors[name], part.bound)
            assert np.array_equal(steps, np.rint(steps))
            longest = max(sum(int(value) ** 2 for value in row) for row in steps.T)
            assert longest <= sensitivity(part.length) ** 2
            fits = np.linalg.norm(vectors[name], axis=0) <= part.bound * (1 + 1e-9)
            assert fits[np.isfinite([a, b, y]).all(axis=0)].all()  # no finite row is left out
            if question.kind != "curve" and (question.kind != "step" or name in ("score", "residuals")):
                reached[question.kind, name, question.content.get("last")] = math.sqrt(longest) / STEPS
    assert min(reached.values()) > 0.6, reached  # a bound that nobody reaches wastes the budget


def test_a_vector_that_is_too_long_counts_for_nothing():
    limit = sensitivity(2)
    assert limit == STEPS + 1
    rows = np.array([[1.0, 1.0 + 3e-6, math.nan, math.inf, -1e308], [0.0, 0.0, 0.0, 0.0, -1e308]])
    assert np.array_equal(whole(rows, 1.0), [[STEPS, 0, 0, 0, 0], [0, 0, 0, 0, 0]])


def test_rounding_is_in_the_sensitivity():
    """The worst that rounding does to a vector of bounded length stays within it, for every length of vector."""
    for length in (1, 2, 6, 21, 210):
        inside = STEPS + math.sqrt(length) / 2
        assert inside <= sensitivity(length) < inside + 1


@pytest.mark.parametrize("sites", [2, 3, 8])
def test_all_sites_but_one_have_the_whole_noise(sites):
    """A site that takes off its own share is left with what was promised; with 1 / K in place of 1 / (K - 1) not."""
    for multiplier, length in ((0.5, 1), (4.321, 6), (98.765, 21)):
        promised = (Fraction(round(1000 * multiplier), 1000) * sensitivity(length)) ** 2
        rest = (sites - 1) * share(multiplier, length, sites)
        assert promised <= rest < promised + sites
        assert (sites - 1) * rest // sites < promised


@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_of_every_answer_is_paid_for_once(family):
    """Noise that a question asks for, against the share of the budget of its part: none is left out, or used twice."""
    questions, found = fitted(family, sites=5)
    variances = sorted(v for q in questions for v in q.content["noise"].values())
    lengths = [length for q in questions for (length,) in q.shapes.values()]
    multipliers = Privacy(1.0).multipliers(shares_of(family))
    assert len(variances) == len(lengths) == len(multipliers) == len(found.cost)
    assert set(found.cost) == set(multipliers.values())
    relative = sorted(
        v * 4 / sensitivity(n) ** 2
        for q in questions
        for v, (n,) in zip(q.content["noise"].values(), q.shapes.values(), strict=True)
    )
    assert relative == pytest.approx(sorted(m**2 for m in multipliers.values()), rel=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_sites_add_up_to_one_table(family):
    """Answers of three sites without noise are, to the last bit, that of all rows."""
    questions, _ = fitted(family, n=9_000)
    rows = table(family, 9_000, 5)
    cuts = [slice(0, 100), slice(100, 5_000), slice(5_000, 9_000)]
    for question in questions:
        each = [answer(question, PrivateRows(rows.x[cut], rows.y[cut]), silent) for cut in cuts]
        together = answer(question, rows, silent)
        for name, total in together.items():
            assert np.array_equal(sum(one[name] for one in each), total)


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_follow_from_totals_to_the_last_bit(family):
    rows, noise = table(family, 9_000, 2), normal(np.random.default_rng(3), 4)
    heard, steps = [], program(family, 9_000)
    questions, first = play(steps, lambda question: heard.append(answer(question, rows, noise)) or heard[-1])
    told = iter(heard)
    again, second = play(program(family, 9_000), lambda _: next(told))
    assert [digest(one.content) for one in questions] == [digest(one.content) for one in again]
    assert np.array_equal(first.fit.cov, second.fit.cov)


def test_a_site_adds_its_noise():
    """Kolmogorov's test of what a site adds, by the exact sampler, over 273 numbers: wrong with 1e-5."""
    questions, _ = fitted("binomial")
    rows = table("binomial", 100, 1)
    question = questions[0]
    plain, variance = answer(question, rows, silent)["matrix"], question.content["noise"]["matrix"]
    added = np.concatenate([answer(question, rows)["matrix"] - plain for _ in range(50)])
    assert stats.kstest(added / math.sqrt(variance), "norm").pvalue > 1e-5


def test_poisson_residuals_have_the_moments_that_they_say():
    """Against sums over the law of counts, from means at which hardly any count is one to those that look normal."""
    y = np.arange(2_000.0)
    for mean in (0.003, 0.05, 0.3, 0.99, 1.0, 4.0, 9.5, 60.0, 700.0):
        p = stats.poisson.pmf(y, mean)
        for clip in (0.2, 0.9, 3.0, 6.0):
            predictor = np.full_like(y, math.log(mean))
            terms = Poisson().terms(predictor, y, np.full_like(y, clip))
            root = math.sqrt(mean)
            assert p @ terms.residual == pytest.approx(0.0, abs=1e-9)
            assert p @ terms.residual**2 == pytest.approx(terms.spread[0], rel=1e-7, abs=1e-10)
            assert p @ (terms.residual * (y - mean)) / root == pytest.approx(terms.slope[0], rel=1e-7, abs=1e-10)
            assert np.abs(terms.residual).max() <= terms.reach[0] * (1 + 1e-12)
            other = stats.poisson.pmf(y, 1.3 * mean)
            shift = Poisson().shift(predictor, predictor + math.log(1.3), np.full_like(y, clip))
            assert other @ terms.residual == pytest.approx(shift[0], rel=1e-6, abs=1e-9)


def test_gaussian_residuals_have_the_moments_that_they_say():
    z = np.linspace(-12, 12, 200_001)
    p = stats.norm.pdf(z) * (z[1] - z[0])
    for clip in (0.3, 1.0, 2.5):
        slope, spread = clipped_normal(clip)
        residual = Gaussian(2.0).terms(np.zeros_like(z), 2.0 * z, np.full_like(z, clip)).residual
        assert p @ (residual * z) == pytest.approx(slope, rel=1e-5)
        assert p @ residual**2 == pytest.approx(spread, rel=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_without_noise_it_is_nearly_the_maximum_of_the_likelihood(family):
    """At epsilon 4 and 40,000 rows; bounded scores of the clipped rows leave a tenth of a standard error or so."""
    _, found = fitted(family, n=60_000, epsilon=4.0)
    rows = table(family, 60_000, 0)
    x = np.column_stack([np.ones(60_000), rows.x])
    theta = np.array([np.log(rows.y.mean()) if family == "poisson" else 0.0, 0.0, 0.0])
    for _ in range(12):
        line = x @ theta
        mean = {"gaussian": line, "binomial": special.expit(line), "poisson": np.exp(np.minimum(line, 5.0))}[family]
        variance = {"gaussian": np.ones_like(mean), "binomial": mean * (1 - mean), "poisson": mean}[family]
        information = (x * variance[:, None]).T @ x
        theta = theta + np.linalg.solve(information, x.T @ (rows.y - mean))
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    assert np.all(np.abs(found.fit.params - theta) < 0.6 * errors)
    assert np.all((0.97 * errors < found.fit.std_errors) & (found.fit.std_errors < 1.12 * errors))
    assert np.all(found.width < 1.02)


def test_intervals_know_the_noise():
    """Coverage of 40 fits at epsilon .5: below .86 in 120 intervals with 1e-4, and .80 without the noise in V."""
    inside, widths = [], []
    for seed in range(40):
        _, found = fitted("gaussian", n=4_000, epsilon=0.5, seed=10 + seed)
        low, high = found.fit.conf_int().T
        inside.append((low < TRUTH) & (high > TRUTH))
        widths.append(found.width)
    assert np.mean(inside) > 0.86
    assert np.median(widths) > 1.4


def test_the_fit_is_like_any_other():
    _, found = fitted("binomial")
    assert isinstance(found.fit, Fit)
    assert found.fit.names == ("const", "a", "b")
    assert found.privacy == Privacy(1.0)
    text = found.fit.summary()
    assert "epsilon 1, delta 1e-06" in text
    assert "times those without noise" in text
    assert "Differential privacy" in text
    assert found.fit.scales == pytest.approx([1.0, 1.0, 0.49], rel=0.1)
    assert found.fit.params["a"] == found.fit.params[1]


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_rare_events_are_refused(family):
    rows = table(family, 20_000, 0)
    rare = PrivateRows(rows.x, rows.y * (np.arange(20_000) % 30 == 0))
    steps = program(family, 20_000, epsilon=0.5)
    noise = normal(np.random.default_rng(1), 4)
    with pytest.raises(ValueError, match=r"epsilon = 0.5 asks for more noise than these rows can bear.*larger epsilon"):
        play(steps, lambda question: answer(question, rare, noise))


def test_few_rows_are_refused():
    noise = normal(np.random.default_rng(1), 4)
    rows = table("gaussian", 150, 0)
    with pytest.raises(ValueError, match=r"more noise than these rows can bear|must suit its values"):
        play(program("gaussian", 150, epsilon=0.1), lambda question: answer(question, rows, noise))


def in_range(end):
    rows, noise = table("gaussian", 20_000, 0), normal(np.random.default_rng(0), 4)
    steps = private_program(NAMES, "y", "gaussian", RANGES | {"y": (-end, end)}, Privacy(1.0), 4, 20_000)
    return play(steps, lambda question: answer(question, rows, noise))[1]


def test_a_range_that_is_too_narrow_is_refused():
    with pytest.raises(ValueError, match="the range of 'y' must suit its values"):
        in_range(0.01)


def test_a_range_that_is_too_wide_is_paid_for_in_width():
    found = in_range(1e5)
    assert found.width.max() > 2.0
    assert any("Most of the width is noise" in note for note in found.fit.notes)
    assert np.all(np.abs(found.fit.params - TRUTH) < 4 * found.fit.std_errors)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"family": "cox"}, "must be of family gaussian, binomial, poisson; got 'cox'"),
        ({"ranges": {"a": (0, 1)}}, "needs the range of 'b'"),
        ({"ranges": RANGES | {"b": (1, 1)}}, "low < high; got"),
        ({"ranges": RANGES | {"b": (0, math.inf)}}, "low < high; got"),
        ({"n_sites": 1}, "n_sites must be at least 2; got 1"),
        ({"n_rows": 2_000_000}, "delta must be below 1 / 2000000"),
    ],
)
def test_what_cannot_be_private_is_refused_before_anything_is_asked(change, words):
    plan = {"names": NAMES, "target": "y", "family": "gaussian", "ranges": RANGES, "privacy": Privacy(1.0)}
    with pytest.raises(ValueError, match=words):
        private_program(**plan | {"n_sites": 4, "n_rows": 1_000} | change)


@pytest.mark.study
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_coverage(family, epsilon):
    """300 fits of 20,000 rows, three intervals each: outside .92 and .98 with less than 1e-4."""
    inside = []
    for seed in range(300):
        _, found = fitted(family, epsilon=epsilon, sites=8, seed=100 + seed)
        low, high = found.fit.conf_int().T
        inside.append((low < TRUTH) & (high > TRUTH))
    assert 0.92 < np.mean(inside) < 0.98
