"""The engine: one recursion folded over time, replicates last."""
