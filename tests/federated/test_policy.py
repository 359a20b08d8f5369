"""A site's policy: read, refused where it is wrong, and kept."""

import tomllib
from pathlib import Path

import pytest

from fedgauss.federated.ledger import Budget
from fedgauss.federated.policy import Policy, example_policy
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
