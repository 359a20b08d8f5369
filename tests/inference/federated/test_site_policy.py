"""Every rule of a policy file, kept by a site that is given orders: refused below the line, answered above it."""

import json

import numpy as np
import pytest
from fedgauss.inference.federated.coordinator import fit_sites
from fedgauss.inference.federated.lines import decoded, encoded
from fedgauss.inference.federated.policy import Policy
from fedgauss.inference.federated.site import Site

from site_rows import ROWS, Channel, own

LEVELS = ROWS.assign(
    ill=np.where(np.arange(len(ROWS)) % 12 == 0, "yes", "no"),  # 8 of 90 rows of a
    old=(np.arange(len(ROWS)) % 30 == 0).astype(float) + (np.arange(len(ROWS)) % 2),  # 0, 1 and 2
    cell=(np.arange(len(ROWS)) % 3 == 0).astype(int), thin=(np.arange(len(ROWS)) % 9 < 3).astype(int),
)  # fmt: skip
LEVELS.loc[LEVELS.index[:90][LEVELS.cell[:90] * LEVELS.thin[:90] == 1][4:], "thin"] = 0  # cells of 4 rows at a


@pytest.fixture
def policy_of(tmp_path):
    def write(**rules):
        lines = [f"{name} = {json.dumps(value)}" for name, value in rules.items()]
        (tmp_path / "policy.toml").write_text("\n".join(["[site]", *lines]), encoding="utf-8")
        return Policy.read(tmp_path / "policy.toml")

    return write


def fit_with(policy, target="died", frame=LEVELS, **options):
    """A fit in which site a has this policy."""
    channel = Channel(frame)
    channel.sites[0] = Site(own(frame, "a"), policy)
    options = {"family": "binomial"} | options
    return fit_sites(channel.ask, channel.names, target, **options), channel


@pytest.mark.parametrize(
    ("rule", "kept", "broken", "options", "message"),
    [
        ("least_rows", 90, 91, {"features": ["age"]}, "takes part with at least 91 rows; it has 90"),
        ("least_rows_in_a_level", 8, 9, {"features": ["ill"]}, "levels must have at least 9 rows each"),
        ("least_rows_in_a_cell", 4, 5, {"features": ["cell", "thin"]}, "cells of two columns must have at least 5"),
        ("rows_per_parameter", 30.0, 31.0, {"features": ["age", "dose"]}, "wants 31 rows for each parameter; 3 param"),
        ("largest_share", 0.75, 0.01, {"features": ["age"]}, "at most 0.01 of a sum of squares"),
        ("fewest_sites", 3, 4, {"features": ["age"]}, "takes part with at least 4 sites; this fit has 3"),
        ("columns", ["age", "died"], ["dose", "died"], {"features": ["age"]}, "must name a column .*; got 'age'"),
        ("never", ["dose"], ["age"], {"features": ["age"]}, "must name a column .*; got 'age'"),
        ("families", ["logistic"], ["poisson"], {"features": ["age"]}, "allows the families 'poisson'; got 'logistic'"),
        ("families", ["binomial"], ["gaussian"], {"features": ["age"]}, "allows the families 'gaussian'"),
        ("masks", "allowed", "required", {"features": ["age"]}, 'masks = "required": it sends no sums of its own'),
        ("masks", "required", "off", {"features": ["age"], "masked": True}, 'masks = "off". Fit without --masked'),
        ("most_rounds", 9, 8, {"features": ["age"]}, "answers at most 8 rounds of a run; this would be round 9"),
    ],
)  # fmt: skip
def test_a_rule_is_kept(policy_of, rule, kept, broken, options, message):
    fit_with(policy_of(**{rule: kept}), **options)
    with pytest.raises(ValueError, match=f"site 'a': .*{message}"):
        fit_with(policy_of(**{rule: broken}), **options)


