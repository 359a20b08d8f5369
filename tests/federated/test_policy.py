"""A site's policy: read, refused where it is wrong, and kept."""

import tomllib
from pathlib import Path

import pytest

from fedgauss.federated.budget import PRIVACY, Budget
from fedgauss.federated.policy import Policy, example_policy
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.refusal import Refused


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
        return tmp_path / "policy.toml"

    return write


def test_the_example_is_the_default_policy(written):
    assert Policy.read(written(example_policy())) == Policy()
    assert "--policy" in example_policy().splitlines()[0]
    uncommented = "\n".join(line.removeprefix("# ") for line in example_policy().splitlines()[1:])
    assert tomllib.loads(uncommented)["site"].keys() == Policy.__dataclass_fields__.keys()
    open_keys = uncommented.replace('"..."', f'"{"0f" * 32}"')
    policy = Policy.read(written(open_keys))
    assert policy.columns == ("age", "dose", "died")
    assert policy.sites == {"south": "0f" * 32}


def test_what_is_written_is_what_holds(written, tmp_path):
    text = '[site]\nleast_rows = 50\nmasks = "required"\nnever = ["name"]\nsecret = "kept/word"\ntries = 7\n'
    policy = Policy.read(written(text))
    assert (policy.least_rows, policy.masks, policy.never) == (50, "required", ("name",))
    assert policy.secret == str(tmp_path / "kept" / "word")
    assert policy.budget == Budget(tries=7)
    assert Policy.read(written("")) == Policy()


def test_policies_in_the_tutorial_are_some(written):
    page = (Path(__file__).parents[2] / "docs" / "tutorials" / "fit_federated.md").read_text(encoding="utf-8")
    found = [block for block in page.split("```")[1::2] if "[site]" in block]
    assert any(block.partition("\n")[2].strip() == example_policy().strip() for block in found)
    for block in found:
        Policy.read(written(block[block.index("[site]") :].replace('"..."', f'"{"0f" * 32}"')))


def test_it_prints_itself():
    shown = str(Policy(columns=("age", "dose")))
    assert "least_rows           10           rows that this site must have" in shown
    assert "columns              age and dose columns" in shown
    assert len(shown.splitlines()) == 1 + len(Policy.__dataclass_fields__)
    assert repr(Policy()) == "<Policy of a site>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("least_rows = 5", r"a policy has one table, \[site\]; got 'least_rows' beside it. Move it below \[site\]"),
        ("site = 5", r"site must be a table, \[site\]; got 5"),
        ("[site]\nleast_row = 5", "a policy has no key 'least_row'. Did you mean 'least_rows'?"),
        ("[site]\nx = 5", "a policy has no key 'x'. The keys are least_rows, few, cells, rows_per_parameter"),
        ("[site]\nleast_rows = 5\nleast_rows = 6", "a policy must be TOML; .*policy.toml is not"),
        ("[site", "a policy must be TOML; .* See fedgauss site --example-policy"),
        ("[site]\nleast_rows = 1", "least_rows must be a whole number of at least 2; got 1. Use least_rows = 10?"),
        ("[site]\nleast_rows = 2.5", "least_rows must be a whole number of at least 2; got 2.5"),
        ("[site]\nleast_rows = true", "least_rows must be a whole number of at least 2; got True"),
        ('[site]\nleast_rows = "9"', "least_rows must be a whole number of at least 2; got '9'"),
        ("[site]\nfewest_sites = 0", "fewest_sites must be a whole number of at least 1; got 0. Use fewest_sites = 2?"),
        ("[site]\nrows_per_parameter = 0.5", "rows_per_parameter must be a number of at least 1; got 0.5"),
        ("[site]\nrows_per_parameter = nan", "rows_per_parameter must be a number of at least 1; got nan"),
        ("[site]\nrows_per_parameter = inf", "rows_per_parameter must be a number of at least 1; got inf"),
        ('[site]\ncolumns = "age"', r"columns must be a list of names; got 'age'. Use columns = \[\"age\", \"dose\""),
        ("[site]\nnever = [1]", r"never must be a list of names; got \[1\]"),
        ('[site]\ncolumns = ["a", "b"]\nnever = ["b"]', "must not be both in columns and in never; 'b' is"),
        ('[site]\nmasks = "require"', "masks must be one of 'required', 'allowed' and 'off'; got 'require'. Did"),
        ("[site]\nmasks = true", "masks must be one of"),
        ("[site]\nsecret = 5", "secret must be the path of a file; got 5. Use secret = .sites.secret."),
        ('[site]\nsecret = ""', "secret must be the path of a file; got ''"),
        ("[site]\nfew = 1", "few must be a whole number of at least 2; got 1. Use few = 3?"),
        ("[site]\nsites_apart = 0", "sites_apart must be a whole number of at least 1; got 0"),
        ("[site]\ntries = 0", "tries must be a whole number of at least 1; got 0. Use tries = 60?"),
        ("[site]\nparameters = -3", "parameters must be a whole number of at least 1; got -3"),
        ("[site]\nmatrices = 0.5", "matrices must be a whole number of at least 1; got 0.5"),
        ('[site]\nsites = ["south"]', "sites must be keys by name, such as .* each of 64 hexadecimal digits"),
        ('[site]\nsites = { south = "12" }', "sites must be keys by name"),
        ('[site]\naskers = { me = "ZZ" }', "askers must be keys by name.*fedgauss site key FILE"),
    ],
)  # fmt: skip
def test_wrong_policies_are_refused(written, text, message):
    with pytest.raises(ValueError, match=message) as raised:
        Policy.read(written(text))
    assert "policy.toml" in str(raised.value)
    assert not isinstance(raised.value, Refused)  # it is for the owner, not for who asks


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a policy must be a file that can be read; .*none.toml is not"):
        Policy.read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="a policy must be TOML"):
        Policy.read(tmp_path / "binary.toml")


