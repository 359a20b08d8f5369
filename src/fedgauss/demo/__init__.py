"""The demonstration: local SGD on the paper's FRand-eff compared with theory, and a monitored attack on it."""
