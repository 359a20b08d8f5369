"""Which levels get a column: full rank, with as few reduced factors as can be.

A factor with L levels has a full coding, L indicators, and a reduced one, L - 1: all but the base. The full coding of a
product spans the reduced codings of all its sub-products,

    full(a) full(b) = 1 + reduced(a) + reduced(b) + reduced(a) reduced(b),

1 being the intercept. So a term contributes those sub-products that no earlier term spans; they are put together
again, S + S reduced(a) = S full(a), until nothing can be joined. The rule holds among terms with the same numeric
factors, by themselves: x a has as many columns as a has levels unless x is a term too.
"""

from collections.abc import Hashable, Sequence
from enum import IntEnum
from itertools import combinations


class Coding(IntEnum):
    """Of a factor in a product."""

    ABSENT = 0
    REDUCED = 1
    FULL = 2


def codings(factors: Sequence[Hashable], spanned: set[frozenset[Hashable]]) -> list[tuple[Coding, ...]]:
    """How the factors with levels of one term are coded: one or several products, a coding for each factor in each.

    Parameters
    ----------
    factors : sequence
        Those of the term, in its order.
    spanned : set of frozensets
        The sub-products that terms before it span; this term's are added.

    Returns
    -------
    list of tuple of Coding
    """
    new: list[tuple[Coding, ...]] = []
    for size in range(len(factors) + 1):
        for chosen in combinations(range(len(factors)), size):
            product = frozenset(factors[i] for i in chosen)
            if product not in spanned:
                spanned.add(product)
                new.append(tuple(Coding(i in chosen) for i in range(len(factors))))
    while _join(new):
        pass
    return new


def _join(products: list[tuple[Coding, ...]]) -> bool:
    """Put the first two together that differ in one factor, absent from one and reduced in the other."""
    for (i, short), (j, long) in combinations(enumerate(products), 2):
        apart = [k for k, (one, other) in enumerate(zip(short, long, strict=True)) if one != other]
        if len(apart) == 1 and (short[apart[0]], long[apart[0]]) == (Coding.ABSENT, Coding.REDUCED):
            products[j] = (*long[: apart[0]], Coding.FULL, *long[apart[0] + 1 :])
            del products[i]
            return True
    return False
