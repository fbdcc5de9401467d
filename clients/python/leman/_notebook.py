"""HTML without scripts for notebooks, legible on light and dark pages, and errors in a few lines."""

from __future__ import annotations

import html
import linecache
import re
import textwrap
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING

from leman._database import Database
from leman._functions.udf_decorator import UDF
from leman._job_model import Job, Jobs, RefreshResult, duration, is_done, queue_line, result_line
from leman._jobs import JobFuture
from leman._preview import Preview
from leman._table import Table
from leman._table_model import (
    REASONS,
    Plan,
    RefreshPlan,
    RowErrorGroups,
    RowErrors,
    RowStates,
    TableInfo,
    UdfInfo,
    ViewInfo,
)
from leman._view import View
from leman._wire import conversions
from leman.errors import LemanError

if TYPE_CHECKING:
    from leman._table_model import RowError, ViewSummary


_GREEN, _YELLOW, _BLUE, _RED, _GREY = "#2e9e5b", "#d9a514", "#3b7dd8", "#d64545", "rgba(128,128,128,.35)"
#: Characters that change the direction of text, with which one name can look like another.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CELL = "padding:2px 10px 2px 0;vertical-align:top;text-align:{align};border:none;background:none"
_JOBS_SHOWN = 20
_ERRORS_SHOWN, _VALUE_CHARACTERS = 20, 300

Part = tuple[str, int, str]
"""A part of a bar: a label, a count, a colour."""


def html_panel(title: str, *parts: str) -> str:
    """Return a titled block. `title` is text; `parts` are HTML."""
    body = "".join(part for part in parts if part)
    return f'<div style="margin:4px 0"><div style="font-weight:600">{_text(title)}</div>{body}</div>'


def html_note(text: str) -> str:
    """Return text in small print; line breaks are kept."""
    return f'<div style="opacity:.75;white-space:pre-wrap">{_text(text)}</div>'