def test_columns_that_are_closed_have_no_role_either(policy_of):
    for role in ("offset", "exposure", "row_weights", "cluster", "trials"):
        with pytest.raises(ValueError, match=f"site 'a': {role} must name a column of the frame; got 'years'"):
            fit_with(policy_of(never=["years"]), features=["age"], **{role: "years"})
    few = LEVELS[["age", "dose", "years", "died", "h"]]
    with pytest.raises(ValueError, match="sites must have the same columns; 'b' and 'a' differ in 'years'"):
        fit_with(policy_of(never=["years"]), frame=few)  # of all columns a has one less


def test_drop_outs_are_refused(policy_of):
    """Site c is lost in the third round of sums; a does not go on without it."""

    def lost(policy):
        channel = Channel(LEVELS)
        channel.sites[0] = Site(own(LEVELS, "a"), policy)

        def ask(order, contents):
            replies = channel.ask(order, contents)
            return [*replies[:2], None] if channel.orders.count("sums") >= 3 else replies

        return fit_sites(ask, channel.names, "died", "binomial", ["age"], masked=True, lost="leave")

    assert "The fit is of the other sites" in lost(policy_of(drop_outs="allowed")).notes[0]
    with pytest.raises(ValueError, match=r"site 'a': this site does not go on without others: .* would tell of 'c'"):
        lost(policy_of(drop_outs="refused"))


def test_the_ledger_remembers_other_runs(policy_of, tmp_path):
    """The same again is answered; without one row it is not."""
    policy = policy_of(ledger="answered.jsonl")
    for _ in range(2):
        fit_with(policy, features=["age", "dose"])
    gap = LEVELS.assign(dose=LEVELS.dose.mask(np.arange(len(LEVELS)) == 7))
    for formula in ("died ~ age + dose", "died ~ scale(age) + dose"):
        with pytest.raises(ValueError, match=r"site 'a': .* the rows of this run and the rows of the run of .* differ"):
            fit_with(policy, frame=gap, formula=formula, missing="drop")
    assert (tmp_path / "answered.jsonl").stat().st_mode & 0o777 == 0o600


def test_masks_need_the_secret_of_the_owners(policy_of, tmp_path):
    """Where a has another secret than b and c the masks do not cancel, and no total can be read."""
    (tmp_path / "sites.secret").write_text("a word between owners\n")
    policy = policy_of(secret="sites.secret")
    with pytest.raises(ValueError, match="masks of 3 sites must cancel; they do not"):
        fit_with(policy, features=["age"], masked=True)
    channel = Channel(LEVELS, policy)
    fit_sites(channel.ask, channel.names, "died", "binomial", ["age"], masked=True)
    restored = Site.restored(own(LEVELS, "a"), decoded(encoded(channel.sites[0].state())), policy)
    assert restored.fingerprint == channel.sites[0].fingerprint != ""
    assert "a word between owners" not in encoded(channel.sites[0].state())
    (tmp_path / "sites.secret").unlink()
    with pytest.raises(ValueError, match="site 'a': this site's secret could not be read"):
        fit_with(policy, features=["age"], masked=True)


def test_what_is_refused_is_in_the_log_of_the_command(tmp_path):
    from fedgauss.inference.federated.lines import order_line
    from typer.testing import CliRunner

    from fedgauss.cli import app
    from site_rows import asked_of

    own(ROWS, "a").to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "policy.toml").write_text('[site]\nnever = ["age"]\n')
    order = order_line("describe", asked_of(target="died", family="binomial", features=["age"]))
    files = [str(tmp_path / "a.csv"), "--policy", str(tmp_path / "policy.toml"), "--log", str(tmp_path / "log.jsonl")]
    done = CliRunner().invoke(app, ["site", *files], input=order)
    assert done.exit_code == 0
    (line,) = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert line["order"] == "describe"
    assert line["asked"]["features"] == ["age"]
    assert "got 'age'" in line["sent"]["error"]
    assert json.loads(done.stdout) == line["sent"]
