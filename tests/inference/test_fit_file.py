"""A fit as a file: the same after reading, and refused with a sentence when it is anything else."""

import json
import random
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.inference import fit_file
from fedgauss.inference.fit_file import fit_numbers, read_fit
from fedgauss.inference.fit_result import Fit, FitStatistics
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.site_estimates import site_estimates

NAMES = ("const", "âge", 'ward[T."b"]')
SITES = site_estimates(
    ["a", "b", "c"], NAMES, [[0.1, 0.2, 0.3], [1.0, 2.0, np.nan], [0.4, 0.5, 0.6]], np.tile(np.eye(3), (3, 1, 1)),
    {"d": "separable classes"},
)  # fmt: skip
FIT = Fit(
    [1 / 3, -2e-7, 1e9], np.diag([0.1, 1e-16, 1e14]) + 0.0, 0.9, "scoring", NAMES, {"Target": "y", "Rows": "90"},
    ("One note.", "Another."), bias=np.array([0.1, 0.2, 0.3]), predicted_coverage=np.array([0.9, 0.91, 0.92]),
    heterogeneity=ChiSquared(3.5, 4, 0.48), dof=12.5, intercepts=(0,), scales=np.array([1.0, 2.0, 3.0]),
    statistics=FitStatistics(90, 3, 87, -40.25, -50.0, 80.5, 100.0, 1.0, 88.0, 6), sites=SITES,
)  # fmt: skip
BARE = Fit([0.5], np.eye(1), 0.95, "bootstrap", ("x",), deviations=np.array([[0.1], [-0.2], [0.3]]))


def same(one, other):
    """Whether two fits hold the same numbers and words, to the last bit."""
    for each in fields(Fit):
        ours, theirs = getattr(one, each.name), getattr(other, each.name)
        if each.name == "sites" and ours is not None:
            if str(ours) != str(theirs) or not np.array_equal(ours.cov, theirs.cov, equal_nan=True):
                return False
        elif isinstance(ours, np.ndarray):
            if not np.array_equal(ours, theirs):
                return False
        elif ours != theirs:
            return False
    return True


@pytest.mark.parametrize("fit", [FIT, BARE], ids=["full", "bare"])
def test_a_fit_is_the_same_after_reading(tmp_path, fit):
    path = tmp_path / "fit.json"
    fit.save(path)
    again = Fit.load(str(path))
    assert same(fit, again)
    assert again.summary() == fit.summary()
    assert list(tmp_path.iterdir()) == [path]
    held = json.loads(path.read_text(), parse_constant=pytest.fail)
    np.testing.assert_array_equal(held["std_errors"], fit.std_errors)  # for readers without this package
    np.testing.assert_array_equal(held["intervals"], fit.conf_int())


def test_what_is_not_finite_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="must have finite numbers"):
        Fit([np.nan], np.eye(1), 0.95, "scoring", ("x",)).save(tmp_path / "fit.json")
    assert not list(tmp_path.iterdir())


