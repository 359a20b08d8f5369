"""The command `fedgauss`. Whatever computes or draws is imported inside the subcommands, so that help is quick."""

# In the order of the help.
from fedgauss.cli import demo, reproduce, fit, coverage, federate, site, watch, doctor  # noqa: F401, I001
from fedgauss.cli.app import app

__all__ = ["app"]
