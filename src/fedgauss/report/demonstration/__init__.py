"""The demonstration: local SGD on the paper's FRand-eff beside its theory, computed, told and drawn."""
