"""What commands print: one JSON document, or text for people.

Text comes from callers, tables and functions: no control character of it reaches a terminal.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leman.errors import StartFailed

_GAP = 2  # between columns
_LEAST = 12  # of a column that is cut
#: All but ends of lines and tabs, and changes of direction, after which a name reads as another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
#: Invisible characters. Joiners and variation selectors count only between ASCII characters.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e001f]"
    "|(?<![^\0-\x7f])[\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e01ef](?![^\0-\x7f])"
)
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def moment(when: datetime.datetime) -> str:
    """By the clock of this machine; of today the time alone, and of this year no year."""
    here, now = when.astimezone(), datetime.datetime.now().astimezone()
    if here.date() == now.date():
        return f"{here:%H:%M:%S}"
    return f"{here:%m-%d %H:%M}" if here.year == now.year else f"{here:%Y-%m-%d %H:%M}"


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    text = json.dumps(plain(value), indent=2, ensure_ascii=False)
    for hidden in (_CONTROL, _INVISIBLE):
        text = hidden.sub(_in_json, text)
    sys.stdout.write(text + "\n")


def _in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def print_line(text: str) -> None:
    """Text on standard output."""
    sys.stdout.write(_clean(text) + "\n")


def note(text: str) -> None:
    """A remark on standard error."""
    sys.stderr.write(f"leman: {_clean(text)}\n")
    sys.stderr.flush()


def fail(reason: str, message: str, facts: Mapping[str, str], *, code: int) -> int:
    """Tell an error on standard error, with --json as a document on standard output too. Returns `code`."""
    first, *rest = message.strip().splitlines() or ["no message"]
    note(f"{first} [{reason}]")
    if rest:
        separator = "\n" if reason == StartFailed.default_reason else " "  # the end of a log keeps its lines
        sys.stderr.write(f"  {_clean(separator.join(rest).strip())}\n")
    if "--json" in sys.argv:
        print_json({"error": {"reason": reason, "message": message, "facts": facts}})
    return code


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], whole: Sequence[str] = (), *, cut_last: bool = False
) -> None:
    """Rows in columns; only the headings where there are none. Nothing is cut off when the output is piped, and on a
    terminal nothing in columns that are to stay `whole`: the others are folded. `cut_last`: of the last column a
    terminal shows what its lines have room for, so that a row is one line."""
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    console = Console(width=None if sys.stdout.isatty() else 100_000)
    cells = [["" if value is None else _clean(str(value)) for value in row] for row in rows]
    if cut_last and sys.stdout.isatty():
        headings, cells = _with_last_cut(headings, cells, console.width)
    for index, heading in enumerate(headings):
        numeric = all(row[index].replace(",", "").isdigit() for row in cells) and bool(cells)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
        is_whole = heading in whole or not sys.stdout.isatty()
        table.columns[-1].no_wrap = is_whole
        table.columns[-1].min_width = max(map(len, [heading, *(row[index] for row in cells)])) if is_whole else None
    for row in cells:
        table.add_row(*map(escape, row))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(line.rstrip() + "\n")  # it may have colours of its own


def _clean(text: str) -> str:
    shown = _CONTROL.sub("\ufffd", _COLOUR.sub("", text))
    return _INVISIBLE.sub(lambda found: found[0].encode("unicode_escape").decode(), shown)


def _with_last_cut(
    headings: Sequence[str], cells: list[list[str]], width: int
) -> tuple[Sequence[str], list[list[str]]]:
    """Cut the last column to what is left of the lines; it goes where that is less than a word or two."""
    others = headings[:-1]
    taken = sum(max(len(name), *(len(row[i]) for row in cells), 0) + _GAP for i, name in enumerate(others))
    room = width - taken
    if room < _LEAST:
        return others, [row[:-1] for row in cells]
    return headings, [[*row, text if len(text) <= room else f"{text[: room - 1]}…"] for *row, text in cells]


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    pa = sys.modules.get("pyarrow")  # without it nothing here is Arrow's
    if pa is not None and isinstance(value, pa.Schema):
        return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in value]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    return str(value) if pa is not None and isinstance(value, pa.DataType) else value
