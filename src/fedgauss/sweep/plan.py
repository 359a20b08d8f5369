"""Which cell of a sweep runs next, and how far the sweep is."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from fedgauss.sweep.cell import Cell


class Plan:
    """Which cell a free worker takes next: long ones first, and groups kept together while there are enough of them.

    A worker stays with the groups it has begun, then begins the longest that nobody has, then helps with the longest.
    It leaves the last cell of a group to those who have begun it: compiling what they have would take longer.
    """

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._groups: dict[Hashable, list[Cell]] = {}
        for cell in cells:
            self._groups.setdefault(getattr(cell, "group", None), []).append(cell)
        self._left = {group: sum(map(cost, members)) for group, members in self._groups.items()}
        self._begun: dict[Hashable, set[int]] = {group: set() for group in self._groups}
        for members in self._groups.values():
            members.sort(key=cost)  # the longest is taken off the end

    def __len__(self) -> int:
        return sum(map(len, self._groups.values()))

    @property
    def cost(self) -> float:
        """Of all cells that are not taken."""
        return sum(self._left.values())

    def take(self, worker: int) -> Cell | None:
        """The next cell for this worker; None when all are taken, or left to others."""

        def preference(group: Hashable) -> tuple[bool, bool, float]:
            return worker in self._begun[group], not self._begun[group], self._left[group]

        def wanted(group: Hashable) -> bool:
            begun = self._begun[group]
            return group is None or not begun or worker in begun or len(self._groups[group]) > 1

        groups = [group for group in self._groups if wanted(group)]
        if not groups:
            return None
        group = max(groups, key=preference)
        cell = self._groups[group].pop()
        self._begun[group].add(worker)
        self._left[group] -= cost(cell)
        if not self._groups[group]:
            del self._groups[group]
        return cell


def cost(cell: Cell) -> float:
    """How long a cell takes beside the others of its sweep; 1 where it does not say."""
    return float(getattr(cell, "cost", 1.0))


@dataclass(frozen=True)
class Summary:
    """How far a sweep is: cells asked for, found in the store, and run; and the seconds that went by."""

    total: int
    found: int
    run: int
    seconds: float

    @property
    def done(self) -> int:
        """Cells that are finished, now or before."""
        return self.found + self.run

    @property
    def left(self) -> int:
        """Cells that are not."""
        return self.total - self.done

    def __str__(self) -> str:
        return f"{self.done} of {self.total} cells finished, {self.run} of them in these {self.seconds:.1f} s"
