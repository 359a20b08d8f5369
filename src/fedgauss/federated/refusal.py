"""What a party says when it will not do what it is asked."""


class Refused(ValueError):
    """A rule, the value that breaks it, and what to change, in one sentence; the other side may read it.

    It `counts` unless it depends on no row: whoever asks enough learns from refusals what rows there are.
    """

    def __init__(self, words: str, counts: bool = True) -> None:
        super().__init__(words)
        self.counts = counts


class Blamed(Refused):
    """A message that its sender cannot have meant, or that was changed on its way."""
