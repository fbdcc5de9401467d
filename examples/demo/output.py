"""How the demo prints: plain lines and narrow tables, on a terminal or into a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDTH_OF_A_FILE = 100

_console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)


def say(text: str) -> None:
    """A line, cut nowhere."""
    _console.print(Text(text), soft_wrap=True)


def heading(text: str) -> None:
    """A line above a part."""
    _console.print()
    _console.print(Text(text, style="bold"))


def grid(headings: Sequence[str], rows: Iterable[Sequence[object]], wide: Mapping[str, int] | None = None) -> None:
    """A table; numbers stand to the right, and columns in `wide` share what space is left, by their shares."""
    shares = wide or {}
    lines = [[_text(cell) for cell in row] for row in rows]
    columns = [[line[at] for line in lines] for at in range(len(headings))]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False, expand=bool(shares))
    for title, cells in zip(headings, columns, strict=True):
        table.add_column(
            title,
            justify="right" if all(map(_is_number, cells)) else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=shares.get(title),
            min_width=None if title in shares else max(map(len, [title, *cells])),
        )
    for line in lines:
        table.add_row(*map(Text, line))
    _console.print(table)


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else "" if cell is None else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").isdigit()
