"""The demonstration, small: what it computes, and what `fedgauss demo` leaves behind."""

import base64
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedgauss import networks
from fedgauss.cli import app
from fedgauss.demo import figures, story, told
from fedgauss.demo.comparison import check_z
from fedgauss.demo.digits_task import CLIENTS
from fedgauss.demo.healing import BAD, ROUNDS, TURNED, Healing, Training, heal
from fedgauss.demo.healing_figure import healed
from fedgauss.demo.run import _compare, run_demo
from fedgauss.demo.setup import DemoSetup, demo_setup
from fedgauss.detect.clients.monitor import ClientMonitor
from fedgauss.detect.clients.verdict import ClientVerdict
from report_parsing import Checked

NAMES = ["healed", *(draw.__name__ for draw in figures.DRAWINGS)]


TICKS: dict[str, list[tuple[int, int]]] = {}


def short(replicates: int, seed: int) -> DemoSetup:
    """The demonstration with fewer steps, one size for all tests, so that they share a compilation."""
    return replace(demo_setup(replicates, seed), n_steps=60, checkpoints=(20, 40, 60))


@pytest.fixture(scope="module")
def result():
    return run_demo(short(390, 5), lambda what, done, total: TICKS.setdefault(what, []).append((done, total)))


@pytest.fixture(scope="module")
def healing():
    return heal(0, lambda what, done, total: TICKS.setdefault(what, []).append((done, total)))


@pytest.fixture(scope="module")
def written(tmp_path_factory, healing):
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedgauss.demo.setup.demo_setup", short)
        patch.setattr("fedgauss.demo.healing.heal", lambda seed, tick: healing)
        done = CliRunner().invoke(app, ["demo", "--out", str(folder), "--replicates", "390", "--seed", "5"])
    assert done.exit_code == 0, done.output
    return folder, done


def test_simulation_agrees_with_exact_theory(result):
    # At level 1e-4 a right simulation fails this for one seed in ten thousand.
    comparisons = [*result.from_optimum.comparisons, *result.from_zero.comparisons]
    assert len(comparisons) == 18
    assert check_z(comparisons, result.setup.replicates, level=1e-4).agrees


def test_a_wrong_theory_would_be_noticed(result):
    zero, optimum = result.from_zero, result.from_optimum
    mixed_up = _compare(result.setup, zero.start, zero.simulated, optimum.exact)
    assert not check_z(mixed_up, result.setup.replicates, level=1e-4).agrees


def test_every_replicate_is_used_once(result):
    for part in (result.from_optimum, result.from_zero):
        assert part.simulated.averages.shape == (390, 3, 2)
        assert part.simulated.last.shape == (390, 2)
        assert len(np.unique(part.simulated.last[:, 0])) == 390  # two blocks, each with a seed of its own
        assert part.simulated.paths.shape == (195, 60, 2)
    np.testing.assert_allclose(
        result.from_zero.simulated.paths.mean(axis=1), result.from_zero.simulated.averages[:195, -1], rtol=1e-5
    )


def test_ticks_count_up_to_the_whole(result, healing):
    assert len(TICKS) == 3
    for counts in TICKS.values():
        done, total = zip(*counts, strict=True)
        assert list(done) == sorted(done)
        assert set(total) == {done[-1]}


def test_every_figure_names_its_axes_and_has_a_title(result):
    for drawing in (draw(result) for draw in figures.DRAWINGS):
        assert drawing.figure.get_suptitle()
        for axes in drawing.figure.axes if drawing.name != "network" else ():
            place = axes.get_subplotspec()  # panels share their axes
            assert axes.get_ylabel() or not place.is_first_col()
            assert axes.get_xlabel() or not place.is_last_row()


def test_a_network_is_drawn_with_all_its_clients(result):
    star = replace(result, setup=replace(result.setup, network=networks.star(10)))
    texts = [text.get_text() for text in figures.network(star).figure.axes[0].texts]
    variances = [f"$\\sigma^2={value:g}$" for value in result.setup.problem.noise_var]
    assert sorted(texts) == sorted([str(k + 1) for k in range(10)] + variances)


