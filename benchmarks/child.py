"""The process that a measurement runs in: started by `common.fresh`, answers with one line of JSON."""

import importlib
import json
import os
import sys


def main() -> None:
    order = json.loads(sys.argv[1])
    # Before JAX is imported, which sizes its thread pool by the cores it may use. Only Linux can be told.
    if order["one_core"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    measure = getattr(importlib.import_module(order["module"]), order["measure"])
    print(json.dumps(measure(**order["arguments"])))


if __name__ == "__main__":
    main()
