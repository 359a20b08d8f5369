"""The settings of an error budget, gathered from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedgauss.experiments.budget_cells import STAGES
from fedgauss.sweep.cell import Row

ZERO, OPTIMUM = "from zero", "from the optimum"
FIGURE_1 = "Figure 1, right"
REMOVED = dict(zip(STAGES[1:], ("D_1", "D_3", "D_2", "D_4"), strict=True))  # what a stage takes out
TERMS = ("W", "D_1", "D_2", "D_3", "D_4")


@dataclass
class Setting:
    """One setting, averaged over draws of its clients.

    distance, error   by stage and covariance
    half_spaces       the distance over half-spaces to N(0, Sigma_n), by stage
    lengths           by term: the length of its mean, and its root mean square length
    """

    curve: str
    reading: str
    clients: str
    n_clients: int
    floor: float = 0.0
    distance: dict[tuple[str, str], float] = field(default_factory=dict)
    error: dict[tuple[str, str], float] = field(default_factory=dict)
    half_spaces: dict[str, float] = field(default_factory=dict)
    lengths: dict[str, tuple[float, float]] = field(default_factory=dict)

    def rms(self, term: str) -> float:
        """The root mean square length of a term."""
        return self.lengths[term][1]

    def acts(self, term: str) -> bool:
        """Whether a term is there at all: runs are in single precision, and what is zero shows as rounding."""
        return self.rms(term) > 1e-3 * sum(size for _, size in self.lengths.values())

    @property
    def label(self) -> str:
        """In a table or a picture."""
        start = self.reading.split()[-1]
        if self.curve == FIGURE_1:
            return f"Fig. 1, $K$={self.n_clients}, {start}"
        if self.curve.startswith("Table over tau"):
            return f"Table over $τ$, $τ$={self.curve.split('=')[1]}"
        if self.curve.startswith("Figure 2"):
            r, beta = (part.split("=")[1] for part in self.curve.split(", ")[1].split())
            return f"Fig. 2, $r$={r}, {start}" + ("" if beta == "0.85" else f", $β$={beta}")
        return f"{self.curve}, {start}" if self.curve == "Logistic" else self.curve


def settings_of(rows: Sequence[Row]) -> list[Setting]:
    """Every simulated setting, Figure 1 first, and each figure's runs from zero before those from the optimum."""
    grouped: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        if row["measure"] in ("distance", "length"):
            grouped.setdefault((str(row["curve"]), str(row["reading"]), int(row["K"] or 0)), []).append(row)
    return sorted((_setting(key, own) for key, own in grouped.items()), key=_place)


def find(settings: Sequence[Setting], curve: str, reading: str, n_clients: int | None = None) -> Setting | None:
    """The first setting of a curve and a reading, for any K or for one."""
    for setting in settings:
        if (setting.curve, setting.reading) == (curve, reading) and n_clients in (None, setting.n_clients):
            return setting
    return None


def _setting(key: tuple[str, str, int], rows: Sequence[Row]) -> Setting:
    curve, reading, n_clients = key
    found = Setting(curve, reading, str(rows[0]["clients"]), n_clients)
    for term in STAGES:
        for covariance in ("Sigma_n", "Sigma/K"):
            own = [row for row in rows if (row["term"], row.get("covariance")) == (term, covariance)]
            found.distance[term, covariance] = _mean(own, "estimate")
            found.error[term, covariance] = _mean(own, "error")
            found.floor = _mean(own, "floor")
            if covariance == "Sigma_n":
                found.half_spaces[term] = _mean(own, "half_spaces")
    for term in TERMS:
        own = [row for row in rows if (row["measure"], row["term"]) == ("length", term)]
        found.lengths[term] = (_mean(own, "mean"), _mean(own, "rms"))
    return found


def _place(setting: Setting) -> tuple[int, bool, list[float], str, int]:
    figures = ("Figure 1", "Table", "Figure 2", "Hessians", "Logistic")
    where = next(i for i, name in enumerate(figures) if setting.curve.startswith(name))
    values = [float(part.split("=")[1]) for part in setting.curve.split() if "=" in part]  # tau, or r and beta
    return where, setting.reading == OPTIMUM, values, setting.clients, setting.n_clients


def _mean(rows: Sequence[Row], column: str) -> float:
    return sum(float(row[column] or 0.0) for row in rows) / len(rows)
