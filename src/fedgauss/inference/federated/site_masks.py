"""A site's part in a masked run: its keys, and how its sums are hidden before they leave."""

from __future__ import annotations

from pathlib import Path

from fedgauss.inference.federated.disclosure import Refused, in_words
from fedgauss.inference.federated.fields import MASKING_ASKED, SUMMED, check_fields
from fedgauss.inference.federated.keys import Keys
from fedgauss.inference.federated.lines import Message
from fedgauss.inference.federated.masks import Mask
from fedgauss.inference.federated.policy import Policy


class SiteMasks:
    """Nothing is hidden until sites have met: a run without keys is one without masks."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._keys: Keys | None = None
        self._mask: Mask | None = None

    @property
    def on(self) -> bool:
        """Whether sums leave this site masked."""
        return self._mask is not None

    @property
    def fingerprint(self) -> str:
        """Of the keys of all sites, for owners to compare; empty where there are none."""
        return "" if self._mask is None else self._mask.fingerprint

    def keys(self, name: str) -> Message:
        """A public key for this run."""
        try:
            with in_words():
                self._keys = Keys.fresh(name)
        except ImportError as error:  # it says what to install, and nothing of the rows
            raise Refused(str(error)) from error
        return {"public": self._keys.public}

    def meet(self, others: Message) -> Message:
        """All public keys of the run."""
        policy, keys = self._policy, self._keys
        assert keys is not None
        with in_words():
            self._mask = Mask(
                keys, others["publics"], others["run"], max(2, policy.fewest_sites), policy.drop_outs == "allowed",
                self._secret(),
            )  # fmt: skip
        return {}

    def check_sites(self, sites: list[str], name: str) -> None:
        """Those that take part must be those whose keys are here, or totals were of others than it is said."""
        if self._mask is not None and (sorted(sites) != list(self._mask.met) or name != self._mask.name):
            raise Refused("the sites of a masked fit must be those that have met, each by its name then.")

    def parted(self, order: str, content: Message) -> tuple[Message | None, Message]:
        """How an order for sums is to be masked, and the rest of it. Refused where it would not be answered."""
        if order not in SUMMED or self._mask is None:
            return None, content
        masking = content.get("masking")
        if not isinstance(masking, dict):
            raise Refused("sums of this run leave the site masked; an order must say which round it is, and whose.")
        with in_words("the masking of an order is not as it should be: "):
            check_fields(MASKING_ASKED, masking, {})
        with in_words():
            self._mask.check(masking["round"], masking["attempt"], masking["sites"])
        return masking, {name: value for name, value in content.items() if name != "masking"}

    def hidden(self, order: str, content: Message, reply: Message, masking: Message) -> Message:
        """The reply with its sums masked."""
        assert self._mask is not None
        sums = {name: reply[name] for name in SUMMED[order]}
        with in_words():
            masked = self._mask.hide(
                order, masking["round"], sums, asked=content, sites=masking["sites"], attempt=masking["attempt"]
            )
        return {name: value for name, value in reply.items() if name not in sums} | {"masked": masked}

    def state(self) -> Message:
        """What `restore` needs. It has the private key: keep it as safe as the rows."""
        return {
            "keys": None if self._keys is None else [self._keys.name, self._keys.private],
            "mask": None if self._mask is None else self._mask.state(),
        }

    def restore(self, state: Message) -> None:
        """As it was."""
        self._keys = None if state["keys"] is None else Keys(*state["keys"])
        self._mask = None if state["mask"] is None else Mask.restored(state["mask"], self._secret())

    def _secret(self) -> bytes:
        """What the owners of the sites have agreed on."""
        if self._policy.secret is None:
            return b""
        try:
            return Path(self._policy.secret).read_bytes().strip()
        except OSError as error:
            raise Refused("this site's secret could not be read; its owner must put the file in its place.") from error