def test_two_thousand_damaged_files_are_refused_or_the_same():
    """Bits flipped, bytes cut, doubled, swapped and replaced: no other fit, and nothing but a ValueError."""
    whole = json.dumps(fit_numbers(FIT), ensure_ascii=False).encode()
    rng = random.Random(7)
    refused = 0
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at, length = rng.randrange(len(content)), rng.randint(1, 30)
            kind = rng.randrange(5)
            if kind == 0:
                content[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                del content[at : at + length]
            elif kind == 2:
                content[at:at] = content[at : at + length]
            elif kind == 3:
                content[at : at + 1] = rng.choice([b"9", b" ", b"null", b"[", b"}", b"-", b"NaN", b"1e999", b"\xff"])
            else:
                content = content[:at]
        try:
            found = read_fit(bytes(content))
        except ValueError:
            refused += 1
        else:
            assert same(FIT, found)
    assert refused > 1900


def signed(content):
    """With a checksum that fits, as a stranger would make it."""
    plain = {key: value for key, value in content.items() if key != "checksum"}
    return json.dumps({**plain, "checksum": fit_file._checksum(plain)}).encode()


def places(value, path=()):
    """The way to every value in nested lists and objects."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from places(part, (*path, key))


def put(content, path, value):
    *above, last = path
    for key in above:
        content = content[key]
    content[last] = value


RNG = np.random.default_rng(3)
ROWS = {
    "age": RNG.uniform(20, 80, 90), "dose": RNG.normal(size=90), "ward": RNG.choice(["a", "b"], 90),
    "days": RNG.uniform(1, 9, 90), "site": np.arange(90) % 2, "visits": RNG.poisson(3.0, 90),
}  # fmt: skip
PREDICTS = fg.fit(
    ROWS,
    fg.Model(
        "visits",
        family="poisson",
        formula="ns(age, df=2)*C(ward, Treatment('b')) + scale(dose) + I(log(age)**2)",
        exposure="days",
    ),
    client="site",
)


@pytest.mark.parametrize(("fit", "parts"), [(FIT, ()), (PREDICTS, ("design", "family"))], ids=["full", "predicts"])
def test_values_of_another_kind_are_refused_or_make_a_fit_that_works(fit, parts):
    """A stranger's checksum fits: every value is then replaced in turn by values of all kinds."""
    base = fit_numbers(fit)
    odd = [None, True, -1, 0, 1.5, 1e308, 10**400, "x", "", [], [[]], {}, {"a": 1}, [None], [1.0, "2"], "\ud800"]
    worked = refused = 0
    for i, path in enumerate(place for place in places(base) if place and place[0] in (parts or base)):
        for value in odd[i % 3 :: 3]:
            content = json.loads(json.dumps(base))
            put(content, path, value)
            try:
                found = read_fit(signed(content))
            except ValueError:
                refused += 1
                continue
            worked += 1
            found.summary(), found._repr_html_(), found.to_latex()
            with suppress(ValueError):  # and no other error
                found.predict(ROWS)
    assert refused > 100
    assert worked > 0


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"format": "pickle"}, "must be a JSON object with the format 'fedgauss fit'"),
        ({"version": 2}, "version must be 1; got 2"),
        ({"version": True}, "version must be 1; got True"),
        ({"extra": 1}, "'extra' does not belong there"),
        ({"names": ["a", "a", "b"]}, "names must differ"),
        ({"names": []}, "at least one"),
        ({"params": [1.0, 2.0]}, "params must be 3 numbers"),
        ({"params": [1.0, 2.0, "3"]}, "each of params must be a number"),
        ({"cov": [[1, 2, 0], [0, 1, 0], [0, 0, 1]]}, "cov must be symmetric"),
        ({"cov": [[1, 0, 0], [0, -1, 0], [0, 0, 1]]}, "cov must be positive semi-definite"),
        ({"cov": [[0, 0, 0], [0, 1, 0], [0, 0, 1]]}, "positive variances"),
        ({"cov": [[1, 0], [0, 1, 0], [0, 0, 1]]}, "rows of one length"),
        ({"level": 1.0}, "level must lie strictly"),
        ({"dof": 0}, "dof must be greater than 0"),
        ({"facts": ["Target"]}, "facts must be an object"),
        ({"facts": {"Target": 3}}, "the fact 'Target' must be text"),
        ({"intercepts": [3]}, "each of intercepts must be at most 2"),
        ({"intercepts": [0, 0]}, "intercepts must differ"),
        ({"scales": [1, 1]}, "scales must be 3 positive numbers"),
        ({"clients_alike": {"statistic": -1, "dof": 1, "p_value": 0.5}}, "clients_alike must have"),
        ({"deviations": [[1, 2, 3]]}, "at least two draws"),
        ({"statistics": {"n_rows": 5}}, "'n_params' is missing"),
        ({"sites": {}}, "'sites' is missing"),
        ({"shapes": [3]}, "each of shapes must be at most 2"),
        ({"design": {}}, "'columns' is missing"),
        ({"design": []}, "design must be an object"),
        ({"family": {"name": "linear", "settings": {"link": "log"}}}, "settings must be those of family 'linear'"),
        ({"family": {"name": "cox", "settings": {"ties": "exact"}}}, "ties must be one of"),
    ],
)
def test_each_field_has_a_rule(tmp_path, change, rule):
    path = tmp_path / "fit.json"
    path.write_bytes(signed({**fit_numbers(FIT), **change}))
    with pytest.raises(ValueError, match=rule) as raised:
        Fit.load(path)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "UTF-8"),
        (b"[]", "must be a JSON object"),
        (b'{"a": NaN}', "must be finite; got NaN"),
        (b'{"a": 1, "a": 2}', "a name twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_fit_at_all(tmp_path, content, rule):
    path = tmp_path / "fit.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rule):
        Fit.load(path)


def test_deep_nesting_in_a_signed_file_and_large_files_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "fit.json"
    text = json.dumps(fit_numbers(FIT)).replace('"One note."', "[" * 20_000 + "]" * 20_000)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"nested too deeply|checksum"):
        Fit.load(path)
    monkeypatch.setattr(fit_file, "_LARGEST", 1000)
    with pytest.raises(ValueError, match="it is larger"):
        Fit.load(path)
    with pytest.raises(ValueError, match="a saved fit must have at most"):
        FIT.save(path)
    with pytest.raises(FileNotFoundError):
        Fit.load(tmp_path / "nothing.json")
