"""Which requests are let in: Host, Origin and the token."""

import hmac
import ipaddress
import secrets
import ssl
from dataclasses import dataclass, field

from fedgauss.integrations.live.request import Request

_SHORTEST = 16  # characters of a token
OPEN = "/health"  # needs no token, since probes have none; it only tells whether the run is watched


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """Refuses what a stranger, or a stranger's page in a browser on this machine, may send.

    Beyond loopback a token is needed. On loopback the Host header must name this machine: a foreign page can make a
    browser send requests here under a name of its own (DNS rebinding), but not under ours. A browser says in Origin
    whose page it acts for; others than our own are refused.

    Programs send the token in a header. A browser sends it once, in the page's address, and gets a cookie in exchange,
    because addresses end up in histories, logs and screenshots. The cookie is not the token, and ends with the process.
    """

    host: str
    token: str | None
    tls: ssl.SSLContext | None = None
    _cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"a token is needed to listen beyond this machine, at {self.host}. Use --token-file, or "
                f"FEDGAUSS_TOKEN, with at least {_SHORTEST} characters, or --host 127.0.0.1?"
            )
        if self.token is not None and (len(self.token) < _SHORTEST or not self.token.isascii()):
            raise ValueError(f"token must have at least {_SHORTEST} plain characters; got {len(self.token)}.")

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.tls is None else "https"

    def refusal(self, asked: Request, port: int) -> tuple[int, str] | None:
        """Status and reason where a request is not to be answered, else None."""
        named = asked.headers.get("Host", "").lower()
        if not self._is_ours(named, port):
            return 403, "the Host header must name this machine."
        origin = asked.headers.get("Origin")
        if origin is not None and origin.lower() != f"{self.scheme}://{named}":
            return 403, "requests from pages of other origins are refused."
        if self.token is None or (asked.method == "GET" and asked.path == OPEN):
            return None
        if "token" in asked.query and not (asked.method == "GET" and asked.path == "/"):
            return 401, "a token in the address is only accepted by GET /. Use the header Authorization: Bearer TOKEN."
        if self.shows_token(asked) or self.is_authorised(asked, port):
            return None
        return 401, "a token is needed: Authorization: Bearer TOKEN, or open /?token=TOKEN once in a browser."

    def is_authorised(self, asked: Request, port: int) -> bool:
        """Whether a request has the token or the cookie, if one is needed."""
        return self.token is None or self._has_token(asked) or self._has_cookie(asked, port)

    def shows_token(self, asked: Request) -> bool:
        """Whether the page's address has the right token, to be exchanged for a cookie."""
        return self.token is not None and _same(asked.query.get("token", ""), self.token)

    def set_cookie(self, port: int) -> str:
        """The value of Set-Cookie. Its name has the port, since browsers share cookies between ports of a host."""
        safe = "" if self.tls is None else "; Secure"
        return f"{_cookie_name(port)}={self._cookie}; Path=/; HttpOnly; SameSite=Strict{safe}"

    def _has_token(self, asked: Request) -> bool:
        scheme, _, given = asked.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _same(given.strip(), self.token or "")

    def _has_cookie(self, asked: Request, port: int) -> bool:
        pairs = (pair.strip().partition("=") for pair in asked.headers.get("Cookie", "").split(";"))
        return any(name == _cookie_name(port) and _same(value, self._cookie) for name, _, value in pairs)

    def _is_ours(self, named: str, port: int) -> bool:
        if self.host in ("0.0.0.0", "::"):
            return True  # any name may be ours; the token keeps strangers out
        hosts = {self.host.lower(), "127.0.0.1", "localhost", "::1"}
        names = {f"[{host}]" if ":" in host else host for host in hosts}
        usual = 80 if self.tls is None else 443  # browsers leave it out
        return named in {f"{name}:{port}" for name in names} or (port == usual and named in names)


def _cookie_name(port: int) -> str:
    return f"fedgauss_{port}"


def _same(given: str, wanted: str) -> bool:
    """In constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
