"""Sites as real processes behind pipes, each with its own file."""

import json
import stat
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgauss as fg
from fedgauss.cli import app
from fedgauss.federated.keys import Key
from fedgauss.federated.mailbox import LostSite, federate
from fedgauss.federated.processes import SiteProcesses
from fedgauss.inference.model import Model

runner = CliRunner()
SITE = [sys.executable, "-c", "from fedgauss.cli import app; app()", "site"]
NAMES = ("east", "north", "west")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three files, two of CSV and one of Parquet, and the pooled frame."""
    folder, rng = tmp_path_factory.mktemp("sites"), np.random.default_rng(8)
    frames = []
    for _ in NAMES:
        x = rng.normal(size=(60, 2))
        y = rng.random(60) < 1 / (1 + np.exp(-(0.2 + x @ [0.7, -0.5])))
        frames.append(pd.DataFrame({"age": 50 + 10 * x[:, 0], "dose": x[:, 1], "died": y.astype(int)}))
    frames[0].to_csv(folder / "east.csv", index=False)
    frames[1].to_parquet(folder / "north.parquet")
    frames[2].to_csv(folder / "west.csv", index=False)
    pooled = pd.concat([frame.assign(site=name) for frame, name in zip(frames, NAMES, strict=True)])
    return folder, pooled


def command(folder, name):
    file = folder / f"{name}.{'parquet' if name == 'north' else 'csv'}"
    return [*SITE, str(file), "--log", str(folder / f"{name}.jsonl")]


@pytest.mark.parametrize("masked", [False, True])
def test_three_processes_with_three_files_give_the_pooled_fit_and_log_all_they_sent(files, masked):
    folder, pooled = files
    model = Model("died", family="binomial")
    with SiteProcesses({name: command(folder, name) for name in NAMES}) as sites:
        found = federate(model, sites, masked=masked, key=Key.fresh(), asker=f"asker of {masked}")
    wanted = fg.fit(pooled, model, client="site")
    np.testing.assert_allclose(found.params, wanted.params, rtol=1e-10)
    np.testing.assert_allclose(found.cov, wanted.cov, rtol=1e-8, atol=1e-12)  # sites round their sums on the way
    if not masked:
        assert found.summary() == wanted.summary()
    for name in NAMES:
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        orders = [line["order"] for line in lines]
        last = len(orders) - orders[::-1].index("join") - 1  # of the last run
        assert orders[last:] == ["join", "meet", *["open", "hear"] * ((len(orders) - last - 2) // 2)]
        assert lines[-1]["sent"] == {"ended": True}
        for place in (f"{name}.jsonl", *(path.name for path in folder.glob(f"{name}.*.[kl]e*"))):
            assert stat.S_IMODE((folder / place).stat().st_mode) == 0o600
        sent = "\n".join(json.dumps(line["sent"]) for line in lines)
        own = pooled[pooled.site == name]
        for value in [*own.age, *own.dose]:
            assert repr(value) not in sent


def test_a_process_that_is_no_site_is_named():
    talks = [sys.executable, "-c", "print('hello')"]
    ended = r"site 'a' (ended without a reply to 'join'|is gone \(.*\)); it ended with exit status 0"
    with SiteProcesses({"a": talks}) as sites, pytest.raises(LostSite, match=ended + r"\. It said last: \"hello\""):
        sites.ask("join", {"a": {}})
    silent = [sys.executable, "-c", "pass"]
    with SiteProcesses({"a": silent}) as sites, pytest.raises(LostSite, match=ended + ", without a word"):
        sites.ask("join", {"a": {"much": "x" * 200_000}})
    latin = [sys.executable, "-c", r"import sys; sys.stdout.buffer.write(b'{\"error\": Z\xfcrich}\n')"]
    with (
        SiteProcesses({"a": latin}) as sites,
        pytest.raises(ValueError, match="site 'a' sent something other than a reply"),
    ):
        sites.ask("join", {"a": {}})
    with (
        pytest.raises(ValueError, match="site 'a' could not be started; no-such-command"),
        SiteProcesses({"a": "no-such-command now"}),
    ):
        pass


def test_a_silent_site_is_not_waited_for():
    """Not even one that does not read what it is told, which is more than a pipe holds."""
    silent = [sys.executable, "-c", "import time; time.sleep(60)"]
    began = time.monotonic()
    with (
        SiteProcesses({"a": silent, "b": silent}, timeout=0.5) as sites,
        pytest.raises(ValueError, match=r"site 'a' did not answer the order 'join' within 0.5 s"),
    ):
        sites.ask("join", {name: {"much": "x" * 200_000} for name in "ab"})
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        (["fedgauss site a.csv"], "--site must be NAME=COMMAND"),
        (["a=x", "a=y"], "must have different names"),
        (["a=no-such-command"], "site 'a' could not be started"),
        (["a=fedgauss 'site"], "site 'a' needs a command whose quotes close"),
    ],
    ids=["name", "twice", "command", "quote"],
)
def test_bad_sites_end_with_one_line(sites, message, tmp_path):
    options = [part for site in sites for part in ("--site", site)]
    done = runner.invoke(app, ["federate", "--target", "y", *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "1"], "privacy needs masks"),
        (["--range", "age=18:100"], "--range is for private fits. Use --epsilon 1"),
        (["--epsilon", "1", "--range", "age=18"], "--range must be NAME=LOW:HIGH; got 'age=18'"),
        (["--epsilon", "1", "--range", "18:100"], "--range must be NAME=LOW:HIGH; got '18:100'"),
        (["--epsilon", "1", "--range", "age=100:18"], "the range of 'age' must be (low, high) with low < high"),
        (["--epsilon", "0"], "epsilon must be at least 0.01; got 0"),
        (["--epsilon", "1", "--delta", ".5"], "delta must be above 0 and at most 0.01"),
    ],
)
def test_bad_privacy_ends_with_one_line(options, message, tmp_path):
    sites = ["--site", f"a={sys.executable} -c pass", "--family", "binomial"]
    done = runner.invoke(app, ["federate", "--target", "y", *sites, *options, "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_site_that_has_no_such_file_says_so(tmp_path):
    done = runner.invoke(app, ["site", str(tmp_path / "none.csv")])
    assert done.exit_code == 2
    assert "there is no" in done.output


def test_a_site_that_keeps_to_columns_it_does_not_have_says_so(files):
    done = runner.invoke(app, ["site", str(files[0] / "east.csv"), "--columns", "age,nope"])
    assert done.exit_code == 2
    assert "the policy names the column 'nope', which the table does not have" in done.output


def test_the_verb_answers_lines_that_are_no_utf_8(files):
    done = runner.invoke(app, ["site", str(files[0] / "east.csv")], input=b'{"order": "Z\xfcrich", "content": {}}\n')
    assert done.exit_code == 0
    assert "orders must come in turn, once each; 'join' is due" in json.loads(done.stdout)["error"]
