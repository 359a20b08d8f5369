"""What tests of live pages have in common: a run that is served, and whether its page fits the window."""

import json
import threading
import time
from contextlib import contextmanager

from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.server import LiveServer

CONNECTED = "document.getElementById('link').textContent.startsWith('Up to date')"
# What sticks out of the window, outside of boxes that scroll by themselves; and text too small to read.
FITS = """JSON.stringify({
  width: innerWidth, scroll: document.documentElement.scrollWidth,
  wide: [...document.querySelectorAll("main *")].filter((e) => !e.closest(".wide")
    && e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML.slice(0, 80)),
  text: Math.min(...[...document.querySelectorAll("p, li, td, th, dd, figcaption, footer")].map(
    (e) => parseFloat(getComputedStyle(e).fontSize))),
  chart: document.getElementById("chart").getBoundingClientRect().width,
})"""


@contextmanager
def serving(run):
    """Its server, on loopback."""
    server = LiveServer(run, "Watching run.jsonl", Guard("127.0.0.1", None), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def fits(tab, width):
    tab.size(width)
    time.sleep(0.3)  # a frame or two in the new size
    seen = json.loads(tab.value(FITS))
    assert (seen["width"], seen["wide"]) == (width, [])
    assert seen["scroll"] <= width
    assert seen["text"] >= 13
    assert seen["chart"] >= 0.85 * min(width, 1088) - 40
