"""Previews on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leman import _bundle_upload
from leman._backfill import check_where
from leman._channel import Services
from leman._job_attributes import check_env
from leman._preview import Preview, PreviewError, PreviewRow
from leman._sql import SqlExpression
from leman._udf import UDF
from leman._wire import schema
from leman._wire_values import duration, given, ref, seconds, word
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, jobs_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

#: A call takes longer than what it asks for: the service answers when the preview's time is over.
_MORE_SECONDS = 30.0
_DEFAULT_SECONDS = 30.0
_REGISTERED = re.compile(r"[^\s@]+@[^\s@]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewOptions:
    """What a preview is asked for beside the function, checked. Raises InvalidArgument."""

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
        """The request without the function."""
        request = jobs_pb2.PreviewFunctionRequest(
            table=table,
            where=self.where or "",
            rows=self.n,
            timeout=duration(self.timeout),
            concurrency=self.concurrency,
            env=check_env(self.env),
        )
        if isinstance(self.read_version, int):
            request.read_version = self.read_version
        elif self.read_version is not None:
            request.read_tag = self.read_version
        return request


def is_registered(text: str) -> bool:
    """True for `name@version`, as a registered function is named."""
    return _REGISTERED.fullmatch(text) is not None


def name_function(
    request: jobs_pb2.PreviewFunctionRequest, services: Services, function: UDF | str | SqlExpression
) -> None:
    """Put a function into a request; none is registered. A bundle that does not fit into it is stored as content."""
    if isinstance(function, SqlExpression):
        request.sql_expression = function.text
        if function.error_handling is not None:
            request.error_policy.CopyFrom(function.error_handling.proto())
    elif isinstance(function, UDF):
        request.definition.CopyFrom(function.describe())
        described, data = function.bundle()
        request.definition.python_bundle.CopyFrom(described)
        if len(data) > _bundle_upload.INLINE_BYTES:
            _bundle_upload.upload(services, request.table.database, described, data)
        else:
            request.bundle = data
    elif is_registered(function):
        name, _, version = function.partition("@")
        request.udf.CopyFrom(ref(name, version))
    else:
        request.sql_expression = function


def call(services: Services, request: jobs_pb2.PreviewFunctionRequest) -> Preview:
    """Send it. Raises LemanError."""
    taken = seconds(request.timeout) if request.HasField("timeout") else _DEFAULT_SECONDS
    return _preview(request, services.jobs.PreviewFunction(request, timeout=taken + _MORE_SECONDS), taken)


def _preview(
    request: jobs_pb2.PreviewFunctionRequest, answer: jobs_pb2.PreviewFunctionResponse, timeout: float
) -> Preview:
    values = pa.ipc.open_stream(answer.values).read_all() if answer.values else pa.table({})
    left_out = tuple(answer.columns_left_out)
    projection = answer.projection
    return Preview(
        table=request.table.table,
        udf_name=answer.udf.name,
        udf_version=answer.udf.version,
        input_columns=tuple(answer.input_columns),
        data_type=schema(answer.output_schema).field(0).type,
        read_version=answer.read_version,
        where=answer.where,
        rows=_rows(answer, values),
        fails=answer.fails,
        timed_out=answer.timed_out,
        timeout=timeout,
        rows_to_compute=projection.rows_to_compute,
        workers=projection.workers,
        seconds_per_row=_seconds(projection, "duration_per_row"),
        expected_seconds=_seconds(projection, "expected_duration"),
        set_up_seconds=_seconds(answer, "set_up_duration"),
        printed=answer.printed,
        printed_bytes=answer.printed_size_bytes,
        columns_left_out=left_out,
        values=values,
    )


def _rows(answer: jobs_pb2.PreviewFunctionResponse, values: pa.Table) -> tuple[PreviewRow, ...]:
    if not answer.rows:  # none was read in time, or there is none: nor are there columns
        return ()
    left_out, columns = set(answer.columns_left_out), iter(values.columns)
    inputs = [None if name in left_out else _python(next(columns)) for name in answer.input_columns]
    output = None if answer.udf.name in left_out or not values.num_columns else _python(next(columns))
    rows = []
    for at, row in enumerate(answer.rows):
        shown = zip(answer.input_columns, inputs, row.inputs, strict=True)
        error = row.error if row.HasField("error") else None
        rows.append(
            PreviewRow(
                state=word(jobs_pb2.PreviewRow.State, row.state, "STATE_"),
                inputs={name: text if known is None else known[at] for name, known, text in shown},
                output=(row.output or None) if output is None else output[at],
                seconds=_seconds(row, "elapsed"),
                error=None
                if error is None
                else PreviewError(error.error_type, error.message, error.traceback, error.attempts),
                row_address=row.row_address,
                row_id=given(row, "row_id"),
                texts=(*row.inputs, row.output),
            )
        )
    return tuple(rows)


def _python(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column; those that Python has no counterpart for stay Arrow's."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, pa.ArrowException):
        return list(column)
    return values


def _seconds(message: Any, name: str) -> float | None:
    return seconds(getattr(message, name)) if message.HasField(name) else None


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is a whole number, 1 or more, not {value!r}", facts={"field": name})