def test_the_demo_writes_every_file(written):
    folder, _ = written
    expected = {"index.html"} | {f"{name}.{kind}" for name in NAMES for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == expected
    for name in NAMES:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert ET.fromstring((folder / f"{name}.svg").read_text()).tag.endswith("svg")


def test_the_page_holds_every_figure_and_nothing_from_outside(written):
    folder, _ = written
    text = (folder / "index.html").read_text()
    page = Checked(text)
    images = [attributes for tag, attributes in page.seen if tag == "img"]
    assert len(images) == len(NAMES)
    for image in images:
        kind, data = image["src"].split(";base64,")
        assert kind == "data:image/svg+xml"
        svg = base64.b64decode(data).decode()
        ET.fromstring(svg)
        assert set(re.findall(r'(?:href|src)="(.)', svg)) <= {"#"}
        assert image["alt"]
    assert page.count("table") == 2
    assert page.count("script") == page.count("link") == 0
    assert "http" not in re.sub(r"base64,[^\"]*", "", text)


def test_every_link_of_the_page_leads_somewhere(written):
    folder, _ = written
    page = Checked((folder / "index.html").read_text())
    links = [attributes["href"] for tag, attributes in page.seen if tag == "a"]
    assert len(links) == 2 * len(NAMES)
    assert all((folder / link).is_file() for link in links)


def test_the_page_opens_with_the_picture(written):
    text = (written[0] / "index.html").read_text()
    assert text.index("<img") < text.index("<h2")
    assert 'alt="Two panels over 60 rounds. Alarm in round 31' in text


def test_the_terminal_tells_the_story_in_forty_lines(written, healing):
    folder, done = written
    shown = words(done.output)
    assert len(done.output.splitlines()) <= 40
    (alarm,) = healing.protected.alarms
    for part in (told.turning(), str(alarm), told.names(healing), told.ending(healing), told.honest(healing)):
        assert words(part) in shown
    assert "simulated (error)" in done.output
    assert "Simulation and exact theory" in done.output
    assert shown.index("ALARM at round 31") < shown.index("average: variance 1")
    assert words(str(folder / "index.html")) in shown
    assert "…" not in done.output  # nothing is cut off at 80 columns


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_bad_are_named_in_the_round_in_which_they_turn_and_the_network_learns_on(healing):
    """Seed 0; the same holds for seeds 1 to 5, with rollbacks to round 29 or 30."""
    (alarm,) = healing.protected.alarms
    assert (alarm.round, alarm.onset, alarm.rollback) == (TURNED, TURNED, TURNED - 1)
    assert healing.named == BAD
    assert not healing.honest.alarms
    assert healing.protected.accuracy[: TURNED - 1] == healing.unprotected.accuracy[: TURNED - 1]
    assert healing.protected.accuracy[TURNED] == healing.protected.accuracy[TURNED - 1]
    assert healing.protected.final > 0.95 > healing.without.final - 0.02
    assert healing.unprotected.final < 0.8


def alarm(number: int, *suspects: str) -> ClientVerdict:
    return ClientVerdict(
        True, 4.0, 3.1, "clients", number, number, number, number - 1, 0.05,
        onset_interval=(number, number), suspects=suspects, watched=10,
    )  # fmt: skip


def told_of(alarms: list[ClientVerdict], honest: list[ClientVerdict]) -> Healing:
    """Runs of which only alarms and accuracies are told."""
    flat = (0.5,) * (ROUNDS + 1)
    watched = Training(flat, tuple(alarms)), Training(flat), Training(flat), Training(flat, tuple(honest))
    return Healing(*watched, ClientMonitor())


ALL_LEFT_OUT = "Alarm in round 31: all who turned bad are named and left out"


@pytest.mark.parametrize(
    ("alarms", "headline", "names"),
    [
        ([alarm(31, "Izmir", "Cork", "Ghent")], ALL_LEFT_OUT,
         "All who turned bad are named, and nobody else."),
        ([alarm(31, "Cork"), alarm(33, "Ghent", "Izmir")], ALL_LEFT_OUT,
         "All who turned bad are named, and nobody else."),
        ([alarm(32, "Cork", "Kiel")], "Alarm in round 32: Cork and Kiel left out",
         "Ghent and Izmir turned bad and are not named. Kiel is named and in truth honest."),
        ([alarm(20, "Kiel")], "A false alarm in round 20: clients turn bad only in round 31",
         "Cork, Ghent and Izmir turned bad and are not named. Kiel is named and in truth honest."),
        ([], "No alarm in 60 rounds, though clients turn bad in round 31",
         "Cork, Ghent and Izmir turned bad and are not named."),
    ],
    ids=["all", "one by one", "some", "false alarm", "none"],
)  # fmt: skip
def test_page_and_terminal_say_what_the_run_shows(alarms, headline, names):
    healing = told_of(alarms, [])
    assert told.headline(healing) == headline
    assert told.names(healing) == names


def test_a_false_alarm_among_honest_clients_is_told():
    assert told.honest(told_of([], [])).endswith("has no alarm in 60 rounds.")
    said = told.honest(told_of([], [alarm(40, "Kiel", "Aarhus")]))
    assert said.endswith("has a false alarm in round 40, and goes on without Aarhus and Kiel.")


def test_the_picture_shows_every_client_and_who_was_left_out(healing):
    above, below = healed(healing).figure.axes
    assert [label.get_text() for label in below.get_yticklabels()][2] == "Cork"
    assert [text.get_text() for text in below.texts] == ["alarm, round 31"]
    assert [line.get_label() for line in above.lines][:3] == ["not protected", "without the three", "protected"]


def test_with_paper_the_page_links_the_report(tmp_path, healing, result, monkeypatch):
    def reproduced(scale, out):
        assert scale == "quick"
        out.mkdir()
        (out / "report.html").write_text("<p>report")

    monkeypatch.setattr("fedgauss.demo.healing.heal", lambda seed, tick: healing)
    monkeypatch.setattr("fedgauss.demo.run.run_demo", lambda setup, tick: result)
    monkeypatch.setattr("fedgauss.cli.reproduce.reproduce", reproduced)
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--paper"])
    assert done.exit_code == 0, done.output
    assert 'href="paper/report.html"' in (tmp_path / "index.html").read_text()


def test_the_loop_on_the_page_runs(capsys):
    """Clients that move like each other, but for noise; fails if the loop kept those who were named."""

    class Client:
        def __init__(self, name):
            self.name, self.rng, self.rounds = name, np.random.default_rng(sum(map(ord, name))), 0

        def train(self, model):
            self.rounds += 1
            move = np.linspace(1, 2, 50) + 0.5 * self.rng.standard_normal(50)
            return model - move if self.name in BAD and self.rounds >= TURNED else model + move

    clients = {name: Client(name) for name in CLIENTS}
    names = {"clients": clients, "network": np.zeros(50)}
    exec(story._HEALING_PROGRAM, names)
    assert capsys.readouterr().out.startswith("ALARM at round 31: clients ")
    assert set(clients) == set(CLIENTS) - set(BAD)
    assert len(names["kept"]) == ROUNDS + 1
