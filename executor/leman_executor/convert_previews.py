"""Requests for previews, and their results, in messages ↔ values; `leman_core.wire.convert` says what is raised."""

from __future__ import annotations

import pyarrow as pa

from leman.v1 import jobs_pb2
from leman_core.model.errors import InvalidArgument
from leman_core.model.row_address import RowAddress
from leman_core.server.request_digest import without_secrets
from leman_core.wire.convert_arrow import schema_to_bytes
from leman_core.wire.convert_env import env_from_proto
from leman_core.wire.convert_types import schema_to_json
from leman_core.wire.convert_values import (
    duration_to_proto,
    number_from_proto,
    ref_to_proto,
    seconds_from_proto,
    unless_negative,
)
from leman_executor.previews.previews import PreviewRequest, PreviewResult
from leman_executor.previews.record import TriedRow
from leman_executor.worker.preview_messages import COMPUTED, FAILED, FAILS
from leman_executor.worker.preview_values import MOST_BYTES, batch_of, stream_of

DEFAULT_ROWS = 5
MOST_ROWS = 100
DEFAULT_SECONDS = 30.0
MOST_SECONDS = 600.0
_STATES = {
    COMPUTED: jobs_pb2.PreviewRow.STATE_COMPUTED,
    FAILED: jobs_pb2.PreviewRow.STATE_FAILED,
    FAILS: jobs_pb2.PreviewRow.STATE_FAILS,
}


def preview_from_proto(message: jobs_pb2.PreviewFunctionRequest) -> PreviewRequest:
    """Return what is asked of this executor; the planner looks at the rest.

    Raises:
        InvalidArgument: BAD_NUMBER, BAD_REQUEST, BAD_ENV.
    """
    rows = int(number_from_proto(message, "rows", default=DEFAULT_ROWS))
    if rows > MOST_ROWS:
        raise InvalidArgument("BAD_NUMBER", f"rows is {rows}; 1 to {MOST_ROWS} are allowed", field="rows")
    seconds = seconds_from_proto(message, "timeout", default=DEFAULT_SECONDS)
    if not 0 < seconds <= MOST_SECONDS:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"timeout is {seconds:g} s: set a time above 0 and up to {MOST_SECONDS:g} s, or leave it out",
            field="timeout",
        )
    if message.bundle and not message.definition.python_bundle.sha256:
        raise InvalidArgument(
            "BAD_REQUEST", "a bundle belongs to a definition with its digest: send that too", field="bundle"
        )
    return PreviewRequest(
        message=without_secrets(message, keys=False),
        database=message.table.database,
        table=message.table.table,
        column=message.column,
        rows=rows,
        seconds=seconds,
        concurrency=int(number_from_proto(message, "concurrency")),
        bundle=message.bundle,
        entrypoint=message.definition.entrypoint,
        addresses=tuple(message.definition.remote_function.addresses),
        env=env_from_proto(message.env),
    )


def preview_to_proto(result: PreviewResult) -> jobs_pb2.PreviewFunctionResponse:
    """Return what a caller is told."""
    header, record = result.header, result.record
    schema = pa.schema([result.output.field(0).with_name(header.udf.name)]).remove_metadata()
    values, left_out = _values(result)
    return jobs_pb2.PreviewFunctionResponse(
        udf=ref_to_proto(header.udf.name, header.udf.version),
        input_columns=header.input_columns,
        read_version=header.read_version,
        where=header.where,
        rows=[_row(row) for row in record.rows()],
        values=values,
        columns_left_out=left_out,
        output_schema=schema_to_bytes(schema),
        json_output_schema=schema_to_json(schema),
        set_up_duration=None if record.set_up_seconds is None else duration_to_proto(record.set_up_seconds),
        printed=record.printed,
        printed_size_bytes=record.printed_bytes,
        timed_out=record.timed_out,
        fails=record.fails,
        projection=_projection(result),
    )


def _row(row: TriedRow) -> jobs_pb2.PreviewRow:
    place, attempted = row.place, row.attempted
    state = jobs_pb2.PreviewRow.STATE_UNFINISHED if attempted is None else _STATES[attempted.state]
    message = jobs_pb2.PreviewRow(
        state=state,
        row_address=RowAddress(place.fragment_id, place.offset).to_int(),
        row_id=unless_negative(place.row_id),
        inputs=place.inputs,
        output="" if attempted is None else attempted.output,
        elapsed=None if row.seconds is None else duration_to_proto(row.seconds),
    )
    failure = None if attempted is None else attempted.failure
    if failure is not None:
        message.error.error_type = failure.error_type
        message.error.message = failure.message
        message.error.traceback = failure.traceback
        message.error.attempts = failure.attempt
    return message


def _values(result: PreviewResult) -> tuple[bytes, list[str]]:
    """Return inputs and outputs as one stream, and the names of the columns that are not in it."""
    record, name = result.record, result.header.udf.name
    if record.found is None or not record.found.rows:
        return b"", []
    inputs, left_out = batch_of(record.found.values), list(record.found.left_out)
    columns, names = list(inputs.columns), list(inputs.schema.names)
    outputs = record.outputs(result.output.field(0).type)
    if record.too_large() or outputs.nbytes > MOST_BYTES:
        left_out.append(name)
    else:
        columns.append(outputs)
        names.append(name)
    if not columns:
        return b"", left_out
    return stream_of(pa.RecordBatch.from_arrays(columns, names=names)), left_out


def _projection(result: PreviewResult) -> jobs_pb2.PreviewProjection:
    rows, cost = result.header.rows_to_compute, result.record.seconds_per_row()
    at_once = max(1, min(result.workers, rows))
    expected = None if cost is None else rows * cost / at_once
    return jobs_pb2.PreviewProjection(
        rows_to_compute=rows,
        duration_per_row=None if cost is None else duration_to_proto(cost),
        workers=at_once,
        expected_duration=None if expected is None else duration_to_proto(expected),
    )
