"""Assemble a commit coordinator: its servicers, and the commit queues that they share."""

from __future__ import annotations

import asyncio

import grpc

from leman.v1 import commit_pb2, commit_pb2_grpc, tables_pb2, tables_pb2_grpc
from leman_coordinator.commit_service import CommitServicer, CommitSubmissionServicer
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import RequestMemory
from leman_coordinator.flight_service import FlightServicer, add_flight
from leman_coordinator.flight_sql import Catalogs
from leman_coordinator.lance_io.row_reading import RowReads
from leman_coordinator.table_service import TableServicer
from leman_coordinator.tables.drop_and_rename import Names
from leman_coordinator.tables.row_uploads import Uploads
from leman_core.server.database_locations import DatabaseLocations
from leman_core.server.routes import FLIGHT
from leman_core.settings import Settings
from leman_internal.v1 import submission_pb2, submission_pb2_grpc

#: The number of fragments whose outcomes are remembered, which takes about 20 MB.
REMEMBERED = 100_000
_SERVICES = (
    commit_pb2.DESCRIPTOR.services_by_name["CommitService"].full_name,
    submission_pb2.DESCRIPTOR.services_by_name["CommitSubmissionService"].full_name,
    tables_pb2.DESCRIPTOR.services_by_name["TableService"].full_name,
    FLIGHT.full_name,
)


def create(settings: Settings, draining: asyncio.Event) -> CommitCoordinator:
    """Create the commit coordinator; see `leman_core.server.server.Factory`."""
    return CommitCoordinator(settings, draining)


class CommitCoordinator:
    """The commit coordinator's process, see `leman_core.server.server.Service`."""

    def __init__(self, settings: Settings, draining: asyncio.Event) -> None:
        self._limits = Limits(
            version_conflict_max_retries=settings.commit.version_conflict_max_retries,
            max_queued_requests=settings.commit.max_queued_requests,
        )
        self._settings = settings.commit
        self._draining = draining
        self._servicer: CommitServicer | None = None
        self._reads: RowReads | None = None
        self._uploads: Uploads | None = None
        self._names: Names | None = None

    async def start(self, server: grpc.aio.Server, locations: DatabaseLocations) -> list[str]:
        """Add CommitService, CommitSubmissionService, TableService and FlightService; return their names."""
        queues = CommitQueues(self._limits)
        memory = RequestMemory(REMEMBERED, queues.holds)
        self._names = Names(queues, memory)
        alone = self._settings.alone
        self._servicer = CommitServicer(queues, memory, self._names, self._draining, locations.roots, alone=alone)
        commit_pb2_grpc.add_CommitServiceServicer_to_server(self._servicer, server)
        read_whole = self._settings.read_whole_files
        submissions = CommitSubmissionServicer(queues, memory, self._draining, read_whole_files=read_whole)
        submission_pb2_grpc.add_CommitSubmissionServiceServicer_to_server(submissions, server)
        self._reads = reads = RowReads(self._settings.max_reads)
        self._uploads = uploads = Uploads(self._settings, queues, memory)
        tables = TableServicer(reads, uploads, queues, memory, self._names, self._draining)
        tables_pb2_grpc.add_TableServiceServicer_to_server(tables, server)
        catalogs = Catalogs(locations)
        add_flight(FlightServicer(reads, uploads, queues, memory, catalogs, self._draining), server)
        return list(_SERVICES)

    async def stop(self) -> None:
        """Wait for running commits, then close."""
        if self._uploads is not None:
            await self._uploads.close()
        if self._reads is not None:
            self._reads.close()
        if self._servicer is not None:
            await self._servicer.close()
        if self._names is not None:
            self._names.close()
