"""Visitors who take their time."""

import contextlib
import socket
import threading
import time


def until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Dribblers:
    """Visitors who send a byte every `pause` seconds; those who were hung up on call again."""

    def __init__(self, port, count, pause):
        self._port, self._pause, self._stop = port, pause, threading.Event()
        self._links = [None] * count
        self.calls = 0
        self._thread = threading.Thread(target=self._work)

    def __enter__(self):
        self._thread.start()
        until(lambda: self.calls >= len(self._links))
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _work(self):
        with contextlib.ExitStack() as opened:
            while True:
                for k, link in enumerate(self._links):
                    try:
                        if link is None:
                            self._links[k] = opened.enter_context(
                                socket.create_connection(("127.0.0.1", self._port), timeout=20)
                            )
                            self.calls += 1
                        else:
                            link.sendall(b"G")
                    except OSError:
                        self._links[k] = None
                if self._stop.wait(self._pause):
                    return
