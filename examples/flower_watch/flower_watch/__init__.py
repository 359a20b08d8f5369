"""Watch a Flower run: linear regression on ten clients, two of which are poisoned half-way."""
