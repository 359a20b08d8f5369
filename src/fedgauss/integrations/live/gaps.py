"""Whether a round lies as far after the last one as is usual in this run, or has jumped."""

from collections import deque
from itertools import pairwise
from statistics import median

_FACTOR = 10  # times the usual gap: what is farther off is a jump
_REMEMBERED = 21  # gaps that say what is usual
BELIEVED = 3  # rounds in a row behind a jump after which the run is taken to have moved on

Place = tuple[int, ...]  # the number of a round, and its step where there are steps


class Gaps:
    """Refuses a round that jumps, so that one false number cannot make all later rounds look old.

    A jump is more than ten times the median of the last 21 gaps. It is refused, and nothing has changed: the next
    honest round is taken as if it had never been there. A run that has really skipped rounds is believed from the third
    round on that goes on from there, when no round in between went on from the old place.

    Parameters
    ----------
    usual : tuple of int
        Gaps that are usual before any was seen, in rounds and, where there are steps, in steps.
    last : tuple of int or None
        The place of the last round, as far as it is known.
    """

    def __init__(self, usual: Place, last: tuple[int | None, ...]) -> None:
        self._usual, self.last = usual, last
        self._gaps: tuple[deque[int], ...] = tuple(deque(maxlen=_REMEMBERED) for _ in usual)
        self._jumped: list[Place] = []  # rounds behind a jump, so far refused

    def check(self, place: Place) -> None:
        """A ValueError where the round has jumped."""
        gaps = [0 if last is None else now - last for now, last in zip(place, self.last, strict=True)]
        limits = [float(_FACTOR * usual) for usual in self._usual]
        if any(gap > limit for gap, limit in zip(gaps, limits, strict=True)):
            limits = [_FACTOR * max(u, median(seen or [u])) for u, seen in zip(self._usual, self._gaps, strict=True)]
        far = [i for i, (gap, limit) in enumerate(zip(gaps, limits, strict=True)) if gap > limit]
        if not far:
            self._jumped = []
        elif not self._is_believed(place):
            i, unit = far[0], ("round", "step")[far[0]]
            usual = max(self._usual[i], round(median(self._gaps[i] or [self._usual[i]])))
            raise ValueError(
                f"a {unit} must not jump; got {unit} {place[i]} after {unit} {self.last[i]}, where {usual} apart is "
                f"usual. If the run has really skipped {unit}s, go on sending: it is believed from the round on that "
                f"is the {BELIEVED}rd in a row to go on from there."
            )

    def _is_believed(self, place: Place) -> bool:
        if self._jumped and place == self._jumped[-1]:
            return False  # the same round, sent again
        if not self._jumped or not all(a < b for a, b in zip(self._jumped[-1], place, strict=True)):
            self._jumped = [place]
            return False
        self._jumped = [*self._jumped, place][-BELIEVED:]
        for axis in zip(*self._jumped, strict=True):
            steps = [b - a for a, b in pairwise(axis)]
            if max(steps) > _FACTOR * min(steps):  # they do not go on from each other either
                self._jumped = self._jumped[-2:]
                return False
        return len(self._jumped) == BELIEVED

    def add_many(self, place: Place, count: int) -> None:
        """Rounds that were taken, as far apart as is usual, up to this one."""
        for usual, seen in zip(self._usual, self._gaps, strict=True):
            seen.extend([usual] * min(count, _REMEMBERED))
        self.last, self._jumped = place, []

    def add(self, place: Place) -> None:
        """A round that was taken."""
        for now, last, seen in zip(place, self.last, self._gaps, strict=True):
            if last is not None and now > last:
                seen.append(now - last)
        self.last = tuple(now if last is None else max(now, last) for now, last in zip(place, self.last, strict=True))
        self._jumped = []
