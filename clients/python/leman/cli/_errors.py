"""Failed rows, counted by what went wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from leman._table_model import RowError
from leman.cli._output import print_json, print_line, print_table

_HEAD = 80
#: What differs from row to row in one and the same failure: numbers, and what stands in quotes.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Rows on which the function failed alike. `message`: the first line of theirs, with what differs as `…`;
    `example`: the address of one of them."""

    error_type: str
    message: str
    rows: int
    example: int


def group_errors(errors: Iterable[RowError]) -> list[ErrorGroup]:
    """By exception and head of the message, the largest group first."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], RowError] = {}
    for error in errors:
        key = error.error_type, message_head(error.error_message)
        counts[key] += 1
        first.setdefault(key, error)
    return [ErrorGroup(kind, head, rows, first[kind, head].row_address) for (kind, head), rows in counts.most_common()]


def message_head(message: str) -> str:
    """The first line, cut, without what differs from row to row."""
    line = _VARYING.sub("…", message.strip().split("\n")[0])
    return line if len(line) <= _HEAD else line[: _HEAD - 1] + "…"


def print_groups(groups: list[ErrorGroup], limit: int, *, as_json: bool) -> None:
    """The largest `limit` groups."""
    shown = groups[:limit]
    if as_json:
        print_json(shown)
        return
    headings = ("rows", "error", "message", "for example")
    print_table(headings, [(f"{g.rows:,}", g.error_type, g.message, _place(g.example)) for g in shown])
    if len(groups) > len(shown):
        print_line(f"and {len(groups) - len(shown):,} more kinds; --limit shows more")


def _place(address: int) -> str:
    return f"fragment {address >> 32}, row {address & 0xFFFFFFFF}"
