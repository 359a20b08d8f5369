"""A Chromium that tests drive through a pipe, with nothing but the standard library; only loopback is ever visited."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
_JOIN = "import os, sys; [os.dup2(int(sys.argv[i]), i + 2) for i in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"


class Tab:
    """One page. Commands of the DevTools protocol go through descriptor 3 and come back through 4, ended by zeros."""

    def __init__(self, folder):
        ends = os.pipe(), os.pipe()
        (self._out, self._in), theirs = (ends[0][1], ends[1][0]), (ends[0][0], ends[1][1])
        # Numbers of 10 and above cannot be in the way of 3 and 4.
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in theirs]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-ISc",
                _JOIN,
                *map(str, high),
                BROWSER,
                *FLAGS,
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=high,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (*theirs, *high):
            os.close(end)
        self._rest, self._number, self._session = b"", 0, None
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self):
        pages = [target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.call("Page.enable")
        self.call("Emulation.setScrollbarsHidden", hidden=True)

    def call(self, method, **params):
        self._number += 1
        asked = {"id": self._number, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self, seconds=60.0):
        until = time.monotonic() + seconds
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(until - time.monotonic(), 0.0))
            piece = os.read(self._in, 2**16) if ready else b""
            assert piece, "Chromium does not answer"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])

    def open(self, address, shown=None):
        """Go to an address; `shown` is where it leads, if elsewhere."""
        self.call("Page.navigate", url=address)
        self.wait_for(f"location.href === {json.dumps(shown or address)} && document.readyState === 'complete'")

    def value(self, expression):
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression, seconds=20.0):
        """Seconds until an expression is true."""
        began = time.monotonic()
        while not self.value(expression):
            assert time.monotonic() - began < seconds, expression
            time.sleep(0.02)
        return time.monotonic() - began

    def screenshot(self, path):
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        self._session = None
        with contextlib.suppress(OSError, AssertionError):
            self.call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
