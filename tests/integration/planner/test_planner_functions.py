"""Which functions may be registered, used and planned, and by whom."""

from __future__ import annotations

import asyncio
import functools
import hashlib

import grpc
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman.v1 import catalog_pb2, catalog_pb2_grpc
from leman_core.functions.column_checks import NewColumn
from leman_core.functions.function_definitions import PYTHON, FunctionPolicy
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import PermissionDenied
from leman_core.model.view import RefreshSpec
from leman_core.server.server import start_server
from leman_core.server.status import error_from_rpc
from leman_core.settings import Server, Settings, Udf
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.wire import convert_udfs
from leman_planner import app
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.planner.planner_lake import UDF, Lake
from tests.integration.views.view_lake import ViewLake

BUNDLE = b"no pickle: nobody here opens it"
SQL_ALONE = FunctionPolicy(("sql",))


def python(kind=UdfKind.SCALAR, *, entrypoint="", name="g"):
    code = {"entrypoint": entrypoint} if entrypoint else {}
    if not entrypoint:
        code = {
            "bundle_sha256": hashlib.sha256(BUNDLE).hexdigest(),
            "bundle_python": PYTHON,
            "bundle_size": len(BUNDLE),
        }
    return UdfDefinition(name, "1", kind, ("x",), pa.int64(), (pa.int64(),), **code)


SQL = UdfDefinition("s", "1", UdfKind.SQL, ("x",), pa.int64(), sql_expression="x + 1")


def refused(call, *arguments, **options):
    with pytest.raises(PermissionDenied) as caught:
        call(*arguments, **options)
    assert caught.value.reason == "UDF_NOT_ALLOWED"
    return caught.value.facts["setting"]


@pytest.mark.parametrize(
    ("kinds", "entrypoints", "allowed"),
    [
        (("scalar", "array", "record_batch", "sql", "pickled", "entrypoint"), (), "pickled array named other sql"),
        (("scalar", "array", "record_batch", "sql", "pickled", "entrypoint"), ("m.*:f",), "pickled array named sql"),
        (("scalar", "pickled"), (), "pickled"),
        (("scalar", "sql", "entrypoint"), ("m.text:*",), "named sql"),
        (("sql",), (), "sql"),
        (("pickled", "entrypoint"), (), ""),
        ((), (), ""),
    ],
)
def test_a_function_needs_its_kind_and_the_place_of_its_code(kinds, entrypoints, allowed):
    functions = {
        "pickled": python(),
        "array": python(UdfKind.ARRAY),
        "named": python(entrypoint="m.text:f"),
        "other": python(entrypoint="os:system"),
        "sql": SQL,
    }
    policy = FunctionPolicy(kinds, entrypoints)
    for name, udf in functions.items():
        if name in allowed.split():
            policy.check(udf)
        else:
            assert refused(policy.check, udf) in ("LEMAN_UDF__ALLOW", "LEMAN_UDF__ENTRYPOINTS")


def test_patterns_name_whole_entrypoints():
    policy = FunctionPolicy(entrypoints=("m:f", "pack.*:*"))
    assert [e for e in ("m:f", "m:fg", "xm:f", "M:f", "pack.a:b", "pack:b", "os:system") if policy.lists(e)] == [
        "m:f",
        "pack.a:b",
    ]


def test_a_star_does_not_reach_what_names_of_a_module_hold():
    policy = FunctionPolicy(entrypoints=("m.text:*", "m.text:Model.embed"))
    assert policy.lists("m.text:clean")
    assert policy.lists("m.text:Model.embed")
    for reached in ("__loader__.get_data", "time.ctime", "_private", "Model.other", "x\nos:system"):
        assert not policy.lists(f"m.text:{reached}"), reached


