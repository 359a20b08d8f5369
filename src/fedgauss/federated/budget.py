"""How much a table answers over its whole life, before its owner is asked again."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fedgauss.federated.privacy import Privacy


@dataclass(frozen=True)
class Budget:
    """How much a table answers before its owner is asked again.

    A fit takes one try, 5 to 12 parameters (20 to 28 where the start is poor: a Poisson regression with exposures) and
    2 to 4 matrices.

    Attributes
    ----------
    tries : int
        Runs that are begun, refused ones too; a repeat of an answered run is free. 60 are three for each of the 20
        models that the other budgets have room for.
    refusals : int
        Runs that ended for a reason that depends on rows, each of which tells that there are such rows. 20 leave an
        honest asker one for each fit; of 60 runs in all, at most a third can be guesses that hit.
    parameters : int
        At which sums are told. A dishonest site can move them, so each tells of something else. 200 are 25 fits of 8,
        or 16 of 12.
    matrices : int
        Of information, which tell of every product of two columns. 50 are 12 fits of 4, or 25 of 2.
    passes : int
        Of SGD, whose rounds tell of the few rows in between; none unless the owner of the table wants them.
    """

    tries: int = 60
    refusals: int = 20
    parameters: int = 200
    matrices: int = 50
    passes: int = 0

    def __post_init__(self) -> None:
        for one in fields(self):
            least = int(one.name != "passes")
            if getattr(self, one.name) < least:
                raise ValueError(f"{one.name} of a budget must be at least {least}; got {getattr(self, one.name)}.")


PRIVACY = Privacy(10.0, 1e-5)  # over the life of a table: 70 private fits of epsilon 1 at delta 1e-6
