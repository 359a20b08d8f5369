"""docs/paper_findings.md says what `benchmarks/paper_findings.py` recorded, and shows a figure of each finding."""

import json
import re
from pathlib import Path

import pytest

from fedgauss.report.text import plain

ROOT = Path(__file__).parents[1]
PAGE = " ".join((ROOT / "docs" / "paper_findings.md").read_text().split())
FOUND = json.loads((ROOT / "benchmarks" / "recorded" / "paper_findings-2026-11-18.json").read_text())["findings"]


def number(value, digits=2):
    return f"{value:.{digits}f}".replace("-", "−")


def error(found, digits=2):
    return f"{number(found['value'], digits)} ({number(found['error'], digits)})"


def listed(values, digits=2):
    *first, last = (number(value, digits) for value in values)
    return f"{', '.join(first)} and {last}"


def share(value):
    return number(value, 3).removeprefix("0")


def theorem_2_3():
    found = FOUND["theorem_2_3"]
    slopes = {
        (error(row["slope of gap"], 3), number(abs(row["slope of relative"]["value"]), 3)) for row in found["rows"]
    }
    ((gap, relative),) = slopes  # the same at every n and beta
    yield f"the log gap has slope {gap} and the relative gap {relative}"
    yield f"the slopes are {listed(found['slope on n'].values())} at $β$"
    yield f"term is {listed(found['ratio to the leading term at n = 10^6'].values())} at $n = 10^6$"
    phase = plain(FOUND["reproduced"]["phase_map"]["summary"])
    power = re.search(r"to a power of (\S+ to \S+),", phase)[1]
    yield f"$K$ to a power of {power}, with 99 %"
    assert "12 of 12 have a 99 % interval that covers 0, and 0 one" in FOUND["reproduced"]["phase_map"]["findings"][0]


def start():
    found = FOUND["start"]
    sizes = found["D_1 at K = 10"]
    yield f"is {', '.join(number(x, 1) for x in sizes[:3])}, {number(sizes[3])} and {number(sizes[4])} at $n = 10^2"
    on_n, on_k = number(found["slope on n, last decade"]), number(found["slope on K"])
    yield f"{on_n} over the last decade, and on $log K$ {on_k}"
    slopes = {name: number(value) for name, value in found["slopes of distances on n"].items() if "0.85" in name}
    few, many, few_near, many_near = slopes.values()
    yield f"(slope {few}) and rises for $K = n^{{.6}}$ (+{many})"
    yield f"the slopes are {few_near} and {many_near}, and the curves"


def corollary_f1():
    for axis, words in (
        ("tau", "$τ$ from 20 to 160, complete mixing"),
        ("1/(1-rho)", "$1/(1 − ρ)$ from 10 to 100, $τ$ = 1"),
    ):
        yield f"| {words} | {' | '.join(number(value) for value in FOUND['corollary_f1'][axis]['slopes'].values())} |"


def proposition_3():
    found = FOUND["proposition_3"]
    yield f"are {listed(row['slope from s = 10^3 to 10^4'] for row in found['gaps'])} at $β$"
    assert {number(row["gap at s = n"]) for row in found["gaps"]} == {"1.00"}
    ends = [f"{number(row['Omega_n'][0])} and {number(row['Omega_n'][-1])}" for row in found["variation"]]
    yield f"is {', '.join(ends)}, while $log n$ trebles"


def proposition_5():
    found = FOUND["proposition_5"]
    yield f"exponent of $η_i$ is {listed(found['slopes of spread on eta'])} (printed: 4)"
    spread, mean = error(found["slope of spread on K"]), error(found["slope of mean gap on K"])
    yield f"grows as $K$ to the power {spread}, and $E|Y_t − Y′_t|^2$ as $K$ to the power {mean}"


def algorithm_2():
    found = FOUND["algorithm_2"]
    yield f"{found['paths']:,} others to judge"
    yield f"to the power {number(found['slope on n of the chance of no alarm'])}."
    rows = {"as printed": "printed", "right scale": "right scale", "right scale, at this step alone": "at n alone"}
    for words, name in (rows | {"time-uniform, from step 41 on": "time-uniform"}).items():
        yield f"| {words} | {' | '.join(share(row[name]['share']) for row in found['rows'])} |"


