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
from collections.abc import Iterable, Iterator
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
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
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
    """Notebooks with their outputs, executed now, as many at once as there are cores, unless they are kept."""
    each = list(paths)
    missing = [path for path in each if not _kept(path).exists()]
    if missing:
        with tempfile.TemporaryDirectory(prefix="fedgauss-") as folder, _environment(Path(folder)):
            asyncio.run(_execute_all(missing))
    return [nbformat.read(_kept(path), as_version=4) for path in each]


async def _execute_all(paths: list[Path]) -> None:
    free = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(path: Path) -> None:
        async with free:
            await _execute(path)

    await asyncio.gather(*map(one, paths))


async def _execute(path: Path) -> None:
    """Write a notebook with its outputs, completely or not at all."""
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
    target = _kept(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(f".{os.getpid()}")
    nbformat.write(notebook, unfinished)
    for old in KEPT.glob(f"{path.stem}-*.ipynb"):
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


def _kept(path: Path) -> Path:
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
            cell.outputs = [output for output in map(_for_page, cell.outputs) if output is not None]
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


def _for_page(output: Any) -> Any:
    """An output in one kind: HTML, a picture as lines, or what was printed; None where nothing is left of it."""
    if output.output_type == "stream":
        return new_output("display_data", {"text/markdown": f"```text\n{output.text.rstrip()}\n```"})
    data = output.data
    if html := data.get("text/html"):
        plain = _STYLE.sub("", html)  # pandas brings its own
        if "<pre" not in plain:
            plain = "".join(line.strip() for line in plain.splitlines())  # or Markdown takes what is indented for code
        return new_output("display_data", {"text/html": f'<div class="result">{plain}</div>'})
    if "image/svg+xml" in data:
        return new_output("display_data", {"image/svg+xml": data["image/svg+xml"]})
    if text := data.get("text/plain"):
        return new_output("display_data", {"text/markdown": f"```text\n{text}\n```"})
    return None  # a progress bar was here


def _darkened(picture: bytes) -> bytes:
    """The picture with the dark value of every colour."""
    from fedgauss._figures import DARK, LIGHT

    text = picture.decode()
    for role, colour in LIGHT.items():
        text = text.replace(colour, DARK[role])
    return text.encode()
