"""`python -m tests.conformance.clients.results_doc`: runs all cases, writes the results into docs/clients.md.

With names of languages it runs these, and leaves the columns of the others as they are.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.clients import languages
from tests.conformance.clients.case_files import load
from tests.conformance.clients.languages import Outcome
from tests.conformance.clients.runs import Runs
from tests.conformance.clients.services import Services
from tests.conftest import ROOT

DOCUMENT = ROOT / "docs" / "clients.md"
_BEGIN, _END = "<!-- made by tests/conformance/clients/results_doc.py -->\n", "<!-- end -->"


def with_results(document: str, outcomes: Mapping[str, Mapping[str, Outcome]]) -> str:
    """The document with a column for each language: new ones for those in `outcomes`, the others as they stand."""
    before, rest = document.split(_BEGIN)
    table, after = rest.split(_END)
    known = _cells(table)
    suites = Counter(case.suite for case in load().values())
    columns = sorted({*outcomes, *(name for row in known.values() for name in row)})
    lines = [["cases", "", *columns], ["---", "---:", *("---:" for _ in columns)]]
    for suite, count in suites.items():
        told = {name: _cell(suite, done) for name, done in outcomes.items()}
        cells = [told.get(name) or known.get(suite, {}).get(name, "") for name in columns]
        lines.append([f"[{suite}](../tests/conformance/cases/{suite}.yaml)", str(count), *cells])
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return f"{before}{_BEGIN}\n{text}\n{_END}{after}"


def _cell(suite: str, done: Mapping[str, Outcome]) -> str:
    """How many passed; and how many did not."""
    counts = Counter(outcome.outcome for name, outcome in done.items() if name.startswith(f"{suite}/"))
    others = [f"{counts[kind]} {kind}" for kind in ("failed", "skipped") if counts[kind]]
    return ", ".join([str(counts["passed"]), *others])


def _cells(table: str) -> dict[str, dict[str, str]]:
    """What stands in the table: by suite and language."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()]
    if not rows:
        return {}
    names = rows[0][2:]
    return {row[0].partition("]")[0].lstrip("["): dict(zip(names, row[2:], strict=True)) for row in rows[2:]}


def main(names: list[str]) -> None:
    """Run what can be run here of these languages (none: of all), and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        services = Services(Path(folder))
        here = [language.name for language in languages.find() if not language.missing()]
        try:
            outcomes = Runs(services, {name: list(load()) for name in here if not names or name in names}).whole()
        finally:
            services.close()
    DOCUMENT.write_text(with_results(DOCUMENT.read_text(), outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