def test_what_was_registered_before_is_used_no_more(tmp_path):
    lake, registry = Lake(tmp_path / "a"), functools.partial(UdfRegistry, policy=SQL_ALONE)
    assert registry(lake.database).get("f") == UDF, "it can be looked at"
    plans = PlanMaker(LanceTables(), registry=registry)
    assert refused(plans.plan, BackfillSpec(lake.database, "t", "c")) == "LEMAN_UDF__ALLOW"
    assert refused(plans.plan, BackfillSpec(lake.database, "t", "c", udf_name="f")) == "LEMAN_UDF__ALLOW"
    catalog = Catalog(LanceTables(), registry)
    refused(catalog.addition, lake.database, "t", [NewColumn("n", "f", "1", ("x",))], "")
    refused(catalog.alteration, lake.database, "t", [NewColumn("c", "f", "1", ("x",))], "")
    catalog.addition(lake.database, "t", [NewColumn("n", "", "", sql_expression="x + 1")], "")
    no_sql = Catalog(LanceTables(), functools.partial(UdfRegistry, policy=FunctionPolicy(("scalar", "entrypoint"))))
    refused(no_sql.addition, lake.database, "t", [NewColumn("n", "", "", sql_expression="x + 2")], "")


def test_a_view_is_neither_made_nor_refreshed_with_it(tmp_path):
    lake, registry = ViewLake(tmp_path), functools.partial(UdfRegistry, policy=SQL_ALONE)
    made = lake.create()
    refused(ViewReader(LanceTables(), registry).plan, RefreshSpec(lake.database, "v"))
    refused(ViewCatalog(LanceTables(), registry).creation, lake.database, "w", made_query(lake))
    assert made.uri.endswith("v.lance")


def made_query(lake):
    from leman._format.view_definitions import ViewFunction

    return lake.query(functions=[ViewFunction("d", "double", "", ("x",))])


def test_a_planner_takes_from_whom_it_should_what_it_should(tmp_path):
    tokens = tmp_path / "tokens.toml"
    entries = {"writer": ["editor"], "coder": ["editor", "code"]}
    tokens.write_text("\n".join(f'[[token]]\nname = "{n}"\nroles = {r}\ntoken = "{n * 4}"' for n, r in entries.items()))
    database = str(tmp_path / "lake")

    async def outcomes(allow):
        settings = Settings(server=Server(tokens_file=str(tokens)), udf=allow)
        up = await start_server(settings, "planner", app.create(settings, asyncio.Event()), asyncio.Event())
        found = {}
        async with grpc.aio.insecure_channel(f"127.0.0.1:{up.port}") as channel:
            stub = catalog_pb2_grpc.CatalogServiceStub(channel)
            functions = {"pickled": python(name="p"), "named": python(entrypoint="m:f"), "sql": SQL}
            for who in entries:
                for name, udf in functions.items():
                    bundle = BUNDLE if udf.bundle_sha256 else b""
                    request = catalog_pb2.RegisterUdfRequest(
                        database=database, definition=convert_udfs.udf_to_proto(udf), bundle=bundle
                    )
                    try:
                        await stub.RegisterUdf(request, metadata=(("authorization", f"Bearer {who * 4}"),))
                        found[who, name] = "OK"
                    except grpc.aio.AioRpcError as error:
                        found[who, name] = error_from_rpc(error).reason
        await up.stop()
        return [found[who, name] for who in entries for name in functions]

    for allow, expected in (
        (Udf(), ["ROLE_REQUIRED", "ROLE_REQUIRED", "OK", "OK", "OK", "OK"]),
        (Udf(entrypoints=("m:*",)), ["ROLE_REQUIRED", "OK", "OK", "OK", "OK", "OK"]),
        (Udf(entrypoints=("x:*",)), ["ROLE_REQUIRED", "ROLE_REQUIRED", "OK", "OK", "UDF_NOT_ALLOWED", "OK"]),
        (Udf(allow=("sql",)), ["ROLE_REQUIRED", "ROLE_REQUIRED", "OK", "UDF_NOT_ALLOWED", "UDF_NOT_ALLOWED", "OK"]),
    ):
        assert asyncio.run(outcomes(allow)) == expected
