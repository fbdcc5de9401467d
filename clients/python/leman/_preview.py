"""Previews: what a function returns on a few rows, and what a backfill of the whole table would take."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leman._arrow import pa
from leman._columns import SqlExpression, check_where
from leman._functions import registration
from leman._functions.udf_decorator import UDF
from leman._job_model import duration
from leman._jobs import check_env
from leman._message_text import Shown
from leman._wire.channel import Services
from leman._wire.conversions import schema, seconds_of, seen
from leman._wire.wire_values import duration_message, enum_word, function_ref, or_none, seconds
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, jobs_pb2

_WIDTH, _LEAST_WIDTH, _TRACEBACKS = 80, 10, 3
_MILLISECOND = 1e-3
_STATES = {"unfinished": "not finished in time"}


@dataclass(frozen=True, slots=True)
class PreviewError:
    """An exception that a function raised on a row."""

    error_type: str
    message: str
    traceback: str
    attempts: int

    def __str__(self) -> str:
        return f"{self.error_type}: {self.message}" if self.message else self.error_type

    @property
    def frames(self) -> list[str]:
        """The lines of the traceback before the message."""
        lines = self.traceback.rstrip().splitlines()
        last = max((at for at, line in enumerate(lines) if line.startswith("  ")), default=-1)
        return lines[: last + 1]


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """A row for which a preview called the function, or tried to.

    `state`: `computed`; `failed` (a backfill would leave the row NULL and continue); `fails` (a backfill would fail on
    the row); `unfinished` (the timeout was reached first). `inputs` and `output`: the values, or texts for values that
    are too large to send (`Preview.columns_left_out`). `texts`: the inputs and then the output as shortened JSON.
    `seconds`: the time that the function took, or None if it was not called.
    """

    state: str
    inputs: dict[str, Any]
    output: Any
    seconds: float | None
    error: PreviewError | None
    row_address: int
    row_id: int | None
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preview(Shown):
    """What a function returned on a few rows. Nothing was written. `str()` is for people.

    `timed_out`: whether some rows were not done within `timeout` seconds; `rows` is empty if none was read by then.
    `seconds_per_row` is the time that the function takes for a row, and `expected_seconds` that for `rows_to_compute`
    rows on `workers` processes. Both are None if unknown, and upper bounds for functions of batches. `fails`: whether a
    backfill would end as FAILED. `printed`: the beginning of the text that the function printed, which has
    `printed_bytes` in all. `values`: inputs and output in Arrow.
    """

    table: str
    udf_name: str
    udf_version: str
    input_columns: tuple[str, ...]
    data_type: pa.DataType
    read_version: int
    where: str
    rows: tuple[PreviewRow, ...]
    fails: bool
    timed_out: bool
    timeout: float
    rows_to_compute: int
    workers: int
    seconds_per_row: float | None
    expected_seconds: float | None
    set_up_seconds: float | None
    printed: str
    printed_bytes: int
    columns_left_out: tuple[str, ...]
    values: pa.Table = field(repr=False)

    @property
    def headline(self) -> str:
        """The function and its inputs, in a line."""
        where = f", where {self.where}" if self.where else ""
        called = f"{self.udf_name}({', '.join(self.input_columns)}) -> {self.data_type}"
        return f"{called}, {self.table} version {self.read_version}{where}"

    @property
    def remarks(self) -> list[str]:
        """Further remarks, one line each."""
        failed = sum(row.state in ("failed", "fails") for row in self.rows)
        remarks = []
        if not self.rows:
            late = f"no row was read within {self.timeout:g} s: raise timeout="
            remarks.append(late if self.timed_out else "there are no such rows")
        elif self.timed_out:
            left = sum(row.state == "unfinished" for row in self.rows)
            remarks.append(
                f"the timeout was reached before {left:,} of {len(self.rows):,} rows were done: raise timeout="
            )
        if failed:
            ends = "a backfill would fail on that" if self.fails else "a backfill would leave them NULL and continue"
            remarks.append(f"{failed:,} of {len(self.rows):,} rows failed: {ends}")
        if self.set_up_seconds is not None and self.set_up_seconds >= 1:
            remarks.append(f"setting the function up took {duration(self.set_up_seconds)}")
        return [*remarks, self.projection, "nothing was written"]

    @property
    def failures(self) -> list[tuple[PreviewError, int]]:
        """The errors of the rows, each with its number of rows. Errors raised in the same place count as one."""
        found: dict[tuple[str, tuple[str, ...], str], list[PreviewError]] = {}
        for row in self.rows:
            if row.error is not None:
                frames = tuple(row.error.frames)
                key = row.error.error_type, frames, "" if frames else row.error.message
                found.setdefault(key, []).append(row.error)
        return [(errors[0], len(errors)) for errors in found.values()]

    @property
    def projection(self) -> str:
        """How long a backfill of the whole table would take, in a line."""
        rows = f"{self.rows_to_compute:,} rows to compute"
        if self.seconds_per_row is None or self.expected_seconds is None:
            return f"{rows} in the whole table; the time for them is not known"
        on = "1 core" if self.workers == 1 else f"{self.workers:,} cores"
        return f"about {duration(self.expected_seconds)} for {rows} on {on}, at {_took(self.seconds_per_row)} a row"

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings and rows of a table: inputs, output or state, time."""
        head = [*self.input_columns, f"-> {self.udf_name}", "time"]
        return head, [[*_shown(row, len(self.input_columns)), _took(row.seconds)] for row in self.rows]

    def __str__(self) -> str:
        lines = [self.headline]
        if self.rows:
            lines += ["", *_table(*self.cells())]
        for failure, rows in self.failures[:_TRACEBACKS]:
            lines += ["", *(f"  {line}" for line in failure.frames), *_wrapped(f"{failure}{_as_in(rows)}")]
        if self.printed_bytes:
            cut = (
                f", the first {len(self.printed.encode()):,}" if self.printed_bytes > len(self.printed.encode()) else ""
            )
            lines += ["", f"  printed ({self.printed_bytes:,} bytes{cut}):"]
            lines += [f"  | {line}" for line in self.printed.splitlines()]
        return "\n".join([*lines, "", *(f"  {remark}" for remark in self.remarks)])


