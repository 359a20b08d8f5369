"""Why runs end, in few words: what a refusal says must be among these."""

from __future__ import annotations

import re
from collections.abc import Mapping

REASONS: Mapping[str, tuple[str, ...]] = {
    "budget": (r"takes? part in at most \d+ runs", r"answers at most \d+", r"at most \d+"),
    "spans: too few rows": (
        "must count at every parameter", "must rest on at least", "must leave single rows unknown",
        "that few rows of this site have", "three quarters as many numbers of rows that share a level",
    ),
    "sites apart": ("of two runs about the same", "differ by"),
    "rare levels": ("levels must have at least", "to be named", "every cell of two columns"),
    "too few rows": ("rows .* for each parameter", "takes part with at least", "of either outcome"),
    "column closed": ("must name a column",),
    "no estimate": ("no finite estimate", "separable", "collinear", "constant", "all but the same"),
    "site gives no reply": ("gave no reply",),
    "unreadable on the way": (
        "other than a reply", "one line of JSON", "in base64", "must hold", "must be nested", "begin with two",
        "must be finite",
    ),
    "order out of turn": ("orders must come in turn", "commitments already", "the order"),
    "forged commitment": ("is not signed by its key over",),
    "another message than committed": ("not the one that it committed to",),
    "message repeated": ("committed to one message",),
    "message missing or surplus": ("is missing", "not in the roster"),
    "masks do not cancel": ("masks of .* must cancel",),
    "message that is none": (
        "sent something else", "must send", "sent a message", "description that is none", "gave no reason",
        "it would rather", "must have the same columns", "must be of one kind",
    ),
    "key or name twice": ("of its own, or one table",),
    "one table twice": ("have the same table",),
    "forged roster or plan": (
        "must be signed by its key for this run", "have the entry that this site", "an entry must", "the keys of site",
        "a digest and a length", "have signed the plan", "a plan must",
    ),
    "keys not pinned": ("policy names the sites",),
    "another key than before": ("as at the first contact", "who may ask", "another key"),
    "forged past": ("this past", "cannot be continued", "earlier run", "the whole of it"),
    "ledger lost lines": ("lose lines",),
    "one run at a time": ("one run at a time",), "consent withdrawn": ("withdrawn consent",),
    "disk": ("written down first", "can be written"),
    "sums that are none": (
        "information matrix", "whole numbers", "could not add up", "below 2", "must suit the rows of each",
        "an identifier", "must be able to give",
    ),
}  # fmt: skip


def reason_of(words: str) -> str | None:
    """What a refusal is about; None where it names no rule."""
    return next((reason for reason, parts in REASONS.items() if any(re.search(part, words) for part in parts)), None)
