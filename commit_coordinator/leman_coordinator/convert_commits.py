"""Convert requests and results of CommitService and CommitSubmissionService from and to protobuf."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa

from leman._format import view_definitions
from leman.v1 import commit_pb2
from leman_coordinator.commits.commit_requests import (
    AddColumnsRequest,
    ApplyDeltaRequest,
    BeginAttemptRequest,
    BindColumnsRequest,
    CommitRequest,
    CommitResult,
    CreatePlaceholdersRequest,
    FillPlaceholdersRequest,
    Outcome,
    ReplaceRequest,
    Status,
    ViewFile,
)
from leman_core.model import keys
from leman_core.model.plan import FragmentReplacement
from leman_core.model.service_errors import InvalidArgument
from leman_core.storage.locations import canonical_table, table_uri
from leman_core.storage.transactions import CommitRecord
from leman_core.wire import convert_plans, convert_values
from leman_internal.v1 import submission_pb2

_HasTable: TypeAlias = (
    commit_pb2.GetCommitRequest
    | commit_pb2.ListCommitsRequest
    | commit_pb2.CollectGarbageRequest
    | commit_pb2.OptimizeIndicesRequest
)

_STATUS = {
    Status.COMMITTED: submission_pb2.FragmentOutcome.STATUS_COMMITTED,
    Status.ALREADY_CURRENT: submission_pb2.FragmentOutcome.STATUS_ALREADY_CURRENT,
    Status.REJECTED: submission_pb2.FragmentOutcome.STATUS_REJECTED,
}


def forget_etags(message: submission_pb2.SubmitCommitRequest) -> None:
    """Remove the ETags of a request, so that all its files are read completely."""
    replaced, filled, delta = message.replace_column, message.fill_placeholders, message.apply_view_delta
    columns = [replaced, *message.replace_columns.columns]
    for replacement in (fragment for column in columns for fragment in column.fragments):
        replacement.file.ClearField("etag")
    for file in (*filled.fragments, *delta.appended, *delta.swapped):
        file.file.ClearField("etag")


def request_from_proto(message: submission_pb2.SubmitCommitRequest) -> CommitRequest:
    """Convert a request.

    Raises:
        InvalidArgument: MISSING_FIELD; BAD_SCHEMA; BAD_FILE_NAME; BAD_NUMBER – negative, or an attempt below 1;
            BAD_METADATA – a key that no view has; FRAGMENT_TWICE – a fragment is listed more than once.
    """
    uri, request_id = uri_of(message.uri), required_text(message.request_id, "request_id")
    if message.HasField("add_null_columns"):
        schema = _columns(message.add_null_columns.schema, "add_null_columns.schema")
        return AddColumnsRequest(uri=uri, incarnation=message.incarnation, request_id=request_id, schema=schema)
    if message.HasField("bind_columns"):
        schema = _columns(message.bind_columns.schema, "bind_columns.schema")
        return BindColumnsRequest(uri=uri, incarnation=message.incarnation, request_id=request_id, schema=schema)
    if message.HasField("begin_attempt"):
        return _begin_from_proto(uri, message)
    if message.HasField("create_placeholders"):
        return _placeholders_from_proto(uri, message)
    if message.HasField("fill_placeholders"):
        return _fill_from_proto(uri, message)
    if message.HasField("apply_view_delta"):
        return _delta_from_proto(uri, message)
    required_text(message.WhichOneof("operation") or "", "operation")
    if not message.HasField("replace_columns"):
        return _replace_from_proto(uri, message, message.replace_column)
    columns = [_replace_from_proto(uri, message, column) for column in message.replace_columns.columns]
    if not columns:
        raise InvalidArgument(
            "MISSING_FIELD", "The request has no column to commit: add at least one", field="replace_columns.columns"
        )
    if len({column.output.column_id for column in columns}) < len(columns):
        raise InvalidArgument(
            "BAD_COLUMN", "A column is listed more than once: list each once", field="replace_columns.columns"
        )
    return dataclasses.replace(columns[0], others=tuple(columns[1:]))


def _replace_from_proto(
    uri: str, message: submission_pb2.SubmitCommitRequest, replace: submission_pb2.ReplaceColumn
) -> ReplaceRequest:
    replacements = tuple(_replacement_from_proto(fragment) for fragment in replace.fragments)
    if not replacements:
        raise InvalidArgument(
            "MISSING_FIELD", "The request has no fragment to commit: add at least one", field="replace_column.fragments"
        )
    if len({r.fragment_id for r in replacements}) < len(replacements):
        raise InvalidArgument(
            "FRAGMENT_TWICE", "A fragment is listed more than once: list each once", field="replace_column.fragments"
        )
    return ReplaceRequest(
        uri=uri,
        incarnation=required_text(message.incarnation, "incarnation"),
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        output=convert_plans.output_from_proto(replace.output),
        replacements=replacements,
        input_field_ids=tuple(replace.input_field_ids),
        attempt=message.attempt,
        inputs_version=replace.inputs_version,
    )


def _begin_from_proto(uri: str, message: submission_pb2.SubmitCommitRequest) -> BeginAttemptRequest:
    if message.attempt < 1:
        raise InvalidArgument("BAD_NUMBER", "the attempt is below 1: attempts are numbered from 1", field="attempt")
    job_id = required_text(message.job_id, "job_id")
    return BeginAttemptRequest(
        uri=uri,
        incarnation=message.incarnation,
        request_id=message.request_id,
        job_id=job_id,
        attempt=message.attempt,
        identity=message.begin_attempt.identity,
        read_version=message.read_version,
    )


def _placeholders_from_proto(uri: str, message: submission_pb2.SubmitCommitRequest) -> CreatePlaceholdersRequest:
    wanted = message.create_placeholders
    if wanted.max_rows_per_fragment < 0:
        field = "create_placeholders.max_rows_per_fragment"
        raise InvalidArgument("BAD_NUMBER", "max_rows_per_fragment cannot be negative", field=field)
    return CreatePlaceholdersRequest(
        uri=uri,
        incarnation="" if wanted.create else message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        schema=_columns(wanted.schema, "create_placeholders.schema"),
        max_rows_per_fragment=wanted.max_rows_per_fragment,
        create=wanted.create,
        attempt=message.attempt,
    )


def _fill_from_proto(uri: str, message: submission_pb2.SubmitCommitRequest) -> FillPlaceholdersRequest:
    field = "fill_placeholders.fragments"
    fragments = _view_files(message.fill_placeholders.fragments, field)
    if not fragments:
        raise InvalidArgument("MISSING_FIELD", "The request has no fragment to commit: add at least one", field=field)
    return FillPlaceholdersRequest(
        uri=uri,
        incarnation=message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        fragments=_each_once(fragments, field),
        attempt=message.attempt,
    )


def _delta_from_proto(uri: str, message: submission_pb2.SubmitCommitRequest) -> ApplyDeltaRequest:
    wanted = message.apply_view_delta
    if wanted.evictions_file and not keys.is_evictions_name(wanted.evictions_file):
        field = "apply_view_delta.evictions_file"
        raise InvalidArgument(
            "BAD_FILE_NAME", f"'{wanted.evictions_file}' is not the name of a file of evictions", field=field
        )
    if external := [key for key in wanted.metadata if not key.startswith(view_definitions.PREFIX)]:
        field = "apply_view_delta.metadata"
        raise InvalidArgument(
            "BAD_METADATA", f"'{external[0]}' does not begin with {view_definitions.PREFIX}", field=field
        )
    return ApplyDeltaRequest(
        uri=uri,
        incarnation=message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        appended=_view_files(wanted.appended, "apply_view_delta.appended"),
        swapped=_each_once(_view_files(wanted.swapped, "apply_view_delta.swapped"), "apply_view_delta.swapped"),
        evictions_file=wanted.evictions_file,
        evictions_digest=wanted.evictions_digest,
        replace_all=wanted.replace_all,
        metadata=dict(wanted.metadata),
        attempt=message.attempt,
    )


def _view_files(files: Iterable[submission_pb2.ViewFile], field: str) -> tuple[ViewFile, ...]:
    found = tuple(ViewFile(file.fragment_id, convert_plans.staged_from_proto(file.file)) for file in files)
    for file in found:
        if not keys.is_view_file_name(file.staged.file):
            message = f"'{file.staged.file}' is not the name of a view's file: view-<32 hex digits>.lance"
            raise InvalidArgument("BAD_FILE_NAME", message, field=field)
    return found


def _each_once(files: tuple[ViewFile, ...], field: str) -> tuple[ViewFile, ...]:
    if len({file.fragment_id for file in files}) < len(files):
        raise InvalidArgument("FRAGMENT_TWICE", "A fragment is listed more than once: list each once", field=field)
    return files


def _columns(raw: bytes, field: str) -> pa.Schema:
    schema = convert_values.schema_from_bytes(raw, field)
    if not len(schema):
        raise InvalidArgument("MISSING_FIELD", "There is no column", field=field)
    return schema


def _replacement_from_proto(message: submission_pb2.FragmentReplacement) -> FragmentReplacement:
    staged = convert_plans.staged_from_proto(message.file)
    if keys.parse_column_file_name(staged.file) is None:
        raise InvalidArgument(
            "BAD_FILE_NAME",
            f"'{staged.file}' is not the name of a column file: <fingerprint>-[partial-]<attempt>.lance",
            field="replace_column.fragments.file.file",
        )
    return FragmentReplacement(
        fragment_id=message.fragment_id,
        staged=staged,
        input_files=tuple(message.input_files),
        replaces=message.replaces,
    )


def uri_of(text: str) -> str:
    """Return the canonical uri of a table, which identifies the table's commit queue.

    Raises:
        InvalidArgument: MISSING_FIELD – the text is empty; others as `leman_core.storage.locations.canonical_table`.
    """
    return canonical_table(required_text(text, "uri"))


def uri_of_ref(request: _HasTable) -> str:
    """Return the canonical uri of a request's table, which identifies the table's commit queue.

    Raises:
        InvalidArgument: MISSING_FIELD – the request has no table; others as `leman_core.storage.locations.table_uri`.
    """
    if not request.HasField("table"):
        raise InvalidArgument("MISSING_FIELD", "table is missing", field="table")
    return table_uri(request.table.database, request.table.table)


def required_text(text: str, field: str) -> str:
    """Return the text.

    Raises:
        InvalidArgument: MISSING_FIELD – the text is empty.
    """
    if not text:
        raise InvalidArgument("MISSING_FIELD", f"{field} is missing", field=field)
    return text


def outcome_to_proto(outcome: Outcome) -> submission_pb2.FragmentOutcome:
    """Convert the outcome of one fragment."""
    return submission_pb2.FragmentOutcome(
        fragment_id=outcome.fragment_id,
        status=_STATUS[outcome.status],
        reason=outcome.reason,
        message=outcome.message,
    )


def record_to_proto(record: CommitRecord) -> commit_pb2.Commit:
    """Convert a commit of the history."""
    return commit_pb2.Commit(
        version=record.version,
        request_ids=record.request_ids,
        job_ids=record.job_ids,
        operation=record.operation,
        fragments=record.fragments,
    )


def schema_change_to_proto(request_id: str, result: CommitResult) -> commit_pb2.Commit:
    """Convert a schema change for which only its result is known."""
    return commit_pb2.Commit(version=result.version, request_ids=[request_id], operation=result.operation)
