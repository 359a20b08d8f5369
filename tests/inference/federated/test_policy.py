"""A site's policy: read, refused where it is wrong, and kept."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.policy import Policy, example_policy

from fedgauss.inference.tables import FrameColumn


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
    assert Policy.read(written(uncommented)).columns == ("age", "dose", "died")


def test_what_is_written_is_what_holds(written, tmp_path):
    text = '[site]\nleast_rows = 50\nmasks = "required"\nnever = ["name"]\nledger = "kept/answered.jsonl"\n'
    policy = Policy.read(written(text))
    assert (policy.least_rows, policy.masks, policy.never) == (50, "required", ("name",))
    assert policy.ledger == str(tmp_path / "kept" / "answered.jsonl")
    assert policy.most_rounds == Policy().most_rounds
    assert Policy.read(written("")) == Policy()


def test_the_policy_in_the_documentation_is_one(written):
    page = (Path(__file__).parents[3] / "docs" / "regression.md").read_text(encoding="utf-8")
    lines = page.split("    [site]\n")[1].split("\n\n")[0].splitlines()
    policy = Policy.read(written("[site]\n" + "\n".join(line.strip() for line in lines)))
    assert (policy.fewest_sites, policy.masks) == (3, "required")


def test_it_prints_itself():
    shown = str(Policy(columns=("age", "dose")))
    assert "least_rows             10           rows that this site must have" in shown
    assert "columns                age and dose" in shown
    assert len(shown.splitlines()) == 1 + len(Policy.__dataclass_fields__)
    assert repr(Policy()) == "<Policy of a site>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("least_rows = 5", r"a policy has one table, \[site\]; got 'least_rows' beside it. Move it below \[site\]"),
        ("site = 5", r"site must be a table, \[site\]; got 5"),
        ("[site]\nleast_row = 5", "a policy has no key 'least_row'. Did you mean 'least_rows'?"),
        ("[site]\nx = 5", "a policy has no key 'x'. The keys are least_rows, least_rows_in_a_level"),
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
        ("[site]\nlargest_share = 0", "largest_share must be a number above 0, at most 1; got 0. Use .* 0.75?"),
        ("[site]\nlargest_share = 75", "largest_share must be a number above 0, at most 1; got 75"),
        ('[site]\ncolumns = "age"', r"columns must be a list of names; got 'age'. Use columns = \[\"age\", \"dose\""),
        ("[site]\nnever = [1]", r"never must be a list of names; got \[1\]"),
        ('[site]\ncolumns = ["a", "b"]\nnever = ["b"]', "must not be both in columns and in never; 'b' is"),
        ('[site]\nmasks = "require"', "masks must be one of 'required', 'allowed' and 'off'; got 'require'. Did"),
        ("[site]\nmasks = true", "masks must be one of"),
        ('[site]\ndrop_outs = "no"', "drop_outs must be one of 'allowed' and 'refused'; got 'no'"),
        ("[site]\nledger = 5", "ledger must be the path of a file; got 5"),
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


RARE = FrameColumn("ward", np.repeat([0.0, 1.0], [20, 6]), ("x", "y"))
STRICT = Policy(
    least_rows_in_a_level=7, rows_per_parameter=10, fewest_sites=3, never=("name",), families=("gaussian",),
    masks="required", most_rounds=20,
)  # fmt: skip


@pytest.mark.parametrize(
    ("check", "values", "message"),
    [
        ("rows", (9,), "at least 10 rows; it has 9"),
        ("levels", (RARE,), "levels must have at least 7 rows each at this site.*; some of 'ward' have fewer"),
        ("parameters", (59, 6), "10 rows for each parameter; 6 parameters and 59 rows are fewer. Use at most 5 param"),
        ("sites", (2,), "at least 3 sites; this fit has 2"),
        ("weightless", (6,), "no row must have weight 0 at this site, or at least 7"),
        ("family", ("poisson",), "allows the families 'gaussian'; got 'poisson'"),
        ("masked", (False,), 'masks = "required": it sends no sums of its own. Fit with --masked'),
        ("round", (21,), "at most 20 rounds of a run; this would be round 21"),
    ],
)  # fmt: skip
def test_orders_that_break_a_rule_are_refused(check, values, message):
    with pytest.raises(Refused, match=message):
        getattr(STRICT, f"check_{check}")(*values)


def test_orders_that_keep_the_rules_are_not():
    STRICT.check_rows(10)
    STRICT.check_levels(FrameColumn("ward", np.repeat([0.0, 1.0], [20, 7]), ("x", "y")))
    STRICT.check_parameters(60, 6)
    STRICT.check_sites(3)
    STRICT.check_family("gaussian")
    STRICT.check_masked(True)
    STRICT.check_round(20)
    for masked in (True, False):
        Policy().check_masked(masked)
    with pytest.raises(Refused, match='has masks = "off"'):
        Policy(masks="off").check_masked(True)
