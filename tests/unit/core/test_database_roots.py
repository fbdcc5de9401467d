"""Where databases may lie, whatever they are called."""

from __future__ import annotations

import asyncio
import itertools
import os
import urllib.parse

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from leman.v1 import catalog_pb2, commit_pb2, databases_pb2, jobs_pb2, tables_pb2
from leman_core.model.databases import StoreOptions
from leman_core.model.service_errors import InvalidArgument, LemanError, NotFound, PermissionDenied
from leman_core.server.database_locations import DatabaseLocations, hide_links
from leman_core.settings import Server
from leman_core.storage import object_stores
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_core.storage.locations import canonical_database, table_uri
from leman_core.storage.object_stores import GivenStores
from leman_internal.v1 import submission_pb2
from tests.unit.core.rpc.auth.every_method import ask, every_service, methods


@pytest.fixture
def lake(tmp_path):
    """A root with a database, a link out of it, and a table that is one."""
    (tmp_path / "lake" / "db").mkdir(parents=True)
    (tmp_path / "lake-of-others" / "t.lance").mkdir(parents=True)
    (tmp_path / "lake" / "out").symlink_to(tmp_path / "lake-of-others")
    (tmp_path / "lake" / "db" / "t.lance").symlink_to(tmp_path / "lake-of-others" / "t.lance")
    (tmp_path / "way-in").symlink_to(tmp_path / "lake")
    return tmp_path.resolve() / "lake"


def refused(check, *arguments):
    with pytest.raises(PermissionDenied) as caught:
        check(*arguments)
    assert caught.value.reason == "DATABASE_NOT_ALLOWED"
    return caught.value.message


def test_what_lies_below_a_root_is_allowed_and_what_only_looks_like_it_is_not(lake):
    roots = DatabaseRoots([f"{lake}/", "s3://bucket/lake"])
    inside = (
        lake,
        lake / "db",
        lake / "not" / "yet",
        lake.parent / "way-in",
        "s3://bucket/lake",
        "s3://bucket/lake/db",
    )
    for place in inside:
        roots.check(canonical_database(str(place)))
    outside = (
        lake.parent,
        f"{lake}-of-others",
        lake / "out",
        lake / "db" / ".." / "..",
        "/",
        "s3://bucket",
        "s3://bucket/lake2",
        "s3://other/lake",
        "gs://bucket/lake",
    )
    for place in outside:
        refused(roots.check, canonical_database(str(place)))
    refused(roots.check, str((lake / "db" / "t.lance").resolve()))


def test_a_table_that_is_a_link_is_where_it_leads(lake):
    roots = DatabaseRoots([str(lake)])
    refused(roots.check_table, f"{lake}/db", "t")
    roots.check_table(f"{lake}/db", "u")
    for no_name in ("../../x", "a\0b", ""):
        roots.check_table(f"{lake}/db", no_name)


def test_what_leman_keeps_in_a_database_is_no_link_to_elsewhere(lake):
    """Neither of a database that a caller names, nor of the one that a table lies in."""
    roots, own = DatabaseRoots([str(lake)]), lake / "db" / "_leman"
    (lake / "kept").mkdir()
    own.symlink_to(lake / "kept")
    roots.check(f"{lake}/db")
    own.unlink()
    own.symlink_to(lake.parent / "lake-of-others")
    assert refused(roots.check, f"{lake}/db", "lake").startswith("'lake' does not lie")
    refused(roots.check, f"{lake}/db/u.lance")
    refused(roots.check_table, f"{lake}/db", "u")
    EVERYWHERE.check(f"{lake}/db")


def test_without_roots_and_below_the_root_of_all_everything_is_allowed(lake):
    for roots in (EVERYWHERE, DatabaseRoots(), DatabaseRoots(["/"])):
        roots.check(str(lake / "out"))
    EVERYWHERE.check("s3://bucket/lake")
    refused(DatabaseRoots(["/"]).check, "s3://bucket/lake")


@pytest.mark.parametrize("root", ["", "lake", "ftp://host/lake", "/lake/_leman"])
def test_a_root_that_is_no_place_is_refused(root):
    with pytest.raises(InvalidArgument, match="LEMAN_SERVER__DATABASE_ROOTS") as caught:
        DatabaseRoots(["/data", root])
    assert caught.value.reason == "BAD_SETTING"


