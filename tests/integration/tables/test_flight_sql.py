"""Flight SQL as a stock client speaks it (ADBC's driver): which databases and tables there are, and no SQL."""

from __future__ import annotations

import time

import adbc_driver_flightsql.dbapi as adbc
import lance
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from adbc_driver_manager import DatabaseOptions, NotSupportedError
from google.protobuf.any_pb2 import Any as Packed

from leman_core.model.databases import RegisteredDatabase, RegistrationRequest
from leman_core.server.flight_sql_protocol import FlightSqlCatalog_pb2 as sql
from leman_core.storage.database_registry import DatabaseRegistry
from tests.integration.tables.flight_helpers import bearer, client_of, served

WIDE = pa.schema(
    [pa.field("id", pa.int64()), pa.field("tags", pa.list_(pa.string())), pa.field("at", pa.timestamp("us"))]
)


@pytest.fixture(scope="module")
def place(system, tmp_path_factory):
    """Two databases with names, one of them elsewhere than the services may look, and one without a name."""
    folder = tmp_path_factory.mktemp("sql")
    for name in ("lake/docs", "lake/doc_s", "lake/broken", "nameless/t"):
        lance.write_dataset(WIDE.empty_table(), folder / f"{name}.lance", enable_stable_row_ids=True)
    with system.connect(folder / "lake") as db:
        db.create_materialized_view("kept", db.open_table("docs").search().select(["id"]))
    for manifest in (folder / "lake" / "broken.lance" / "_versions").iterdir():
        manifest.write_bytes(b"no manifest")
    registry, asked = DatabaseRegistry(str(folder / "registry")), time.time()
    (folder / "no folder").write_text("")
    roots = {"books": folder / "lake", "forbidden": folder.parent / "elsewhere", "gone": folder / "no folder"}
    for name, root in roots.items():
        made = RegisteredDatabase(name=name, root=str(root), created_at=asked, updated_at=asked)
        registry.register(made, RegistrationRequest(name, name))
    return folder


@pytest.fixture(scope="module")
def server(place):
    with served(server={"registry": str(place / "registry"), "database_roots": [str(place)], "token": "t" * 16}) as up:
        yield up


@pytest.fixture(scope="module")
def connection(server):
    options = {DatabaseOptions.USERNAME.value: "anybody", DatabaseOptions.PASSWORD.value: "t" * 16}
    with adbc.connect(f"grpc://127.0.0.1:{server.port}", db_kwargs=options, autocommit=True) as made:
        yield made


@pytest.fixture(scope="module")
def ask(server):
    """Sends a command with Arrow's own client, and gives the answer."""

    def asked(command):
        packed = Packed()
        packed.Pack(command)
        descriptor = fl.FlightDescriptor.for_command(packed.SerializeToString())
        with client_of(server) as client:
            info = client.get_flight_info(descriptor, bearer("t" * 16))
            found = client.do_get(info.endpoints[0].ticket, bearer("t" * 16)).read_all()
            assert found.schema.equals(info.schema)
            assert client.get_schema(descriptor, bearer("t" * 16)).schema.equals(info.schema)
        return found

    return asked


def test_adbc_sees_databases_tables_and_columns(connection):
    told = connection.adbc_get_objects().read_all().to_pylist()

    assert [catalog["catalog_name"] for catalog in told] == ["books", "gone"]
    (schema,) = told[0]["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {name: table["table_type"] for name, table in tables.items()} == {
        "broken": "TABLE",
        "doc_s": "TABLE",
        "docs": "TABLE",
        "kept": "VIEW",
    }
    assert [column["column_name"] for column in tables["docs"]["table_columns"]] == WIDE.names
    assert [column["column_name"] for column in tables["kept"]["table_columns"]] == ["id"]
    assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]
    assert connection.adbc_get_table_schema("docs", catalog_filter="books").equals(WIDE)
    assert connection.adbc_get_info()["vendor_name"] == "Leman"


def test_sql_is_refused_by_name(connection):
    with connection.cursor() as cursor, pytest.raises(NotSupportedError, match="CommandStatementQuery"):
        cursor.execute("SELECT 1")


