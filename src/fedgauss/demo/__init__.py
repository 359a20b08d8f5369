"""The demonstration: local SGD on the paper's FRand-eff beside its theory, and an attack on it watched."""
