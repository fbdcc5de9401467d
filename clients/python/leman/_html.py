"""What a notebook shows of Leman's objects: HTML without scripts, legible on light and dark pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leman._job_text import duration, is_done, queue_line, result_line
from leman._plan import REASONS

if TYPE_CHECKING:
    from leman._job_model import Job, RefreshResult
    from leman._plan import Plan
    from leman._preview import Preview
    from leman._table_model import RowError, RowStates, TableInfo, UdfInfo
    from leman._view_model import RefreshPlan, ViewInfo, ViewSummary
    from leman.errors import LemanError

_GREEN, _YELLOW, _BLUE, _RED, _GREY = "#2e9e5b", "#d9a514", "#3b7dd8", "#d64545", "rgba(128,128,128,.35)"
#: Changes of direction, after which a name reads as another one.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CELL = "padding:2px 10px 2px 0;vertical-align:top;text-align:{align};border:none;background:none"
_JOBS_SHOWN = 20
_ERRORS_SHOWN, _VALUE_CHARACTERS = 20, 300

Part = tuple[str, int, str]
"""Of a bar: a label, a count, a colour."""


def panel(title: str, *parts: str) -> str:
    """A titled block of parts, which are HTML; the title is text."""
    body = "".join(part for part in parts if part)
    return f'<div style="margin:4px 0"><div style="font-weight:600">{_text(title)}</div>{body}</div>'


def note(text: str) -> str:
    """A line of small print; the text may have several lines."""
    return f'<div style="opacity:.75;white-space:pre-wrap">{_text(text)}</div>'


def grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are written with separators and stand to the right. Cells that are `Raw` are HTML."""
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


class Raw(str):
    """Text that is HTML already."""

    __slots__ = ()


def bar(parts: Sequence[Part], legend: bool = True) -> Raw:  # noqa: FBT001, FBT002 - a bar is read as such
    """Counts beside each other, each as wide as its share, with what they are below."""
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
    return Raw(line + (f"<div>{told}</div>" if legend else ""))


def row_states(states: RowStates) -> Raw:
    """The states of a column's rows as a bar."""
    kept = sum(one.rows for one in states.kept)
    return bar(
        [
            ("computed", states.computed - kept, _GREEN),
            ("kept of earlier versions", kept, _BLUE),
            ("failed", states.failed, _RED),
            ("ready to commit", states.ready, _YELLOW),
            ("checkpointed", states.checkpointed, _BLUE),
            ("to compute", states.not_computed - states.ready - states.checkpointed, _GREY),
        ]
    )


def table(info: TableInfo, states: Mapping[str, RowStates]) -> str:
    """A table, its columns, and how far each computed one is."""
    made = {column.name: column for column in info.computed_columns}
    rows = []
    for field in info.schema:
        column = made.get(field.name)
        by = f"{column.udf_name}({', '.join(column.input_columns)}) @ {column.udf_version}" if column else ""
        rows.append((field.name, str(field.type), by, row_states(states[field.name]) if field.name in states else ""))
    counts = f"{info.row_count:,} rows in {_counted(info.fragment_count, 'fragment')}, version {info.version}"
    return panel(f"Table {info.name}", note(counts), grid(("column", "type", "computed by", "rows"), rows))


def view(info: ViewInfo) -> str:
    """A view: its query, its columns, and what a refresh would have to do."""
    parts = [("with values", info.row_count, _GREEN), ("wait for a refresh", info.rows_unset, _GREY)]
    functions = {
        column.name: f"{column.udf_name}({', '.join(column.input_columns)})" for column in info.query.functions
    }
    rows = [
        (
            field.name,
            str(field.type),
            functions.get(field.name, ""),
            "stale" if field.name in info.stale_columns else "",
        )
        for field in info.schema
    ]
    counts = f"{info.row_count:,} rows, version {info.version}, of source version {info.source_version}"
    return panel(
        f"View {info.name}",
        note(f"{info.query}\n{counts}"),
        bar(parts) if info.rows_unset else "",
        grid(("column", "type", "computed by", ""), rows),
    )


def database(uri: str, tables: Sequence[TableInfo], views: Sequence[ViewSummary], left_out: int) -> str:
    """The tables and views of a database."""
    lines = [
        (info.name, info.row_count, info.version, ", ".join(column.name for column in info.computed_columns))
        for info in tables
    ]
    made = [(one.name, "" if one.row_count is None else one.row_count, one.version, one.source_table) for one in views]
    return panel(
        f"Database {uri}",
        grid(("table", "rows", "version", "computed columns"), lines),
        note(f"and {left_out:,} more") if left_out else "",
        grid(("view", "rows", "version", "of"), made),
        "" if lines or made else note("no tables yet"),
    )


