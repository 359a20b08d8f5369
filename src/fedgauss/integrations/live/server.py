"""The web server of a run's page."""

import socket

from fedgauss.integrations.live.answers import Answers, Hear, Run
from fedgauss.integrations.live.connections import Connections
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.visits import Limits

_QUEUE = 512  # visitors who wait outside, in the system's queue
_BUFFER = 2**18  # bytes of an answer that the system holds for a slow reader


class LiveServer:
    """Serves a run's page; `hear` is told of every POSTed round that was judged, None where rounds are not taken."""

    def __init__(
        self, run: Run, title: str, guard: Guard, port: int, hear: Hear | None = None, limits: Limits | None = None
    ) -> None:
        self.guard = guard
        door = _door(guard.host, port)
        self.port = int(door.getsockname()[1])  # where 0 was asked for, the one that was found
        answers = Answers(run, title, guard, self.port, hear)
        self.hung_up = answers.hung_up  # connections that were not served, by reason
        self.connections = Connections(door, answers, guard.tls, limits or Limits())

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        return f"{self.guard.scheme}://{host}:{self.port}/"

    def serve_forever(self, poll_interval: float = 0.2) -> None:
        """Until `shutdown`; deadlines are looked at every `poll_interval` seconds."""
        self.connections.serve(poll_interval)

    def shutdown(self) -> None:
        """End `serve_forever`, which runs in another thread; who has asked is answered before."""
        self.connections.stop()

    def server_close(self) -> None:
        """Close the port."""
        self.connections.close()


def _door(host: str, port: int) -> socket.socket:
    """A socket that listens, or a ValueError that says why there is none."""
    door = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)  # connections inherit it
        door.bind((host, port))
        door.listen(_QUEUE)
    except (OSError, OverflowError) as error:
        door.close()
        raise ValueError(f"port {port} at {host} cannot be used; {error}. Use another --port?") from error
    return door
