"""The pictures of docs/paper_findings.md, from what `benchmarks/paper_findings.py` recorded; see `make_pictures.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedgauss._figures import LIGHT, styled
from fedgauss.report.output import key, log_ticks, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RECORDED = Path(__file__).parents[1] / "benchmarks" / "recorded" / "paper_findings-2026-11-18.json"
_DASHED = (0, (4, 3))
_ROLES = ("exact", "finite", "limit")
_DOT = {"marker": "o", "ms": 4}


def _found(name: str) -> dict[str, Any]:
    return json.loads(RECORDED.read_text())["findings"][name]


def _panel(title: str, legend: list[Any], height: float = 2.3, columns: int = 3) -> tuple[Figure, Any]:
    figure, ((axes,),) = stacked(title, 1, legend, height=height, columns=columns)
    return figure, axes


@styled
def finding_theorem_2_3() -> Figure:
    """The gap between the two covariances relative to their size, against K."""
    shown = [row for row in _found("theorem_2_3")["rows"] if row["beta"] == 0.75 and row["n"] < 10**6]
    legend = [
        key(f"$n$ = $10^{len(str(row['n'])) - 1}$", role, **_DOT) for row, role in zip(shown, _ROLES, strict=True)
    ]
    legend.append(key(r"printed, $\propto \sqrt{K}$", lw=1.0, ls=_DASHED))
    figure, axes = _panel(r"Relative to its size, $\Sigma_n - \Sigma/K$ does not depend on $K$", legend, columns=2)
    for row, role in zip(shown, _ROLES, strict=True):
        axes.plot(row["K"], row["relative"], color=LIGHT[role], **_DOT)
        rising = [row["relative"][0] * (k / row["K"][0]) ** 0.5 for k in row["K"]]
        axes.plot(row["K"], rising, color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    log_ticks(axes, "x", shown[0]["K"])
    log_ticks(axes, "y", (0.02, 0.05, 0.1, 0.2, 0.5, 1))
    axes.set(xlabel="clients $K$", ylabel="relative gap")
    return figure


@styled
def finding_start() -> Figure:
    """The distance of Figure 2, from zero and from the optimum."""
    rows = [row for row in _found("start")["distances"] if row["beta"] == 0.85]
    looks = {0.2: ("exact", "o"), 0.6: ("limit", "s")}
    legend = [key(f"$K = n^{{{r:g}}}$", role, marker=mark, ms=4) for r, (role, mark) in looks.items()]
    legend += [key("from zero", "muted"), key("from the optimum", "muted", ls=_DASHED)]
    figure, axes = _panel("The transition of Figure 2 is the start: from the optimum it is gone", legend, columns=4)
    for r, (role, mark) in looks.items():
        for begin, line in (("zeros", "-"), ("optimum", _DASHED)):
            line_rows = [row for row in rows if (row["r"], row["start"]) == (r, begin)]
            x, y = zip(*((row["n"], row["distance"]) for row in line_rows), strict=True)
            axes.plot(x, y, color=LIGHT[role], ls=line, marker=mark, ms=4)
    log_ticks(axes, "x", (100, 200, 400, 800))
    axes.set(xlabel="steps $n$", ylabel=r"$d_c^\dagger$", ylim=(0, 1))
    return figure


@styled
def finding_corollary_f1() -> Figure:
    """How far clients are apart, against tau."""
    rows = _found("corollary_f1")["tau"]["rows"]
    x = [row["x"] for row in rows]
    lines = {"own optima": ("limit", "own optima"), "one optimum": ("finite", "one optimum for all")}
    legend = [key(label, role, **_DOT) for role, label in lines.values()]
    legend += [
        key(r"$\propto \tau$, corrected", lw=1.0, ls=":"),
        key(r"$\propto \sqrt{\tau}$, printed", lw=1.0, ls=_DASHED),
    ]
    figure, axes = _panel(r"Clients with own optima drift apart like $\tau$, not $\sqrt{\tau}$", legend, columns=2)
    for what, (role, _) in lines.items():
        axes.plot(x, [row[what] for row in rows], color=LIGHT[role], **_DOT)
    for power, line in ((1.0, ":"), (0.5, _DASHED)):
        axes.plot(x, [rows[0]["own optima"] * (tau / x[0]) ** power for tau in x], color=LIGHT["ink"], lw=1.0, ls=line)
    log_ticks(axes, "x", x)
    log_ticks(axes, "y", (2, 5, 10, 20, 50, 100))
    axes.set(xlabel=r"local steps $\tau$", ylabel=r"distance from the mean / $\eta$")
    return figure


@styled
def finding_proposition_3() -> Figure:
    """|Q_s - A^-1| against s."""
    rows = _found("proposition_3")["gaps"]
    legend = [key(rf"$\beta$ = {row['beta']:g}", role) for row, role in zip(rows, _ROLES, strict=True)]
    legend += [key(r"$\beta s^{\beta-1}$", lw=1.0, ls=":"), key("$1/s$, printed", lw=1.0, ls=_DASHED)]
    figure, axes = _panel(r"$Q_s$ settles like $s^{\beta-1}$, and not at all near $s = n$", legend)
    for row, role in zip(rows, _ROLES, strict=True):
        s = row["s"]
        axes.plot(s, row["gap"], color=LIGHT[role])
        axes.plot(s, [row["beta"] * x ** (row["beta"] - 1) for x in s], color=LIGHT["ink"], lw=1.0, ls=":")
    axes.plot([10, 1e6], [0.1, 1e-6], color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    axes.set(xscale="log", yscale="log", xlabel="$s$, with $n = 10^6$", ylabel=r"$|Q_s - A^{-1}|$", ylim=(1e-4, 2))
    return figure


@styled
def finding_proposition_5() -> Figure:
    """What is left of a change at step i after some mixings, against eta_i."""
    found = _found("proposition_5")
    shown = {1: "limit", 5: "finite", 20: "exact"}
    legend = [key(f"{r} mixing{'s' * (r > 1)}", role, **_DOT) for r, role in shown.items()]
    legend += [key(r"$\propto \eta^2$", lw=1.0, ls=":"), key(r"$\propto \eta^4$, printed", lw=1.0, ls=_DASHED)]
    figure, axes = _panel(r"A change shows like $\eta^2$ at first, like $\eta^4$ in the end", legend)
    x = found["eta"]
    for r, role in shown.items():
        y = found["spread"][found["mixings"].index(r)]
        axes.plot(x, y, color=LIGHT[role], **_DOT)
        for power, line in ((2, ":"), (4, _DASHED)):
            axes.plot(x, [y[0] * (eta / x[0]) ** power for eta in x], color=LIGHT["ink"], lw=0.9, ls=line)
    log_ticks(axes, "x", (0.001, 0.002, 0.005))
    axes.set(
        yscale="log", xlabel=r"step size $\eta_i$ at the change", ylabel="mean square over clients", ylim=(1e-13, 5e-5)
    )
    return figure


@styled
def finding_algorithm_2() -> Figure:
    """The chance of any false alarm against n."""
    rows = _found("algorithm_2")["rows"]
    looks = {
        "printed": ("limit", "s", "as printed"),
        "right scale": ("exact", "o", "right scale"),
        "time-uniform": ("finite", "^", "time-uniform"),
    }
    legend = [key(label, role, marker=mark, ms=4) for role, mark, label in looks.values()]
    legend.append(key("nominal", lw=1.0, ls=_DASHED))
    figure, axes = _panel("False alarms of Algorithm 2 at a nominal .05, with $c$ = 0", legend, columns=4)
    for rule, (role, mark, _) in looks.items():
        x, y, e = zip(*((row["n"], row[rule]["share"], 2 * row[rule]["standard_error"]) for row in rows), strict=True)
        axes.errorbar(x, y, e, color=LIGHT[role], marker=mark, ms=4, elinewidth=1.0)
    axes.axhline(0.05, color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    log_ticks(axes, "x", x)
    axes.set(xlabel="steps $n$", ylabel="any false alarm", ylim=(0, 1.03))
    return figure


@styled
def finding_one_law() -> Figure:
    """Ratios of quantiles."""
    rows = _found("one_law")["rows"]
    legend = [key(f"$K$ = {row['K']}", role, **_DOT) for row, role in zip(rows, _ROLES, strict=True)]
    figure, axes = _panel("Quantiles of $U_n$ under Client-GA over those under Aggr-GA", legend, height=1.9)
    for i, (row, role) in enumerate(zip(rows, _ROLES, strict=True)):
        x = [level + 0.01 * (i - 1) for level in row["level"]]
        axes.errorbar(x, row["ratio"], [2 * e for e in row["error"]], color=LIGHT[role], ls="", elinewidth=1.0, **_DOT)
    axes.axhline(1.0, color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    axes.set(xlabel="level of the quantile", ylabel="ratio", ylim=(0.9, 1.1))
    return figure


@styled
def finding_bootstrap() -> Figure:
    """The variance that the bootstrap gives over the true one, against n."""
    found = _found("bootstrap")
    looks = {"own optima": "limit", "one optimum": "finite"}
    legend = [key(f"{name}, as printed", role, **_DOT) for name, role in looks.items()]
    legend += [key(f"{name}, own iterate", role, ls=_DASHED, **_DOT) for name, role in looks.items()]
    figure, axes = _panel("Variance by the multiplier bootstrap over the true one", legend, columns=2)
    for name, role in looks.items():
        axes.plot(found["n"], found[name]["printed"], color=LIGHT[role], **_DOT)
        axes.plot(found["n"], found[name]["own iterate"], color=LIGHT[role], ls=_DASHED, **_DOT)
    axes.axhline(1.0, color=LIGHT["ink"], lw=0.8)
    log_ticks(axes, "x", (50, 200, 800, 3200))
    log_ticks(axes, "y", (1, 2, 5, 10, 20, 50, 100, 200, 500))
    axes.set(xlabel="steps $n$", ylabel="ratio of variances")
    return figure


@styled
def finding_drift() -> Figure:
    """The bias of the average in standard errors against K."""
    looks = {
        ("ring", "follow"): ("limit", "s", "ring, follow"),
        ("lazy", "follow"): ("limit", "o", "even mixing, follow"),
        ("ring", "permuted"): ("finite", "s", "ring, permuted"),
        ("lazy", "permuted"): ("finite", "o", "even mixing, permuted"),
    }
    legend = [key(label, role, ls="", marker=mark, ms=4.5) for role, mark, label in looks.values()]
    legend += [key("leading term of theory", lw=1.0), key(r"$\propto \sqrt{K}$", lw=1.0, ls=_DASHED)]
    figure, axes = _panel("Bias from drift, in standard errors of the average", legend, height=2.6, columns=2)
    for row in [one for one in _found("drift")["rows"] if one["schedule"].startswith("small")]:
        role, mark, _ = looks[row["network"], row["Hessians"]]
        axes.plot(row["K"], row["theory"], color=LIGHT[role], lw=1.0)
        axes.plot(row["K"], row["bias"], mark, color=LIGHT[role], ms=4.5)
        if (row["network"], row["Hessians"]) == ("lazy", "follow"):
            guide = [row["bias"][-1] * (k / row["K"][-1]) ** 0.5 for k in row["K"]]
            axes.plot(row["K"], guide, color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    log_ticks(axes, "x", (10, 20, 40, 80, 160, 320, 640))
    log_ticks(axes, "y", (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5))
    axes.set(xlabel="clients $K$", ylabel="bias / standard error")
    return figure


PICTURES = (
    finding_theorem_2_3,
    finding_start,
    finding_corollary_f1,
    finding_proposition_3,
    finding_proposition_5,
    finding_algorithm_2,
    finding_one_law,
    finding_bootstrap,
    finding_drift,
)