def requests(place, table):
    """Requests that name a table, each in another way."""
    named = catalog_pb2.TableRef(database=place, table=table)
    job, refresh = jobs_pb2.CreateJobRequest(), jobs_pb2.CreateJobRequest()
    job.backfill.table.CopyFrom(named)
    refresh.refresh.view.CopyFrom(named)
    return [
        job,
        refresh,
        catalog_pb2.CreateMaterializedViewRequest(view=named),
        commit_pb2.DropViewRequest(view=named),
        catalog_pb2.AlterColumnsRequest(table=named),
    ]


def test_every_place_in_a_request_counts_and_so_does_a_table_beside_it(lake):
    canonicalize = DatabaseLocations(DatabaseRoots([str(lake)])).canonicalize
    for request in requests(f"{lake}/db", "u"):
        canonicalize(request)
    for request in (*requests(f"{lake}/db", "t"), *requests(f"{lake}/out", "u"), *requests("/elsewhere", "u")):
        refused(canonicalize, request)
    for uri in (f"{lake}/db/t.lance", f"{lake}/out/u.lance"):
        refused(canonicalize, submission_pb2.SubmitCommitRequest(uri=uri))
    source = catalog_pb2.CreateMaterializedViewRequest()
    source.view.database, source.view.table = f"{lake}/db", "v"
    source.query.source.database, source.query.source.table = "/elsewhere", "t"
    refused(canonicalize, source)
    assert refused(canonicalize, catalog_pb2.ListTablesRequest(database="/elsewhere")).startswith("'/elsewhere'")


