"""CommitService: translates requests into domain values and outcomes into answers."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Iterable
from typing import Any, TypeAlias

import grpc
import pyarrow as pa

from commit_coordinator.garbage.collector import GarbageCollector
from commit_coordinator.lanes import Lanes, Limits
from commit_coordinator.outcomes import RequestMemory
from commit_coordinator.requests import (
    AddColumnsRequest,
    BindColumnsRequest,
    CommitRequest,
    CommitResult,
    Outcome,
    Replacement,
    ReplaceRequest,
    Status,
)
from commit_coordinator.views.requests import FillRequest, LayRequest, SpliceRequest, ViewFile
from core import keys
from core.config import Settings
from core.domain.garbage import DEFAULT_AGE, Collection, Fate
from core.errors import InvalidArgument, NotFound, Unavailable
from core.lance_io import history
from core.lance_io.history import CommitRecord
from core.lance_io.tables import normalise_database, table_uri
from core.lance_io.views import drop as view_drop
from core.rpc import convert, paging
from core.rpc.blocking import BlockingPool
from core.rpc.convert_garbage import collection_to_proto
from core.views import metadata as view_metadata
from leman.v1 import commit_pb2, commit_pb2_grpc

#: Fragments whose outcomes are remembered: some 20 MB.
REMEMBERED = 100_000
#: Files that an answer of CollectGarbage names, unless asked otherwise, and at the most.
FILES_NAMED, MAX_FILES_NAMED = 1000, 10_000
_READERS = 4
_COLLECTORS = 2
_SERVICE = commit_pb2.DESCRIPTOR.services_by_name["CommitService"].full_name
_STATUS = {
    Status.COMMITTED: commit_pb2.FragmentOutcome.STATUS_COMMITTED,
    Status.ALREADY_CURRENT: commit_pb2.FragmentOutcome.STATUS_ALREADY_CURRENT,
    Status.REJECTED: commit_pb2.FragmentOutcome.STATUS_REJECTED,
}

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


def create(settings: Settings, draining: asyncio.Event) -> CommitCoordinator:
    """The service; see `core.rpc.server.Factory`."""
    return CommitCoordinator(settings, draining)


class CommitCoordinator:
    """See `core.rpc.server.Service`."""

    def __init__(self, settings: Settings, draining: asyncio.Event) -> None:
        self._limits = Limits(
            version_conflict_max_retries=settings.commit.version_conflict_max_retries,
            max_queued_requests=settings.commit.max_queued_requests,
        )
        self._draining = draining
        self._servicer: CommitServicer | None = None

    async def start(self, server: grpc.aio.Server) -> list[str]:
        """Adds CommitService."""
        self._servicer = CommitServicer(Lanes(self._limits), self._draining)
        commit_pb2_grpc.add_CommitServiceServicer_to_server(self._servicer, server)
        return [_SERVICE]

    async def stop(self) -> None:
        """Returns when what was being committed is."""
        if self._servicer is not None:
            await self._servicer.close()


class CommitServicer(commit_pb2_grpc.CommitServiceServicer):
    """The RPCs. Their contracts stand in protos/leman/v1/commit.proto."""

    def __init__(self, lanes: Lanes, draining: asyncio.Event) -> None:
        self._lanes = lanes
        self._draining = draining
        self._memory = RequestMemory(REMEMBERED)
        self._readers = BlockingPool(_READERS, name="history")
        self._collectors = BlockingPool(_COLLECTORS, name="garbage")

    async def close(self) -> None:
        await self._memory.settled()
        await self._lanes.close()
        self._readers.close()
        self._collectors.close()

    async def SubmitCommit(
        self, request: commit_pb2.SubmitCommitRequest, _context: Context
    ) -> commit_pb2.SubmitCommitResponse:
        if self._draining.is_set():
            raise Unavailable("DRAINING", "The commit coordinator is stopping: send the same request again")
        wanted = request_from_proto(request)
        body = hashlib.blake2b(request.SerializeToString(deterministic=True)).digest()
        result = await self._memory.once((wanted.uri, wanted.request_id), body, lambda: self._lanes.submit(wanted))
        return commit_pb2.SubmitCommitResponse(
            version=result.version, outcomes=[_outcome_to_proto(outcome) for outcome in result.outcomes]
        )

    async def GetCommit(self, request: commit_pb2.GetCommitRequest, _context: Context) -> commit_pb2.GetCommitResponse:
        uri = _uri(request.uri)
        request_id = _required(request.request_id, "request_id")
        remembered = await self._memory.ended((uri, request_id))
        if remembered is not None and not remembered.outcomes:
            return commit_pb2.GetCommitResponse(commit=_schema_change(request_id, remembered))
        record = await self._readers.run(history.find_commit, uri, request_id)
        if record is None:
            raise NotFound(
                "COMMIT_NOT_FOUND",
                f"Nothing of request {request_id} is in the history of {uri}: send the request again",
                request_id=request_id,
            )
        return commit_pb2.GetCommitResponse(commit=_record_to_proto(record))

    async def ListCommits(
        self, request: commit_pb2.ListCommitsRequest, _context: Context
    ) -> commit_pb2.ListCommitsResponse:
        uri = _uri(request.uri)
        page = paging.read_page(request.page_size, request.page_token, f"ListCommits {uri}")
        before = page.after if isinstance(page.after, int) else 0
        records, go_on = await self._readers.run(history.list_commits, uri, before, page.size)
        return commit_pb2.ListCommitsResponse(
            commits=[_record_to_proto(record) for record in records],
            next_page_token=page.token(go_on) if go_on else "",
        )

    async def CollectGarbage(
        self, request: commit_pb2.CollectGarbageRequest, _context: Context
    ) -> commit_pb2.CollectGarbageResponse:
        if self._draining.is_set():
            raise Unavailable("DRAINING", "The commit coordinator is stopping: send the same request again")
        uri, age = _uri(request.uri), _age(request)
        found = await asyncio.shield(self._collect(uri, age, dry_run=request.dry_run))
        most = min(request.max_files or FILES_NAMED, MAX_FILES_NAMED)
        return collection_to_proto(found, include_kept=request.include_kept, max_files=most)

    async def DropView(self, request: commit_pb2.DropViewRequest, _context: Context) -> commit_pb2.DropViewResponse:
        if self._draining.is_set():
            raise Unavailable("DRAINING", "The commit coordinator is stopping: send the same request again")
        await asyncio.shield(self._drop(request.database, request.name, force=request.force))
        return commit_pb2.DropViewResponse()

    async def _drop(self, database: str, name: str, *, force: bool) -> None:
        """To be shielded, as `_collect`."""
        async with self._lanes.alone(table_uri(database, name)):
            await self._collectors.run(functools.partial(view_drop.check, database, name, force=force))
            await self._collectors.run(view_drop.drop, database, name)

    async def _collect(self, uri: str, age: float, *, dry_run: bool) -> Collection:
        """To be shielded: a caller that goes away must not let commits in while files are being removed."""
        collector = GarbageCollector(uri, age)
        version, verdicts = await self._collectors.run(collector.look)
        removed = [v.file for v in verdicts if v.fate is Fate.GARBAGE]
        if removed and not dry_run:
            async with self._lanes.alone(uri):
                removed = await self._collectors.run(collector.sweep, verdicts)
        return Collection(version, tuple(verdicts), tuple(removed), dry_run)


def request_from_proto(message: commit_pb2.SubmitCommitRequest) -> CommitRequest:
    """Raises InvalidArgument (MISSING_FIELD, BAD_SCHEMA, BAD_FILE_NAME, BAD_NUMBER, BAD_METADATA, FRAGMENT_TWICE)."""
    uri, request_id = _uri(message.uri), _required(message.request_id, "request_id")
    if message.HasField("add_null_columns"):
        schema = _columns(message.add_null_columns.schema, "add_null_columns.schema")
        return AddColumnsRequest(uri, message.incarnation, request_id, schema)
    if message.HasField("bind_columns"):
        schema = _columns(message.bind_columns.schema, "bind_columns.schema")
        return BindColumnsRequest(uri, message.incarnation, request_id, schema)
    if message.HasField("lay_placeholders"):
        return _lay_from_proto(uri, message)
    if message.HasField("fill_placeholders"):
        return _fill_from_proto(uri, message)
    if message.HasField("splice_view"):
        return _splice_from_proto(uri, message)
    _required(message.WhichOneof("operation") or "", "operation")
    replace = message.replace_column
    replacements = tuple(_replacement_from_proto(fragment) for fragment in replace.fragments)
    if not replacements:
        raise InvalidArgument("MISSING_FIELD", "There is no fragment to commit", field="replace_column.fragments")
    if len({r.fragment_id for r in replacements}) < len(replacements):
        raise InvalidArgument("FRAGMENT_TWICE", "A fragment is named more than once", field="replace_column.fragments")
    return ReplaceRequest(
        uri=uri,
        incarnation=_required(message.incarnation, "incarnation"),
        request_id=request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        output=convert.output_from_proto(replace.output),
        replacements=replacements,
        input_field_ids=tuple(replace.input_field_ids),
    )


def _lay_from_proto(uri: str, message: commit_pb2.SubmitCommitRequest) -> LayRequest:
    wanted = message.lay_placeholders
    if wanted.max_rows_per_fragment < 0:
        field = "lay_placeholders.max_rows_per_fragment"
        raise InvalidArgument("BAD_NUMBER", "max_rows_per_fragment cannot be negative", field=field)
    return LayRequest(
        uri=uri,
        incarnation="" if wanted.create else message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        schema=_columns(wanted.schema, "lay_placeholders.schema"),
        max_rows_per_fragment=wanted.max_rows_per_fragment,
        create=wanted.create,
    )


def _fill_from_proto(uri: str, message: commit_pb2.SubmitCommitRequest) -> FillRequest:
    field = "fill_placeholders.fragments"
    fragments = _view_files(message.fill_placeholders.fragments, field)
    if not fragments:
        raise InvalidArgument("MISSING_FIELD", "There is no fragment to commit", field=field)
    return FillRequest(
        uri=uri,
        incarnation=message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        fragments=_each_once(fragments, field),
    )


def _splice_from_proto(uri: str, message: commit_pb2.SubmitCommitRequest) -> SpliceRequest:
    wanted = message.splice_view
    if wanted.evictions_file and not keys.is_evictions_name(wanted.evictions_file):
        field = "splice_view.evictions_file"
        raise InvalidArgument("BAD_FILE_NAME", f"'{wanted.evictions_file}' is not the name of evictions", field=field)
    if foreign := [key for key in wanted.metadata if not key.startswith(view_metadata.PREFIX)]:
        field = "splice_view.metadata"
        raise InvalidArgument("BAD_METADATA", f"'{foreign[0]}' does not begin with {view_metadata.PREFIX}", field=field)
    return SpliceRequest(
        uri=uri,
        incarnation=message.incarnation,
        request_id=message.request_id,
        job_id=message.job_id,
        read_version=message.read_version,
        appended=_view_files(wanted.appended, "splice_view.appended"),
        swapped=_each_once(_view_files(wanted.swapped, "splice_view.swapped"), "splice_view.swapped"),
        evictions_file=wanted.evictions_file,
        evictions_digest=wanted.evictions_digest,
        replace_all=wanted.replace_all,
        metadata=dict(wanted.metadata),
    )


def _view_files(files: Iterable[commit_pb2.ViewFile], field: str) -> tuple[ViewFile, ...]:
    found = tuple(ViewFile(file.fragment_id, convert.staged_from_proto(file.file)) for file in files)
    for file in found:
        if not keys.is_view_file_name(file.staged.file):
            message = f"'{file.staged.file}' is not the name of a view's file: view-<32 hex digits>.lance"
            raise InvalidArgument("BAD_FILE_NAME", message, field=field)
    return found


def _each_once(files: tuple[ViewFile, ...], field: str) -> tuple[ViewFile, ...]:
    if len({file.fragment_id for file in files}) < len(files):
        raise InvalidArgument("FRAGMENT_TWICE", "A fragment is named more than once", field=field)
    return files


def _columns(raw: bytes, field: str) -> pa.Schema:
    schema = convert.schema_from_bytes(raw, field)
    if not len(schema):
        raise InvalidArgument("MISSING_FIELD", "There is no column", field=field)
    return schema


def _replacement_from_proto(message: commit_pb2.FragmentReplacement) -> Replacement:
    staged = convert.staged_from_proto(message.file)
    if keys.parse_column_file_name(staged.file) is None:
        raise InvalidArgument(
            "BAD_FILE_NAME",
            f"'{staged.file}' is not the name of a column file: <fingerprint>-[partial-]<attempt>.lance",
            field="replace_column.fragments.file.file",
        )
    return Replacement(message.fragment_id, staged, tuple(message.input_files), message.replaces)


def _age(request: commit_pb2.CollectGarbageRequest) -> float:
    for field in ("older_than_seconds", "max_files"):
        if getattr(request, field) < 0:
            raise InvalidArgument("BAD_NUMBER", f"{field} cannot be negative", field=field)
    return float(request.older_than_seconds) if request.HasField("older_than_seconds") else DEFAULT_AGE


def _uri(text: str) -> str:
    return normalise_database(_required(text, "uri"))


def _required(text: str, field: str) -> str:
    if not text:
        raise InvalidArgument("MISSING_FIELD", f"{field} is missing", field=field)
    return text


def _outcome_to_proto(outcome: Outcome) -> commit_pb2.FragmentOutcome:
    return commit_pb2.FragmentOutcome(
        fragment_id=outcome.fragment_id,
        status=_STATUS[outcome.status],
        reason=outcome.reason,
        message=outcome.message,
    )


def _record_to_proto(record: CommitRecord) -> commit_pb2.Commit:
    return commit_pb2.Commit(
        version=record.version,
        request_ids=record.request_ids,
        job_ids=record.job_ids,
        operation=record.operation,
        fragments=record.fragments,
    )


def _schema_change(request_id: str, result: CommitResult) -> commit_pb2.Commit:
    return commit_pb2.Commit(version=result.version, request_ids=[request_id], operation=result.operation)