def plan(made: Plan) -> str:
    """What a backfill would do, and why."""
    expected = "" if made.expected_seconds is None else f", about {duration(made.expected_seconds)}"
    about = f"{made.udf_name}({', '.join(made.input_columns)}) @ {made.udf_version}, table version {made.read_version}"
    parts = [("reused", made.rows_reused, _GREEN), ("failed before", made.rows_failed_before, _RED)]
    rows = [(one.reason, one.fragments, one.rows, REASONS.get(one.reason, "")) for one in made.reasons]
    return panel(
        f"Plan of {made.table}.{made.column}",
        note(about + (f", where {made.where}" if made.where else "")),
        bar([*parts, (f"to compute{expected}", made.rows_to_compute, _GREY)]) if made.rows_total else "",
        grid(("reason", "fragments", "rows", ""), rows),
        note(made.summary) if made.summary else "",
    )


def preview(made: Preview) -> str:
    """What a function gave on a few rows."""
    head, rows = made.cells()
    lines = [[_cut(cell) for cell in row] for row in rows]
    traces = "".join(
        f"<details><summary>{_text(str(error))}{f' ({rows:,} rows)' if rows > 1 else ''}</summary>"
        f"<pre>{_text(error.traceback)}</pre></details>"
        for error, rows in made.failures
    )
    printed = f'<pre style="margin:4px 0">{_text(made.printed)}</pre>' if made.printed else ""
    return panel(
        f"Preview of {made.udf_name}",
        note(made.headline),
        grid(head, lines),
        traces,
        printed,
        note("\n".join(made.remarks)),
    )


def refresh_plan(made: RefreshPlan) -> str:
    """What a refresh would do, and why."""
    return panel(f"Plan of {made.view}", note(str(made)))


def refresh_result(done: RefreshResult) -> str:
    """What a refresh did."""
    failed = f": {str(done.state).lower()}" if done.rows_failed or done.rows_failed_before else ""
    return panel(f"Refresh{failed}", note(str(done)))


def jobs(found: Sequence[Job]) -> str:
    """Jobs in a table; of many the first."""
    lines = [
        (
            one.job_id,
            one.target,
            str(one.state).lower(),
            f"{one.progress.rows_committed:,}",
            f"{one.create_time.astimezone():%Y-%m-%d %H:%M}",
            _cut(one.error.message) if one.error is not None else "",
        )
        for one in found[:_JOBS_SHOWN]
    ]
    more = len(found) - _JOBS_SHOWN
    return panel(
        _counted(len(found), "job"),
        grid(("job", "of", "state", "rows", "created", "error"), lines),
        note(f"and {more:,} more") if more > 0 else "",
    )


def job(one: Job) -> str:
    """A job as it stands: its state, its rows, how fast it goes."""
    progress = one.progress
    if one.state.terminal:
        lines = note(result_line(one))
    elif one.queue_position:
        lines = note(f"waits for its turn, {queue_line(one)}")
    else:
        speed = f"{progress.rows_per_second:,.0f} rows/s, {duration(progress.elapsed_seconds)} so far"
        left = f", {duration(progress.eta_seconds)} left" if progress.eta_seconds else ""
        bound = f", bound by {progress.bottleneck}" if progress.bottleneck else ""
        lines = note(speed + left + bound) + "".join(note(str(stall)) for stall in one.stalls[:3])
    shown = "" if is_done(one) else f": {str(one.state).lower()}"
    return panel(f"{one.target}{shown}", _progress_bar(one) if progress.rows_planned else "", lines)


def udf(info: UdfInfo) -> str:
    """A registered function, with its source."""
    source = f'<pre style="margin:4px 0">{_text(info.source)}</pre>' if info.source else ""
    inputs = ", ".join(info.input_columns)
    return panel(f"{info.name}@{info.version}", note(f"{info.kind}: ({inputs}) → {info.data_type}"), source)


def row_errors(errors: Sequence[RowError]) -> str:
    """Failed rows; of many the first."""
    lines = [(one.column, one.fragment_id, one.offset, one.error_type, _cut(one.error_message)) for one in errors]
    more = len(errors) - _ERRORS_SHOWN
    return panel(
        f"{_counted(len(errors), 'failed row')}",
        grid(("column", "fragment", "offset", "error", "message"), lines[:_ERRORS_SHOWN]),
        note(f"and {more:,} more") if more > 0 else "",
    )


def error(one: LemanError) -> str:
    """What went wrong, and what to do."""
    facts = [f"{name}: {value}" for name, value in one.facts.items()]
    head = f'<span style="color:{_RED}">{_text(type(one).__name__)}</span> {_text(one.reason)}'
    told = note(one.message) + (note(" · ".join(facts)) if facts else "")
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
    return bar([*parts, ("to compute", left, _GREY)]) + failed


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS else f"{text[:_VALUE_CHARACTERS]}…"


def _value(value: object) -> str:
    if isinstance(value, Raw):
        return value
    return f"{value:,}" if isinstance(value, int) else _text(str(value))


def _text(text: str) -> str:
    return html.escape(_TURNS.sub("\ufffd", text)).replace("\n", "<br>")