def test_ingest_of_adbc_is_refused_by_name_and_says_how_rows_are_appended(connection):
    rows = pa.table({"id": [1]})
    with connection.cursor() as cursor, pytest.raises(NotSupportedError, match=r"StatementIngest.* PutRowsCommand"):
        cursor.adbc_ingest("docs", rows, mode="append", catalog_name="books")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"table_name_filter_pattern": "doc%"}, ["doc_s", "docs"]),
        ({"table_name_filter_pattern": "doc_"}, ["docs"]),
        ({"table_name_filter_pattern": "doc__"}, ["doc_s"]),
        ({"table_name_filter_pattern": "doc\\_s"}, ["doc_s"]),
        ({"table_name_filter_pattern": ".*"}, []),
        ({"table_types": ["VIEW"]}, ["kept"]),
        ({"table_types": ["SYSTEM"]}, []),
        ({"db_schema_filter_pattern": "%"}, ["broken", "doc_s", "docs", "kept"]),
        ({"db_schema_filter_pattern": "public"}, []),
        ({"catalog": ""}, []),
        ({"catalog": "books", "table_types": ["VIEW", "TABLE"]}, ["broken", "doc_s", "docs", "kept"]),
    ],
)
def test_tables_are_chosen_by_patterns_and_types(ask, asked, found):
    told = ask(sql.CommandGetTables(**asked))
    assert told["table_name"].to_pylist() == found
    assert set(told["catalog_name"].to_pylist()) <= {"books"}
    assert told.schema.names == ["catalog_name", "db_schema_name", "table_name", "table_type"]


def test_a_database_without_a_name_is_a_catalog_by_its_path(ask, place):
    told = ask(sql.CommandGetTables(catalog=str(place / "nameless"), include_schema=True)).to_pylist()
    assert [(row["catalog_name"], row["table_name"]) for row in told] == [(str(place / "nameless"), "t")]
    assert pa.ipc.read_schema(pa.py_buffer(told[0]["table_schema"])).equals(WIDE)
    assert ask(sql.CommandGetDbSchemas(catalog="books")).to_pylist() == [
        {"catalog_name": "books", "db_schema_name": ""}
    ]


@pytest.mark.parametrize(
    ("catalog", "reason"), [("/etc", "does not lie where"), ("nobody", "No database is registered")]
)
def test_a_place_that_may_not_be_seen_is_refused(ask, catalog, reason):
    with pytest.raises((fl.FlightError, pa.ArrowException), match=reason):
        ask(sql.CommandGetTables(catalog=catalog))


def test_some_of_what_the_server_is(ask):
    told = ask(sql.CommandGetSqlInfo(info=[4, 0, 8, 9999, *[4] * 9_000])).to_pylist()
    assert told == [
        {"info_name": 4, "value": False},
        {"info_name": 0, "value": "Leman"},
        {"info_name": 8, "value": 0},
    ]


@pytest.mark.parametrize("pattern", ["%" * 999 + "~", "%_" * 499 + "~", "%o%" * 333])
def test_no_pattern_takes_long(ask, pattern):
    assert ask(sql.CommandGetTables(table_name_filter_pattern=pattern)).num_rows == 0


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\n>type.googleapis.com/arrow.flight.protocol.sql.CommandGetTables\x12\x01\xff", "a command of Flight SQL"),
        (b"\n9type.googleapis.com/arrow.flight.protocol.sql.CommandGetX", "CommandGetX is not offered"),
    ],
)
def test_what_is_no_command_is_refused(server, raw, said):
    with client_of(server) as client, pytest.raises(pa.ArrowException, match=said):
        client.get_flight_info(fl.FlightDescriptor.for_command(raw), bearer("t" * 16))


def test_the_registry_is_no_table_of_callers(server, place, ask):
    """Below a root as it is: by ticket, descriptor, listing and command."""
    own = place / "registry"
    assert (own / "databases.lance").is_dir()
    command = fl.FlightDescriptor.for_command(b'{"table": {"database": "%s", "table": "databases"}}' % bytes(own))
    path = fl.FlightDescriptor.for_path(str(own), "databases")
    row = pa.table({"name": ["x"]})
    with client_of(server) as client:
        for call in (
            lambda: client.get_flight_info(command, bearer("t" * 16)),
            lambda: client.get_schema(path, bearer("t" * 16)),
            lambda: client.do_get(fl.Ticket(command.command), bearer("t" * 16)).read_all(),
            lambda: list(client.list_flights(str(own).encode(), bearer("t" * 16))),
            lambda: client.do_put(command, row.schema, bearer("t" * 16))[1].read().to_pybytes(),
            lambda: ask(sql.CommandGetTables(catalog=str(own))),
        ):
            with pytest.raises(pa.ArrowInvalid, match="is a place of Leman's own"):
                call()
