"""What a monitor holds: what its rounds are judged with, and where its run is."""

from __future__ import annotations

from fedgauss._types import FloatArray
from fedgauss.detect.channel import Channel, Conditions
from fedgauss.detect.client_record import ClientRecord
from fedgauss.detect.innovations import Innovations
from fedgauss.detect.thresholds import Boundary
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watch import Watch, rounds_to_drop

Settings = tuple[int, float, int | None]  # sync_every, alpha, horizon


class MonitorState:
    """The base of `Monitor`, for whatever judges by it, saves it, or goes through many rounds at once.

    watch         the channels
    last          Y at the last update, or the start; None before either is known
    weights       of clients, where they are not those of `lin`
    uploads       what clients did, from the first upload on
    origin_round  the round and step after which watching began
    origin_step
    seed          for thresholds that have to be simulated
    may_join      whether clients are watched, too, should uploads come with the first round
    """

    alarm: Verdict | None

    def begin(
        self, parts: Innovations, settings: Settings, limits: Boundary, channels: tuple[Channel, ...], seed: int
    ) -> None:
        """Be a monitor that has seen nothing."""
        self.sync_every, self.alpha, self.horizon = settings
        self.innovations, self.lin, self.steps = parts, parts.lin, parts.steps
        self.boundary, self.channels, self.seed = limits, channels, seed
        self.round = self.step = 0
        self.weights: FloatArray | None = None
        self.last: FloatArray | None = None
        self.uploads: ClientRecord | None = None
        self.may_join = False
        self.forget()

    def forget(self) -> None:
        """Begin to watch anew from here, with a fresh alpha."""
        self.origin_step, self.origin_round = self.step, self.round
        self.alarm = None
        if self.uploads is not None:
            self.uploads.reset()
        drop, tempering = rounds_to_drop(self.sync_every), self.innovations.whitening.tempering
        conditions = Conditions(self.lin.dim, 1, self.sync_every, drop, tempering, self.lin, self.horizon)
        self.watch = Watch(self.channels, conditions)
