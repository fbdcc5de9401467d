"""Where databases may lie, whatever they are called."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from core.config import Server
from core.database_roots import EVERYWHERE, DatabaseRoots
from core.errors import InvalidArgument, PermissionDenied
from core.locations import canonical_database
from core.rpc.places import canonicalise
from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2
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
    roots = DatabaseRoots([str(lake)])
    for request in requests(f"{lake}/db", "u"):
        canonicalise(request, roots)
    for request in (*requests(f"{lake}/db", "t"), *requests(f"{lake}/out", "u"), *requests("/elsewhere", "u")):
        refused(canonicalise, request, roots)
    for uri in (f"{lake}/db/t.lance", f"{lake}/out/u.lance"):
        refused(canonicalise, submission_pb2.SubmitCommitRequest(uri=uri), roots)
    source = catalog_pb2.CreateMaterializedViewRequest()
    source.view.database, source.view.table = f"{lake}/db", "v"
    source.query.source.database, source.query.source.table = "/elsewhere", "t"
    refused(canonicalise, source, roots)
    assert refused(canonicalise, catalog_pb2.ListTablesRequest(database="/elsewhere"), roots).startswith("'/elsewhere'")


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
