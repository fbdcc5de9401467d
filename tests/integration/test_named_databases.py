"""Named databases: three services with one registry, from the SDK, over one address, over HTTP, with roles."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import lance
import pyarrow as pa
import pytest

import leman
from leman import errors
from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    databases_pb2,
    databases_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    planner_pb2,
    tables_pb2,
    tables_pb2_grpc,
)
from leman_coordinator import app as coordinator_app
from leman_core.model.databases import DatabaseLimits, RegisteredDatabase, RegistrationRequest
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.server import interceptors
from leman_core.server.server import start_server
from leman_core.settings import Peers, Server, Settings
from leman_core.storage.database_registry import DatabaseRegistry
from leman_executor.history.job_history import JobHistory
from leman_planner import app as planner_app
from tests.conftest import start_system, stop_system

TOKENS = """
[[token]]
name = "operator"
token = "operator-operator"
roles = ["admin", "service"]
[[token]]
name = "looker"
token = "looker-looker-looker"
roles = ["reader"]
"""
OPERATOR, LOOKER = "operator-operator", "looker-looker-looker"


@contextlib.contextmanager
def services(folder: Path, **server: object) -> Iterator[SimpleNamespace]:
    """A planner and a commit coordinator on a loop of their own, each other's peers; the planner speaks HTTP."""
    (folder / "tokens.toml").write_text(TOKENS)
    common = {"tokens_file": str(folder / "tokens.toml"), "registry": str(folder / "registry"), **server}
    loop, stop, ready, found = asyncio.new_event_loop(), asyncio.Event(), threading.Event(), SimpleNamespace()

    async def serve() -> None:
        async with contextlib.AsyncExitStack() as stack:

            async def up(name, module, **sections):
                settings, draining = Settings(**sections), asyncio.Event()
                running = await start_server(settings, name, module.create(settings, draining), draining)
                stack.push_async_callback(running.stop)
                return running

            peers = {"token": OPERATOR}
            coordinator = await up("commit_coordinator", coordinator_app, server=Server(**common), peers=Peers(**peers))
            found.coordinator = f"127.0.0.1:{coordinator.port}"
            peers["commit_coordinator"] = found.coordinator
            planner = await up("planner", planner_app, server=Server(**common, http_port=0), peers=Peers(**peers))
            found.planner, found.http = f"127.0.0.1:{planner.port}", planner.http.port
            peers = {"token": OPERATOR, "planner": found.planner}
            front = await up("commit_coordinator", coordinator_app, server=Server(**common), peers=Peers(**peers))
            found.front = f"127.0.0.1:{front.port}"
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    with services(folder, registry_seconds=0) as running:  # names get other roots from test to test
        running.folder = folder
        yield running


@pytest.fixture
def registered(up):
    with leman.databases(up.planner, token=OPERATOR) as found:
        yield found
        for database in found.all():
            found.unregister(database.name, force=True)


def reason_of(call, *arguments, **options):
    with pytest.raises(errors.LemanError) as caught:
        call(*arguments, **options)
    return type(caught.value).__name__, caught.value.reason