def one_law():
    found = FOUND["one_law"]
    ratios, errors = ([x for row in found["rows"] for x in row[name]] for name in ("ratio", "error"))
    yield f"{found['runs']:,} runs of each"
    low, high, least, most = map(number, (min(ratios), max(ratios), min(errors), max(errors)))
    yield f"are {low} to {high} with errors of {least} to {most}"
    p = [f"{row['Kolmogorov-Smirnov p']:.2f}".removeprefix("0") for row in found["rows"]]
    yield f"p = {p[0]}, {p[1]} and {p[2]} at $K$"
    assert found["covariances differ by"] < 1e-15


def bootstrap():
    own, one = FOUND["bootstrap"]["own optima"], FOUND["bootstrap"]["one optimum"]
    apart, shared = own["printed"][-1], one["printed"][-1]
    yield f"is {apart:.0f} times too large at $n$ = 3,200 ({shared:.0f} times with one optimum)"
    yield f"to the power {number(own['slope of printed on n'])} and {number(one['slope of printed on n'])}."
    yield f"is {number(own['own iterate'][-1])} times the true one, where the limit above is {number(own['limit'])}"
    yield f"and {number(one['own iterate'][-1])} times with one optimum"


def theorem_2_2():
    found = FOUND["theorem_2_2"]
    for row in found["over n"][:3]:
        beta = f"{row['beta']:g}".removeprefix("0")
        yield f"| {beta} | " + " | ".join(f"{bias:.3f}".removeprefix("0") for bias in row["bias"])
        assert abs(row["local slopes on n"][-1]["value"] + row["beta"] / 2) < 0.06
    follow, permuted = found["over K"]
    yield f"to the power {error(follow['slope on K'], 3)} of $K$"
    assert max(permuted["bias"]) < 0.06


def drift():
    found = FOUND["drift"]

    def row(words, hessians, schedule, slope, theory, ratios=(), digits=2):
        shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        cells = words, hessians, schedule, error(slope, digits), theory, shown
        return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"

    ratios = "median of exact over theory"
    words = {"lazy": "even mixing", "ring": "ring"}
    sizes = {"lazy": ", $ρ$ = .5, $τ$ = 10; $K$ = 10 to 640", "ring": ", $τ$ = 1; $K$ = 8 to 64"}
    for one in found["rows"]:
        schedule = "the paper's" if one["schedule"].startswith("the paper's") else "small steps"
        called = words[one["network"]]
        if schedule == "the paper's" and one["Hessians"] == "follow":
            called += sizes[one["network"]]
        theory = "3/2" if one["network"] == "ring" else "1/2" if one["Hessians"] == "follow" else "0"
        yield row(called, one["Hessians"], schedule, one["slope on K"], theory, one[ratios])
    even = found["rows"][4]
    yield row("the same, from 160 to 640", "follow", "small steps", even["slope at the largest K"], "1/2", digits=3)
    large = found["leading term on large rings"]["slopes"]
    yield row("ring, leading term alone; $K$ = 64 to 1,024", "follow", "", large["follow"], "3/2").replace(
        "|  |", "| |"
    )
    yield row("ring, leading term alone", "permuted", "", large["permuted"], "3/2")
    summary = FOUND["reproduced"]["unequal_hessians"]["summary"]
    yield summary.removeprefix("The bias grows as ").rstrip(".")


@pytest.mark.parametrize(
    "finding",
    [
        theorem_2_2,
        theorem_2_3,
        start,
        corollary_f1,
        proposition_3,
        proposition_5,
        algorithm_2,
        one_law,
        bootstrap,
        drift,
    ],
    ids=lambda finding: finding.__name__,
)
def test_the_page_says_what_was_recorded(finding):
    for phrase in finding():
        assert phrase in PAGE
    assert f"(`{finding.__name__}`)" in PAGE
    if finding is theorem_2_2:  # a table says it all
        return
    for palette in ("light", "dark"):
        assert f"assets/finding_{finding.__name__}-{palette}.svg" in PAGE
        assert (ROOT / "docs" / "assets" / f"finding_{finding.__name__}-{palette}.svg").stat().st_size < 150_000
