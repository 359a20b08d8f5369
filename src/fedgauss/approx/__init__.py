"""Gaussian approximations of the whole path of local SGD, run by the same engine and centred at zero.

Theorems 3.1 and 3.2 say that on a rich enough probability space some copy of these processes stays close to the
path. That copy cannot be computed from the data. What is simulated here is the approximating law, by itself.
"""

from fedgauss.approx.gaussian import (
    aggregated,
    aggregated_setting,
    brownian,
    brownian_setting,
    client,
    client_setting,
)

__all__ = ["aggregated", "aggregated_setting", "brownian", "brownian_setting", "client", "client_setting"]