def test_a_database_is_registered_described_changed_and_unregistered(up, registered, tmp_path):
    made = registered.register("lake", tmp_path / "lake", description="docs", labels={"team": "search"})
    assert (made.name, made.root, made.description, made.labels) == (
        "lake",
        f"{tmp_path}/lake",
        "docs",
        {"team": "search"},
    )
    assert registered.get("lake") == made
    assert not (tmp_path / "lake").exists()
    changed = registered.update("lake", labels={})
    assert (changed.description, changed.labels) == ("docs", {})
    assert changed.updated_at > made.updated_at
    assert changed.created_at == made.created_at
    assert registered.update("lake", description="").description == ""
    registered.register("another", "file:///data/./another/")
    assert [(d.name, d.root) for d in registered.all()] == [
        ("another", "/data/another"),
        ("lake", f"{tmp_path}/lake"),
    ]
    registered.unregister("another")
    assert reason_of(registered.get, "another") == ("NotFound", "DATABASE_NOT_REGISTERED")
    assert reason_of(registered.unregister, "another") == ("NotFound", "DATABASE_NOT_REGISTERED")
    assert reason_of(registered.register, "lake", "/other") == ("AlreadyExists", "DATABASE_EXISTS")
    assert reason_of(registered.register, "other", tmp_path / "lake") == ("AlreadyExists", "DATABASE_EXISTS")
    for name in ("a b", "-a", "x" * 64, "a/b"):
        assert reason_of(registered.register, name, "/other") == ("InvalidArgument", "BAD_DATABASE_NAME")
    for text in ("x" * 1001, "x\x1b[2J", "x\u202e"):
        assert reason_of(registered.register, "big", "/other", description=text) == ("InvalidArgument", "BAD_TEXT")
    limited = registered.update("lake", limits=leman.DatabaseLimits(max_running_jobs=2))
    assert limited.limits == leman.DatabaseLimits(2, None) == registered.get("lake").limits
    assert registered.update("lake", description="x").limits == limited.limits
    assert registered.update("lake", limits=leman.DatabaseLimits(max_waiting_jobs=0)).limits.max_waiting_jobs == 0
    assert registered.update("lake", limits=leman.DatabaseLimits()).limits == leman.DatabaseLimits()
    with pytest.raises(ValueError, match="max_running_jobs"):
        registered.register("big", "/other", limits=leman.DatabaseLimits(max_running_jobs=0))
    assert reason_of(registered.register, "big", "/other", labels={"": "x"}) == ("InvalidArgument", "BAD_LABEL")


def test_a_name_is_a_database_wherever_one_is_named(up, registered, tmp_path):
    """Tables are made by the coordinator and found by the planner, each of which resolves the name itself."""
    registered.register("lake", tmp_path / "lake")
    with leman.connect(up.planner, database="lake", token=OPERATOR, direct=False) as db:
        assert db.uri == f"{tmp_path}/lake"
        db.create_table("docs", {"n": [1, 2, 3]})
    channels = [grpc.insecure_channel(address) for address in (up.planner, up.coordinator)]
    metadata = (("authorization", f"Bearer {OPERATOR}"),)
    tables = catalog_pb2_grpc.CatalogServiceStub(channels[0])
    rows = tables_pb2_grpc.TableServiceStub(channels[1])
    ref = catalog_pb2.TableRef(database="lake", table="docs")
    listed = tables.ListTables(catalog_pb2.ListTablesRequest(database="lake"), metadata=metadata)
    described = tables.DescribeTable(catalog_pb2.DescribeTableRequest(table=ref), metadata=metadata)
    deleted = rows.DeleteRows(
        tables_pb2.DeleteRowsRequest(table=ref, where="n = 2", request_id="one"), metadata=metadata
    )
    path = catalog_pb2.TableRef(database=f"{tmp_path}/lake", table="docs")
    again = rows.DeleteRows(
        tables_pb2.DeleteRowsRequest(table=path, where="n = 2", request_id="one"), metadata=metadata
    )
    for channel in channels:
        channel.close()
    assert list(listed.tables) == ["docs"]
    assert described.uri == f"{tmp_path}/lake/docs.lance", "answers name the place"
    assert deleted == again, "a name and its root are one database, also for request ids"
    assert lance.dataset(described.uri).to_table()["n"].to_pylist() == [1, 3]


