"""Names of the families that come with the package, without loading them: they need SciPy, and help must not wait."""

from pathlib import Path

_PARTS = {"base", "by_class", "glm", "quadrature", "rows", "same_bits"}  # which are no families
_FOLDER = Path(__file__).parent / "families"


def shipped_families() -> list[str]:
    """One for each file: a family's file has its name."""
    return sorted(file.stem for file in _FOLDER.glob("[!_]*.py") if file.stem not in _PARTS)


def check_family(name: str) -> str:
    """`name`, if it is a family that comes with the package or that this process has registered."""
    if name not in shipped_families():
        from fedgauss.families import family

        family(name)
    return name