def html_grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table. Numbers have thousands separators and are right-aligned; `RawHtml` is not escaped."""
    lines = [list(row) for row in rows]
    if not lines:
        return ""
    right = [all(isinstance(line[at], int) for line in lines) for at in range(len(head))]
    cells = [_CELL.format(align="right" if number else "left") for number in right]
    top = "".join(f'<th style="{style}">{_text(name)}</th>' for style, name in zip(cells, head, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{style}">{_value(value)}</td>' for style, value in zip(cells, line, strict=True))
        + "</tr>"
        for line in lines
    )
    inside = f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody>"
    return f'<table style="border-collapse:collapse;margin:4px 0">{inside}</table>'


class RawHtml(str):
    """Text that is HTML, and is not escaped again."""

    __slots__ = ()


def html_bar(parts: Sequence[Part], legend: bool = True) -> RawHtml:  # noqa: FBT001, FBT002 - a bar is read as such
    """Return a bar in which each count has a part as wide as its share, with a legend below."""
    total = sum(count for _, count, _ in parts)
    shown = [part for part in parts if part[1] > 0]
    pieces = "".join(
        f'<div title="{_text(label)}: {count:,}" style="width:{100 * count / total:.3f}%;background:{colour}"></div>'
        for label, count, colour in shown
    )
    told = "".join(
        f'<span style="margin-right:12px;white-space:nowrap"><span style="color:{colour}">■</span> '
        f"{_text(label)} {count:,}</span>"
        for label, count, colour in shown
    )
    line = f'<div style="display:flex;width:320px;height:10px;background:{_GREY}">{pieces}</div>'
    return RawHtml(line + (f"<div>{told}</div>" if legend else ""))


def row_states_html(states: RowStates) -> RawHtml:
    kept = sum(one.rows for one in states.kept)
    return html_bar(
        [
            ("computed", states.computed - kept, _GREEN),
            ("kept of earlier versions", kept, _BLUE),
            ("failed", states.failed, _RED),
            ("ready to commit", states.ready, _YELLOW),
            ("checkpointed", states.checkpointed, _BLUE),
            ("to compute", states.not_computed - states.ready - states.checkpointed, _GREY),
        ]
    )


def table_html(info: TableInfo, states: Mapping[str, RowStates]) -> str:
    """Return a table with its columns, and the row states of each computed column."""
    made = {column.name: column for column in info.computed_columns}
    rows = []
    for field in info.schema:
        column = made.get(field.name)
        by = f"{column.udf_name}({', '.join(column.input_columns)}) @ {column.udf_version}" if column else ""
        rows.append(
            (field.name, str(field.type), by, row_states_html(states[field.name]) if field.name in states else "")
        )
    counts = f"{info.row_count:,} rows in {_counted(info.fragment_count, 'fragment')}, version {info.version}"
    return html_panel(
        f"Table {info.name}", html_note(counts), html_grid(("column", "type", "computed by", "rows"), rows)
    )


def view_html(info: ViewInfo) -> str:
    """Return a view with its query, its columns, and the number of rows that wait for a refresh."""
    parts = [("with values", info.row_count, _GREEN), ("wait for a refresh", info.rows_unset, _GREY)]
    functions = {
        column.name: f"{column.udf_name}({', '.join(column.input_columns)})" for column in info.query.functions
    }
    stale = dict.fromkeys(info.stale_columns, "stale")
    rows = [(f.name, str(f.type), functions.get(f.name, ""), stale.get(f.name, "")) for f in info.schema]
    counts = f"{info.row_count:,} rows, version {info.version}, of source version {info.source_version}"
    return html_panel(
        f"View {info.name}",
        html_note(f"{info.query}\n{counts}"),
        html_bar(parts) if info.rows_unset else "",
        html_grid(("column", "type", "computed by", ""), rows),
    )


def database_html(uri: str, tables: Sequence[TableInfo], views: Sequence[ViewSummary], left_out: int) -> str:
    lines = [
        (info.name, info.row_count, info.version, ", ".join(column.name for column in info.computed_columns))
        for info in tables
    ]
    made = [(one.name, "" if one.row_count is None else one.row_count, one.version, one.source_table) for one in views]
    return html_panel(
        f"Database {uri}",
        html_grid(("table", "rows", "version", "computed columns"), lines),
        html_note(f"and {left_out:,} more") if left_out else "",
        html_grid(("view", "rows", "version", "of"), made),
        "" if lines or made else html_note("no tables yet"),
    )


def plan_html(made: Plan) -> str:
    expected = "" if made.expected_seconds is None else f", about {duration(made.expected_seconds)}"
    about = f"{made.udf_name}({', '.join(made.input_columns)}) @ {made.udf_version}, table version {made.read_version}"
    parts = [("reused", made.rows_reused, _GREEN), ("failed before", made.rows_failed_before, _RED)]
    rows = [(one.reason, one.fragments, one.rows, REASONS.get(one.reason, "")) for one in made.reasons]
    return html_panel(
        f"Plan of {made.table}.{made.column}",
        html_note(about + (f", where {made.where}" if made.where else "")),
        html_bar([*parts, (f"to compute{expected}", made.rows_to_compute, _GREY)]) if made.rows_total else "",
        html_grid(("reason", "fragments", "rows", ""), rows),
        html_note(made.summary) if made.summary else "",
    )


def preview_html(made: Preview) -> str:
    head, rows = made.cells()
    lines = [[_cut_text(cell) for cell in row] for row in rows]
    traces = "".join(
        f"<details><summary>{_text(str(error))}{f' ({rows:,} rows)' if rows > 1 else ''}</summary>"
        f"<pre>{_text(error.traceback)}</pre></details>"
        for error, rows in made.failures
    )
    printed = f'<pre style="margin:4px 0">{_text(made.printed)}</pre>' if made.printed else ""
    return html_panel(
        f"Preview of {made.udf_name}",
        html_note(made.headline),
        html_grid(head, lines),
        traces,
        printed,
        html_note("\n".join(made.remarks)),
    )


def refresh_plan_html(made: RefreshPlan) -> str:
    return html_panel(f"Plan of {made.view}", html_note(str(made)))


def refresh_result_html(done: RefreshResult) -> str:
    failed = f": {str(done.state).lower()}" if done.rows_failed or done.rows_failed_before else ""
    return html_panel(f"Refresh{failed}", html_note(str(done)))


def jobs_html(found: Sequence[Job]) -> str:
    """Return the first jobs of a list as a table."""
    lines = [
        (
            one.job_id,
            one.target,
            str(one.state).lower(),
            f"{one.progress.rows_committed:,}",
            f"{one.create_time.astimezone():%Y-%m-%d %H:%M}",
            _cut_text(one.error.message) if one.error is not None else "",
        )
        for one in found[:_JOBS_SHOWN]
    ]
    more = len(found) - _JOBS_SHOWN
    return html_panel(
        _counted(len(found), "job"),
        html_grid(("job", "of", "state", "rows", "created", "error"), lines),
        html_note(f"and {more:,} more") if more > 0 else "",
    )


def job_html(one: Job) -> str:
    progress = one.progress
    if one.state.terminal:
        lines = html_note(result_line(one))
    elif one.queue_position:
        lines = html_note(f"waits for its turn, {queue_line(one)}")
    else:
        speed = f"{progress.rows_per_second:,.0f} rows/s, {duration(progress.elapsed_seconds)} so far"
        left = f", {duration(progress.eta_seconds)} left" if progress.eta_seconds else ""
        bound = f", bound by {progress.bottleneck}" if progress.bottleneck else ""
        lines = html_note(speed + left + bound) + "".join(html_note(str(stall)) for stall in one.stalls[:3])
    shown = "" if is_done(one) else f": {str(one.state).lower()}"
    return html_panel(f"{one.target}{shown}", _progress_bar(one) if progress.rows_planned else "", lines)


def udf_html(info: UdfInfo) -> str:
    source = f'<pre style="margin:4px 0">{_text(info.source)}</pre>' if info.source else ""
    inputs = ", ".join(info.input_columns)
    return html_panel(f"{info.name}@{info.version}", html_note(f"{info.kind}: ({inputs}) → {info.data_type}"), source)


def row_errors_html(errors: Sequence[RowError]) -> str:
    """Return the first failed rows of a list as a table."""
    lines = [(one.column, one.fragment_id, one.offset, one.error_type, _cut_text(one.error_message)) for one in errors]
    more = len(errors) - _ERRORS_SHOWN
    return html_panel(
        f"{_counted(len(errors), 'failed row')}",
        html_grid(("column", "fragment", "offset", "error", "message"), lines[:_ERRORS_SHOWN]),
        html_note(f"and {more:,} more") if more > 0 else "",
    )


def row_error_groups_html(groups: RowErrorGroups) -> str:
    """Return failed rows as a table with a line for each kind of error."""
    lines = [(f"{one.rows:,}", one.error_type, _cut_text(one.error_message)) for one in groups]
    more = groups.total - len(groups)
    return html_panel(
        _counted(groups.rows, "failed row"),
        html_grid(("rows", "error", "message"), lines),
        html_note(f"and {more:,} more kinds of errors") if more > 0 else "",
    )


def error_html(one: LemanError) -> str:
    """Return an error with its reason, its message and its facts."""
    facts = [f"{name}: {value}" for name, value in one.facts.items()]
    head = f'<span style="color:{_RED}">{_text(type(one).__name__)}</span> {_text(one.reason)}'
    told = html_note(one.message) + (html_note(" · ".join(facts)) if facts else "")
    return f'<div style="margin:4px 0"><div style="font-weight:600">{head}</div>{told}</div>'


def _progress_bar(one: Job) -> str:
    progress = one.progress
    committed, ready = progress.rows_committed, progress.rows_ready_to_commit
    checkpointed = max(0, progress.rows_checkpointed - committed - ready)
    left = max(0, progress.rows_planned - committed - ready - checkpointed)
    parts = [
        ("committed", committed, _GREEN),
        ("ready to commit", ready, _YELLOW),
        ("checkpointed", checkpointed, _BLUE),
    ]
    failed = f'<span style="color:{_RED}">✗ failed {progress.rows_failed:,}</span>' if progress.rows_failed else ""
    return html_bar([*parts, ("to compute", left, _GREY)]) + failed


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _cut_text(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


def _value(value: object) -> str:
    if isinstance(value, RawHtml):
        return value
    return f"{value:,}" if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    return html.escape(_TURNS.sub("\ufffd", text)).replace("\n", "<br>")


_TABLES_SHOWN, _COLUMNS_ASKED = 20, 8
_LINES, _WIDTH, _FRAMES = 15, 110, 3
_HERE = str(Path(__file__).resolve().parent)


def show(one: object) -> str | None:
    """Return the HTML of an object, or None if it has none. If the services fail, return the error's HTML."""
    try:
        return _shown(one)
    except LemanError as error:
        return error_html(error)


