"""The documentation: its pages are there, and what they show runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# JAX compiles in them
SLOW = {
    "extending.md",
    "federations.md",
    "index.md",
    "stopping.md",
    "tutorials/fit_federated.md",
    "tutorials/reproduce.md",
}


def blocks(page):
    """The Python of a page, in order, with empty lines before each block, so that errors name the page's lines."""
    text = (DOCS / page).read_text()
    return ["\n" * text.count("\n", 0, found.start(1)) + found[1] for found in BLOCK.finditer(text)]


def run(page, folder, monkeypatch):
    """What a page's Python defines, run in an empty folder."""
    if any("import" in block and "flwr" in block for block in blocks(page)):
        pytest.importorskip("flwr", reason="the page needs the extra flower")
    monkeypatch.chdir(folder)
    names = {"__name__": "page"}
    for block in blocks(page):
        exec(compile(block, str(DOCS / page), "exec"), names)
    return names


WITH_PYTHON = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", [page for page in WITH_PYTHON if page not in SLOW])
def test_python_on_a_page_runs(page, tmp_path, monkeypatch):
    run(page, tmp_path, monkeypatch)


@pytest.mark.study
@pytest.mark.parametrize("page", sorted(SLOW))
def test_python_on_a_page_that_compiles_runs(page, tmp_path, monkeypatch):
    run(page, tmp_path, monkeypatch)


@pytest.mark.study
def test_shell_lines_of_the_tutorial_on_fits_run_as_pasted(tmp_path, monkeypatch):
    """On the files that its Python writes; a federated fit, masked or not, prints the table of the page."""
    page = "tutorials/fit_federated.md"
    names = run(page, tmp_path, monkeypatch)
    # The environment of Flower lies within the one that has the command.
    folders = [str(Path(sys.executable).parent), str(Path(sys.prefix).parent / "bin")]
    text = (DOCS / page).read_text()
    for lines in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        path = os.pathsep.join([*folders, os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-ec", lines],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        table = [line for line in str(names["fit"]).splitlines() if line.startswith(("const", "age", "dose"))]
        assert all(line in done.stdout for line in table[:3])


def test_the_policy_of_the_tutorial_is_what_the_command_prints():
    from fedgauss.federated.policy import example_policy

    assert f"```toml\n{example_policy()}```" in (DOCS / "tutorials/fit_federated.md").read_text()


@pytest.mark.study
def test_the_flower_run_alarms_as_its_page_says(tmp_path, monkeypatch, capsys):
    page = "tutorials/watch_flower.md"
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "integrations"))
    names = run(page, tmp_path, monkeypatch)
    from flower_grid import InProcessGrid

    names["main"](InProcessGrid(names["client_app"], 10), None)
    said = " ".join(capsys.readouterr().out.split())
    first_words = said[: said.index("(statistic")]
    assert first_words.startswith("ALARM at round 33")
    assert first_words in " ".join((DOCS / page).read_text().split())


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2].partition("\n\n")[0]
    notebooks = [f"notebooks/{file.stem}.md" for file in (DOCS / "notebooks").glob("*.ipynb")]
    assert sorted(re.findall(r": (\S+\.md)$", nav, re.MULTILINE)) == sorted([*PAGES, *notebooks])


def test_pages_bring_nothing_from_elsewhere():
    config = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in config
    for file in [*DOCS.rglob("*.md"), *DOCS.rglob("*.css"), ROOT / "mkdocs.yml"]:
        assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|extra_javascript", file.read_text()), file
