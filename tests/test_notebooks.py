"""The notebooks of the documentation: each ran when its page was made, and its story holds.

`make docs`, a part of `make check`, executes them and keeps what they showed under build/notebooks; where they were not
executed as they are now, those tests are skipped.
"""

import json
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parents[1]
if str(ROOT / "docs") not in sys.path:
    sys.path.append(str(ROOT / "docs"))

import notebook_pages  # noqa: E402

NAMES = sorted(path.stem for path in notebook_pages.FOLDER.glob("*.ipynb"))
NUMBER = r"(\d[\d.e+-]*\d|\d)"


@pytest.fixture(scope="module")
def shown():
    """The outputs of a notebook, by its name."""

    def outputs(name):
        path = notebook_pages.FOLDER / f"{name}.ipynb"
        if not notebook_pages.kept(path).exists():
            pytest.skip("not executed: make docs")
        (notebook,) = notebook_pages.executed([path])
        return [output for cell in notebook.cells for output in cell.get("outputs", ())]

    return outputs


def printed(outputs):
    return "".join(output.text for output in outputs if output.output_type == "stream")


def figures(outputs):
    return [output.data["image/svg+xml"] for output in outputs if "image/svg+xml" in output.get("data", {})]


def tables(outputs):
    return [output.data["text/html"] for output in outputs if "<table" in output.get("data", {}).get("text/html", "")]


def numbers(words, text):
    """The numbers in a sentence, # standing for each; as they are printed."""
    found = re.search(re.escape(words).replace(r"\#", NUMBER), text)
    assert found, f"{words!r} is not in {text!r}"
    return [float(number) for number in found.groups()]


def test_there_are_four_notebooks_without_outputs():
    assert NAMES == ["figure_taken_apart", "fit_and_compare", "how_gaussian", "watch_and_heal"]
    for name in NAMES:
        notebook = nbformat.read(notebook_pages.FOLDER / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        assert 8 <= len(notebook.cells) <= 14
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_quietly_and_becomes_a_page(name, shown):
    """Fails if a cell raises or warns, and if a figure or a link is lost on the way to the page."""
    outputs = shown(name)
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result", "stream"}
    assert all(output.name == "stdout" for output in outputs if output.output_type == "stream")
    (notebook,) = notebook_pages.executed([notebook_pages.FOLDER / f"{name}.ipynb"])
    text, pictures = notebook_pages.page(notebook, name)
    assert "\n    <" not in text, "Markdown would take HTML that is indented for code"
    assert f"[{name}.ipynb]({name}.ipynb)" in text
    assert len(pictures) == 2 * len(figures(outputs)) >= 4
    for path, picture in pictures.items():
        assert f"![]({path}#only-" in text
        assert not re.search(rb"https?://(?!www\.w3\.org/)", picture)
    assert not re.search(r"<script|<link|<iframe|https?://", text)
    assert "```text\n\n" not in text
    light, dark = sorted(pictures)[1::-1]
    assert pictures[light] != pictures[dark]


BAR = """
import time
from fedgauss import _progress
_progress._PATIENCE = 0.05
print("before")
with _progress.ProgressBar("simulating", total=20) as bar:
    for _ in range(20):
        time.sleep(0.03)
        bar.advance(1)
print("after")
"""


def test_a_progress_bar_leaves_nothing_in_a_notebook(tmp_path):
    """A bar is shown, by no widget and not on standard error, and is empty when it is done."""
    cell = nbformat.v4.new_code_cell(BAR)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "bar.ipynb")
    notebook_pages.execute({tmp_path / "bar.ipynb": tmp_path / "done.ipynb"})
    before, shown, after = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells[0].outputs
    assert (before.text, after.text, before.name) == ("before\n", "after\n", "stdout")
    assert shown.data == {"text/plain": "", "text/html": ""}


@pytest.mark.study
def test_a_notebook_that_fails_stops_the_build_and_is_not_kept(tmp_path):
    cell = nbformat.v4.new_code_cell("1 / 0")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "wrong.ipynb")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        notebook_pages.execute({tmp_path / "wrong.ipynb": tmp_path / "done.ipynb"})
    assert not (tmp_path / "done.ipynb").exists()


