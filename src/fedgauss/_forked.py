"""JAX cannot compute in a child that was forked from a process in which it did: the child would wait for ever."""

import os

_computing: int | None = None  # the process that computed first


def refuse_in_forked_child() -> None:
    """To be called before JAX computes. Raise a RuntimeError in a forked child of a process that called it."""
    global _computing
    here = os.getpid()
    if _computing is None:
        _computing = here
    if _computing != here:
        raise RuntimeError(
            "fedgauss must not compute by JAX in a forked process after it did so in the parent: JAX's threads stay "
            "behind, and the child would wait for ever. Start processes by multiprocessing.get_context('spawn'), or "
            "call fedgauss in the children alone."
        )
