"""The report of the coverage laboratory."""
