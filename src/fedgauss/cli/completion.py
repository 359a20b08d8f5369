"""What a shell offers on TAB for the value of an option: names that are known without loading what computes."""

from collections.abc import Callable, Iterable


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Offers those of `names` that begin as the word does, in whichever case."""
    known = list(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.lower().startswith(incomplete.lower())]

    return complete


def several_among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """The same for an option that takes names with commas between them: the last one is completed."""
    offered = among(names)

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in offered(last) if name not in given]

    return complete
