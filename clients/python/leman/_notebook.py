"""What notebooks show: objects as HTML, errors as a few lines."""

from __future__ import annotations

import linecache
import textwrap
import traceback
from functools import singledispatch
from pathlib import Path

from leman import _html, _wire
from leman._database import Database
from leman._future import JobFuture
from leman._job_model import Job, Jobs, RefreshResult
from leman._plan import Plan
from leman._preview import Preview
from leman._table import Table
from leman._table_model import RowErrors, RowStates, TableInfo, UdfInfo
from leman._udf import UDF
from leman._view import View
from leman._view_model import RefreshPlan, ViewInfo
from leman.errors import LemanError

_TABLES_SHOWN, _COLUMNS_ASKED = 20, 8
_LINES, _WIDTH, _FRAMES = 15, 110, 3
_HERE = str(Path(__file__).resolve().parent)


def show(one: object) -> str | None:
    """HTML of an object of Leman's; None where there is none. What cannot be asked is shown as the error that it is."""
    try:
        return _shown(one)
    except LemanError as error:
        return _html.error(error)


@singledispatch
def _shown(one: object) -> str | None:  # noqa: ARG001 - nothing is known of it
    return None


@_shown.register
def _(one: Database) -> str:
    views = one.views()
    kept = {view.name for view in views}
    names = [name for name in one.table_names() if name not in kept]
    tables = [one._table(name).describe() for name in names[:_TABLES_SHOWN]]
    return _html.database(one.uri, tables, views[:_TABLES_SHOWN], max(0, len(names) - _TABLES_SHOWN))


@_shown.register
def _(one: Table) -> str:
    info = one.describe()
    asked = [column.name for column in info.computed_columns[:_COLUMNS_ASKED]]
    return _html.table(info, {name: one.row_states(name) for name in asked})


@_shown.register
def _(one: View) -> str:
    return _html.view(one.describe())


@_shown.register
def _(one: TableInfo) -> str:
    return _html.table(one, {})


_shown.register(ViewInfo, _html.view)
_shown.register(Plan, _html.plan)
_shown.register(Preview, _html.preview)
_shown.register(RefreshPlan, _html.refresh_plan)
_shown.register(Job, _html.job)
_shown.register(Jobs, _html.jobs)
_shown.register(RefreshResult, _html.refresh_result)
_shown.register(UdfInfo, _html.udf)
_shown.register(RowErrors, _html.row_errors)
_shown.register(RowStates, _html.row_states)
_shown.register(LemanError, _html.error)


@_shown.register
def _(one: UDF) -> str:
    return _html.udf(_wire.udf_info(one.describe()))


@_shown.register
def _(one: JobFuture) -> str:
    return _html.job(one.job())


def error_lines(error: LemanError) -> list[str]:
    """An error in at most fifteen lines: what went wrong, what to do, and where the caller's own code asked for it."""
    places = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_HERE) and "/IPython/" not in frame.filename
    ]
    where = []
    for frame in places[-_FRAMES:]:
        source = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
        cell = "cell" if "ipykernel_" in frame.filename or frame.filename.startswith("<ipython") else frame.filename
        where.append(_cut(f"  {cell}, line {frame.lineno}: {source}"))
    tail = [*where, "The whole traceback: import traceback; traceback.print_last()"]
    paragraphs = f"{type(error).__name__}: {error.message}".splitlines()
    message = [line for text in paragraphs for line in textwrap.wrap(text, _WIDTH, drop_whitespace=False) or [""]]
    room = _LINES - len(tail) - 1
    if len(message) > room:
        message = [*message[: room - 1], f"… and {len(message) - room + 1} lines more: str(error)"]
    return [*message, _cut(f"({error.reason})"), *tail]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
