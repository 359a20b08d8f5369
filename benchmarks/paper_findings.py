"""What docs/paper_findings.md says about the paper, measured: one finding a name.

    .venv/bin/python benchmarks/paper_findings.py                          # all of them, some minutes of one core
    .venv/bin/python benchmarks/paper_findings.py proposition_3 drift      # two of them
    .venv/bin/python benchmarks/paper_findings.py --record benchmarks/recorded/paper_findings-2026-11-18.json

Most figures are exact moments and have no Monte-Carlo error; an error is then over draws of the clients. With
`--record` what was measured replaces the same findings in that file; `scripts/make_pictures.py` draws from it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from finding_parts import Numbers
from findings_exact import bootstrap, corollary_f1, drift, proposition_3, proposition_5, start, theorem_2_2, theorem_2_3
from findings_simulated import algorithm_2, one_law, reproduced

FINDINGS: dict[str, Callable[[], Numbers]] = {
    made.__name__: made
    for made in (
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
        reproduced,
    )
}


def main() -> None:
    """Measure what was named, print it, and record it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FINDING", help=", ".join(FINDINGS))
    parser.add_argument("--record", type=Path, help="a JSON file to put these findings into")
    options = parser.parse_args()
    for name in options.names or FINDINGS:
        if name not in FINDINGS:
            parser.error(f"there is no finding {name!r}; there are {', '.join(FINDINGS)}")
        found = FINDINGS[name]()
        print(f"{name}: {json.dumps(found, indent=1)}", flush=True)
        if options.record:
            record(options.record, name, found)


def record(file: Path, name: str, found: Numbers) -> None:
    """Put a finding into a file, rounded to six digits."""
    kept = json.loads(file.read_text()) if file.exists() else {"versions": {}, "findings": {}}
    kept["date"] = datetime.now(UTC).isoformat(timespec="seconds")
    kept["versions"] = {package: version(package) for package in ("fedgauss", "jax", "numpy", "scipy")}
    kept["findings"][name] = json.loads(json.dumps(found), parse_float=lambda text: float(f"{float(text):.6g}"))
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