def test_a_notebook_is_executed_once_and_again_when_it_changes(tmp_path, monkeypatch):
    """Fails if pages could show what an earlier notebook printed."""
    done = []

    def execute(targets):
        for path, target in targets.items():
            done.append(path.name)
            nbformat.write(nbformat.read(path, as_version=4), target)

    monkeypatch.setattr(notebook_pages, "execute", execute)
    monkeypatch.setattr(notebook_pages, "KEPT", tmp_path)
    paths = [tmp_path / "a.ipynb", tmp_path / "b.ipynb"]
    for path in paths:
        nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(path.name)]), path)
    for _ in range(2):
        assert [notebook.cells[0].source for notebook in notebook_pages.executed(paths)] == ["a.ipynb", "b.ipynb"]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("changed")]), paths[1])
    assert notebook_pages.executed(paths)[1].cells[0].source == "changed"
    assert done == ["a.ipynb", "b.ipynb", "b.ipynb"]


def test_those_who_turn_bad_are_named_and_the_network_heals(shown):
    """In this one run; how often it holds is counted in docs/clients.md. The seed is fixed, and all of it is NumPy."""
    outputs = shown("watch_and_heal")
    text = printed(outputs)
    alarms = re.findall(r"ALARM at round (\d+): clients (\d+) and (\d+) no longer", text)
    assert [set(map(int, names)) for _, *names in alarms] == [{2, 7}]
    assert 21 <= int(alarms[0][0]) <= 24
    assert numbers("roll back to round #", text)[0] <= 20
    watched, not_watched = numbers("mean accuracy of the last ten rounds: # watched, # not", text)
    assert watched > not_watched + 0.04
    left_out = re.findall(r'scope="row">(\d+)</th>(?:<td>[^<]*</td>){2}<td>left out', tables(outputs)[0])
    assert left_out == ["2", "7"]


def test_the_federated_fit_is_the_pooled_one(shown):
    text = printed(shown("fit_and_compare"))
    coefficients, errors = numbers("largest relative difference:\n# of coefficients, # of standard errors", text)
    assert coefficients < 1e-8
    assert errors < 1e-6
    assert numbers("largest relative difference to the fit above: #", text)[0] < 1e-10
    assert "orders: join, meet, open, hear" in text
    words = re.search(r"a number of lakeside's, as it left: (.*)", text)[1].split()
    assert all(len(word) > 12 for word in words), "a masked number was plain"


def test_the_exact_law_is_that_of_the_runs_and_the_theorem_is_off(shown):
    """A distance to the right law exceeds .023 with chance 5e-5 at most (Dvoretzky, Kiefer and Wolfowitz)."""
    found = re.findall(
        rf"^(.*?) +variance {NUMBER}(?:, ball distance {NUMBER})?$", printed(shown("how_gaussian")), re.M
    )
    variance = {name: float(number) for name, number, _ in found}
    assert abs(variance["simulated"] / variance["exact"] - 1) < 0.08  # of a variance the standard error is 0.014
    assert variance["Theorem 2.1"] > 1.1 * variance["exact"]
    distance = {name: float(number) for name, _, number in found if number}
    assert distance["exact"] < 0.023 < distance["Theorem 2.1"] < distance["limit"]


def test_the_transition_of_the_figure_is_the_start(shown):
    """The normal law with exact moments has the distances that runs have, within four Monte-Carlo errors."""
    text = printed(shown("figure_taken_apart"))
    for start in ("zeros", "optimum"):
        simulated, error, exact = numbers(f"{start}: # (s.e. #), exact moments #", text)
        assert abs(simulated - exact) < 4 * error + 0.01
    assert numbers("zeros: #", text)[0] > numbers("optimum: #", text)[0] + 0.4


def test_numbers_that_are_called_printed_are_those_of_the_paper():
    notebook = nbformat.read(notebook_pages.FOLDER / "figure_taken_apart.ipynb", as_version=4)
    source = notebook.cells[1].source
    steps = [int(n.replace("_", "")) for n in re.search(r"^N = \[(.*)\]", source, re.MULTILINE)[1].split(", ")]
    paper = json.loads((ROOT / "src" / "fedgauss" / "paper" / "printed.json").read_text())
    for r, table in (("0.2", paper["figure2_few"]), ("0.6", paper["figure2_many"])):
        ours = [float(x) for x in re.search(rf"{re.escape(r)}: \[(.*)\]", source)[1].split(", ")]
        (row,) = (row[1:] for row in table["rows"] if row[0] == 0.9)
        assert ours == [dict(zip(table["columns"], row, strict=True))[n] for n in steps]
