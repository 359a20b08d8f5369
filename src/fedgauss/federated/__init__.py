"""Regression whose rows stay at their sites."""