@singledispatch
def _shown(one: object) -> str | None:  # noqa: ARG001 - the default, for any other type
    return None


@_shown.register
def _(one: Database) -> str:
    views = one.views()
    kept = {view.name for view in views}
    names = [name for name in one.table_names() if name not in kept]
    tables = [one._table(name).describe() for name in names[:_TABLES_SHOWN]]
    return database_html(one.uri, tables, views[:_TABLES_SHOWN], max(0, len(names) - _TABLES_SHOWN))


@_shown.register
def _(one: Table) -> str:
    info = one.describe()
    asked = [column.name for column in info.computed_columns[:_COLUMNS_ASKED]]
    return table_html(info, {name: one.row_states(name) for name in asked})


@_shown.register
def _(one: View) -> str:
    return view_html(one.describe())


@_shown.register
def _(one: TableInfo) -> str:
    return table_html(one, {})


_shown.register(ViewInfo, view_html)
_shown.register(Plan, plan_html)
_shown.register(Preview, preview_html)
_shown.register(RefreshPlan, refresh_plan_html)
_shown.register(Job, job_html)
_shown.register(Jobs, jobs_html)
_shown.register(RefreshResult, refresh_result_html)
_shown.register(UdfInfo, udf_html)
_shown.register(RowErrorGroups, row_error_groups_html)
_shown.register(RowErrors, row_errors_html)
_shown.register(RowStates, row_states_html)
_shown.register(LemanError, error_html)


@_shown.register
def _(one: UDF) -> str:
    return udf_html(conversions.udf_info(one.describe()))


@_shown.register
def _(one: JobFuture) -> str:
    return job_html(one.job())


def error_lines(error: LemanError) -> list[str]:
    """Return an error in at most fifteen lines, including the lines of the caller's own code that led to the error."""
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
        message = [*message[: room - 1], f"… and {len(message) - room + 1} more lines: print(str(error)) shows them"]
    return [*message, _cut(f"({error.reason})"), *tail]


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