def test_a_server_refuses_every_call_that_names_another_database(lake):
    async def scenario():
        async with (
            every_service(Server(database_roots=(str(lake),))) as (up, service),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            tried = 0
            for method in methods():
                field = method.input_type.fields_by_name.get("database")
                if field is None or field.message_type is not None:
                    continue
                tried += 1
                for place, expected in ((f"{lake}/db", "OK"), (f"{lake}/out", "PERMISSION_DENIED")):
                    request = GetMessageClass(method.input_type)(database=place)
                    code, info = await ask(channel, method, request)
                    assert (method.name, code) == (method.name, expected)
                    assert info is None or info.reason == "DATABASE_NOT_ALLOWED"
            assert tried > 8
            assert len(service.answered) == tried

    asyncio.run(scenario())


# --------------------------------------------------------------------------------------------- Leman's own


PLACES = ("database", "root", "uri")


def own_places(lake):
    """(database, table) of what Leman keeps for itself, each in a spelling that looks like a caller's table."""
    (lake / "registry" / "databases.lance").mkdir(parents=True)
    (lake / "db" / "_leman" / "jobs.lance").mkdir(parents=True)
    (lake / "db" / "history.lance").symlink_to(lake / "db" / "_leman" / "jobs.lance")
    (lake / "names.lance").symlink_to(lake / "registry" / "databases.lance")
    (lake / "names").symlink_to(lake / "registry")
    return [
        (f"{lake}/registry", "databases"),
        (f"{lake}/registry/", "databases"),
        (f"file://{lake}/db/../registry", "databases"),
        (f"{lake}/names", "databases"),
        (f"{lake}/db/_leman", "jobs"),
        (f"{lake}/db/t.lance/_checkpoints", "x"),
        (f"{lake}/db", "history"),
        (f"{lake}", "names"),
        (f"{lake}/db", "__leman_scratch_v_0123456789abcdef"),
        (f"{lake}/db", "_leman"),
        ("s3://apart/checkpoints/db", "t"),
        ("s3://apart/checkpoints", "t"),
    ]


def named(descriptor, above=(), within=()):
    """Paths to all fields of a message that name a database or a table."""
    for field in descriptor.fields:
        path = (*above, field.name)
        inner = field.message_type
        renames = field.name == "new_name" and "table" in descriptor.fields_by_name
        if inner is not None and inner.full_name not in within:
            yield from named(inner, path, (*within, inner.full_name))
        elif inner is None and field.type == field.TYPE_STRING and (renames or field.name in PLACES):
            yield path


def filled(method, path, database, table):
    """A request with a place at a path, or None: it names no table, and the database alone is fine."""
    request = holder = GetMessageClass(method.input_type)()
    for name in path[:-1]:
        inner = getattr(holder, name)
        holder = inner.add() if hasattr(inner, "add") else inner
        if not hasattr(inner, "add"):
            holder.SetInParent()
    fine = database.endswith(("/db", "/lake"))
    beside = [name for name in ("table", "view", "name") if name in holder.DESCRIPTOR.fields_by_name]
    if path[-1] == "new_name":
        holder.table.database, holder.table.table, holder.new_name = database, "docs", table
    elif path[-1] == "uri":
        holder.uri = f"{database}/{table}.lance"
    else:
        setattr(holder, path[-1], database)
        texts = [n for n in beside if holder.DESCRIPTOR.fields_by_name[n].message_type is None]
        if fine and (path[-1] == "root" or not texts):
            return None
        for name in texts:
            setattr(holder, name, table)
    return request


def test_no_call_reaches_what_leman_keeps_for_itself(lake):
    """A new call has its cases by its descriptor."""
    places = own_places(lake)
    object_stores.set_store_source(
        GivenStores([StoreOptions(root="s3://lake", checkpoint_uri="s3://apart/checkpoints")])
    )
    settings = Server(database_roots=(str(lake), "s3://apart"), registry=str(lake / "registry"))

    async def scenario():
        async with (
            every_service(settings) as (up, service),
            grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel,
        ):
            tried = set()
            for method in methods():
                paths = list(named(method.input_type))
                for path, (database, table) in itertools.product(paths, places):
                    request = filled(method, path, database, table)
                    by_name = (
                        table.startswith(("__leman", "_leman")) and method.containing_service.file.package != "leman.v1"
                    )
                    if request is None or by_name:
                        continue
                    code, info = await ask(channel, method, request)
                    assert (code, info is None) == ("INVALID_ARGUMENT", False), (method.name, path, database, table)
                    assert info.reason in ("RESERVED_DATABASE", "RESERVED_NAME", "BAD_TABLE_NAME")
                    tried.add(method.name)
            assert len(tried) > 40
            assert service.answered == []

    try:
        asyncio.run(scenario())
    finally:
        object_stores.set_store_source(GivenStores())


def test_a_folder_below_that_of_the_registry_may_be_a_database(lake):
    roots = DatabaseRoots((), str(lake))
    roots.check(f"{lake}/db")
    roots.check_table(f"{lake}/db", "docs")
    with pytest.raises(InvalidArgument, match="of Leman's own"):
        roots.check(f"{lake}")
    with pytest.raises(InvalidArgument, match="of Leman's own"):
        roots.check_table(f"{lake}", "databases")


# -------------------------------------------------------------------------------------------- what links say


HIDDEN = {"cwd": "hidden-folder", "exe": "hidden-folder/program", "gone": "nowhere-at-all"}


@pytest.fixture
def links(lake):
    """Links in a root, to things outside of it."""
    (lake.parent / "hidden-folder").mkdir()
    (lake.parent / "hidden-folder" / "program").write_text("x")
    for name, target in HIDDEN.items():
        (lake / name).symlink_to(lake.parent / target)
    return lake


def told_of(place, roots):
    """The answer for a place: the error, or None."""
    try:
        DatabaseLocations(roots).canonicalize(catalog_pb2.ListTablesRequest(database=place))
    except LemanError as error:
        return error
    return None


@pytest.mark.parametrize("below", ["", "/", "/x"])
@pytest.mark.parametrize("name", HIDDEN)
def test_a_refusal_shows_what_was_sent_and_nothing_of_where_it_leads(links, name, below):
    """The same for what is there and what is not: nothing can be found out by asking."""
    sent = f"{links}/{name}{below}"
    error = told_of(sent, DatabaseRoots([str(links)]))
    assert error.reason == "DATABASE_NOT_ALLOWED"
    assert sent in error.message
    for hidden in ("hidden-folder", "program", "nowhere", "file"):
        assert hidden not in f"{error.message} {error.facts}"
    outside = [
        told_of(f"{links.parent}/{name}", DatabaseRoots([str(links)])) for name in ("hidden-folder", "not-there")
    ]
    assert {error.reason for error in outside} == {"DATABASE_NOT_ALLOWED"}


@pytest.mark.parametrize("place", ["/proc/self/exe", "/proc/self/exe/x", "/proc/self/fd/0", "/proc/1/fd/0/x"])
def test_without_roots_no_error_shows_where_links_of_the_system_lead(place):
    error = told_of(place, EVERYWHERE)
    assert error.reason in ("BAD_DATABASE", "STORAGE_DENIED")
    assert place in error.message
    for link in ("/proc/self/exe", "/proc/self/fd/0"):
        assert os.path.realpath(link) not in error.message


@pytest.mark.parametrize(
    "sent", ["{}/way", "{}/way/", "file://{}/way", "file:{}/way", "file://localhost{}/%77ay", "/{}/way"]
)
def test_errors_of_handlers_show_places_as_they_were_sent(tmp_path, sent):
    """However the caller and anyone who raises the error write them; Lance leaves the first `/` out."""
    (tmp_path / "real" / "a lake").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path / "real" / "a lake")
    sent = sent.format(tmp_path)
    request = catalog_pb2.ListTablesRequest(database=sent)
    linked = DatabaseLocations().canonicalize(request).linked
    place = request.database
    assert place == f"{tmp_path}/real/a lake"
    told = "no table {0}/t.lance, none in '{0}', nor at {0}/t.lance/_versions."
    for spelt in (place, f"file://{place}", place[1:], urllib.parse.quote(place), urllib.parse.quote(place)[1:]):
        error = NotFound("TABLE_NOT_FOUND", told.format(spelt), uri=f"{spelt}/t")
        hide_links(error, linked)
        assert error.message == told.format(sent.rstrip("/"))
        assert error.facts == {"uri": f"{sent.rstrip('/')}/t"}
    other = NotFound("TABLE_NOT_FOUND", f"There is no table {place}-2/t.lance")
    hide_links(other, linked)
    assert other.message == f"There is no table {place}-2/t.lance"


