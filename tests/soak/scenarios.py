"""All scenarios, in the order in which they are shown."""

from soak.fits import Fits
from soak.flower import Flower
from soak.gossip import Gossip
from soak.logged import Logged
from soak.posted import Posted, Steady
from soak.scenario import Scenario
from soak.sinks import SinksAlone
from soak.sweeps import Sweeps

SCENARIOS: tuple[type[Scenario], ...] = (Posted, Steady, Logged, SinksAlone, Fits, Sweeps, Gossip, Flower)
