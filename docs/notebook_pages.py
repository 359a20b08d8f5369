"""Notebooks as pages: each is executed, and what it showed stands between its cells.

An executed notebook is kept under build/notebooks under a hash of all that it depends on, so that the documentation and
the tests execute it once between them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbformat.v4 import new_output

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"
KEPT = ROOT / "build" / "notebooks"
_SECONDS = 120  # that one cell may take, on a busy machine
_PICTURE = re.compile(r"^!\[svg\]\((\S+)\.svg\)\s*$", re.MULTILINE)
_METADATA = re.compile(rb"<metadata>.*?</metadata>", re.DOTALL)
_OWN_STYLE = re.compile(r'<style.*?</style>| border="1" class="dataframe"| style="text-align: right;"', re.DOTALL)
_LINK = "[{0}.ipynb]({0}.ipynb){{ download }} is this page as a notebook, to run and to change."


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs with what is in the folder: a page and its pictures for every notebook."""
    from mkdocs.structure.files import File

    notebooks = sorted(FOLDER.glob("*.ipynb"))
    for path, notebook in zip(notebooks, executed(notebooks), strict=True):
        markdown, pictures = page(notebook, path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=markdown))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def executed(paths: Iterable[Path]) -> list[Any]:
    """Notebooks with their outputs, kept or executed now, as many at once as there are cores."""
    targets = {path: kept(path) for path in paths}
    missing = {path: target for path, target in targets.items() if not target.exists()}
    if missing:
        execute(missing)
    return [nbformat.read(target, as_version=4) for target in targets.values()]


def execute(targets: Mapping[Path, Path]) -> None:
    """Execute notebooks, and write each with its outputs to its target, completely or not at all."""
    with tempfile.TemporaryDirectory(prefix="fedgauss-") as folder, _environment(Path(folder)):
        asyncio.run(_execute_all(targets))


async def _execute_all(targets: Mapping[Path, Path]) -> None:
    free = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(path: Path, target: Path) -> None:
        async with free:
            await _execute(path, target)

    await asyncio.gather(*(one(path, target) for path, target in targets.items()))


async def _execute(path: Path, target: Path) -> None:
    from nbclient import NotebookClient
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    pictures = ["--matplotlib=inline", "--InlineBackend.figure_formats={'svg'}"]
    with tempfile.TemporaryDirectory(prefix="fedgauss-") as folder:  # what it writes is nobody's
        sockets = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}  # in files: it opens no port
        client = NotebookClient(
            notebook,
            timeout=_SECONDS,
            kernel_name="python3",
            extra_arguments=pictures,
            config=Config({"KernelManager": sockets}),
            resources={"metadata": {"path": folder}},
        )
        await client.async_execute()
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    nbformat.write(notebook, unfinished)
    for old in target.parent.glob(f"{path.stem}-*.ipynb"):
        old.unlink(missing_ok=True)
    unfinished.replace(target)


@contextmanager
def _environment(folder: Path) -> Iterator[None]:
    """For kernels: this checkout's package, one thread each, the figures' style, and nothing from the user's home."""
    from fedgauss._figures import LIGHT, STYLE

    cycle = ", ".join(f"'{LIGHT[role]}'" for role in ("exact", "limit", "finite", "simulated"))
    style = STYLE | {"axes.prop_cycle": f"cycler('color', [{cycle}])", "savefig.facecolor": LIGHT["paper"]}
    (folder / "matplotlibrc").write_text("".join(f"{key}: {_quoted(value)}\n" for key, value in style.items()))
    given = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")])),
        "MATPLOTLIBRC": str(folder),
        "JUPYTER_RUNTIME_DIR": str(folder),
        "JUPYTER_CONFIG_DIR": str(folder),
        "IPYTHONDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / "build" / "compiled"),  # that of the tests
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PLATFORMS": "cpu",
    }
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _quoted(value: Any) -> str:
    """A value of a matplotlibrc, in which # begins a comment."""
    return f'"{value}"' if isinstance(value, str) and value.startswith("#") else str(value).replace("'#", "'")


def kept(path: Path) -> Path:
    """Where a notebook with its outputs is kept."""
    depends = [path, ROOT / "requirements.lock"]
    depends += sorted(
        file for file in (ROOT / "src" / "fedgauss").rglob("*") if file.suffix in {".py", ".json", ".npz"}
    )
    digest = hashlib.sha256()
    for file in depends:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return KEPT / f"{path.stem}-{digest.hexdigest()[:16]}.ipynb"


def page(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The text of a page in Markdown, and its pictures by their paths, each for light and for dark pages."""
    from nbconvert import MarkdownExporter

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _for_page(cell.outputs)
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, made = MarkdownExporter().from_notebook_node(notebook, resources)
    pictures = {}
    for path, content in made["outputs"].items():
        stem = path.removesuffix(".svg")
        plain = _METADATA.sub(b"", content[content.index(b"<svg") :])  # which names addresses outside
        pictures[f"{stem}_light.svg"], pictures[f"{stem}_dark.svg"] = plain, _darkened(plain)
    text = re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", text)  # to another notebook, which is a page here
    text = _PICTURE.sub(r"![](\1_light.svg#only-light)\n![](\1_dark.svg#only-dark)\n", text)
    title, _, rest = text.strip().partition("\n\n")
    return f"{title}\n\n{_LINK.format(name)}\n\n{rest}", pictures


def _for_page(outputs: Iterable[Any]) -> list[Any]:
    """Outputs in one kind each: HTML, a picture as lines, or all that was printed in between."""
    made: list[dict[str, str]] = []
    for output in outputs:
        data = output.get("data", {})
        printed = output.text if output.output_type == "stream" else data.get("text/plain", "")
        if html := data.get("text/html"):
            made.append({"text/html": f'<div class="shown">{_tidied(html)}</div>'})
        elif "image/svg+xml" in data:
            made.append({"image/svg+xml": data["image/svg+xml"]})
        elif made and "text/plain" in made[-1]:
            made[-1]["text/plain"] += printed
        elif printed:  # and not what a progress bar left
            made.append({"text/plain": printed})
    return [new_output("display_data", _fenced(data)) for data in made]


def _fenced(data: dict[str, str]) -> dict[str, str]:
    """Text as a block that wraps, and in which nobody looks for formulas."""
    return {"text/markdown": f"```text\n{data['text/plain'].rstrip()}\n```"} if "text/plain" in data else data


def _tidied(html: str) -> str:
    """HTML in the style of the page, and not indented: Markdown would take it for code."""
    plain = _OWN_STYLE.sub("", html)
    return plain if "<pre" in plain else "".join(line.strip() for line in plain.splitlines())


def _darkened(picture: bytes) -> bytes:
    """The picture with the dark value of every colour."""
    from fedgauss._figures import DARK, LIGHT

    text = picture.decode()
    for role, colour in LIGHT.items():
        text = text.replace(colour, DARK[role])
    return text.encode()
