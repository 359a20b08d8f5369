"""Pairwise masks: a coordinator that adds up what sites send learns the total, and no site's part of it.

Each site makes a key pair for a run (X25519). Public keys go through the coordinator, and every two sites i < j (by
name) get a key that nobody else can work out. From it a stream cipher gives words r_ij, uniform modulo 2^256, anew for
each message, and site i sends

    m_i = x_i + sum_{j > i} r_ij - sum_{j < i} r_ji   modulo 2^256,

so that sum_i m_i = sum_i x_i exactly (`fixed_point` has x_i as an integer). The messages of all sites but one are
independent and uniform, and the last one is the total less the others: two data sets with the same total give messages
of one distribution.

A message has a key of its own, drawn from: the run, both names and public keys; the order and all that was asked with
it; its round and attempt; which sites take part; names and shapes of the numbers. So no stream is ever used twice, and
if sites were asked for different things (the sums at other parameters from one site alone would give it away, as the
difference of two totals), their masks do not cancel. Every message carries a masked 1, by which that is noticed.

What masks do not hide
----------------------
- The total, nor what follows from it: with two sites, each knows the other's part.
- A site that drops out. Its round has no total: what the others sent stays masked, by words that only the lost site
  shares with them. The round is run again without it, as another attempt. But totals of earlier rounds had the site in
  them and later ones do not; parameters change little from round to round near the end, so that the difference of the
  two comes close to the lost site's sums. It is those sums exactly if the lost site's message for the broken attempt
  turns up late, at the same parameters, and is not thrown away; or if a coordinator that has heard from all says
  that a site was lost. Sites can rule all of this out (drop_outs=False), at the price that a lost site ends the run.
- Anything from a coordinator that hands out keys of its own in place of the sites', or invents sites. Owners who do not
  trust it compare `Mask.fingerprint`, or agree on a `secret` that the coordinator does not know: without it, masks
  between a true site and an invented one cannot be worked out.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.inference.federated.disclosure import Refused
from fedgauss.inference.federated.fixed_point import MOST_SITES, WORDS, Words, added, from_words, negated, to_words
from fedgauss.inference.federated.keys import Keys, checked_key, in_bytes, key_stream, site_name
from fedgauss.inference.federated.lines import Message, encoded
from fedgauss.inference.tables import listed

Masked = dict[str, Words]  # arrays of words by name; their last axis has the four words of a number

COUNT: Final = "sites"  # a masked 1 from each site: the total must be their number
_MOST = 10**9  # rounds and attempts


class Mask:
    """What one site adds to its numbers in a run, so that only the total over all sites can be read.

    Parameters
    ----------
    keys : Keys
        This site's own, fresh for the run.
    publics : mapping of str to str
        Public keys of all sites of the run by name, this one's among them.
    run : str
        A name for the run, the same at all sites.
    fewest_sites : int, optional
        Take part only where a total is over at least so many sites; 2 or more.
    drop_outs : bool, optional
        Whether to go on without a site that was lost. If not, a lost site ends the run.
    secret : bytes, optional
        What the owners of the sites have agreed on without the coordinator; the same at all sites.

    Raises
    ------
    Refused
        If a key is not one, or two sites have the same; if there are too few sites, or this one is not among them.

    Examples
    --------
    >>> keys = {name: Keys.fresh(name) for name in ("a", "b", "c")}
    >>> publics = {name: own.public for name, own in keys.items()}
    >>> sent = [Mask(own, publics, "run 1").hide("score", 1, {"x": 0.1}, asked={}) for own in keys.values()]
    >>> total(sent)["x"]
    0.30000000000000004
    """

    def __init__(
        self, keys: Keys, publics: Mapping[str, str], run: str, fewest_sites: int = 2, drop_outs: bool = True,
        secret: bytes = b"",
    ) -> None:  # fmt: skip
        self._keys, self._run, self._drop_outs = keys, run, drop_outs
        self._fewest = _checks.whole("fewest_sites", fewest_sites, at_least=2, fix="One site's total is its own sums.")
        self._publics = {site_name(name): checked_key(name, public) for name, public in sorted(publics.items())}
        self._sites = tuple(self._publics)
        self._last = (0, 0)  # round and attempt that were answered last
        if self._publics.get(keys.name) != keys.public:
            raise Refused(f"public keys must be those that sites have sent; that of {keys.name!r} is not this site's.")
        if len(set(self._publics.values())) < len(self._publics):
            raise Refused("sites must have different public keys; two of them have the same. Start their sites again.")
        self._check_sites(self._sites)
        self._pairs = {
            other: keys.pair_key(other, public, run, secret)
            for other, public in self._publics.items()
            if other != keys.name
        }

    @property
    def name(self) -> str:
        """Of this site."""
        return self._keys.name

    @property
    def met(self) -> tuple[str, ...]:
        """All sites of the run, those among them that have left."""
        return tuple(self._publics)

    @property
    def sites(self) -> tuple[str, ...]:
        """Those that still take part."""
        return self._sites

    @property
    def fingerprint(self) -> str:
        """Of the run and all public keys. Owners who compare it by telephone know that nobody changed a key."""
        digest = hashlib.sha256(in_bytes(["fedgauss run", self._run, *self._publics.items()])).hexdigest()
        return "-".join(digest[i : i + 5] for i in range(0, 30, 5))

    def hide(
        self, order: str, round: int, arrays: Mapping[str, ArrayLike], *, asked: Message,
        sites: Sequence[str] | None = None, attempt: int = 0,
    ) -> Masked:  # fmt: skip
        """Masked numbers, of which the coordinator learns the total over `sites` and nothing else.

        Parameters
        ----------
        order : str
            What is answered.
        round : int
            1, 2, ... in the run; each is answered once for each attempt, and none after a later one.
        arrays : mapping of str to array
            Numbers of at most 2^96 in size, to be summed over sites.
        asked : dict
            All that came with the order. Masks cancel only if every site was asked the same.
        sites : sequence of str, optional
            Who takes part; by default those who did in the last message. Who has left does not come back.
        attempt : int, optional
            0, 1, ...: another one when a site was lost before the sum of this round.

        Returns
        -------
        dict of str to array of uint64
            The same names, and "sites", a masked 1.

        Raises
        ------
        Refused
            For a round or an attempt that was answered before, for a set of sites that is too small, has new ones or
            lacks this one, and for numbers that are too large.
        """
        taking_part = self._sites if sites is None else tuple(sorted(sites))
        self.check(round, attempt, taking_part)
        now = (int(round), int(attempt))
        if COUNT in arrays:
            raise ValueError(f"arrays must not be called {COUNT!r}, which is for the masked 1. Use another name.")
        numbers = {COUNT: np.ones(())} | {name: np.asarray(arrays[name], dtype=float) for name in sorted(arrays)}
        words = {name: _in_words(name, values) for name, values in numbers.items()}
        self._last, self._sites = now, taking_part  # before any reply: there is no second try
        shapes = [[name, list(values.shape)] for name, values in numbers.items()]
        about = hashlib.sha256(encoded(asked).encode()).hexdigest()
        context = in_bytes(["fedgauss message", order, *now, list(taking_part), shapes, about])
        mask = self._mask(context, sum(values.size for values in numbers.values()))
        hidden, start = {}, 0
        for name, values in numbers.items():
            part = mask[start : start + values.size].reshape(*values.shape, WORDS)
            hidden[name], start = added(words[name], part), start + values.size
        return hidden

    def check(self, round: int, attempt: int, sites: Sequence[str]) -> None:
        """Refuse a round that `hide` would refuse, and change nothing."""
        now = (_checks.whole("round", round, at_most=_MOST), _checks.whole("attempt", attempt, 0, at_most=_MOST))
        if now <= self._last:
            raise Refused(
                f"a site answers a round once for each attempt, in their order; the last was round {self._last[0]}, "
                f"attempt {self._last[1]}, and this is round {now[0]}, attempt {now[1]}. Use the next attempt."
            )
        self._check_sites(tuple(sorted(sites)))

    def state(self) -> Message:
        """What `restored` needs. It has the private key: keep it as safe as the rows."""
        return {
            "private": self._keys.private, "name": self._keys.name, "publics": self._publics, "run": self._run,
            "fewest": self._fewest, "drop_outs": self._drop_outs, "sites": list(self._sites), "last": list(self._last),
        }  # fmt: skip

    @classmethod
    def restored(cls, state: Message, secret: bytes = b"") -> Self:
        """The mask whose `state` this was; it answers nothing a second time either."""
        keys = Keys(state["name"], state["private"])
        mask = cls(keys, state["publics"], state["run"], state["fewest"], state["drop_outs"], secret)
        mask._sites, mask._last = tuple(state["sites"]), (int(state["last"][0]), int(state["last"][1]))
        return mask

    def _check_sites(self, sites: tuple[str, ...]) -> None:
        """A total must be over enough sites of this run, this one among them; who has left does not come back."""
        if not set(sites) <= set(self._sites) or len(set(sites)) < len(sites):
            strange = sorted(set(sites) - set(self._sites)) or sorted(sites)
            raise Refused(f"sites must be those that still take part, each once; got {listed(strange)}.")
        if self._keys.name not in sites:
            raise Refused(f"this site, {self._keys.name!r}, must be among those whose total is asked for.")
        if not self._fewest <= len(sites) <= MOST_SITES:
            raise Refused(
                f"a total must be over at least {self._fewest} sites here and at most {MOST_SITES}; this one is over "
                f"{len(sites)}. With fewer, it would tell of single sites."
            )
        if len(sites) < len(self._publics) and not self._drop_outs:
            lost = [name for name in self._publics if name not in sites]
            raise Refused(
                f"this site does not go on without others: totals before and after would tell of {listed(lost)}. "
                'Start again when all are there, or set drop_outs = "allowed" in its policy.'
            )

    def _mask(self, context: bytes, size: int) -> Words:
        """The sum over the other sites that take part: plus their words where this site's name comes first."""
        total = np.zeros((size, WORDS), np.uint64)
        for other in self._sites:
            if other != self._keys.name:
                words = key_stream(self._pairs[other], context, size)
                total = added(total, words if self._keys.name < other else negated(words))
        return total


