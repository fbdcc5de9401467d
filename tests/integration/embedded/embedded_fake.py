"""An embedded system whose three services are small: as a service (`run ... planner`) and as the supervisor's main."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import grpc

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.server.server import main
from leman_core.settings import Settings
from leman_local import __main__ as embedded
from leman_local import local_supervisor, service_process

JOB_SERVICE = jobs_pb2.DESCRIPTOR.services_by_name["JobService"].full_name


class FakeService(jobs_pb2_grpc.JobServiceServicer):
    """Has a helper below it that lives as long as its standard input, like a JVM; is busy while a file says so."""

    def __init__(self, settings: Settings) -> None:
        self.folder = Path(settings.embedded.database or Path(settings.embedded.databases_file).parent)
        self.redis_url = settings.redis.url.get_secret_value()
        self.helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=0)

    async def start(self, server: grpc.aio.Server, _locations: object) -> list[str]:
        sys.stdout.write("not a line about itself\n")
        jobs_pb2_grpc.add_JobServiceServicer_to_server(self, server)
        return [JOB_SERVICE]

    async def stop(self) -> None:
        """Leaves its helper to the supervisor."""

    def busy(self) -> bool:
        with (self.folder / "asked").open("a") as asked:
            asked.write("?")
        return (self.folder / "busy").exists()

    async def GetJob(self, request, context):
        return jobs_pb2.GetJobResponse(job=jobs_pb2.Job(job_id=self.redis_url))


def fake_service(settings: Settings, draining: asyncio.Event) -> FakeService:
    return FakeService(settings)


def run(arguments: list[str]) -> int:
    if arguments[0] in local_supervisor.COMMANDS:
        if os.environ.get("FAKE_FAILS") == arguments[0]:
            sys.exit("no Java here")
        return main(arguments[0], fake_service)
    for name in local_supervisor.COMMANDS:
        local_supervisor.COMMANDS[name] = service_process.module_command(
            "tests.integration.embedded.embedded_fake", name
        )
    return embedded.main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
