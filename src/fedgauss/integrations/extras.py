"""The door to what integrations need: whoever lacks a package is told what to install."""

import importlib
from typing import Any


def needed(module: str, extra: str) -> Any:
    """The module, or an error that names the extra it comes with."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name is not None and error.name.partition(".")[0] != package:
            raise  # it is there, and lacks something itself
        raise ImportError(f"this needs {package}, which is not installed: pip install 'fedgauss[{extra}]'.") from error
