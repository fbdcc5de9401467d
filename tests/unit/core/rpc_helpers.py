"""A JobService that behaves as its job ids say, on a real server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.model.service_errors import NotFound, Unavailable
from leman_core.server.callers import Caller, current_caller
from leman_core.server.server import RunningServer, start_server
from leman_core.settings import Peers, Server, Settings

JOB_SERVICE = jobs_pb2.DESCRIPTOR.services_by_name["JobService"].full_name
DEADLINE = 20.0


class FakeService(jobs_pb2_grpc.JobServiceServicer):
    """GetJob answers, fails or waits by job id, CancelJob until `may_end`; WatchJob sends messages until it is stopped
    or drain, of "runs" with the job."""

    def __init__(self, draining: asyncio.Event) -> None:
        self.draining = draining
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ended: list[str] = []
        self.stopped = False
        self.working = False
        self.seen: list[dict[str, str]] = []
        self.databases: list[str] = []
        self.callers: list[Caller | None] = []
        self.fail_first = 0
        self.error: Exception = NotFound("JOB_NOT_FOUND", "there is no such job", job_id="j1")

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        jobs_pb2_grpc.add_JobServiceServicer_to_server(self, server)
        return [JOB_SERVICE]

    async def stop(self) -> None:
        self.stopped = True

    def busy(self) -> bool:
        return self.working

    async def GetJob(self, request, context):
        self.seen.append(dict(context.invocation_metadata()))
        self.callers.append(current_caller())
        self.databases.append(request.database)
        if len(self.seen) <= self.fail_first:
            raise Unavailable("STORE_DOWN", "the store is away")
        if request.job_id == "error":
            raise self.error
        if request.job_id == "hang":
            self.entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()
        summary = "x" * 3_000_000 if request.job_id == "large" else ""
        return jobs_pb2.GetJobResponse(job=jobs_pb2.Job(job_id=request.job_id, plan_summary=summary))

    async def CancelJob(self, request, context):
        self.entered.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self.ended.append(request.job_id)
        return jobs_pb2.CancelJobResponse(job=jobs_pb2.Job(job_id=request.job_id))

    async def WatchJob(self, request, context):
        job = jobs_pb2.Job(job_id="runs", state=jobs_pb2.Job.STATE_RUNNING)
        yield jobs_pb2.WatchJobResponse(sequence=1, job=job if request.job_id == "runs" else None)
        if request.job_id == "error":
            raise self.error
        self.entered.set()
        await self.draining.wait()
        yield jobs_pb2.WatchJobResponse(sequence=2)


@contextlib.asynccontextmanager
async def running(
    server: Server | None = None, *, kind: type[FakeService] = FakeService, **sections: object
) -> AsyncIterator[tuple[RunningServer, FakeService]]:
    """The fake service behind a real server; stopped at the end."""
    settings = Settings(server=server or Server(), **sections)
    draining = asyncio.Event()
    service = kind(draining)
    async with asyncio.timeout(DEADLINE):
        up = await start_server(settings, "executor", service, draining)
        try:
            yield up, service
        finally:
            await up.stop()


@contextlib.asynccontextmanager
async def client(up: RunningServer) -> AsyncIterator[jobs_pb2_grpc.JobServiceStub]:
    """A plain stub, as any caller has."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
        yield jobs_pb2_grpc.JobServiceStub(channel)


def peers(port: int, **more: object) -> Settings:
    """Settings of a service whose executor listens on `port`."""
    return Settings(peers=Peers(executor=f"127.0.0.1:{port}", **more))
