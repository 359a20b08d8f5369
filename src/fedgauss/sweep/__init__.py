"""Sweeps: cells of work, worker processes that run them, and a store that resumes."""