def test_a_place_that_no_link_leads_to_is_shown_as_it_is(tmp_path):
    for sent in (
        str(tmp_path),
        f"{tmp_path}/",
        f"file://{tmp_path}",
        f"{tmp_path}/x/..",
        "s3://bucket/lake/",
        "S3://b/x",
    ):
        assert DatabaseLocations().canonicalize(catalog_pb2.ListTablesRequest(database=sent)).linked == {}


def test_each_of_several_places_is_shown_as_it_was_sent(tmp_path):
    """Also where one leads to a folder that another is called by."""
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "one").symlink_to(tmp_path / "real")
    (tmp_path / "two").symlink_to(tmp_path / "real" / "below")
    request = catalog_pb2.CreateMaterializedViewRequest()
    request.view.database, request.query.source.database = f"{tmp_path}/one", f"file://{tmp_path}/two"
    linked = DatabaseLocations().canonicalize(request).linked
    error = NotFound("X", f"{tmp_path}/real/v and {tmp_path}/real/below/t")
    hide_links(error, linked)
    assert error.message == f"{tmp_path}/one/v and file://{tmp_path}/two/t"


@pytest.fixture(params=["roots", "no roots"])
def aliased(request, tmp_path):
    """(database, canonicalize) of a database with links to a table: of its own, of another database, and others."""
    db, other = tmp_path / "lake" / "db", tmp_path / "lake" / "other"
    for folder in (db / "t.lance", other / "u.lance", db / "disk", db / "__leman_scratch_v_0123456789abcdef.lance"):
        folder.mkdir(parents=True)
    targets = {"near": "t.lance", "far": other / "u.lance", "nothing": "none.lance", "disk": "disk"}
    targets |= {"twice": "near.lance", "own": "__leman_scratch_v_0123456789abcdef.lance"}
    for name, target in targets.items():
        (db / f"{name}.lance").symlink_to(target)
    roots = DatabaseRoots([str(tmp_path / "lake")]) if request.param == "roots" else EVERYWHERE
    return str(db.resolve()), DatabaseLocations(roots).canonicalize


