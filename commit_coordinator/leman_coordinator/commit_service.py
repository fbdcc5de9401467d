"""CommitService: the translation of requests into domain values, and of outcomes into answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeAlias

import grpc

from leman.v1 import commit_pb2, commit_pb2_grpc
from leman_coordinator import convert_commits, convert_tables, optimizing
from leman_coordinator.commit_queues import CommitQueues
from leman_coordinator.convert_garbage import collection_to_proto
from leman_coordinator.convert_verification import report_to_proto
from leman_coordinator.draining import check_draining
from leman_coordinator.garbage.collector import GarbageCollector
from leman_coordinator.request_deduplication import RequestMemory
from leman_coordinator.tables.drop_and_rename import Names
from leman_coordinator.verification.report import ResumePoint
from leman_coordinator.verification.verifier import verify
from leman_core.model.errors import NotFound, Unavailable
from leman_core.model.garbage import DEFAULT_AGE, Collection, Fate
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.server.request_digest import body_digest
from leman_core.storage import commit_history
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.locations import canonical_database
from leman_core.wire.convert import index_to_proto
from leman_core.wire.convert_values import number_from_proto, seconds_from_proto

#: Files that an answer of CollectGarbage names, unless asked otherwise, and at the most.
FILES_NAMED, MAX_FILES_NAMED = 1000, 10_000
_READERS = 4
_COLLECTORS = 2
_VERIFIERS = 2
#: One update of indexes takes all threads of Lance's.
_INDEXERS = 2

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class CommitServicer(commit_pb2_grpc.CommitServiceServicer):
    """The RPCs of CommitService; their contracts stand in protos/leman/v1/commit.proto."""

    def __init__(
        self,
        queues: CommitQueues,
        memory: RequestMemory,
        names: Names,
        draining: asyncio.Event,
        roots: DatabaseRoots,
        *,
        alone: bool,
    ) -> None:
        """`roots`: where databases may lie; `alone`: no other coordinator serves the same tables."""
        self._alone = alone
        self._roots = roots
        self._queues = queues
        self._memory = memory
        self._names = names
        self._draining = draining
        self._readers = BlockingPool(_READERS, name="history")
        self._collectors = BlockingPool(_COLLECTORS, name="garbage")
        self._verifiers = BlockingPool(_VERIFIERS, name="verification")
        self._indexes = BlockingPool(_INDEXERS, name="indexes")

    async def close(self) -> None:
        await self._memory.settled()
        await self._queues.close()
        self._readers.close()
        self._collectors.close()
        self._verifiers.close()
        self._indexes.close()

    async def GetCommit(self, request: commit_pb2.GetCommitRequest, _context: Context) -> commit_pb2.GetCommitResponse:
        uri = convert_commits.uri_of_ref(request)
        request_id = convert_commits.required(request.request_id, "request_id")
        remembered = await self._memory.ended((uri, request_id))
        if remembered is not None and not (remembered.outcomes or remembered.rows):
            return commit_pb2.GetCommitResponse(commit=convert_commits.schema_change_to_proto(request_id, remembered))
        record = await self._readers.run(commit_history.find_commit, uri, request_id)
        if record is None:
            raise NotFound(
                "COMMIT_NOT_FOUND",
                f"Nothing of request {request_id} is in the history of {uri}: send the request again",
                request_id=request_id,
            )
        return commit_pb2.GetCommitResponse(commit=convert_commits.record_to_proto(record))

    async def ListCommits(
        self, request: commit_pb2.ListCommitsRequest, _context: Context
    ) -> commit_pb2.ListCommitsResponse:
        uri = convert_commits.uri_of_ref(request)
        page = paging.read_page(request.page_size, request.page_token, f"ListCommits {uri}")
        before = page.after if isinstance(page.after, int) else 0
        records, go_on = await self._readers.run(commit_history.list_commits, uri, before, page.size)
        return commit_pb2.ListCommitsResponse(
            commits=[convert_commits.record_to_proto(record) for record in records],
            next_page_token=page.token(go_on) if go_on else "",
        )

    async def CollectGarbage(
        self, request: commit_pb2.CollectGarbageRequest, _context: Context
    ) -> commit_pb2.CollectGarbageResponse:
        check_draining(self._draining)
        uri = convert_commits.uri_of_ref(request)
        age = seconds_from_proto(request, "older_than", default=DEFAULT_AGE)
        most = min(number_from_proto(request, "max_files", least=0, default=FILES_NAMED), MAX_FILES_NAMED)
        found = await self._collect(uri, age, dry_run=request.dry_run)
        return collection_to_proto(found, include_kept=request.include_kept, max_files=most)

    async def DropView(self, request: commit_pb2.DropViewRequest, _context: Context) -> commit_pb2.DropViewResponse:
        check_draining(self._draining)
        uri = convert_tables.uri_of(request.view, "view")
        request_id = convert_commits.required(request.request_id, "request_id")
        work = partial(self._names.drop_view, uri, request_id, force=request.force)
        await self._memory.once((uri, request_id), body_digest(request), work)
        return commit_pb2.DropViewResponse()

    async def VerifyDatabase(
        self, request: commit_pb2.VerifyDatabaseRequest, _context: Context
    ) -> AsyncIterator[commit_pb2.VerifyDatabaseResponse]:
        database = canonical_database(request.database)
        page = paging.read_page(0, request.resume_token, f"VerifyDatabase {database}", field="resume_token")
        after = _place(page.after)
        async with contextlib.aclosing(self._verifiers.each(verify(database, after, roots=self._roots))) as reports:
            async for report in reports:
                token = page.token(tuple(report.place)) if report.place is not None else ""
                table = report.place.table if report.place is not None else ""
                yield report_to_proto(report.counts, token, table)
                if token and self._draining.is_set():
                    raise Unavailable("DRAINING", "The commit coordinator is stopping: go on from the last token")

    async def OptimizeIndices(
        self, request: commit_pb2.OptimizeIndicesRequest, _context: Context
    ) -> commit_pb2.OptimizeIndicesResponse:
        check_draining(self._draining)
        uri = convert_commits.uri_of_ref(request)
        work = self._indexes.run(optimizing.optimize, uri, list(request.columns), list(request.names))
        version, indices = await asyncio.shield(work)
        return commit_pb2.OptimizeIndicesResponse(version=version, indices=[index_to_proto(index) for index in indices])

    async def _collect(self, uri: str, age: float, *, dry_run: bool) -> Collection:
        collector = GarbageCollector(uri, age, alone=self._alone)
        version, decisions = await self._collectors.run(collector.look)
        removed = [v.file for v in decisions if v.fate is Fate.GARBAGE]
        if removed and not dry_run:
            async with self._queues.alone(uri):
                removed = await self._collectors.run(collector.sweep, decisions)
        if not dry_run:
            await self._collectors.run(collector.fold_notes)
        return Collection(version=version, decisions=tuple(decisions), removed=tuple(removed), dry_run=dry_run)


def _place(key: paging.Key | None) -> ResumePoint | None:
    match key:
        case (str(table), int(part), str(name)):
            return ResumePoint(table, part, name)
        case _:
            return None
