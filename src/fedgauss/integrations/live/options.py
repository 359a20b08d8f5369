"""The options of `fedgauss watch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Format = Literal["text", "json"]


@dataclass(frozen=True)
class WatchOptions:
    """The options of the command; without `monitor`, `hessian` and `eta0` clients are watched. Else see its help."""

    log: Path | None = None
    listen: bool = False
    monitor: Path | None = None
    hessian: str | None = None
    warm_up: int = 25
    sync_every: int = 20
    eta0: float | None = None
    beta: float = 0.75
    shift: float = 0.0
    alpha: float = 0.05
    horizon: int | None = None
    rate: float = 0.05
    host: str = "127.0.0.1"
    port: int = 8765
    token: str | None = None
    token_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    save: Path | None = None
    quiet_after: float | None = None
    webhook: str | None = None
    notices: Path | None = None
    log_format: Format = "text"
