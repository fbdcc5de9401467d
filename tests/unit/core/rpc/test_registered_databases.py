"""Names of databases in requests: what they stand for, how fresh that is, what a registry out of reach means."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leman.v1 import catalog_pb2, databases_pb2, jobs_pb2
from leman_core.model.databases import RegisteredDatabase, Registrations
from leman_core.model.service_errors import (
    AlreadyExists,
    DataLoss,
    InvalidArgument,
    LemanError,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from leman_core.server.database_locations import DatabaseLocations, configured_locations, hide_links
from leman_core.settings import Server
from leman_core.storage.database_roots import DatabaseRoots
from leman_core.storage.locations import is_database_name
from leman_internal.v1 import submission_pb2
from leman_planner.database_service import DatabaseServicer


class Kept:
    """A registry in memory that counts how often it is read."""

    def __init__(self, **roots):
        self.roots = roots
        self.damaged = frozenset()
        self.error = None
        self.reads = 0
        self.gate = None
        self.begun = threading.Event()

    def read(self):
        self.reads += 1
        self.begun.set()
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error
        by_name = {
            name: RegisteredDatabase(name=name, root=root, created_at=1.0, updated_at=1.0)
            for name, root in self.roots.items()
        }
        return Registrations(by_name=by_name, damaged=self.damaged)


class World:
    """The places of a server whose clock stands still."""

    def __init__(self, kept, *, alone=False, roots=()):
        self.kept = kept
        self.now = 100.0
        self.locations = DatabaseLocations(DatabaseRoots(roots), kept, seconds=5.0, alone=alone, clock=lambda: self.now)

    async def place(self, database, *, from_peer=False):
        request = catalog_pb2.ListTablesRequest(database=database)
        await self.locations.resolve(request, from_peer=from_peer)
        return request.database

    async def refused(self, database, kind, **options):
        with pytest.raises(kind) as caught:
            await self.place(database, **options)
        return caught.value.reason


def run(scenario):
    async def bounded():
        async with asyncio.timeout(30):
            return await scenario()

    return asyncio.run(bounded())


@pytest.fixture
def kept():
    return Kept(lake="/data/lake", other="s3://bucket/other")


@pytest.fixture
def world(kept):
    return World(kept)


@pytest.mark.parametrize("name", ["lake", "L", "0", "a-b_c", "x" * 63, "_x"[1:]])
def test_names(name):
    assert is_database_name(name)


@pytest.mark.parametrize(
    "text", ["", "/lake", "a/b", "s3://x", "a.b", "-a", "_a", "x" * 64, "lake ", "läke", "a\n", "."]
)
def test_no_names(text):
    assert not is_database_name(text)


def test_names_paths_and_uris_stand_for_places(world, kept):
    async def scenario():
        return [await world.place(text) for text in ("lake", "other", "/data/./x/", "S3://bucket/y/", "lake")]

    assert run(scenario) == ["/data/lake", "s3://bucket/other", "/data/x", "s3://bucket/y", "/data/lake"]
    assert kept.reads == 1


def test_every_place_of_a_request_may_be_a_name(world):
    async def scenario():
        view = catalog_pb2.CreateMaterializedViewRequest(view=catalog_pb2.TableRef(database="lake", table="v"))
        view.query.source.database = "other"
        job = jobs_pb2.CreateJobRequest()
        job.backfill.table.database = "lake"
        for request in (view, job):
            await world.locations.resolve(request, from_peer=False)
        return view, job

    view, job = run(scenario)
    assert (view.view.database, view.query.source.database) == ("/data/lake", "s3://bucket/other")
    assert job.backfill.table.database == "/data/lake"


def test_what_is_to_have_a_name_is_a_place(world):
    async def scenario():
        request = databases_pb2.RegisterDatabaseRequest(database={"name": "lake", "root": "file:///data/./x/"})
        await world.locations.resolve(request, from_peer=False)
        named = databases_pb2.RegisterDatabaseRequest(database={"name": "new", "root": "lake"})
        with pytest.raises(InvalidArgument) as caught:
            await world.locations.resolve(named, from_peer=False)
        return request.database, caught.value

    database, error = run(scenario)
    assert (database.name, database.root) == ("lake", "/data/x")
    assert (error.reason, error.field) == ("BAD_DATABASE", "database.root")


def test_an_unknown_name_is_looked_for_at_once_and_a_known_one_holds_for_a_while(world, kept):
    async def scenario():
        found = [await world.refused("new", NotFound)]
        kept.roots["new"], kept.roots["lake"] = "/data/new", "/data/elsewhere"
        found += [await world.place("new"), await world.place("lake")]
        del kept.roots["new"]
        found.append(await world.place("new"))
        world.now += 5.1
        found += [await world.refused("new", NotFound), await world.place("lake")]
        return found

    assert run(scenario) == [
        *("DATABASE_NOT_REGISTERED", "/data/new", "/data/elsewhere"),
        *("/data/new", "DATABASE_NOT_REGISTERED", "/data/elsewhere"),
    ]
    assert kept.reads == 3


def test_those_who_ask_at_once_share_a_reading_that_began_after_they_asked(world, kept):
    """A reading that has begun before may not have seen what was registered since."""

    async def scenario():
        kept.gate = threading.Event()
        first = asyncio.create_task(world.place("lake"))
        assert await asyncio.to_thread(kept.begun.wait, 10)
        kept.roots["new"] = "/data/new"
        world.now += 0.1
        later = [asyncio.create_task(world.place("new")) for _ in range(20)]
        await asyncio.sleep(0)
        kept.gate.set()
        return await asyncio.gather(first, *later)

    assert run(scenario) == ["/data/lake"] + ["/data/new"] * 20
    assert kept.reads == 2


def test_names_hold_although_the_registry_cannot_be_read(world, kept):
    async def scenario():
        await world.place("lake")
        world.now += 6
        kept.error = Unavailable("STORE_UNAVAILABLE", "gone")
        found = [await world.place("lake"), await world.refused("new", Unavailable), await world.place("/data/x")]
        kept.error, kept.roots = None, {"new": "/data/new"}
        return [*found, await world.place("new"), await world.refused("lake", NotFound)]

    assert run(scenario) == ["/data/lake", "STORE_UNAVAILABLE", "/data/x", "/data/new", "DATABASE_NOT_REGISTERED"]


def test_a_registry_that_was_never_read_names_nothing(world, kept):
    kept.error = Unavailable("STORE_UNAVAILABLE", "gone")

    async def scenario():
        return await world.refused("lake", Unavailable), await world.place("/data/x")

    assert run(scenario) == ("STORE_UNAVAILABLE", "/data/x")


def test_a_damaged_registration_is_told(world, kept):
    kept.damaged = frozenset({"broken"})
    assert run(lambda: world.refused("broken", DataLoss)) == "REGISTRATION_DAMAGED"


def test_where_only_registered_databases_are_taken_their_roots_are_too(kept):
    world = World(kept, alone=True)

    async def scenario():
        named = [await world.place(text) for text in ("lake", "/data/lake/", "s3://bucket/other")]
        others = [await world.refused(text, PermissionDenied) for text in ("/data", "/data/lake/x", "s3://bucket")]
        kept.roots["new"] = "/data/new"
        named.append(await world.place("/data/new"))
        return named, others

    named, others = run(scenario)
    assert named == ["/data/lake", "/data/lake", "s3://bucket/other", "/data/new"]
    assert others == ["DATABASE_NOT_ALLOWED"] * 3


def test_services_among_themselves_name_places(kept):
    """A job that runs goes on although its database has lost its name."""
    world = World(kept, alone=True)

    async def scenario():
        request = submission_pb2.SubmitCommitRequest(uri="/data/gone/t.lance")
        await world.locations.resolve(request, from_peer=True)
        with pytest.raises(PermissionDenied):
            await world.locations.resolve(request, from_peer=False)
        return request.uri, await world.refused("lake", InvalidArgument, from_peer=True)

    assert run(scenario) == ("/data/gone/t.lance", "BAD_DATABASE")


def test_a_name_does_not_lead_out_of_the_roots(kept):
    world = World(kept, roots=("/data",))

    async def scenario():
        return await world.place("lake"), await world.refused("other", PermissionDenied)

    assert run(scenario) == ("/data/lake", "DATABASE_NOT_ALLOWED")


def test_errors_call_a_database_by_the_name_that_the_caller_gave(kept, tmp_path):
    """Also a link that was followed before the name was looked for."""
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    world = World(kept)
    request = catalog_pb2.CreateMaterializedViewRequest()
    request.view.database, request.query.source.database = f"{tmp_path}/way", "lake"

    async def scenario():
        return (await world.locations.resolve(request, from_peer=False)).linked

    linked = run(scenario)
    assert linked == {f"{tmp_path}/real": f"{tmp_path}/way", "/data/lake": "lake"}
    error = NotFound("TABLE_NOT_FOUND", f"no {tmp_path}/real/v.lance, no /data/lake/t.lance", uri="/data/lake/t.lance")
    hide_links(error, linked)
    assert error.message == f"no {tmp_path}/way/v.lance, no lake/t.lance"
    assert error.facts == {"uri": "lake/t.lance"}


def test_errors_call_a_root_as_the_caller_spelt_it(kept, tmp_path):
    (tmp_path / "lake").mkdir()
    world = World(kept)
    request = databases_pb2.RegisterDatabaseRequest()
    request.database.name, request.database.root = "two", f"{tmp_path}/x/..//lake/"

    async def scenario():
        return (await world.locations.resolve(request, from_peer=False)).linked

    error = AlreadyExists("DATABASE_EXISTS", f"'one' is registered, with the root {tmp_path}/lake: a root has one name")
    hide_links(error, run(scenario))
    assert error.message == f"'one' is registered, with the root {tmp_path}/x/..//lake: a root has one name"


def test_a_table_that_is_a_link_is_refused_by_the_name_of_its_database(kept, tmp_path):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "t.lance").symlink_to(tmp_path)
    kept.roots["lake"] = str(tmp_path / "lake")
    world = World(kept, roots=(str(tmp_path / "lake"),))
    request = jobs_pb2.CreateJobRequest()
    request.backfill.table.database, request.backfill.table.table = "lake", "t"

    async def scenario():
        await world.locations.resolve(request, from_peer=False)

    with pytest.raises(PermissionDenied, match=r"^'lake/t\.lance' does not lie"):
        run(scenario)


def test_without_a_registry_there_are_no_names():
    locations = configured_locations(Server())
    assert locations.registrations() == Registrations()
    with pytest.raises(InvalidArgument) as caught:
        locations.root_of("lake", read_now=True)
    assert caught.value.reason == "BAD_DATABASE"


@pytest.mark.parametrize(
    "settings", [{"registry": "relative"}, {"registered_databases_only": True}, {"registry": "ftp://x/y"}]
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(LemanError) as caught:
        configured_locations(Server(**settings))
    assert caught.value.reason == "BAD_SETTING"


MASK = "update_mask must name description, labels or limits"


@pytest.mark.parametrize(
    ("call", "request_", "reason", "told"),
    [
        ("UpdateDatabase", databases_pb2.UpdateDatabaseRequest(database={"name": "a"}), "BAD_UPDATE_MASK", MASK),
        (
            "UpdateDatabase",
            databases_pb2.UpdateDatabaseRequest(database={"name": "a"}, update_mask={"paths": ["root"]}),
            "BAD_UPDATE_MASK",
            MASK,
        ),
        (
            "UpdateDatabase",
            databases_pb2.UpdateDatabaseRequest(update_mask={"paths": ["labels"]}),
            "MISSING_FIELD",
            r"database\.name is empty: set it",
        ),
        (
            "UnregisterDatabase",
            databases_pb2.UnregisterDatabaseRequest(name="a"),
            "MISSING_FIELD",
            "request_id is empty",
        ),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_before_the_registry_is_read(call, request_, reason, told):
    with pytest.raises(InvalidArgument, match=told) as refused:
        asyncio.run(getattr(DatabaseServicer(object(), None), call)(request_, None))
    assert refused.value.reason == reason
