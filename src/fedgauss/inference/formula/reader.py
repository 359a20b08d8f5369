"""Reading tokens one by one, with words for whatever is out of place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedgauss.inference.formula.tokens import Token, tokens_of
from fedgauss.inference.tables import Frame

RULE = (
    "a formula may have columns, C(column), Q('column'), '.', a:b, a*b, brackets, log(), sqrt(), I(), scale(), "
    "center(), ns(), offset(), +, and - 1 for no intercept"
)
# What R and patsy have, and is called otherwise here.
_INSTEAD = {
    "factor": "Use C(column).",
    "as.factor": "Use C(column).",
    "bs": "Use ns(column, df=4), a natural spline.",
    "poly": "Use powers: a + I(a**2).",
    "standardize": "Use scale(column).",
}
LARGEST = 1e12  # number
_DEEPEST = 10  # brackets within brackets


class Reader:
    """The tokens of a formula on the columns of a frame, and where reading has got to."""

    def __init__(self, formula: str, frame: Frame) -> None:
        self.formula, self.frame = formula, frame
        self._tokens: Sequence[Token] = tokens_of(formula, frame.names)
        self._place, self._depth = 0, 0

    @property
    def next(self) -> Token:
        """The token that comes next."""
        return self._tokens[self._place]

    @property
    def tokens(self) -> Sequence[Token]:
        """All of them, read or not."""
        return self._tokens

    def take(self) -> Token:
        """The next token, which is then behind."""
        token = self.next
        if token.kind != "end":
            self._place += 1
        return token

    def accept(self, *signs: str) -> str:
        """The next token if it is one of these signs, else nothing."""
        return self.take().text if self.next.kind == "sign" and self.next.text in signs else ""

    def expect(self, sign: str) -> None:
        """Read this sign."""
        if self.accept(sign):
            return
        if self.next.kind == "end" and sign in ")]":
            raise ValueError(f"brackets and quotes in a formula must be closed; got {self.formula!r}.")
        raise self.refuse(f"{self._here()} stands where {sign!r} should be")

    def calls(self) -> bool:
        """Whether a name with a bracket after it comes next."""
        after = self._tokens[min(self._place + 1, len(self._tokens) - 1)]
        return self.next.kind == "name" and after.kind == "sign" and after.text == "("

    def number(self) -> Token:
        """Read a number."""
        if self.next.kind != "number":
            raise self.refuse(f"{self._here()} stands where a number should be")
        if float(self.next.text) > LARGEST:
            raise self.refuse(f"numbers are at most {LARGEST:g}; {self.next.text!r} is not")
        return self.take()

    def signed_number(self) -> tuple[float, str]:
        """Read a number that may be negative, with its text."""
        sign = self.accept("-")
        token = self.number()
        return float(sign + token.text), sign + token.text

    def column(self) -> str:
        """Read the name of a column."""
        if self.next.kind != "name":
            raise self.refuse(f"{self._here()} stands where a column is missing")
        return self.frame.check_name(self.take().text, "the formula")

    def quoted_column(self) -> tuple[str, str]:
        """Read Q('column'): the column, and the text."""
        self.take()
        self.expect("(")
        if self.next.kind != "text":
            raise self.refuse("Q() has the name of a column in quotes")
        quoted = self.take()
        self.expect(")")
        return self.frame.check_name(quoted.inside, "Q() in the formula"), f"Q({quoted.text})"

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """While inside a bracket."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.refuse(f"brackets may be {_DEEPEST} deep")
        yield
        self._depth -= 1

    def refuse(self, why: str) -> ValueError:
        """The error with the rule, the reason and the formula."""
        return ValueError(f"{RULE}; {why} in {shortened(self.formula)!r}.")

    def unknown(self, name: str) -> ValueError:
        """The error about a function that is none of ours."""
        fix = _INSTEAD.get(name, "Make it a column of the frame first.")
        return ValueError(f"{RULE}; got {name + '()'!r}. {fix}")

    def _here(self) -> str:
        return "the end" if self.next.kind == "end" else repr(self.next.text)


def shortened(text: str, most: int = 120) -> str:
    """Text that is not too long for a message."""
    text = text.strip()
    return text if len(text) <= most else f"{text[: most - 4]} ..."
