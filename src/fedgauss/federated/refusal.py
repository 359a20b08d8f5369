"""What a party says when it will not do what it is asked."""


class Refused(ValueError):
    """A rule, the value that breaks it, and what to change, in one sentence; the other side may read it."""
