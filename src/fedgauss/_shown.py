"""How results show themselves at a prompt and in a notebook."""

from html import escape


class Shown:
    """A result with a good `__str__`: a notebook shows that, a prompt its first line, and neither dumps arrays.

    A dataclass writes a `__repr__` of its own unless it is made with repr=False.
    """

    def __repr__(self) -> str:
        return f"<{str(self).strip().partition(chr(10))[0]}>"

    def _repr_html_(self) -> str:
        return f"<pre style='white-space: pre-wrap'>{escape(str(self))}</pre>"