def test_a_name_that_is_not_registered_is_told(up):
    assert reason_of(leman.connect, up.planner, database="nowhere", token=OPERATOR) == (
        "NotFound",
        "DATABASE_NOT_REGISTERED",
    )
    with grpc.insecure_channel(up.coordinator) as channel:
        request = tables_pb2.DropTableRequest(table=catalog_pb2.TableRef(database="nowhere", table="t"))
        with pytest.raises(grpc.RpcError) as caught:
            tables_pb2_grpc.TableServiceStub(channel).DropTable(
                request, metadata=(("authorization", f"Bearer {OPERATOR}"),)
            )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_service_that_does_not_serve_it_passes_it_on(up, registered):
    registered.register("lake", "/data/lake")
    with leman.databases(up.front, token=LOOKER) as looked:
        looked._services._locator.locate = lambda: looked._services._endpoints  # the front alone
        looked._services._endpoints = leman._wire.channel.Endpoints(up.front, up.front, up.front, token=LOOKER)
        assert [d.name for d in looked.all()] == ["lake"]
        assert reason_of(looked.unregister, "lake") == ("PermissionDenied", "ROLE_REQUIRED")


def test_readers_read_and_admins_write(up, registered):
    registered.register("lake", "/data/lake")
    with leman.databases(up.planner, token=LOOKER) as looked:
        assert looked.get("lake").root == "/data/lake"
        assert [d.name for d in looked.all()] == ["lake"]
        for call, arguments in (
            (looked.register, ("other", "/data/other")),
            (looked.update, ("lake",)),
            (looked.unregister, ("lake",)),
        ):
            options = {"description": "x"} if call == looked.update else {}
            assert reason_of(call, *arguments, **options) == ("PermissionDenied", "ROLE_REQUIRED")
    assert reason_of(leman.databases, up.planner, token="nobody-knows-this-one")[1] == "TOKEN_INVALID"


