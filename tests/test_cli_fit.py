"""The verb `fit`: what it prints and leaves, and how it fails."""

import json
import sys
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgauss as fg
from fedgauss._families import shipped_families
from fedgauss.cli import app
from fedgauss.inference.fit_file import fit_numbers
from fedgauss.inference.fit_result import Fit

SGD = ["--target", "died", "--client", "hospital", "--family", "binomial", "--solver", "sgd"]
runner = CliRunner()
RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(20, 80, 400),
        "dose": RNG.exponential(3.0, 400),
        "ward": RNG.choice(["east", "west"], 400),
        "hospital": RNG.choice(["a", "b", "c"], 400),
    }
)
FRAME["died"] = (0.05 * (FRAME.age - 50) - 0.3 * FRAME.dose + RNG.logistic(size=400) > 0).astype(int)


@pytest.fixture
def table(tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    FRAME.to_parquet(tmp_path / "data.parquet")
    return tmp_path / "data.csv"


def fit(*arguments):
    return runner.invoke(app, ["fit", *map(str, arguments)])


def test_a_terminal_is_shown_that_work_goes_on(table, tmp_path, monkeypatch):
    monkeypatch.setattr("fedgauss.inference.fit.fit", lambda *more, **how: 1 / 0)
    asked = ["fit", str(table), "--target", "died", "--client", "hospital", "--out", str(tmp_path / "out")]
    shown = runner.invoke(app, asked, env={"FORCE_COLOR": "1"}).stderr
    assert shown.index("reading") < shown.index("fitting")
    assert "fitting" not in runner.invoke(app, asked).stderr


def test_help_teaches():
    shown = fit("--help").output
    assert all(name in shown for name in fg.families.names())
    assert {fg.families.family(name).name for name in fg.families.names()} == set(shipped_families())
    for word in ("--target", "--client", "one_versus_rest", "fedgauss fit data.csv --target y --client hospital"):
        assert word in shown


def test_a_summary_is_printed_and_files_are_left(table, tmp_path):
    out = tmp_path / "out"
    asked = ("--target", "died", "--client", "hospital", "--family", "logistic", "--features", "age, dose,ward")
    done = fit(table, *asked, "--errors", "HC1", "--out", out)
    assert done.exit_code == 0, done.output
    found = fg.fit(FRAME, "died", "hospital", "logistic", ["age", "dose", "ward"], errors="HC1")
    assert found.summary() in done.output
    assert str(out / "fit.json") in done.output
    assert {path.name for path in out.iterdir()} == {"fit.json", "coefficients.png", "coefficients.svg"}
    held = json.loads((out / "fit.json").read_text(), parse_constant=pytest.fail)
    assert held["names"] == ["const", "age", "dose", "ward[T.west]"]
    np.testing.assert_allclose(held["params"], found.params)
    np.testing.assert_allclose(held["cov"], found.cov)
    np.testing.assert_allclose(held["intervals"], found.conf_int())
    assert held["facts"]["Errors"] == "HC1"


@pytest.mark.study
def test_the_pass_of_sgd_is_asked_for(table, tmp_path):
    asked = ("--target", "died", "--client", "hospital", "--family", "logistic", "--features", "age,dose")
    done = fit(table, *asked, "--solver", "sgd", "--passes", 3, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    held = json.loads((tmp_path / "fit.json").read_text(), parse_constant=pytest.fail)
    assert held["facts"]["Passes"] == "3"
    assert "Rows were read 3 times" in held["notes"][0]
    assert Fit.load(tmp_path / "fit.json").facts["Passes"] == "3"
    whole = fit(table, *asked, "--solver", "sgd", "--network", "complete", "--weights", "equal", "--out", tmp_path)
    assert "(complete)" in whole.output
    assert "Weights: equal" in whole.output
    failed = fit(table, *asked, "--passes", 3, "--out", tmp_path)
    assert "--passes belongs to --solver sgd" in failed.stderr


def test_parquet_and_a_formula_say_the_same(table, tmp_path):
    asked = ("--target", "died", "--client", "hospital", "--family", "logistic", "--out")
    one = fit(table, *asked, tmp_path / "one", "--formula", "died ~ C(ward) + age - 1")
    two = fit(table.with_suffix(".parquet"), *asked, tmp_path / "two", "--features", "ward,age", "--no-intercept")
    assert (one.exit_code, two.exit_code) == (0, 0), one.output + two.output
    first, second = (json.loads((tmp_path / name / "fit.json").read_text()) for name in ("one", "two"))
    assert first["names"] == ["C(ward)[east]", "C(ward)[west]", "age"]
    assert first["params"] == second["params"]


def test_every_option_of_a_model_is_one_of_the_command(table, tmp_path):
    shown = fit("--help").output
    assert all("--" + part.name.replace("_", "-") in shown for part in fields(fg.Model))
    asked = ("--client", "hospital", "--formula", "died ~ ward + age", "--family", "binomial", "--ridge", "0.5")
    done = fit(table, *asked, "--link", "probit", "--merged", "ward:west=w", "--pool-rare", "5", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    model = fg.Model("died ~ ward + age", family="binomial", ridge=0.5, link="probit", merged={"ward": {"west": "w"}})
    found = fg.fit(FRAME, model, client="hospital")
    assert found.names == ("Intercept", "ward[T.w]", "age")
    np.testing.assert_allclose(Fit.load(tmp_path / "fit.json").params, found.params)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--client", "hospital"], "--target must be given"),
        (["--target", "died", "--client", "hospital", "--merged", "ward=west"], "--merged must be a column and two of"),
        (
            ["--target", "died", "--client", "hospital", "--ridge", "-1"],
            "--ridge must be a number that is not negative",
        ),
        (["--target", "dead", "--client", "hospital"], "got 'dead'. Did you mean 'died'?"),
        (["--target", "died", "--client", "hospital", "--features", "age,doze"], "Did you mean 'dose'?"),
        (["--target", "died", "--client", "hospital", "--family", "cauchy"], "--family must be one of"),
        (["--target", "died", "--client", "hospital"], "Use --family binomial for odds, or --family gaussian"),
        (["--target", "age", "--client", "hospital", "--errors", "hc1"], "Did you mean 'HC1'?"),
        (
            ["--target", "died", "--client", "hospital", "--features", ""],
            "columns must be names with commas between them; got ''",
        ),
        (["--target", "died", "--client", "hospital", "--level", "95"], "level must lie strictly between 0 and 1"),
        ([*SGD, "--passes", "0"], "passes must be at least 1; got 0"),
        ([*SGD, "--method", "magic"], "method must be one of"),
        (["--target", "ward", "--client", "hospital", "--family", "logistic"], "it has 'east' and 'west'"),
    ],
)
def test_bad_input_is_one_line(table, tmp_path, arguments, rule):
    failed = fit(table, *arguments, "--out", tmp_path / "out")
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert rule in failed.stderr


@pytest.mark.parametrize(
    ("name", "content", "rule"),
    [
        ("none.csv", None, "data must be a file that exists"),
        ("data.xlsx", b"", "data must be a .csv or .parquet file"),
        ("empty.csv", b"", "could not be read as csv: No columns to parse"),
        ("broken.parquet", b"no parquet", "could not be read as parquet"),
        ("tiny.parquet", b"no", "could not be read as parquet"),
        ("binary.csv", b"a,b\n\xff\xfe\x00,1\n", "must be text in UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(tmp_path, name, content, rule):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    failed = fit(tmp_path / name, "--target", "y", "--client", "c", "--out", tmp_path / "out")
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert rule in failed.stderr
    assert ".." not in failed.stderr  # a reason may end in a full stop of its own


def test_without_pandas_the_error_says_what_to_install(table, tmp_path, monkeypatch):
    (tmp_path / "data.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pandas", None)
    failed = fit(tmp_path / "data.parquet", "--target", "died", "--client", "hospital", "--out", tmp_path / "out")
    assert (failed.exit_code, failed.stderr.count("\n")) == (2, 1)
    assert "needs pandas and pyarrow: pip install pandas pyarrow" in failed.stderr


def test_the_figure_shows_slopes_for_one_standard_deviation():
    found = fg.fit(FRAME, "died", "hospital", "logistic", ["age", "dose", "ward"])
    axes = found.plot(standardised=True).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["age", "dose", "ward[T.west]"]
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(
        dots, found.params[1:] * [FRAME.age.std(ddof=0), FRAME.dose.std(ddof=0), found.scales[3]]
    )
    alone = fg.fit(FRAME, "died", "hospital", "logistic", [])
    assert [label.get_text() for label in alone.plot(standardised=True).axes[0].get_yticklabels()] == ["const"]
    json.dumps(fit_numbers(alone), allow_nan=False)


@pytest.mark.parametrize("formula", [None, "died ~ const + Intercept + dose"])
def test_a_covariate_may_have_the_name_of_an_intercept(formula):
    """All of them are drawn, and the intercept, which goes by another name, is not."""
    frame = FRAME.rename(columns={"age": "const"}).assign(Intercept=RNG.standard_normal(400))
    features = ["const", "Intercept", "dose"] if formula is None else None
    found = fg.fit(frame, "died", "hospital", "logistic", features, formula)
    assert found.names == ("(const)" if formula is None else "(Intercept)", "const", "Intercept", "dose")
    assert found.intercepts == (0,)
    axes = found.plot(standardised=True).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["const", "Intercept", "dose"]


def test_intercepts_of_every_class_are_left_out_of_the_figure():
    found = fg.fit(FRAME.assign(stage=np.arange(400) % 3), "stage", "hospital", "one_versus_rest", ["dose"])
    assert found.intercepts == (0, 2, 4)
    labels = [label.get_text() for label in found.plot(standardised=True).axes[0].get_yticklabels()]
    assert labels == ["0: dose", "1: dose", "2: dose"]


def test_federate_says_where_a_pass_of_sgd_is():
    asked = ["federate", "--solver", "sgd", "--target", "y", "--site", "a=nothing"]
    shown = " ".join(runner.invoke(app, asked).stderr.split())
    assert "federate fits by scoring; got --solver sgd. Leave it out: a pass of SGD is for rows that are in" in shown
