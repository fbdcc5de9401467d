"""Tables, jobs and views in an object store, through all services: also where it is far, busy, and loses answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import leman
from benchmarks.delaying_proxy import DelayingProxy, Harm
from tests.conftest import System, start_system, stop_system
from tests.faults.lake import CallLog, checkpointed, settings, watch_until
from tests.integration.call_log import values
from tests.integration.tables.flight_helpers import bearer, command
from tests.object_store.options import APART, CHECKPOINTS, FAR, FAR_SECONDS, options_file
from tests.object_store.store_server import BUCKET, StoreServer

ROWS = 200
SECONDS = 240


@dataclass(frozen=True)
class Store:
    """Services whose store is behind a proxy."""

    system: System
    proxy: DelayingProxy
    folder: Path

    def connect(self, name: str) -> leman.Database:
        """A database of its own; rows go through the services, which alone have the credentials."""
        service = self.system.service
        place = f"s3://{BUCKET}/{name}"
        return leman.connect(place, endpoint=str(service["executor"]), token=str(service["token"]), direct=False)

    @contextlib.contextmanager
    def harmed(self, harm: Harm | None) -> Iterator[None]:
        """The store is far and unreliable while inside."""
        if harm is not None:
            self.proxy.harm, self.proxy.delay_seconds = harm, FAR_SECONDS
        try:
            yield
        finally:
            self.proxy.harm, self.proxy.delay_seconds = Harm(), 0.0


@pytest.fixture(scope="module")
def on_store(store: StoreServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Services, with a checkpoint every fifth of a second."""
    folder = tmp_path_factory.mktemp("services")
    with DelayingProxy(store.port) as proxy:
        given = {**options_file(folder, proxy.port), **settings(folder)}
        system = start_system(folder / "system", **given)
        yield Store(system, proxy, folder)
        stop_system(system)


@pytest.fixture(params=["near", pytest.param("far", marks=pytest.mark.long)])
def harm(request: pytest.FixtureRequest) -> Harm | None:
    """What is done to requests."""
    return FAR if request.param == "far" else None


def numbers(start: int, rows: int = ROWS) -> pa.Table:
    return pa.table({"x": pa.array(range(start, start + rows), pa.int64())})


#: Requests of a job at the most: one with nothing to do, of one fragment, and of each of many.
IDLE_BUDGET, ONE_BUDGET, EACH_BUDGET = 3, 16, 5
MANY = 32


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_a_job_asks_no_more_of_the_store_than_it_may(on_store):
    @leman.udf(data_type=pa.int64(), version="1")
    def plus(x: int) -> int:
        return x + 1

    def asked(table: leman.Table) -> list[str]:
        before = on_store.proxy.answered()
        table.backfill("y", concurrency=1, progress=False)
        until = on_store.proxy.answered()
        return [f"{request.method} {request.path} {request.query}" for request in on_store.proxy.log[before:until]]

    def asked_of_one_more() -> list[str]:
        """At best: a machine that is slow may make a checkpoint more, or start another worker."""
        found = []
        for _ in range(3):
            one.add(numbers(10, 10))
            found.append(asked(one))
        return min(found, key=len)

    with on_store.connect("asked") as db:
        one, many = (
            db.create_table("one", numbers(0, 10)),
            db.create_table("many", numbers(0, 10 * MANY), max_rows_per_file=10),
        )
        one.add_columns({"y": plus})
        many.add_columns({"y": plus})
        assert asked(one), "the worker has the function's code now"
        idle = asked(one)
        assert len(idle) <= IDLE_BUDGET, idle
        more = asked_of_one_more()
        assert len(more) <= ONE_BUDGET, more
        each = asked(many)
        assert len(each) <= EACH_BUDGET * MANY + ONE_BUDGET - EACH_BUDGET, each
        assert values(many, "y") == {x: x + 1 for x in range(10 * MANY)}


@pytest.mark.timeout(SECONDS)
def test_a_table_from_its_first_row_to_its_view(on_store, harm, request):
    with on_store.connect(request.node.name.replace("[", "-").strip("]")) as db, on_store.harmed(harm):
        table = db.create_table("t", numbers(0), max_rows_per_file=50)
        table.add(numbers(ROWS))

        @leman.udf(data_type=pa.int64())
        def plus(x: int) -> int:
            return x + 1

        table.add_columns({"y": plus, "z": "x * 3"})
        table.backfill("y", progress=False)
        table.backfill("z", progress=False)
        assert table.to_arrow().sort_by("x").to_pydict() == {
            "x": list(range(2 * ROWS)),
            "y": list(range(1, 2 * ROWS + 1)),
            "z": list(range(0, 6 * ROWS, 3)),
        }

        view = db.create_materialized_view("v", table.search().where("x >= 100").select(["x", "y"]))
        view.refresh(progress=False)
        table.delete("x = 150")
        table.add(pa.table({"x": pa.array([1000], pa.int64())}))
        table.backfill("y", progress=False)
        assert view.refresh(progress=False).rows_added == 1
        kept = [x for x in (*range(100, 2 * ROWS), 1000) if x != 150]
        assert view.to_arrow().sort_by("x").to_pydict() == {"x": kept, "y": [x + 1 for x in kept]}

        again = db.job(table.backfill("y", progress=False))
        assert (again.state, again.progress.rows_evaluated) == (leman.JobState.DONE, 0)
        table.collect_checkpoints(older_than="0")
        found = db.verify()
        assert found.sound, found.findings
        assert sorted(db.table_names()) == ["t", "v"]
        db.drop_view("v")
        db.drop_table("t")
        assert db.table_names() == []


