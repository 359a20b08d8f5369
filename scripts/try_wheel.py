"""Install the wheel and the sdist under dist/ into clean environments, and run the smoke test in each.

    make wheel
    python scripts/try_wheel.py                                 # every Python of 3.11 to 3.13 on the path
    python scripts/try_wheel.py --python /some/python3.13       # this one
    python scripts/try_wheel.py --extra flower --extra frames   # of the extras only these
    python scripts/try_wheel.py --lowest                        # the oldest dependencies that pyproject.toml allows
    python scripts/try_wheel.py --lowest --extra flower         # and the oldest of an extra

For each Python there is an environment with the wheel, one with the sdist, and one for each extra. torch from PyPI
brings gigabytes for GPUs, so `gossip` is tried only where `--torch` names a build, such as "torch==2.13.0+cpu".
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = list(PROJECT["optional-dependencies"])
PROGRAMS = ["smoke.py", "smoke_extras.py", "smoke_flower.py"]
VERSIONS = [name.rsplit(" ", 1)[1] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", name)]


def pythons_on_path() -> list[str]:
    """Those of the declared versions that are here and answer: a shim may be on the path without its Python."""
    names = [found for version in VERSIONS if (found := shutil.which(f"python{version}"))]
    return [name for name in names if subprocess.run([name, "--version"], capture_output=True).returncode == 0]


def built(folder: Path, pattern: str) -> Path:
    """The only file of its kind."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise SystemExit(f"{folder} must have one file {pattern}; it has {len(found)}. Run `make wheel`.")
    return found[0].resolve()


def lowest(extras: list[str]) -> list[str]:
    """The lower bound of each dependency, and of those of extras, as a pin."""
    bounds = [*PROJECT["dependencies"], *(bound for name in extras for bound in PROJECT["optional-dependencies"][name])]
    return [re.sub(r">=([\d.]+).*", r"==\1", bound) for bound in bounds]


def attempt(python: str, requirements: list[str], smoke: list[str], uv: bool) -> bool:
    """A fresh environment with these requirements, and the smoke test in it, far from the repository."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "environment" / "bin" / "python"
        for name in PROGRAMS:
            shutil.copy(ROOT / "scripts" / name, folder)
        make = [python, "-m", "venv", *(["--without-pip"] if uv else []), own.parents[1]]
        pip = [own, "-m", "pip", "install", "--no-compile", "--disable-pip-version-check"]
        install = ["uv", "pip", "install", "--python", own] if uv else pip
        steps = [make, [*install, "--quiet", *requirements], [own, Path(folder) / PROGRAMS[0], *smoke]]
        for step in steps:
            done = subprocess.run([*map(str, step)], cwd=folder, capture_output=True, text=True, env=environment)
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n")
                return False
        print(done.stdout.rstrip(), f"{time.monotonic() - began:.0f} s with installation.", flush=True)
    return True


def main() -> int:
    """Every environment that was asked for; the exit code says whether all were well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="folder of the wheel and the sdist")
    parser.add_argument("--python", action="append", help="an interpreter, in place of those on the path")
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="an extra to try, in place of all")
    parser.add_argument("--plain", action="store_true", help="try the wheel and the sdist without extras only")
    parser.add_argument("--torch", help="the build of torch to try gossip with")
    parser.add_argument("--uv", action="store_true", help="install with uv, which is on the path, and not with pip")
    parser.add_argument("--lowest", action="store_true", help="try the wheel with the oldest dependencies only")
    asked = parser.parse_args()

    wheel, sdist = built(asked.dist, "*.whl"), built(asked.dist, "*.tar.gz")
    tries: list[tuple[str, list[str], list[str]]] = [("wheel", [str(wheel)], []), ("sdist", [str(sdist)], [])]
    extras = [] if asked.plain or asked.lowest else asked.extra or EXTRAS
    if "gossip" in extras and not asked.torch:
        print("gossip is skipped: no --torch was given.")
        extras = [name for name in extras if name != "gossip"]
    for name in extras:
        build = [asked.torch] if name == "gossip" else []
        tries.append((f"wheel[{name}]", [f"{wheel}[{name}]", *build], ["--extras-only", "--extra", name]))
    if asked.extra:
        tries = tries[2:]
    if asked.lowest:
        names = asked.extra or []
        smoke = ["--extras-only", *(word for name in names for word in ("--extra", name))] if names else []
        tries = [("wheel, oldest dependencies", [str(wheel), *lowest(names)], smoke)]
    pythons = asked.python or pythons_on_path()
    if not pythons:
        raise SystemExit(f"there is no Python of {', '.join(VERSIONS)} on the path. Name one with --python.")
    failed = []
    for python in pythons:
        for what, requirements, smoke in tries:
            print(f"{what} with {python}", flush=True)
            if not attempt(python, requirements, smoke, asked.uv):
                failed.append(f"{what} with {python}")
    tried = len(pythons) * len(tries)
    print(f"{tried - len(failed)} of {tried} environments are well." + "".join(f"\nFailed: {one}" for one in failed))
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