def _wrapped(text: str) -> list[str]:
    return [
        f"  {line}"
        for paragraph in text.splitlines()
        for line in textwrap.wrap(paragraph, _WIDTH - 2, break_on_hyphens=False) or [""]
    ]


def _as_in(rows: int) -> str:
    return "" if rows == 1 else f"\n(raised on {rows:,} rows; this is the first)"


def _shown(row: PreviewRow, inputs: int) -> list[str]:
    if row.error is not None:
        return [*row.texts[:inputs], str(row.error).splitlines()[0]]
    if row.state != "computed":
        return [*row.texts[:inputs], _STATES.get(row.state, row.state)]
    return list(row.texts)


def _took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < _MILLISECOND:
        return f"{seconds * 1e6:,.0f} µs" if seconds > 1e-6 else "1 µs at most"
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table within 80 columns: wide cells are cut, and the last of many inputs are left out."""
    cells = [[cell.replace("\n", " ") for cell in row] for row in (head, *rows)]
    room = _WIDTH - 2 - 2 * (len(head) - 1)
    while len(cells[0]) > 3 and room < _LEAST_WIDTH * len(cells[0]):
        cells = [[*row[:-3], *row[-2:]] for row in cells]
        room += 2
    wanted = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    widths = _shared(wanted, room)
    return [
        "  " + "  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """Distribute `room` characters: narrow columns get their full width, and the other columns share the rest."""
    widths, open_columns = list(wanted), sorted(range(len(wanted)), key=lambda at: wanted[at])
    while open_columns:
        share = room // len(open_columns)
        at = open_columns.pop(0)
        widths[at] = min(wanted[at], share)
        room -= widths[at]
    return widths


def _fit(text: str, width: int) -> str:
    return f"{text[: width - 1]}…" if len(text) > width else text.ljust(width)


#: Seconds that the call waits beyond the preview's timeout. The service answers when that timeout ends.
_MORE_SECONDS = 30.0
_DEFAULT_SECONDS = 30.0
_REGISTERED = re.compile(r"[^\s@]+@[^\s@]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOptions:
    """The checked parameters of a preview, except the function. Raises InvalidArgument."""

    n: int = 5
    where: str | None = None
    read_version: int | str | None = None
    timeout: float | None = None
    concurrency: int | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check_whole("n", self.n)
        if self.concurrency is not None:
            _check_whole("concurrency", self.concurrency)
        check_where(self.where)
        number = isinstance(self.timeout, int | float) and not isinstance(self.timeout, bool)
        if self.timeout is not None and not (number and self.timeout > 0):
            raise InvalidArgument(f"timeout is a number of seconds above 0, not {self.timeout!r}")

    def request(self, table: catalog_pb2.TableRef) -> jobs_pb2.PreviewFunctionRequest:
        request = jobs_pb2.PreviewFunctionRequest(
            table=table,
            where=self.where or "",
            rows=self.n,
            timeout=duration_message(self.timeout),
            concurrency=self.concurrency,
            env=check_env(self.env),
        )
        if isinstance(self.read_version, int):
            request.read_version = self.read_version
        elif self.read_version is not None:
            request.read_tag = self.read_version
        return request


def is_registered(text: str) -> bool:
    """Return True for `name@version`, the name of a registered function."""
    return _REGISTERED.fullmatch(text) is not None


def name_function(
    request: jobs_pb2.PreviewFunctionRequest, services: Services, function: UDF | str | SqlExpression
) -> None:
    """Add a function to a request without registering it. A bundle too large for a message is uploaded first."""
    if isinstance(function, SqlExpression):
        request.sql_expression = function.text
        if function.error_handling is not None:
            request.error_policy.CopyFrom(function.error_handling.proto())
    elif isinstance(function, UDF):
        request.definition.CopyFrom(function.describe())
        described, data = function.bundle()
        request.definition.python_bundle.CopyFrom(described)
        if len(data) > registration.INLINE_BYTES:
            registration.upload_bundle(services, request.table.database, described, data)
        else:
            request.bundle = data
    elif is_registered(function):
        name, _, version = function.partition("@")
        request.udf.CopyFrom(function_ref(name, version))
    else:
        request.sql_expression = function


def call_preview(services: Services, request: jobs_pb2.PreviewFunctionRequest) -> Preview:
    taken = seconds(request.timeout) if request.HasField("timeout") else _DEFAULT_SECONDS
    return _preview(request, services.jobs.PreviewFunction(request, timeout=taken + _MORE_SECONDS), taken)


def _preview(
    request: jobs_pb2.PreviewFunctionRequest, answer: jobs_pb2.PreviewFunctionResponse, timeout: float
) -> Preview:
    values = pa.ipc.open_stream(answer.values).read_all() if answer.values else pa.table({})
    projection = answer.projection
    return seen(
        Preview,
        answer,
        table=request.table.table,
        udf_name=answer.udf.name,
        udf_version=answer.udf.version,
        data_type=schema(answer.output_schema).field(0).type,
        rows=_rows(answer, values),
        timeout=timeout,
        rows_to_compute=projection.rows_to_compute,
        workers=projection.workers,
        seconds_per_row=seconds_of(projection, "duration_per_row"),
        expected_seconds=seconds_of(projection, "expected_duration"),
        set_up_seconds=seconds_of(answer, "set_up_duration"),
        printed_bytes=answer.printed_size_bytes,
        values=values,
    )


def _rows(answer: jobs_pb2.PreviewFunctionResponse, values: pa.Table) -> tuple[PreviewRow, ...]:
    if not answer.rows:  # then there are no columns either
        return ()
    left_out, columns = set(answer.columns_left_out), iter(values.columns)
    inputs = [None if name in left_out else _python(next(columns)) for name in answer.input_columns]
    output = None if answer.udf.name in left_out or not values.num_columns else _python(next(columns))
    rows = []
    for at, row in enumerate(answer.rows):
        shown = zip(answer.input_columns, inputs, row.inputs, strict=True)
        rows.append(
            seen(
                PreviewRow,
                row,
                state=enum_word(jobs_pb2.PreviewRow.State, row.state, "STATE_"),
                inputs={name: text if known is None else known[at] for name, known, text in shown},
                output=(row.output or None) if output is None else output[at],
                seconds=seconds_of(row, "elapsed"),
                error=seen(PreviewError, row.error) if row.HasField("error") else None,
                row_id=or_none(row, "row_id"),
                texts=(*row.inputs, row.output),
            )
        )
    return tuple(rows)


def _python(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as Python objects, or as Arrow scalars if Python has no counterpart."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        return list(column)
    return values


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is a whole number, 1 or more, not {value!r}", facts={"field": name})
