"""How much memory this process has had."""

from pathlib import Path


def highest_memory(reset=False):
    """The most since the last reset, in MB."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3
