"""An executor as it is put together, over a Spark that runs nothing."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from leman.v1 import jobs_pb2, jobs_pb2_grpc
from leman_core.server import healthcheck
from leman_core.server.server import start_server
from leman_core.settings import Settings
from leman_core.telemetry.instruments import FUNCTIONS_AVAILABLE
from leman_executor.app import Executor
from leman_executor.spark import worker_problems
from leman_executor.spark.spark_conf import CallbackAddress

DEADLINE = 30.0
NO_PYTHON = 'java.io.IOException: Cannot run program "/opt/leman/bin/python": error=2, No such file or directory'


class IdleSpark:
    """It is there."""

    address = CallbackAddress("127.0.0.1", "127.0.0.1")
    lacks_archive = False
    trouble = None
    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_it_answers_and_stops(tmp_path, monkeypatch):
    for peer in ("PLANNER", "COMMIT_COORDINATOR"):
        monkeypatch.setenv(f"LEMAN_PEERS__{peer}", "127.0.0.1:1")

    async def scenario() -> None:
        spark, draining = IdleSpark(), asyncio.Event()
        service = Executor(Settings(), draining, spark)
        up = await start_server(Settings(), "executor", service, draining)
        assert "leman.v1.JobService" in up.names
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            jobs = jobs_pb2_grpc.JobServiceStub(channel)
            listed = await jobs.ListJobs(jobs_pb2.ListJobsRequest(database=str(tmp_path)))
            assert list(listed.jobs) == []
            with pytest.raises(grpc.aio.AioRpcError, match="Job job-1 does not exist"):
                await jobs.GetJob(jobs_pb2.GetJobRequest(database=str(tmp_path), job_id="job-1"))
            assert service.abilities() == {"leman.functions": None}
            assert FUNCTIONS_AVAILABLE.values() == [(1.0, {})]
            spark.trouble = worker_problems.unusable_python(NO_PYTHON, "10.0.0.7", "/opt/leman/bin/python")
            assert service.abilities() == {"leman.functions": spark.trouble}
            assert FUNCTIONS_AVAILABLE.values() == [(0.0, {})]
            listed = await jobs.ListJobs(jobs_pb2.ListJobsRequest(database=str(tmp_path)))
            assert list(listed.jobs) == []
            assert await asyncio.to_thread(healthcheck.check, f"127.0.0.1:{up.port}") == "", "calls are answered"
        await up.stop()
        assert spark.stopped

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
