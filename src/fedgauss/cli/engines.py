"""What runs the cells of a sweep: local workers or a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedgauss.sweep.run import Executor

ROOM = 30_000_000  # bytes that the rows, figures and page of a sweep may need


def executor(engine: str, scheduler: str | None) -> Executor | None:
    """What runs the cells of a sweep; None for local workers."""
    from fedgauss import _checks

    if _checks.one_of("engine", engine, ["local", "dask"]) == "local":
        if scheduler is not None:
            raise ValueError("--scheduler belongs to --engine dask; got --engine local. Add --engine dask?")
        return None
    if scheduler is None:
        raise ValueError("--engine dask needs a scheduler; got none. Use --scheduler tcp://host:8786?")
    from fedgauss.integrations.dask_cluster import on_dask

    try:
        return on_dask(scheduler)
    except ImportError as error:
        raise ValueError(str(error)) from None
