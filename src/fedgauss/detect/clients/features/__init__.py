"""What is looked at in a client's move: a feature is one class in one file, and is listed here."""

from fedgauss.detect.clients.features.base import Feature, Known, Moves, Sent
from fedgauss.detect.clients.features.claim import Claim
from fedgauss.detect.clients.features.closest import Closest
from fedgauss.detect.clients.features.evenness import Evenness
from fedgauss.detect.clients.features.journey import Course, Journey
from fedgauss.detect.clients.features.length import Length
from fedgauss.detect.clients.features.own import Own
from fedgauss.detect.clients.features.rows import Rows, beside_others, rows_of
from fedgauss.detect.clients.features.together import together
from fedgauss.detect.clients.features.typical import Typical

FEATURES: tuple[Feature, ...] = (Typical(), Closest(), Length(), Own(), Evenness(), Claim())

ALONG: tuple[Feature, ...] = (Course(), Journey())
# Of clients that are too many to have a past of their own.
OF_MANY: tuple[Feature, ...] = (Typical(), Closest(), Length(), Evenness(), *ALONG)
WIRE: tuple[Feature, ...] = (*FEATURES, *ALONG)  # all that a log may have

__all__ = [
    "ALONG",
    "FEATURES",
    "OF_MANY",
    "WIRE",
    "Feature",
    "Known",
    "Moves",
    "Rows",
    "Sent",
    "beside_others",
    "rows_of",
    "together",
]
