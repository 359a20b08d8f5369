"""Fits between sites that keep their rows: every party adds up the same signed messages and takes the same steps."""