def test_json_over_http(up, registered):
    registered.register("lake", "/data/lake", labels={"team": "search"})

    def post(method, body):
        call = urllib.request.Request(
            f"http://127.0.0.1:{up.http}/leman.v1.{method}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {LOOKER}"},
        )
        try:
            with urllib.request.urlopen(call, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.status, json.load(error)

    status, found = post("DatabaseService/ListDatabases", {})
    assert status == 200
    assert [(d["name"], d["root"], d["labels"]) for d in found["databases"]] == [
        ("lake", "/data/lake", {"team": "search"})
    ]
    assert post("CatalogService/ListTables", {"database": "lake"}) == (200, {})
    assert post("CatalogService/ListTables", {"database": "nowhere"})[0] == 404


def test_who_registered_what_is_in_the_log():
    request = databases_pb2.RegisterDatabaseRequest(database={"name": "lake", "root": "/data/lake"}, request_id="one")
    assert interceptors.named_subjects(request) == {"name": "lake", "root": "/data/lake"}
    assert interceptors.named_subjects(databases_pb2.UnregisterDatabaseRequest(name="lake", force=True)) == {
        "name": "lake"
    }


def test_a_database_with_jobs_keeps_its_name_unless_forced(registered, tmp_path):
    registered.register("lake", tmp_path)
    history = JobHistory(str(tmp_path))
    history.prepare()
    history.save(Job("job-7", "", JobState.RUNNING, BackfillSpec(str(tmp_path), "u", "c"), 1.0, 2.0))
    with pytest.raises(errors.FailedPrecondition, match="job-7") as caught:
        registered.unregister("lake")
    assert caught.value.reason == "DATABASE_IN_USE"
    registered.unregister("lake", force=True)
    assert registered.all() == []


def test_pages(registered, up):
    for n in range(5):
        registered.register(f"d{n}", f"/data/{n}")
    with grpc.insecure_channel(up.planner) as channel:
        stub, metadata = databases_pb2_grpc.DatabaseServiceStub(channel), (("authorization", f"Bearer {LOOKER}"),)
        names, token = [], ""
        while True:
            request = databases_pb2.ListDatabasesRequest(page_size=2, page_token=token)
            page = stub.ListDatabases(request, metadata=metadata)
            names.append([database.name for database in page.databases])
            token = page.next_page_token
            if not token:
                break
    assert names == [["d0", "d1"], ["d2", "d3"], ["d4"]]


def test_registered_databases_alone(tmp_path):
    """An operator forbids paths: then what has a name can be reached, and nothing else."""
    with services(tmp_path, registered_databases_only=True) as up:
        with leman.databases(up.planner, token=OPERATOR) as registered:
            registered.register("lake", tmp_path / "lake")
        with leman.connect(up.planner, database="lake", token=OPERATOR, direct=False) as db:
            table = db.create_table("docs", pa.table({"n": [1, 2]}))
            table.add_columns({"twice": "n * 2"})
            assert db.table_names() == ["docs"]
        with leman.connect(tmp_path / "elsewhere", up.planner, token=OPERATOR, direct=False) as db:
            assert reason_of(db.table_names) == ("PermissionDenied", "DATABASE_NOT_ALLOWED")
            assert reason_of(db.create_table, "docs", {"n": [1]})[1] == "DATABASE_NOT_ALLOWED"


def held_by(path: Path):
    """A function that waits for a file."""

    def held(n: int) -> int:
        import time

        while not path.exists():
            time.sleep(0.01)
        return n

    return held


def test_jobs_of_a_named_database(tmp_path):
    """All three services, as they run: a column and a view are computed in a database that only its name tells of."""
    limits = DatabaseLimits(max_running_jobs=1, max_waiting_jobs=0)
    lake = RegisteredDatabase(name="lake", root=f"{tmp_path}/lake", limits=limits, created_at=1.0, updated_at=1.0)
    DatabaseRegistry(str(tmp_path / "registry")).register(lake, RegistrationRequest("", ""))
    running = start_system(tmp_path / "own", LEMAN_SERVER__REGISTRY=str(tmp_path / "registry"))
    try:
        endpoint, token = str(running.service["executor"]), str(running.service["token"])
        with leman.connect(endpoint, database="lake", token=token) as db:
            docs = db.create_table("docs", {"n": [1, 2, 3]})
            docs.add_columns({"twice": "n * 2"})
            docs.backfill("twice", progress=False)
            view = docs.search(None).where("n > 1").create_materialized_view(db, "large")
            assert view.refresh(progress=False).rows_added == 2
            docs.add_columns({"held": leman.udf(version="1", data_type=pa.int64())(held_by(tmp_path / "go"))})
            holding = docs.backfill_async("held")
            with pytest.raises(errors.ResourceExhausted, match="as its registration allows"):
                view.refresh_async()
            (tmp_path / "go").touch()
            holding.result(60)
        with grpc.insecure_channel(endpoint) as channel:
            jobs, metadata = jobs_pb2_grpc.JobServiceStub(channel), (("authorization", f"Bearer {token}"),)
            spec = planner_pb2.BackfillSpec(table={"database": "lake", "table": "docs"}, column="twice")
            request = jobs_pb2.CreateJobRequest(backfill=spec, request_id="one")
            job = jobs.CreateJob(request, metadata=metadata).job
            request.backfill.table.database = f"{tmp_path}/lake"
            again = jobs.CreateJob(request, metadata=metadata).job
            listed = jobs.ListJobs(jobs_pb2.ListJobsRequest(database="lake"), metadata=metadata).jobs
        assert job.backfill.table.database == f"{tmp_path}/lake", "answers name the place"
        assert again.job_id == job.job_id, "a name and its root are one database, also for request ids"
        assert {found.job_id for found in listed} >= {job.job_id}
        assert len(listed) == 4
    finally:
        stop_system(running)


def test_services_without_a_registry_say_so(system):
    with leman.databases(str(system.service["executor"]), token=str(system.service["token"])) as registered:
        for call, arguments in (
            (registered.all, ()),
            (registered.get, ("lake",)),
            (registered.register, ("lake", "/data/lake")),
            (registered.unregister, ("lake",)),
        ):
            assert reason_of(call, *arguments) == ("FailedPrecondition", "REGISTRY_NOT_SET")
