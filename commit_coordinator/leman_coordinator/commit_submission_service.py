"""CommitSubmissionService: the way in which the executor and the planner have things committed."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import grpc

from leman_coordinator import convert_commits
from leman_coordinator.commit_queues import CommitQueues
from leman_coordinator.draining import check_draining
from leman_coordinator.request_deduplication import RequestMemory
from leman_core.server.request_digest import body_digest
from leman_internal.v1 import submission_pb2, submission_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class CommitSubmissionServicer(submission_pb2_grpc.CommitSubmissionServiceServicer):
    """The RPC of CommitSubmissionService; its contract stands in protos/leman/internal/v1/submission.proto."""

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
        )
