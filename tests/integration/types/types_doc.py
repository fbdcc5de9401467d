"""Writes the tables of docs/types.md from the tested cases: `python -m tests.integration.types.types_doc`."""

from __future__ import annotations

from pathlib import Path

from leman_core.functions import arrow_types
from leman_core.model.service_errors import FailedPrecondition
from tests.integration.types.matrix import allowed, cells
from tests.integration.types.type_cases import CASES, REFUSED, Case

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "types.md"
BEGIN, END = "<!-- made by tests/integration/types/types_doc.py -->", "<!-- end -->"
NEWEST = (2, 2)
#: Of nestings in the matrix.
NAMES = {name: f"`{name}`" for name in ("list", "large_list", "fixed_size_list", "struct", "map", "dictionary")}
NAMES["map by"] = "`map` as its keys"


def tables() -> str:
    """Both tables."""
    stored = [
        "| Arrow type | a function of single rows gets | table format | stored as | cannot be nested in |",
        "|---|---|---|---|---|",
        *(_stored(case) for case in CASES),
    ]
    refused = ["| Arrow type | instead |", "|---|---|", *(f"| `{case.title}` | {_instead(case)} |" for case in REFUSED)]
    return "\n".join([BEGIN, "", *stored, "", "Refused:", "", *refused, "", END])


def written() -> str:
    """What stands in the document."""
    text = DOCUMENT.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def _stored(case: Case) -> str:
    value = next((v for v in case.make().to_pylist() if v is not None), None)
    given = "None" if value is None else f"{type(value).__module__.partition('.')[0]}.{type(value).__qualname__}"
    given = given.removeprefix("builtins.")
    since = "any" if case.since <= (2, 0) else "{}.{} or later".format(*case.since)
    kept = arrow_types.stored_type(case.kind)
    kept_as = "" if kept == case.kind else f"`{kept}`"
    return f"| `{case.title}` | `{given}` | {since} | {kept_as} | {', '.join(_not_inside(case))} |"


def _not_inside(case: Case) -> list[str]:
    """The types that cannot hold this one, of those that lie in none themselves."""
    nested = [cell for cell in cells() if cell.leaf == case.title and cell.nesting in NAMES]
    return [NAMES[cell.nesting] for cell in nested if not allowed(cell.kind, NEWEST)]


def _instead(case: Case) -> str:
    try:
        arrow_types.check_storable("c", case.kind, NEWEST)
    except FailedPrecondition as error:
        return error.message.rpartition("Lance does not store it")[2].partition(". ")[2]
    raise ValueError(f"{case.title} is not refused")


if __name__ == "__main__":
    document = DOCUMENT.read_text()
    DOCUMENT.write_text(document.replace(written(), tables()))
