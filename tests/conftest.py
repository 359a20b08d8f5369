"""Its presence puts this folder on the path, so that tests can import `oracles`."""
