"""Every result that can be asked for by name: the paper's, then those that go beyond it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from fedgauss.experiments.beyond import beyond_results
from fedgauss.experiments.paper import SCALES, Result, Scale, results


def catalogue() -> dict[str, Result]:
    """All results by name, in the paper's order."""
    return results() | beyond_results()


def chosen(names: Sequence[str], scale: Scale | None = None) -> list[Result]:
    """The results with these names, each once and in the paper's order.

    Without names, all of them; at a scale that thins out, only the paper's, for the others take as long again.
    """
    if not names and scale is not None and scale.thinned:
        return list(results().values())
    known = catalogue()
    for name in names:
        if name not in known:
            nearest = _nearest(name.lower(), known)
            raise ValueError(
                f"a name must be one of {', '.join(known)}; got {name!r}. Did you mean {nearest}? "
                "fedgauss reproduce --list says what each is."
            )
    return [result for name, result in known.items() if not names or name in names]


def _nearest(name: str, known: Iterable[str]) -> str:
    """The first name that begins like this one, or else the most similar."""
    whole = [other for other in known if other.startswith(name)]
    return (whole or difflib.get_close_matches(name, known, n=1, cutoff=0.0))[0]


def scale_named(name: str) -> Scale:
    """The scale with this name."""
    if name not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}; got {name!r}.")
    return SCALES[name]
