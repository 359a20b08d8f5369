"""The web server of a run's page."""

import socket

from fedgauss.integrations.live.answers import Answers, Hear
from fedgauss.integrations.live.connection import Limits
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.socket_loop import SocketLoop

_BACKLOG = 512  # connections that wait in the system's queue
_BUFFER = 2**18  # bytes of an answer that the system buffers for a slow reader


class LiveServer:
    """Serves a run's page; `hear` is told of every POSTed round that was judged, None where rounds are not taken."""

    def __init__(
        self, run: Run, title: str, guard: Guard, port: int, hear: Hear | None = None, limits: Limits | None = None
    ) -> None:
        self.guard = guard
        listener = _listener(guard.host, port)
        self.port = int(listener.getsockname()[1])  # the actual one, where 0 was given
        answers = Answers(run, title, guard, self.port, hear)
        self.rejected = answers.rejected  # connections closed early, by reason
        self._loop = SocketLoop(listener, answers, guard.tls, limits or Limits())

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        return f"{self.guard.scheme}://{host}:{self.port}/"

    def serve_forever(self, poll_interval: float = 0.2) -> None:
        """Run until `shutdown`; deadlines are checked every `poll_interval` seconds."""
        self._loop.serve(poll_interval)

    def shutdown(self) -> None:
        """End `serve_forever`, which runs in another thread, after complete requests have been answered."""
        self._loop.stop()

    def server_close(self) -> None:
        """Close the port."""
        self._loop.close()


def _listener(host: str, port: int) -> socket.socket:
    """A listening socket, or a ValueError that says why there is none."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # inherited by connections
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        why = str(error).rstrip(".")
        raise ValueError(f"port {port} at {host} cannot be used; {why}. Use another --port?") from error
    return listener
