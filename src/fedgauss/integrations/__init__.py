"""Where people already work: each integration is an extra, and loads what it needs when it is used."""
