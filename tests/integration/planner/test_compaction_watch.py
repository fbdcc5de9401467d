"""The executor's look at tables that were compacted, between jobs."""

import asyncio
import contextlib
import datetime as dt

import lance
import pytest

from leman_core.model.service_errors import NotFound
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import table_uri
from leman_executor.jobs.checkpoint_maintenance import CompactionWatch, store_traced
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.planner.planner_lake import rows, states, why


class Executor:
    """The real planner, store and table; counts what it is asked for."""

    def __init__(self, lake, *columns):
        self.lake = lake
        self.planned = []
        self.asked = asyncio.Event()
        self.known = [(lake.database, "t", column) for column in columns]
        self.watch = CompactionWatch(self, self, self, LanceTables())

    def columns(self):
        return self.known

    async def create_plan(self, spec):
        self.planned.append((spec.table, spec.column))
        self.asked.set()
        return PlanMaker(LanceTables()).plan(spec)

    async def save_traced(self, plan):
        store_traced(self.lake.store, plan)

    def look(self):
        asyncio.run(self.watch.look())


def lose(lake):
    """The versions that tell of a compaction, and a job comes too late."""
    lance.write_dataset(rows(5, start=30), lake.uri, mode="append")
    lake.open().cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)


def test_what_it_saw_is_known_when_the_history_is_gone(lake):
    lake.fill(lake.plan())
    lake.open().optimize.compact_files()
    Executor(lake, "c").look()
    lose(lake)
    assert list(why(lake.plan()).values()) == ["MISSING"]


def test_all_computed_columns_are_recorded_with_one(lake):
    lake.add_column("d")
    lake.fill(lake.plan("c"))
    lake.fill(lake.plan("d"), states=states(failed=2))
    lake.open().optimize.compact_files()
    Executor(lake, "c").look()
    lose(lake)
    assert list(why(lake.plan("d")).values()) == ["MISSING"]
    assert lake.plan("d").header.rows_failed_before == 6


def test_it_plans_only_where_there_is_a_new_version(lake):
    executor = Executor(lake, "c")
    executor.look()
    executor.look()
    assert executor.planned == [("t", "c")]
    lake.open().update_config({"a": "b"})
    executor.look()
    assert executor.planned == [("t", "c")] * 2


def test_a_table_that_is_gone_or_breaks_does_not_keep_it_from_the_others(lake):
    executor = Executor(lake, "c", "d")
    executor.known += [(lake.database, "a", "c"), (lake.database, "b", "c")]

    class Broken(LanceTables):
        def latest_version(self, uri):
            if uri == table_uri(lake.database, "b"):
                raise ZeroDivisionError
            return super().latest_version(uri)

    executor.watch = CompactionWatch(executor, executor, executor, Broken())
    with pytest.raises(NotFound):
        Broken().latest_version(table_uri(lake.database, "a"))
    executor.look()
    assert executor.planned == [("t", "c"), ("t", "d")]


def test_it_goes_on_looking(lake):
    executor = Executor(lake, "c")

    async def watched():
        running = asyncio.create_task(executor.watch.run(0.001))
        for _ in range(2):
            executor.asked.clear()
            lake.open().update_config({"a": str(len(executor.planned))})
            await asyncio.wait_for(executor.asked.wait(), 30)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(watched())
    assert len(executor.planned) >= 2
