"""Every result that can be asked for by name: the paper's, on attacks last, then those that go beyond it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from fedgauss import _checks
from fedgauss.experiments.attack import attack_results
from fedgauss.experiments.beyond import beyond_results
from fedgauss.experiments.paper import SCALES, Result, Scale, results

_SIMILAR = 0.4  # of difflib's ratio: below that a hint would only puzzle


def catalogue() -> dict[str, Result]:
    """All results by name, in the paper's order."""
    return results() | attack_results() | beyond_results()


def chosen(names: Sequence[str], scale: Scale | None = None) -> list[Result]:
    """The results with these names, in letters of any case, each once and in the paper's order.

    Without names, all of them; at a scale that thins out, only the paper's on Gaussian approximation, for the others
    take as long again.
    """
    if not names and scale is not None and scale.thinned:
        return list(results().values())
    known, asked = catalogue(), {name.lower() for name in names}
    for name in names:
        if name.lower() not in known:
            raise ValueError(
                f"a name must be one of {', '.join(known)}; got {name!r}.{_hint(name.lower(), known)} "
                "fedgauss reproduce --list says what each is."
            )
    return [result for name, result in known.items() if not names or name in asked]


def _hint(name: str, known: Iterable[str]) -> str:
    """Spaces for commas; or the first name that begins like this one, or else one that is similar, if there is any."""
    if "," in name:
        return f" Put spaces between names: {' '.join(name.replace(',', ' ').split())}."
    near = [other for other in known if other.startswith(name)] or difflib.get_close_matches(name, known, 1, _SIMILAR)
    return f" Did you mean {near[0]}?" if near else ""


def scale_named(name: str) -> Scale:
    """The scale with this name, in letters of any case."""
    return SCALES[_checks.one_of("scale", name.lower(), SCALES)]
