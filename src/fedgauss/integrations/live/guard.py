"""Who may ask: addresses that a watcher binds to, and requests that it answers."""

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message

_SHORTEST = 16  # characters of a token


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
    """

    host: str
    token: str | None

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"a token is needed to listen beyond this machine, at {self.host}. Use --token with at least "
                f"{_SHORTEST} characters, or --host 127.0.0.1?"
            )
        if self.token is not None and (len(self.token) < _SHORTEST or not self.token.isascii()):
            raise ValueError(f"token must have at least {_SHORTEST} plain characters; got {len(self.token)}.")

    def refusal(self, query: Mapping[str, str], headers: Message, port: int) -> tuple[int, str] | None:
        """Status and reason where a request is not to be answered, else None."""
        named = headers.get("Host", "").lower()
        if not self._is_ours(named, port):
            return 403, "the Host header must name this machine."
        origin = headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{named}":
            return 403, "requests from pages of other origins are refused."
        if self.token is not None and not hmac.compare_digest(_token(query, headers), self.token.encode()):
            return 401, "a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN."
        return None

    def _is_ours(self, named: str, port: int) -> bool:
        if self.host in ("0.0.0.0", "::"):
            return True  # any name may be ours; the token keeps strangers out
        hosts = {self.host.lower(), "127.0.0.1", "localhost", "::1"}
        names = {f"[{host}]" if ":" in host else host for host in hosts}
        return named in {f"{name}:{port}" for name in names} or (port == 80 and named in names)


def _token(query: Mapping[str, str], headers: Message) -> bytes:
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    held = given.strip() if scheme.lower() == "bearer" else query.get("token", "")
    return held.encode("utf-8", "replace")
