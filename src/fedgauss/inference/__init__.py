"""Confidence sets for a federated model in one pass, without sharing data."""