def test_a_link_to_a_table_of_the_same_database_is_that_table(aliased):
    """So whatever remembers a table by its place has one place: request ids, jobs, claims."""
    database, canonicalize = aliased
    for table, own in {"near": "t", "twice": "t", "t": "t", "nothing": "nothing", "disk": "disk", "new": "new"}.items():
        ref = catalog_pb2.TableRef(database=database, table=table)
        job, view = jobs_pb2.CreateJobRequest(), catalog_pb2.CreateMaterializedViewRequest(view=ref)
        job.backfill.table.CopyFrom(ref)
        view.query.source.table = table  # of the view's own database
        linked = canonicalize(job).linked
        canonicalize(view)
        assert (job.backfill.table.table, view.query.source.table, view.view.table) == (own, own, table)
        error = NotFound("X", f"{database}/{own}.lance")
        hide_links(error, linked)
        assert error.message == f"{database}/{table}.lance"
        peer = jobs_pb2.CreateJobRequest(backfill={"table": ref})
        canonicalize(peer, from_peer=True)
        assert peer.backfill.table.table == table
    with pytest.raises(InvalidArgument, match="are Leman's own"):
        canonicalize(catalog_pb2.DescribeTableRequest(table={"database": database, "table": "own"}))


def test_a_request_that_creates_renames_or_removes_a_name_is_about_the_link(aliased):
    database, canonicalize = aliased
    for table in ("near", "far", "nothing"):
        ref = catalog_pb2.TableRef(database=database, table=table)
        for request in (
            tables_pb2.CreateTableRequest(table=ref),
            tables_pb2.DropTableRequest(table=ref),
            tables_pb2.RenameTableRequest(table=ref, new_name=table),
            commit_pb2.DropViewRequest(view=ref),
            catalog_pb2.CreateMaterializedViewRequest(view=ref),
        ):
            before = request.SerializeToString()
            canonicalize(request)
            assert request.SerializeToString() == before


def test_a_table_of_another_database_is_only_read_through_a_link(aliased):
    """Its functions and jobs are in that database, and the link is in this one."""
    database, canonicalize = aliased
    ref = catalog_pb2.TableRef(database=database, table="far")
    read = tables_pb2.ReadRowsRequest(table=ref)
    canonicalize(read, reads=True)
    assert read.table.table == "far"
    with pytest.raises(InvalidArgument, match=r"'far' is a link .* use the table's own database and name") as caught:
        canonicalize(jobs_pb2.CreateJobRequest(backfill={"table": ref}))
    assert (caught.value.reason, caught.value.field) == ("BAD_TABLE_NAME", "backfill.table.table")
    assert "other" not in caught.value.message.replace("another", "")


def test_a_filter_of_jobs_by_a_link_finds_those_of_its_table(aliased):
    database, canonicalize = aliased
    for tables, also in ((["near"], ["t"]), (["t", "near", "far", "x/y", "new"], []), ([], [])):
        request = jobs_pb2.ListJobsRequest(database=database, filter={"tables": tables})
        canonicalize(request, reads=True)
        assert list(request.filter.tables) == tables + also


CONTROLS = ["\0", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028"]


@pytest.mark.parametrize(
    "text", ["/lake{}x", "{}/lake", "/lake{}", "s3://bucket/a{}b", "gs://b{}/x", "file:///a%{:02X}b"]
)
@pytest.mark.parametrize("character", CONTROLS, ids=ascii)
def test_a_place_with_a_control_character_is_refused_at_once(text, character):
    spelt = text.format(ord(character) if ":02X" in text else character)
    if ":02X" in text and ord(character) > 0x7F:
        spelt = f"file:///a{urllib.parse.quote(character)}b"
    for request in (
        catalog_pb2.ListTablesRequest(database=spelt),
        databases_pb2.RegisterDatabaseRequest(database=databases_pb2.Database(root=spelt)),
    ):
        with pytest.raises(InvalidArgument) as caught:
            DatabaseLocations().canonicalize(request)
        assert caught.value.reason == "BAD_DATABASE"
        assert caught.value.field in ("database", "database.root")
        assert character not in caught.value.message
    with pytest.raises(InvalidArgument):
        table_uri("/lake", f"a{character}b")
