"""Failed rows, counted by what went wrong."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from leman._table_model import RowError
from leman.cli._output import print_json, print_line, print_table

_HEAD = 200
#: What differs from row to row in one and the same failure: numbers, and what stands in quotes.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Rows on which the function failed alike. `message`: the first line of theirs, with what differs among them as
    `…`; `example`: the address of one of them."""

    error_type: str
    message: str
    rows: int
    example: int


def group_errors(errors: Iterable[RowError]) -> list[ErrorGroup]:
    """By exception and first line of the message without numbers and quotations, the largest group first."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], tuple[RowError, list[str]]] = {}
    for error in errors:
        line = error.error_message.strip().split("\n")[0]
        key, values = (error.error_type, _VARYING.sub("…", line)), _VARYING.findall(line)
        counts[key] += 1
        _, common = first.setdefault(key, (error, values))
        common[:] = [value if value == other else "…" for value, other in zip(common, values, strict=True)]
    groups = []
    for key, rows in counts.most_common():
        error, common = first[key]
        groups.append(ErrorGroup(key[0], message_head(error.error_message, common), rows, error.row_address))
    return groups


def message_head(message: str, values: Iterable[str]) -> str:
    """The first line, cut, with these values in place of its numbers and quotations."""
    left = iter(values)
    line = _VARYING.sub(lambda _: next(left), message.strip().split("\n")[0])
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
