"""CommitService for callers, and CommitSubmissionService for executors and the planner.

Both translate requests and results, including those of garbage collection and verification.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.protobuf import timestamp_pb2

from leman.v1 import commit_pb2, commit_pb2_grpc
from leman_coordinator import convert_commits, convert_tables
from leman_coordinator.commits.commit_queue import CommitQueues, check_draining
from leman_coordinator.commits.commit_requests import BeginAttemptRequest, RequestMemory
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.tables.drop_and_rename import Names
from leman_coordinator.verification.database_verification import verify
from leman_coordinator.verification.verification_report import Finding, FindingCounts, Flaw, ResumePoint, Subject
from leman_core.model.garbage import DEFAULT_AGE, Collection, Fate, RetentionDecision, StoredFile, StoredKind, Use
from leman_core.model.service_errors import NotFound, Unavailable
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.server.request_messages import body_digest
from leman_core.storage import transactions
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.locations import canonical_database
from leman_core.wire.convert_plans import index_to_proto, range_to_proto
from leman_core.wire.convert_values import number_from_proto, or_none, ref_to_proto, seconds_from_proto, unless_negative
from leman_internal.v1 import submission_pb2, submission_pb2_grpc

_File = commit_pb2.StoredFile
_KIND = {kind: _File.Kind.Value(f"KIND_{kind.name}") for kind in StoredKind}
_USE = {use: _File.Use.Value(f"USE_{use.name}") for use in Use}
_FATE = {fate: _File.Fate.Value(f"FATE_{fate.name}") for fate in Fate}


def collection_to_proto(found: Collection, *, include_kept: bool, max_files: int) -> commit_pb2.CollectGarbageResponse:
    """Convert a garbage collection.

    Args:
        include_kept: Include kept files, not only the garbage.
        max_files: The maximum number of files in the response. Its counts cover all files.
    """
    removed = {(f.folder, f.name) for f in found.removed}
    counts: dict[tuple[StoredKind, Use, Fate], list[int]] = defaultdict(list)
    for decision in found.decisions:
        counts[decision.kind, decision.use, decision.fate].append(decision.file.size_bytes)
    stay = [v.file.size_bytes for v in found.decisions if _file_place(v.file) not in removed]
    wanted = [v for v in found.decisions if include_kept or v.fate is Fate.GARBAGE]
    named = sorted(wanted, key=lambda v: _file_place(v.file))[:max_files]
    return commit_pb2.CollectGarbageResponse(
        version=found.version,
        files_removed=len(found.removed),
        bytes_removed=sum(f.size_bytes for f in found.removed),
        files_kept=len(stay),
        bytes_kept=sum(stay),
        counts=[
            commit_pb2.StoredFileCount(
                kind=_KIND[kind], use=_USE[use], fate=_FATE[fate], files=len(sizes), bytes=sum(sizes)
            )
            for (kind, use, fate), sizes in sorted(counts.items(), key=lambda c: [part.value for part in c[0]])
        ],
        files=[_file(v, removed=not found.dry_run and _file_place(v.file) in removed) for v in named],
    )


def _file_place(file: StoredFile) -> tuple[str, str]:
    return file.folder, file.name


def _file(decision: RetentionDecision, *, removed: bool) -> commit_pb2.StoredFile:
    file, purpose = decision.file, decision.purpose
    modified = timestamp_pb2.Timestamp()
    modified.FromNanoseconds(int(file.modified * 1e9))
    return _File(
        path=f"{file.folder}/{file.name}",
        kind=_KIND[decision.kind],
        use=_USE[decision.use],
        fate=_FATE[decision.fate],
        size_bytes=file.size_bytes,
        modify_time=modified,
        key=file.key,
        udf=ref_to_proto(purpose.udf_name, purpose.udf_version),
        column=purpose.column,
        fragment_id=unless_negative(purpose.fragment_id),
        range=None if purpose.range is None else range_to_proto(purpose.range),
        removed=removed,
    )


_Finding = commit_pb2.VerificationFinding
_SUBJECT = {subject: _Finding.Subject.Value(f"SUBJECT_{subject.name}") for subject in Subject}
_FLAW = {flaw: _Finding.Flaw.Value(f"FLAW_{flaw.name}") for flaw in Flaw}


def report_to_proto(found: FindingCounts, resume_token: str, table: str) -> commit_pb2.VerifyDatabaseResponse:
    """Convert a report to one message of VerifyDatabase."""
    counts = [
        commit_pb2.VerifiedCount(
            subject=_SUBJECT[subject],
            looked=count.looked,
            unverifiable=count.unverifiable,
            flawed=count.flawed,
            bytes=count.size_bytes,
        )
        for subject, count in found.counts.items()
    ]
    findings = [_finding(finding) for finding in found.findings]
    return commit_pb2.VerifyDatabaseResponse(counts=counts, findings=findings, resume_token=resume_token, table=table)


def _finding(finding: Finding) -> commit_pb2.VerificationFinding:
    return _Finding(
        subject=_SUBJECT[finding.subject],
        flaw=_FLAW[finding.flaw],
        path=finding.path,
        message=finding.message,
        table=finding.table,
        columns=finding.columns,
        fragment_id=unless_negative(finding.fragment_id),
        rows=or_none(finding.rows),
    )


Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class CommitSubmissionServicer(submission_pb2_grpc.CommitSubmissionServiceServicer):
    """The RPC of CommitSubmissionService; contract in protos/leman/internal/v1/submission.proto."""

    def __init__(
        self, queues: CommitQueues, memory: RequestMemory, draining: asyncio.Event, *, read_whole_files: bool
    ) -> None:
        self._queues = queues
        self._memory = memory
        self._draining = draining
        self._read_whole_files = read_whole_files

    async def SubmitCommit(
        self, request: submission_pb2.SubmitCommitRequest, _context: Context
    ) -> submission_pb2.SubmitCommitResponse:
        check_draining(self._draining)
        if self._read_whole_files:
            convert_commits.forget_etags(request)
        wanted = convert_commits.request_from_proto(request)
        body = body_digest(request)
        result = await self._memory.once((wanted.uri, wanted.request_id), body, lambda: self._queues.submit(wanted))
        return submission_pb2.SubmitCommitResponse(
            version=result.version,
            outcomes=[convert_commits.outcome_to_proto(outcome) for outcome in result.outcomes],
            manifest_seconds=result.manifest_seconds,
            without_indexes=result.without_indexes,
            incarnation=result.incarnation if isinstance(wanted, BeginAttemptRequest) else "",
        )


#: The default and the maximum number of files in a response of CollectGarbage.
FILES_NAMED, MAX_FILES_NAMED = 1000, 10_000
_READERS = 4
_COLLECTORS = 2
_VERIFIERS = 2
#: The maximum number of concurrent index updates. A single one already uses all of Lance's threads.
_INDEXERS = 2


class CommitServicer(commit_pb2_grpc.CommitServiceServicer):
    """The RPCs of CommitService; contracts in protos/leman/v1/commit.proto."""

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
        request_id = convert_commits.required_text(request.request_id, "request_id")
        remembered = await self._memory.ended((uri, request_id))
        if remembered is not None and not (remembered.outcomes or remembered.rows):
            return commit_pb2.GetCommitResponse(commit=convert_commits.schema_change_to_proto(request_id, remembered))
        record = await self._readers.run(transactions.find_commit, uri, request_id)
        if record is None:
            raise NotFound(
                "COMMIT_NOT_FOUND",
                f"The history of {uri} has no commit of request {request_id}: send the request again",
                request_id=request_id,
            )
        return commit_pb2.GetCommitResponse(commit=convert_commits.record_to_proto(record))

    async def ListCommits(
        self, request: commit_pb2.ListCommitsRequest, _context: Context
    ) -> commit_pb2.ListCommitsResponse:
        uri = convert_commits.uri_of_ref(request)
        page = paging.read_page(request.page_size, request.page_token, f"ListCommits {uri}")
        before = page.after if isinstance(page.after, int) else 0
        records, go_on = await self._readers.run(transactions.list_commits, uri, before, page.size)
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
        request_id = convert_commits.required_text(request.request_id, "request_id")
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
                    raise Unavailable("DRAINING", "The commit coordinator is stopping: continue from the last token")

    async def OptimizeIndices(
        self, request: commit_pb2.OptimizeIndicesRequest, _context: Context
    ) -> commit_pb2.OptimizeIndicesResponse:
        check_draining(self._draining)
        uri = convert_commits.uri_of_ref(request)
        work = self._indexes.run(column_definitions.optimize_indices, uri, list(request.columns), list(request.names))
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
