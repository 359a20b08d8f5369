"""An HTTP request, and how its head is parsed, before any of the body is read."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, parse_headers
from urllib.parse import parse_qs

LONGEST_HEAD = 32 * 2**10  # bytes of the request line and headers


class Malformed(ValueError):
    """A request head that cannot be parsed, with the status to answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class Request:
    """One request. `query` holds what follows the question mark, by name; `body` is empty until it has all arrived."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Message
    body: bytes = b""

    @property
    def length(self) -> int:
        """The declared length of the body; 0 if there is none or it is not a number."""
        said = self.headers.get("Content-Length", "")
        return int(said) if said.isdecimal() and len(said) < 16 else 0


def read_head(head: bytes) -> Request:
    """Parse the request line and headers; raises Malformed."""
    first, _, rest = head.lstrip(b"\r\n").partition(b"\n")
    words = first.decode("latin-1").split()
    if len(words) != 3 or not words[1].startswith("/"):
        raise Malformed(400, "a request must begin with a method, a path and a version, as in GET / HTTP/1.1.")
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise Malformed(505, "requests must use HTTP/1.0 or HTTP/1.1.")
    try:
        headers = parse_headers(io.BytesIO(rest + b"\r\n\r\n"))
    except HTTPException:
        raise Malformed(431, "a request must have at most 100 headers.") from None
    path, _, query = target.partition("?")
    query = query.replace("+", "%2B")  # no form is sent here: a plus, as in a token, is no space
    return Request(method, path, {name: values[0] for name, values in parse_qs(query).items()}, headers)