def test_flight_reads_and_writes(on_store):
    with on_store.connect("flight") as db:
        db.create_table("t", numbers(0))
        service, more = on_store.system.service, numbers(ROWS)
        shown = bearer(str(service["token"]))
        with fl.connect(f"grpc://{service['commit_coordinator']}") as client:
            writer, answers = client.do_put(command(db.uri), more.schema, shown)
            with writer:
                writer.write_table(more)
                writer.done_writing()
                answers.read()
            info = client.get_flight_info(command(db.uri), shown)
            found = pa.concat_tables(client.do_get(end.ticket, shown).read_all() for end in info.endpoints)
        assert sorted(found.column("x").to_pylist()) == list(range(2 * ROWS))


@pytest.mark.long
def test_checkpoints_in_a_place_of_their_own_are_gone_on_from_and_collected(on_store):
    log, mended = on_store.folder / "apart.txt", on_store.folder / "mended"
    seen_file, flag = str(log), str(mended)

    @leman.udf(data_type=pa.int64())
    def double(x: int) -> int:
        import pathlib

        with pathlib.Path(seen_file).open("a") as seen:
            seen.write(f"{x}\n")
        if x == 150 and not pathlib.Path(flag).exists():
            raise ValueError("not yet")
        return 2 * x

    with on_store.connect(f"{APART}/db") as db:
        table = db.create_table("t", numbers(0))
        table.add_columns({"y": double})
        with pytest.raises(leman.JobFailed):
            table.backfill("y", concurrency=1, checkpoint_size=10, progress=False)
        kept = sum(found.end - found.start for found in table.checkpoints() if found.kind == "checkpoint")
        assert kept >= 100
        log.unlink()
        mended.touch()
        table.backfill("y", checkpoint_size=10, progress=False)
        assert len(log.read_text().split()) == ROWS - kept
        assert table.to_arrow().sort_by("x").to_pydict()["y"] == [2 * x for x in range(ROWS)]

        put = [path for method, path in on_store.proxy.requests if method == "PUT" and "/_checkpoints/" in path]
        apart = [path for path in put if f"/{CHECKPOINTS}/db/t.lance/" in path]
        assert len(apart) >= kept / 10
        assert not [path for path in put if f"/{APART}/" in path]
        assert db.verify().sound
        assert table.collect_checkpoints(older_than="0").files_removed == len(apart)
        assert not table.checkpoints()


@pytest.mark.timeout(SECONDS)
@pytest.mark.faults
@pytest.mark.long
def test_what_was_computed_is_not_computed_again_after_a_kill(on_store, harm, request):
    """kill -9 of the executor, with Spark and all functions; the next one continues from the checkpoints in the
    store."""
    rows = 1200
    name = request.node.name.replace("[", "-").strip("]")
    call_log = CallLog(on_store.folder, name)
    with on_store.connect(name) as db, on_store.harmed(harm):
        table = db.create_table("t", numbers(0, rows), max_rows_per_file=1 << 20)
        table.add_columns({"y": call_log.double()})
        future = table.backfill_async("y", task_size=300)
        watch_until(future, checkpointed(rows // 3))
        victim = psutil.Process(int(on_store.system.service["pids"]["executor"]))
        victim.kill()
        assert len(call_log.seen()) < rows, "nothing was left to do"

        job = db.job(future.result(timeout=SECONDS / 2))
        assert job.state is leman.JobState.DONE
        assert table.to_arrow().sort_by("x").to_pydict()["y"] == [2 * x for x in range(rows)]
        assert call_log.again() < rows // 3
        assert db.verify().sound


@pytest.mark.timeout(SECONDS)
@pytest.mark.long
def test_writers_at_the_same_moment_lose_nothing(on_store, harm, request):
    name = request.node.name.replace("[", "-").strip("]")
    with on_store.connect(name) as db, on_store.harmed(harm):
        db.create_table("t", numbers(0))
        threads = [
            threading.Thread(target=lambda n=n: db.open_table("t").add(numbers(n * ROWS)), name=f"writer-{n}")
            for n in range(1, 9)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(db.open_table("t").to_arrow().column("x").to_pylist()) == list(range(9 * ROWS))
