"""`fedgauss site TABLE`, which writes down what it used: python federate_site.py USED TABLE."""

import json
import resource
import sys
from pathlib import Path

from fedgauss.cli import app

if __name__ == "__main__":
    try:
        app(["site", sys.argv[2]])
    finally:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        scale = 1e6 if sys.platform == "darwin" else 1e3  # bytes there, kilobytes elsewhere
        used = {"mb": usage.ru_maxrss / scale, "cpu": usage.ru_utime + usage.ru_stime}
        Path(sys.argv[1]).write_text(json.dumps(used))
