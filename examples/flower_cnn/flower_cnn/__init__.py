"""Protect a Flower run: a convolutional network on ten clients, two of which turn bad half-way."""
