"""Private fits: what a row can change, that sites add up to one table, that noise is as stated and is counted."""

import itertools
import math
from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from fedgauss.federated.plan import Heard, Question
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.private_families import Binomial, Gaussian, Poisson, clipped_normal, private_name
from fedgauss.federated.private_fit import _Program, _quantile, _raised, _upper, private_program, shares_of
from fedgauss.federated.private_rows import (
    COUNTS,
    EDGES,
    MOST_ROWS,
    STEPS,
    USUAL,
    PrivateRows,
    _step,
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


def multiplier(question, name, of):
    """That of a part of a question, found without the fit."""
    step = "last" if question.content.get("last") else "first"
    stage = {"counts": "bins", "scale": "bins", "step": step}.get(question.kind, question.kind)
    return Fraction(round(1000 * of[f"{stage} {name}"]), 1000)


def wilder(question, rng):
    """A question that no honest run would ask: parameters and coordinates that are powers of ten off."""
    content = dict(question.content)
    for name in ("theta", "whiten", "step"):
        if name in content:
            given = np.array(content[name])
            content[name] = (given * 10.0 ** rng.uniform(-2, 4, given.shape) * rng.choice([-1, 1])).tolist()
    return Question(question.kind, content, question.shapes)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # wild questions overflow
@pytest.mark.parametrize("family", FAMILIES)
def test_no_search_finds_a_row_beyond_the_noise(family):
    """Climbing from the worst of random rows, by what an answer to a table gains by one: never beyond what is paid for.

    That is the variance of the noise of all sites but one, over the square of the multiplier.
    """
    rng, sites, of = np.random.default_rng(7), 4, Privacy(1.0).multipliers(shares_of(family))
    table_of = table(family, 50, 3)
    for question in fitted(family, n=4_000, sites=sites)[0]:
        for asked in (question, wilder(question, rng), wilder(question, rng)):
            without = answer(asked, table_of, silent)
            worst, scale = {name: (0, np.zeros(3)) for name in asked.shapes}, np.array([3.0, 0.6, 6.0])
            for _ in range(15):
                for row in np.vstack([at + scale * rng.standard_t(2, (8, 3)) for _, at in worst.values()]):
                    if family != "gaussian":
                        row[2] = abs(np.rint(row[2]))
                    more = PrivateRows(np.vstack([table_of.x, row[:2]]), np.append(table_of.y, row[2]))
                    for name, total in answer(asked, more, silent).items():
                        gain = sum(int(value) ** 2 for value in total - without[name])
                        assert gain * multiplier(asked, name, of) ** 2 <= (sites - 1) * asked.content["noise"][name]
                        worst[name] = max(worst[name], (gain, row), key=lambda pair: pair[0])
                scale = 0.8 * scale
            if asked is question and question.kind == "step":
                assert worst["score"][0] > 0.9 * STEPS**2  # a search that comes near what it must not find


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


def test_a_shift_of_a_chance_is_over_the_root_of_its_variance():
    """From 1/2, of root 1/2, to 3/4; and from 1/10."""
    for before, after, shift in ((0.5, 0.75, 0.5), (0.1, 0.4, 1.0)):
        logits = (np.array([special.logit(chance)]) for chance in (before, after))
        assert Binomial().shift(*logits, np.ones(1)) == pytest.approx(shift)


def test_families_that_can_be_private_have_one_name():
    names = ["gaussian", "linear", "binomial", "logistic", "poisson", "gamma", "cox", "nonsense", "", None, 3]
    assert [private_name(name) for name in names] == ["gaussian"] * 2 + ["binomial"] * 2 + ["poisson"] + [None] * 6


def test_residuals_of_the_last_step_are_counted_within_their_bound():
    """Of a gaussian response: whether a row's is below the bound, and its square, at most one."""
    made = _Program(("const", *NAMES), "y", "gaussian", [(-1.0, 1.0)] * 3, Privacy(1.0), 4, 1_000)
    content = made.content(np.zeros(len(NAMES) + 1), np.eye(len(NAMES) + 1), 1.0, "last")
    u = [np.ones(5), *(np.zeros(5) for _ in NAMES)]
    response = USUAL * np.array([0.0, 0.5, -0.9, 1.1, -1.9])
    found = _step(Question("step", content, {}), u, response)["residuals"]
    assert found[0].tolist() == [True, True, True, False, False]
    np.testing.assert_allclose(found[1], [0.0, 0.25, 0.81, 1.0, 1.0])


def test_gaussian_residuals_have_the_moments_that_they_say():
    z = np.linspace(-12, 12, 200_001)
    p = stats.norm.pdf(z) * (z[1] - z[0])
    for clip in (0.3, 1.0, 2.5):
        slope, spread = clipped_normal(clip)
        residual = Gaussian(2.0).terms(np.zeros_like(z), 2.0 * z, np.full_like(z, clip)).residual
        assert p @ (residual * z) == pytest.approx(slope, rel=1e-5)
        assert p @ residual**2 == pytest.approx(spread, rel=1e-5)
        moved = Gaussian(2.0).shift(np.zeros(1), np.array([0.5]), np.array([clip]))
        assert moved == pytest.approx(0.25 * slope)  # half a unit, in a scale of two


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
    """Coverage of 40 fits at epsilon .5: below .86 in 120 intervals with 1e-4, as it is without the noise in V."""
    inside, without = [], []
    for seed in range(40):
        _, found = fitted("gaussian", n=4_000, epsilon=0.5, seed=10 + seed)
        off = np.abs(found.fit.params - TRUTH) / (1.96 * found.fit.std_errors)
        inside.append(off < 1)
        without.append(off * found.width < 1)
    assert np.mean(inside) > 0.86 > np.mean(without)


def square(values, p=3):
    """A symmetric matrix from its upper triangle, what is off the diagonal being times root two."""
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = values
    return (matrix + matrix.T) / np.where(np.eye(p) == 1.0, 2.0, math.sqrt(2.0))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_and_its_covariance_are_those_of_the_last_totals(family):
    """By the formula for V in plain NumPy, from what was asked and answered last, in the user's units."""
    rows, noise, told = table(family, 4_000, 6), normal(np.random.default_rng(7), 3), []
    ranges = RANGES | {"y": (-7.0, 9.0)}
    steps = private_program(NAMES, "y", family, ranges, Privacy(2.0), 3, 4_000, 0.9)
    questions, found = play(steps, lambda question: told.append(answer(question, rows, noise)) or told[-1])
    parts_of, sd_of = {}, {}
    for question, totals in zip(questions, told, strict=True):
        kind = "last" if question.content.get("last") and question.kind == "step" else question.kind
        unit = {name: part.bound / STEPS for name, part in bounds(question.kind, question.content, 3).items()}
        parts_of[kind] = {name: unit[name] * total for name, total in totals.items()}
        sd_of[kind] = {name: unit[name] * math.sqrt(3 * question.content["noise"][name]) for name in totals}
    content = next(one.content for one in questions if one.kind == "step" and one.content["last"])
    last, noise = parts_of["last"], sd_of["last"]
    a, b = square(last["matrix"]), square(last["spread"])
    bent, of_bent = np.zeros(3), 0.0
    if family == "gaussian":  # slope and spread, as the residuals that were clipped say they are
        inside, rest = last["residuals"] / 4_000
        a, b = a * inside / clipped_normal(2.5)[0], b * rest * 2.5**2 / clipped_normal(2.5)[1]
    else:
        bent, of_bent = parts_of["curve"]["score"], sd_of["curve"]["score"]
    d = np.linalg.solve(a, last["score"])
    half = np.array(content["whiten"]).T
    theta = content["theta"] + half @ (d - np.linalg.solve(a, bent))
    turn = noise["matrix"] ** 2 / 2 * (d @ d * np.eye(3) + np.outer(d, d))
    of_score = noise["score"] ** 2 + of_bent**2
    lever = half @ np.linalg.inv(a)
    plain, cov = (lever @ inside @ lever.T for inside in (b, b + of_score * np.eye(3) + turn))
    (a_low, a_high), (b_low, b_high), (low, high) = ranges.values()
    units = np.array([[1, -(a_low + a_high) / (a_high - a_low), -(b_low + b_high) / (b_high - b_low)],
                      [0, 2 / (a_high - a_low), 0], [0, 0, 2 / (b_high - b_low)]])  # fmt: skip
    units = units * (high - low) / 2 if family == "gaussian" else units
    middle = [(high + low) / 2 if family == "gaussian" else 0.0, 0, 0]
    np.testing.assert_allclose(found.fit.params, middle + units @ theta, rtol=1e-9)
    np.testing.assert_allclose(found.fit.cov, units @ cov @ units.T, rtol=1e-8)
    width = np.sqrt(np.diag(units @ cov @ units.T) / np.diag(units @ plain @ units.T))
    np.testing.assert_allclose(found.width, width, rtol=1e-8)
    assert found.bend == pytest.approx(np.linalg.norm(bent) / math.sqrt(4_000 + of_score), rel=1e-8)
    z = stats.norm.ppf(0.95)
    np.testing.assert_allclose(found.fit.conf_int()[:, 1], found.fit.params + z * found.fit.std_errors, rtol=1e-9)
    assert found.fit.facts["Widths"] == f"{np.median(width):.2f} times those without noise"
    assert f"up to {width.max():.2f} times as wide ({('const', *NAMES)[int(np.argmax(width))]})" in found.fit.notes[0]
    assert found.fit.facts["Rows"] == "4,000"


@pytest.mark.parametrize("family", FAMILIES)
def test_questions_are_those_of_plain_numpy(family):
    """What coordinates, starts and steps are worked out from totals, with Cholesky's factors by LAPACK."""
    rows, noise, told = table(family, 4_000, 6), normal(np.random.default_rng(8), 3), []
    ranges, n = RANGES | {"y": (-7.0, 9.0)}, 4_000
    steps = private_program(NAMES, "y", family, ranges, Privacy(2.0), 3, n)
    questions, found = play(steps, lambda question: told.append(answer(question, rows, noise)) or told[-1])
    asked, heard, floor = {}, {}, {}
    for question, totals in zip(questions, told, strict=True):
        name = {True: "last", False: "first"}[question.content["last"]] if question.kind == "step" else question.kind
        unit = {part: one.bound / STEPS for part, one in bounds(question.kind, question.content, 3).items()}
        asked[name] = question.content
        heard[name] = {part: unit[part] * total for part, total in totals.items()}
        floor[name] = {
            part: unit[part] * math.sqrt(3 * question.content["noise"][part] * 2 * 3) * np.eye(3) for part in totals
        }
    root = np.linalg.cholesky((square(heard["moments"]["matrix"]) + floor["moments"]["matrix"]) / n)
    whiten = np.linalg.inv(root)
    np.testing.assert_allclose(asked["start"]["whiten"], whiten, rtol=1e-9, atol=1e-12)
    matrix, cross = square(heard["start"]["matrix"]), heard["start"]["cross"]
    slopes = (whiten.T @ np.linalg.solve(matrix + floor["start"]["matrix"], cross))[1:]
    constant = whiten[0, 0] / matrix[0, 0]
    means, mean = constant * root @ matrix[0], constant * cross[0]
    spread, middle = asked["first"]["scale"], mean
    if family != "gaussian":
        half = asked["start"]["ranges"][-1][1] / 2
        mean = half * (mean + 1)
        per = mean * (1 - mean) if family == "binomial" else mean
        slopes, middle = half * slopes / per, math.log(mean / (1 - mean)) if family == "binomial" else math.log(mean)
        assert spread == pytest.approx(math.sqrt(per))
    theta = np.array([middle - slopes @ means[1:], *slopes])
    np.testing.assert_allclose(asked["first"]["theta"], theta, rtol=1e-6, atol=1e-6)  # logarithms have 20 bits
    theta = np.array(asked["first"]["theta"])
    again = np.linalg.cholesky((matrix + floor["start"]["matrix"]) / n)
    whiten = np.linalg.inv(again) @ whiten * (spread if family == "gaussian" else 1 / spread)
    np.testing.assert_allclose(asked["first"]["whiten"], whiten, rtol=1e-9, atol=1e-12)
    a, shape = square(heard["first"]["matrix"]), square(heard["first"]["shape"])
    np.testing.assert_allclose(
        asked["last"]["theta"], theta + whiten.T @ np.linalg.solve(a, heard["first"]["score"]), rtol=1e-9
    )
    whiten = math.sqrt(n) * np.linalg.inv(np.linalg.cholesky(shape)) @ whiten
    np.testing.assert_allclose(asked["last"]["whiten"], whiten, rtol=1e-9, atol=1e-12)
    variances = np.square((root @ again)[1:, 1:]).sum(axis=1)
    np.testing.assert_allclose(found.fit.scales, [1, 4 * math.sqrt(variances[0]), 0.5 * math.sqrt(variances[1])])


def test_the_grid_and_the_bins_are_as_stated():
    assert MOST_ROWS * sensitivity(1) < 2**53 <= 2 * MOST_ROWS * STEPS  # totals are exact as floats, and no less fine
    assert STEPS == 2**20
    assert COUNTS[:8].tolist() == [0, 1, 2, 3, 5, 7, 10, 15]
    assert (COUNTS[-1], len(COUNTS)) == (2**30 - 1, 60)
    assert (EDGES[0], EDGES[-1], len(EDGES)) == (2**-9.75, 2.0, 44)
    assert EDGES[1:] / EDGES[:-1] == pytest.approx(2**0.25)


def test_the_fit_is_like_any_other():
    _, found = fitted("binomial")
    assert isinstance(found.fit, Fit)
    assert found.fit.names == ("const", "a", "b")
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


def noiseless(rows, change=None):
    """Answers of all rows without noise, of which a test may change some."""

    def answer_to(question):
        found = answer(question, rows, silent)
        return found | (change(question, found) or {} if change else {})

    return answer_to


def changed_bins(kind, counts):
    """Other counts in the bins of a question."""
    return lambda question, _: {"bins": STEPS * np.asarray(counts, float)} if question.kind == kind else {}


def test_the_scale_is_interpolated_between_edges():
    """Of 1,000 residuals 200 are below a bin with 700: their median is 3/7 into it."""
    rows = table("gaussian", 1_000, 0)
    for place in (1, 20, len(EDGES) - 1):
        bins = np.zeros(len(EDGES) + 1)
        bins[[place - 1, place, place + 1]] = 200, 700, 100
        questions, _ = play(program("gaussian", 1_000, 8.0), noiseless(rows, changed_bins("scale", bins)))
        scale = next(one for one in questions if one.kind == "step").content["scale"]
        low, high = EDGES[place - 1], EDGES[place]
        assert scale == pytest.approx((low + (high - low) * 300 / 700) / stats.norm.ppf(0.75), rel=1e-5, abs=1e-6)
        assert scale * 2**20 == round(scale * 2**20)


@pytest.mark.parametrize("place", [0, len(EDGES)])
def test_a_median_outside_of_all_edges_is_refused(place):
    bins = changed_bins("scale", 1_000.0 * (np.arange(len(EDGES) + 1) == place))
    with pytest.raises(ValueError, match=r"the range of 'y' must suit its values; of \(-8.0, 8.0\) most residuals"):
        play(program("gaussian", 1_000, 8.0), noiseless(table("gaussian", 1_000, 0), bins))


def test_a_quantile_of_bins():
    bins = np.array([1.0, 2.0, 3.0])
    wanted = {0.5: (0, 0, 1), 1.0: (0, 0, 1), 1.5: (1, 1, 2), 3.0: (1, 1, 2), 6.0: (2, 3, 3), 6.5: (3, 6, 0)}
    assert {rank: _quantile(bins, rank) for rank in wanted} == wanted


def test_counts_are_in_half_of_what_few_rows_exceed():
    """95 of 100 rows are within the range from which a Poisson fit starts; it is at least one, and never endless."""
    rows = table("poisson", 10_000, 0)
    for place, highest in ((0, 1.0), (1, 1.0), (4, 5.0), (len(COUNTS), COUNTS[-1])):
        for inside, here in ((9_501, place), (9_499, place + 1)):
            bins = np.zeros(len(COUNTS) + 2)
            bins[[place, place + 1]] = inside, 10_000 - inside
            steps = program("poisson", 10_000, 8.0)
            assert next(steps).kind == "counts"
            asked = steps.send(Heard({"bins": STEPS * bins[: len(COUNTS) + 1]}, {}, []))
            end = highest if here == place else max(COUNTS[min(here, len(COUNTS) - 1)], 1.0)
            assert asked.content["ranges"][-1] == pytest.approx((0.0, end))
    assert rows.y.max() > 5


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_row_may_add_is_as_the_design_says(family):
    """Clips and weights of each step, from the multipliers and what was found of the response."""
    n = 20_000
    questions, _ = play(program(family, n, 2.0), noiseless(table(family, n, 0)))
    asked = {one.kind if one.kind != "step" else one.content["last"]: one for one in questions}
    first, last = asked[False].content, asked[True].content
    precision = sum(1 / m**2 for m in Privacy(2.0).multipliers(shares_of(family)).values())
    s, length = last["scale"], 0.6 * math.sqrt(3) * (n * precision / 3) ** 0.125
    mean = (1 + math.sqrt(1 - 4 * s * s)) / 2 if family == "binomial" else 0.0
    clip = {"gaussian": 2.5, "binomial": math.sqrt(mean) / s, "poisson": max(3.0, 1 / s)}[family]
    assert (first["longest"], last["longest"]) == pytest.approx((length * clip / 2, length * clip))
    assert asked["start"].content["heaviest"] == pytest.approx(length**2)
    assert first["heaviest"] == pytest.approx(2 * length**2)
    share = 0.05 * n / (Privacy(2.0).multipliers(shares_of(family))["last matrix"] * length**2)
    assert last["heaviest"] == pytest.approx(length**2 * min(max(share, 4.0), 12.0))
    assert (first["family"], last["family"], first["scale"]) == (family, family, s)
    if family != "gaussian":
        curve = asked["curve"].content
        assert curve["most"] == pytest.approx(10 * length**3 * np.dot(curve["step"], curve["step"]) / (3 * s))
        assert {name: curve[name] for name in ("scale", "last", "heaviest")} == {
            name: last[name] for name in ("scale", "last", "heaviest")
        }


def test_weights_are_within_bounds_whatever_the_noise():
    for n, epsilon, times in ((400, 8.0, 4.0), (4_000_000, 8.0, 12.0)):
        made = _Program(("const", *NAMES), "y", "gaussian", [(-1.0, 1.0)] * 3, Privacy(epsilon), 4, n)
        assert made.content(TRUTH, np.eye(3), 1.0, "last")["heaviest"] == pytest.approx(times * made.length**2)


def test_a_count_of_one_is_never_clipped():
    made = _Program(("const", *NAMES), "y", "poisson", [(-1.0, 1.0)] * 3, Privacy(1.0), 4, 1_000)
    assert [made.clip(spread, "last") for spread in (0.1, 0.5, 2.0)] == [10.0, 3.0, 3.0]
    assert made.clip(2.0, "first") == 1.5


@pytest.mark.parametrize(("family", "most"), [("gaussian", 1.12), ("binomial", 1.07), ("poisson", 1.18)])
def test_the_budget_is_shared_out_well(family, most):
    """At epsilon .5 twice the share of anything but the last score makes intervals wider than this."""
    _, found = fitted(family, epsilon=0.5)
    assert found.width.max() < most


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_events_must_exceed_four_deviations_of_the_noise(family):
    questions, _ = fitted(family, epsilon=1.0)
    start = next(one for one in questions if one.kind == "start")
    half = start.content["ranges"][-1][1] / 2
    unit = bounds("start", start.content, 3)["cross"].bound / STEPS
    least = 4 * unit * math.sqrt(4 * start.content["noise"]["cross"]) / 2
    assert (half == 0.5) == (family == "binomial")
    for times, words in ((0.9, f"events must be at least {least:,.0f} in number"), (1.12, "no straight line")):
        y = (np.arange(20_000) % round(20_000 / (times * least)) == 0).astype(float)
        rare = PrivateRows(table(family, 20_000, 0).x, y)
        with pytest.raises(ValueError, match=words):
            play(program(family, 20_000), noiseless(rare))


def curved(by, family="binomial"):
    """A fit whose score bends by so many of its standard errors."""

    def change(question, found):
        if question.kind != "curve":
            return None
        part, noise = bounds("curve", question.content, 3)["score"], question.content["noise"]["score"]
        last = shares_of(family)["last score"], shares_of(family)["curve score"]
        of_curve = 4 * noise * (part.bound / STEPS) ** 2
        of_last = of_curve * last[1] / last[0] * (change.longest / part.bound) ** 2
        bend = by * math.sqrt(20_000 + of_curve + of_last) / (part.bound / STEPS)
        return {"score": np.array([0.6, 0.0, -0.8]) * bend}

    def remember(question, found):
        change.longest = question.content.get("longest", 0.0)
        return change(question, found)

    return play(program(family, 20_000, 8.0), noiseless(table(family, 20_000, 0), remember))[1]


def test_a_score_that_bends_is_noted_and_then_refused():
    quiet, noted = curved(0.47), curved(0.53)
    assert quiet.bend == pytest.approx(0.47, rel=0.01)
    words = "The noise took the first step so far that intervals may cover a little less than they say."
    assert [sum(words in note for note in found.fit.notes) for found in (quiet, noted)] == [0, 1]
    assert curved(0.97).bend == pytest.approx(0.97, rel=0.01)
    words = r"epsilon = 8 asks for more noise than these rows can bear: the score bends too much, or its variance"
    with pytest.raises(ValueError, match=words):
        curved(1.03)


@pytest.mark.parametrize(
    ("part", "words"), [("matrix", "the noise hides the information"), ("spread", "or its variance is hidden")]
)
def test_what_the_noise_has_left_nothing_of_is_refused(part, words):
    def change(question, found):
        return {part: -found[part]} if question.content.get("last") and part in found else {}

    with pytest.raises(ValueError, match=f"more noise than these rows can bear: .*{words}"):
        play(program("binomial", 20_000, 8.0), noiseless(table("binomial", 20_000, 0), change))


def test_a_first_step_that_noise_makes_too_long_is_refused():
    """The bend that it would leave is a twentieth of a standard error at some number of rows, and less above."""
    m = Privacy(1.0).multipliers(shares_of("binomial"))["first score"]
    precision = sum(1 / one**2 for one in Privacy(1.0).multipliers(shares_of("binomial")).values())
    noise = 0.6 * math.sqrt(3) * (precision / 3) ** 0.125 * math.sqrt(0.5) / 0.5 / 2 * m  # times n^(1 / 8)
    n = (3 * noise**2 * (4 / 3) / 0.5 / 2 / 0.05) ** (4 / 5)
    for rows, refused in ((0.97 * n, True), (1.03 * n, False)):
        made = _Program(("const", *NAMES), "y", "binomial", [(-1.0, 1.0)] * 3, Privacy(1.0), 4, round(rows))
        words = "after the first step the score would be no straight line"
        with pytest.raises(ValueError, match=words) if refused else nullcontext():
            made.check_curvature(0.5)


def test_a_matrix_is_raised_until_it_is_positive():
    found = _upper(_raised(np.diag([1.0, -1.0]), 0.4))
    assert found.T @ found == pytest.approx(np.diag([2.6, 0.6]))
    found = _upper(_raised(np.diag([1.0, 2.0]), 0.5))
    assert found.T @ found == pytest.approx(np.diag([1.5, 2.5]))


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
