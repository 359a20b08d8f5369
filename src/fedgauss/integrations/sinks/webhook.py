"""A POST for each round, or for each alarm only, that a run never waits for."""

import atexit
import encodings.idna  # noqa: F401 - sockets load it at the first POST; if the disk is full then, its bytecode is cut short
import threading
import urllib.error
import urllib.request
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fedgauss import _checks
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.sinks.base import as_json

_ROOM = 100  # rounds that may wait to be sent
_FOR_ALARMS = 5.0  # answers that `close` waits for while an alarm is still to be sent
_PAUSE, _LONGEST_PAUSE = 0.5, 60.0  # seconds before an alarm is sent again, doubled each time


class _Round(NamedTuple):
    alarm: bool
    body: bytes


class Webhook:
    """A sink that POSTs each verdict as JSON, from a thread of its own; alarms overtake other rounds.

    An alarm is sent again, less and less often, until the receiver confirms it: it arrives at least once. Other rounds
    are sent once.

    Parameters
    ----------
    url : str
        Where to.
    alarms_only : bool
        Whether to send only rounds that alarm.
    timeout : float
        Seconds that one answer may take. A run never waits for it: when 100 rounds are waiting, further ones are
        dropped, but an alarm takes the place of another round.

    Notes
    -----
    What went wrong in the thread is raised by the next call, so that `Sinks` can warn of it, and `close` counts what
    was lost. Messages name the host alone, since the rest of a url is often a secret. Redirections are errors: verdicts
    go where they were meant to go, or nowhere.
    """

    def __init__(self, url: str, alarms_only: bool = False, timeout: float = 3.0) -> None:
        self._url, self._host, self._alarms_only = url, host_of(url), alarms_only
        self._timeout = _checks.real("timeout", timeout, above=0.0, fix="It counts seconds.")
        self._news = threading.Condition()  # guards everything below
        self._waiting: list[_Round] = []
        self._sending: _Round | None = None
        self._lost = self._lost_alarms = 0
        self._failures = 0  # rounds lost, and attempts to send an alarm
        self._told = 0  # of these, the ones that a call has spoken of
        self._why = ""  # of the last failure
        self._closed = False
        threading.Thread(target=self._send_all, name="fedgauss webhook", daemon=True).start()
        atexit.register(self.close)  # so that an alarm which ends the run is sent too

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Leave a round to be sent, and raise what went wrong since the last."""
        if self._closed:
            raise ValueError(f"a webhook must be open; this one was closed before round {round}. Make another one?")
        body = as_json(round, verdict).encode()
        with self._news:
            if verdict.alarm or not self._alarms_only:
                self._leave(_Round(verdict.alarm, body))
            if self._failures > self._told:
                self._told = self._failures
                raise ConnectionError(f"{self._host} has not confirmed every round; {self._why}")

    def close(self) -> None:
        """Wait for what is still to be sent: as long as one answer may take, or five where an alarm is among it.

        Raises an error that counts the rounds that were lost, from the first on.
        """
        atexit.unregister(self.close)
        with self._news:
            self._closed = True
            self._news.notify_all()
            if not self._news.wait_for(lambda: not self._left(), self._timeout):
                more = (_FOR_ALARMS - 1.0) * self._timeout
                self._news.wait_for(lambda: not any(one.alarm for one in self._left()), more)
            for one in self._left():
                self._lose(one.alarm, self._why or "answers came too slowly")
            self._waiting, self._sending = [], None
            lost, self._lost = self._lost, 0
        if lost:
            raise ConnectionError(
                f"{self._host} has not confirmed every round; missing: {lost}, of them alarms: {self._lost_alarms}; "
                f"{self._why}"
            )

    def _leave(self, one: _Round) -> None:
        if len(self._waiting) >= _ROOM:
            # An alarm takes the place of the oldest round that is none; everything else is itself what is dropped.
            drop = next((other for other in self._waiting if not other.alarm), one) if one.alarm else one
            self._lose(drop.alarm, f"{_ROOM} rounds wait already and one was dropped")
            if drop is one:
                return
            self._waiting.remove(drop)
        self._waiting.append(one)
        self._news.notify_all()

    def _lose(self, alarm: bool, why: str) -> None:
        self._failures += 1
        self._lost += 1
        self._lost_alarms += alarm
        self._why = why

    def _left(self) -> list[_Round]:
        return self._waiting if self._sending is None else [*self._waiting, self._sending]

    def _send_all(self) -> None:
        pause = _PAUSE
        while (one := self._next()) is not None:
            why = post(self._url, one.body, self._timeout)
            with self._news:
                given_up, self._sending = self._sending is None, None  # by `close`
                if why is None:
                    pause = _PAUSE
                elif one.alarm and not self._closed:
                    self._failures += 1
                    self._why = why
                    self._waiting.insert(0, one)
                    self._news.wait_for(lambda: self._closed, pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                elif not given_up:
                    self._lose(one.alarm, why)
                self._news.notify_all()

    def _next(self) -> _Round | None:
        """The alarm that waits longest, or else the round that does; None once there is nothing more to come."""
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._closed)
            if self._waiting:
                self._sending = next((one for one in self._waiting if one.alarm), self._waiting[0])
                self._waiting.remove(self._sending)
            return self._sending


def post(url: str, body: bytes, timeout: float) -> str | None:
    """POST JSON; returns what went wrong, without the url. Redirections are not followed."""
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310 - host_of takes http(s) alone
    try:
        with _OPENER.open(asked, timeout=timeout):
            return None
    except urllib.error.HTTPError as error:
        error.close()
        redirected = ", a redirection, which is not followed" if 300 <= error.code < 400 else ""
        return f"it answered {error.code}{redirected}"
    except Exception as error:  # whatever it is, the thread goes on
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(cause, TimeoutError):
            return f"no answer came in {timeout:g} s"
        return getattr(cause, "strerror", None) or type(cause).__name__


def host_of(url: str, name: str = "url") -> str:
    """The host of a url that can be sent to, with its port; errors call the url `name`."""
    parts = urlsplit(url)
    named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    if not named or "@" in parts.netloc or " " in url or not url.isprintable():
        raise ValueError(
            f"{name} must begin with http:// or https:// and name a host, without a user, a password or spaces; got "
            f"the scheme {parts.scheme!r} and the host {parts.hostname!r}."
        )
    return parts.netloc


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirection)
