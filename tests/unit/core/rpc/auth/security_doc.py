"""Writes the table of docs/security.md from the protos: `python -m tests.unit.core.rpc.auth.security_doc`."""

from __future__ import annotations

from pathlib import Path

from leman_core.server.callers import requirement_from_options
from leman_core.server.routes import FLIGHT
from tests.unit.core.rpc.auth.every_method import methods

DOCUMENT = Path(__file__).resolve().parents[5] / "docs" / "security.md"
BEGIN, END = "<!-- made by tests/unit/core/rpc/auth/security_doc.py -->", "<!-- end -->"


def table() -> str:
    """Every RPC with what it asks of its caller; those that only services call come last."""
    rows = ["| RPC | role | and the right `code` |", "|---|---|---|"]
    internal = "leman.internal."
    for method in sorted((*methods(), *FLIGHT.methods), key=lambda m: m.full_name.startswith(internal)):
        asked = requirement_from_options(method)
        where = " or ".join(f"`{'.'.join(path)}`" for path in asked.code_where)
        code = "yes" if asked.code else f"where {where} is set" if where else ""
        rows.append(f"| `{asked.method}` | {asked.role} | {code} |")
    return "\n".join([BEGIN, "", *rows, "", END])


def written() -> str:
    """What stands in the document."""
    text = DOCUMENT.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


if __name__ == "__main__":
    document = DOCUMENT.read_text()
    DOCUMENT.write_text(document.replace(written(), table()))
