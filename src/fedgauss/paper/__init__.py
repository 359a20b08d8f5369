"""The paper's results, each in one module: what to compute, what is printed, and how the two compare."""
