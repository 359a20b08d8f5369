"""Estimates of a federated model with confidence sets, without sharing data."""
