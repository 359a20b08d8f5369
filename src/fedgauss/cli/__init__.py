"""The command `fedgauss`. Whatever computes or draws is imported inside the subcommands, so that help is quick."""

from fedgauss.cli import demo, reproduce, fit, coverage, federate, watch  # noqa: F401, I001 - in the order of the help
from fedgauss.cli.app import app

__all__ = ["app"]