def total(messages: Sequence[Masked]) -> dict[str, FloatArray]:
    """The sum of what sites have masked: exact, and rounded to a float once.

    Parameters
    ----------
    messages : sequence of dict
        Of all sites that take part, as `Mask.hide` returned them.

    Returns
    -------
    dict of str to array

    Raises
    ------
    ValueError
        If messages do not have the same names and shapes, or their masks do not cancel: a site is missing or there
        twice, sites were asked different things, or a key was changed on its way.
    """
    if not messages:
        raise ValueError("a total must be of at least two sites; got none.")
    first = messages[0]
    for message in messages:
        check_masked(message, {name: np.shape(words)[:-1] for name, words in first.items() if name != COUNT})
    sums = dict(first)
    for message in messages[1:]:
        sums = {name: added(sums[name], message[name]) for name in sums}
    if from_words(sums.pop(COUNT)) != len(messages):
        raise ValueError(
            f"masks of {len(messages)} sites must cancel; they do not. All that take part must have been asked the "
            "same in the same round and attempt, with the same public keys (and secret), and each must be here once."
        )
    return {name: from_words(words) for name, words in sums.items()}


def check_masked(message: Any, shapes: Mapping[str, Sequence[int]]) -> None:
    """Refuse a masked reply that has other arrays than these, or of other shapes; "sites" is there besides."""
    wanted = {COUNT: (WORDS,)} | {name: (*shape, WORDS) for name, shape in shapes.items()}
    if not isinstance(message, dict) or message.keys() != wanted.keys():
        raise ValueError(f"masked numbers must be {listed(sorted(wanted))}, and no others.")
    for name, shape in wanted.items():
        words = message[name]
        if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.shape != shape:
            raise ValueError(f"{name!r} must be masked numbers: unsigned 64-bit words of shape {shape}.")


def _in_words(name: str, values: FloatArray) -> Words:
    try:
        return to_words(values)
    except OverflowError as error:
        raise Refused(
            f"numbers must be at most 2^96 (7.9e28) in size to be masked; some of {name!r} are larger at this site, or "
            "no numbers. Measure columns in larger units (thousands, millions)."
        ) from error
