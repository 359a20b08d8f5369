"""Heads of requests to the page's server, before anybody is known to be allowed anything."""

from hypothesis import strategies as st

from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.request import Malformed, Request, read_head
from fuzz.damaged import byte_mutants, fuzzed, refused_or

TOKEN = "0123456789abcdef"
HEADS = [
    b"GET /?token=0123456789abcdef HTTP/1.1\r\nHost: 127.0.0.1:8765\r\nCookie: fedgauss-8765=abc; a=b\r\n\r\n",
    b"POST /rounds HTTP/1.1\r\nHost: localhost:8765\r\nAuthorization: Bearer 0123456789abcdef\r\n"
    b"Content-Type: application/json\r\nContent-Length: 12\r\nOrigin: http://localhost:8765\r\n\r\n",
]


@fuzzed(st.one_of(byte_mutants(*HEADS), st.binary(max_size=300)), few=60, many=10_000)
def test_a_head_is_read_or_malformed(folder, head):
    asked = refused_or(read_head, head, errors=Malformed)
    if asked is None:
        return
    assert isinstance(asked, Request)
    assert 0 <= asked.length < 10**15
    guard = Guard("127.0.0.1", TOKEN)
    refused = guard.refusal(asked, 8765)
    if refused is None:  # then the token was there, or nothing but the open probe was asked for
        sent = asked.query.get("token"), asked.headers.get("Authorization", "").rpartition(" ")[2].strip()
        assert TOKEN in sent or asked.path == "/health"