def test_columns_that_are_open():
    table = ["name", "age", "dose"]
    assert Policy().open_columns(table) == table
    assert Policy(never=("name",)).open_columns(table) == ["age", "dose"]
    assert Policy(columns=("age",)).open_columns(table) == ["age"]
    with pytest.raises(ValueError, match=r"the policy names the column 'nam', .* Did you mean 'name'?"):
        Policy(never=("nam",)).open_columns(table)  # a typing error must not open a column


def test_rules_may_have_their_least_values():
    """And whole numbers where any numbers may stand; a budget is that of the policy, and privacy may be none."""
    least = {"least_rows": 2, "few": 2, "cells": 1, "rows_per_parameter": 1, "fewest_sites": 1, "sites_apart": 1}
    budgets = {"tries": 1, "refusals": 1, "parameters": 1, "matrices": 1}
    policy = Policy(**least, **budgets, epsilon=0)
    assert policy.budget == Budget(**budgets)
    assert policy.privacy is None
    assert Policy().privacy == PRIVACY == Privacy(10.0, 1e-5)
    assert Policy(epsilon=2, delta=1e-6).privacy == Privacy(2.0, 1e-6)
    for wrong in ({"epsilon": 0.001}, {"delta": 0.5}, {"delta": 0}, {"epsilon": -1}):
        with pytest.raises(ValueError, match=r"epsilon|delta"):
            Policy(**wrong)


def test_values_are_kept_as_they_are_meant():
    policy = Policy(columns=["age", "ward"], ranges={"age": [18, 100]}, sites={"south": "0f" * 32}, masks="off")
    assert policy.columns == ("age", "ward")
    assert policy.ranges == {"age": (18.0, 100.0)}
    assert (policy.sites, policy.askers, policy.masks) == ({"south": "0f" * 32}, None, "off")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"ranges": 5}, r"ranges must be \[low, high\] by column; got 5. Use ranges = { age = \[18, 100\] }\?"),
        ({"ranges": {"age": 5}}, "the range of 'age' must be two numbers"),
        ({"sites": 5}, "sites must be keys by name"),
        ({"askers": {1: "0f" * 32}}, "askers must be keys by name"),
        ({"columns": ["age", 1]}, "columns must be a list of names"),
        ({"columns": 5}, "columns must be a list of names"),
        ({"least_rows": None}, "least_rows must be a whole number"),
        ({"never": None}, "never must be a list of names; got None"),
    ],
)
def test_rules_of_another_kind_are_refused(rules, words):
    with pytest.raises(ValueError, match=words):
        Policy(**rules)


def test_every_rule_is_printed_with_its_value():
    policy = Policy(ranges={"age": (18, 100), "dose": (0, 1)}, secret="word", rows_per_parameter=2.5)
    shown = dict(line.split(maxsplit=1) for line in str(policy).splitlines()[1:])
    assert shown["ranges"].startswith("age and dose between what")
    assert shown["secret"].startswith("word         file with what")
    assert shown["rows_per_parameter"].startswith("2.5          rows that")
    assert shown["columns"].startswith("-            columns that may be")
    assert shown["never"].startswith("-            columns that may not")
    assert shown["masks"].startswith("allowed      ")


def test_the_example_has_every_kind_of_value():
    lines = example_policy().splitlines()
    assert lines[1] == "[site]"
    assert lines[2] == "least_rows = 10  # rows that this site must have to take part"
    assert '# columns = ["age", "dose", "died"]  # columns that may be asked for' in lines
    assert "# ranges = { age = [18, 100] }  # between what columns lie in private runs that do not say" in lines
    assert 'masks = "allowed"  # "required", "allowed" or "off": whether sums leave the site masked' in lines
    assert '# secret = "sites.secret"  # file with what owners agreed on without anybody else' in lines
    assert "rows_per_parameter = 3  # rows that there must be for each parameter" in lines
    assert "delta = 1e-05  # at which that epsilon holds; below 1 / rows" in lines


def test_a_secret_may_be_in_the_home_folder(written, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert Policy.read(written('[site]\nsecret = "~/word"')).secret == str(tmp_path / "me" / "word")
    assert Policy.read(written("[site]\n")).secret is None
