"""Jobs that want rows of one fragment at once: all end right, rows are computed once, and no one waits for ever."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
import redis
from pydantic import SecretStr

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_coordinator.commits.commit_requests import AddColumnsRequest
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.server.blocking import BlockingPool
from leman_core.settings import Settings
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.coordination.reservations import reservations_at
from leman_executor.jobs.backfill_run import BackfillRun
from leman_executor.jobs.job_environment import PooledReservations
from leman_planner.catalog.table_catalog import Catalog, NewColumn
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.views.histories.harness import System
from tests.redis_process import RedisProcess

ROWS = 240
LEASE_SECONDS = 0.5
SEEN: list[int] = []


def double(x: int) -> int:
    SEEN.append(x)
    time.sleep(0.002)
    return 2 * x


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    running = System()
    yield running
    running.close()


@pytest.fixture
def server(tmp_path) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path) as running:
        yield running


class Contest:
    """One table with one fragment, and jobs that run at once."""

    def __init__(self, system: System, folder: Path, server: RedisProcess) -> None:
        SEEN.clear()
        self._system = system
        self.database = str(folder)
        self.uri = f"{folder}/t.lance"
        lance.write_dataset(pa.table({"x": pa.array(range(ROWS))}), self.uri, enable_stable_row_ids=True)
        UdfRegistry(self.database).put(
            UdfDefinition("double", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint=f"{__name__}:double")
        )
        wanted = Catalog(LanceTables()).addition(self.database, "t", [NewColumn("y", "double", "1")], "")
        request = AddColumnsRequest(uri=wanted.uri, incarnation="", request_id=wanted.request_id, schema=wanted.schema)
        system._runner.run(system._queues.submit(request))
        defaults = Settings()
        self._settings = defaults.model_copy(
            update={
                "redis": defaults.redis.model_copy(update={"url": SecretStr(server.url)}),
                "executor": defaults.executor.model_copy(update={"reservation_ttl_seconds": LEASE_SECONDS}),
                "writer": defaults.writer.model_copy(update={"stall_idle_checks": 1, "stall_check_seconds": 0.5}),
            }
        )

        self._reservations = reservations_at(server.url, LEASE_SECONDS)
        self._keeping = PooledReservations(self._reservations, BlockingPool(2))

    def run(self, *filters: str) -> list[BackfillRun]:
        """Jobs with these filters, begun at once; all have ended."""
        services = replace(self._system.services, settings=self._settings, reservations=self._keeping)
        runs = []
        for n, where in enumerate(filters):
            spec = BackfillSpec(self.database, "t", "y", where=where)
            runs.append(BackfillRun(Job(f"job-{n}", "", JobState.PLANNING, spec, 0, 0), services))

        async def all_at_once() -> None:
            async with asyncio.timeout(120):
                await asyncio.gather(*(self._run(run) for run in runs))

        self._system._runner.run(all_at_once())
        return runs

    async def _run(self, run: BackfillRun) -> None:
        plan = await run.plan()
        if not await run.ended_at_once(plan):
            await run.run(plan)

    def scope(self) -> str:
        """What the fragment's rows are reserved under."""
        (task,) = PlanMaker(LanceTables()).plan(BackfillSpec(self.database, "t", "y")).tasks
        return f"{hashlib.blake2b(self.uri.encode(), digest_size=8).hexdigest()}:{task.fragment_id}:{task.fingerprint}"

    def values(self) -> dict[int, Any]:
        data = lance.dataset(self.uri).to_table(columns=["x", "y"])
        return dict(zip(data["x"].to_pylist(), data["y"].to_pylist(), strict=True))


@pytest.fixture
def contest(system, tmp_path, server) -> Contest:
    return Contest(system, tmp_path, server)


@pytest.mark.long
def test_jobs_with_overlapping_filters_all_end_right_and_compute_each_row_once(contest):
    filters = [f"x >= {10 * n} AND x < {10 * n + 120}" for n in range(12)]
    runs = contest.run(*filters)
    assert [(run.status.job.state, run.status.job.error) for run in runs] == [(JobState.DONE, None)] * len(filters)
    assert contest.values() == {x: 2 * x if x < 230 else None for x in range(ROWS)}
    assert sorted(SEEN) == list(range(230))


@pytest.mark.parametrize("field", ["0-240-somebody", "0-240-job-dead#1"], ids=["external", "a clock that was set back"])
def test_a_reservation_that_does_not_expire_is_told_and_then_ignored(contest, server, field):
    """It is written again and again, too."""
    client, over = redis.Redis.from_url(server.url), threading.Event()
    key = f"leman:reservation:{contest.scope()}"

    def hold() -> None:
        while not over.wait(0.02):
            client.hset(key, field, "99999999999999")

    client.hset(key, field, "99999999999999")
    holding = threading.Thread(target=hold)
    holding.start()
    begun = time.monotonic()
    try:
        (run,) = contest.run("")
    finally:
        over.set()
        holding.join()
    assert (run.status.job.state, run.status.job.stalls) == (JobState.DONE, ())
    assert time.monotonic() - begun >= 3 * LEASE_SECONDS
    told = [event.message for event in run.status._events if event.kind == "stall"]
    holder = field.split("-", 2)[2].partition("#")[0]
    assert told
    assert told[0].startswith(f"rows 0 to {ROWS - 1} of fragment 0 are reserved by {holder}; waiting for ")
    assert sorted(SEEN) == list(range(ROWS))
    assert contest.values() == {x: 2 * x for x in range(ROWS)}
