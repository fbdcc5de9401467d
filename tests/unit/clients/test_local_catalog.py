"""Reads of a local database where no services run: they start none, and tell what services would."""

from __future__ import annotations

import subprocess
import sys

import lance
import pyarrow as pa
import pytest

import leman
from leman import cli
from leman._format import column_bindings
from leman._format.column_bindings import (
    COLUMN_ID,
    DIGEST,
    FORMAT,
    INPUTS,
    UDF_VERSION,
    ColumnBinding,
    ColumnInput,
    FunctionVersion,
)
from leman._local import local_reads
from leman.errors import StartFailed, TableNotFound
from leman_core.storage.lance_tables import LanceTables
from leman_planner.catalog.table_catalog import Catalog, computed_columns

ROWS = pa.table({"text": ["a", "b", "c", "d"], "box": [{"w": 1}] * 4})


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A database with a computed column and a view's folder that is not made yet; services must not be started."""
    uri = f"{tmp_path}/lake/docs.lance"
    table = lance.write_dataset(ROWS, uri, enable_stable_row_ids=True, max_rows_per_file=2)
    ids = {field.name(): field for field in table.lance_schema.fields()}
    (width,) = (part.id() for part in ids["box"].children())
    bound = ColumnBinding(
        column_id="c",
        udf_name="count",
        udf_version="2",
        inputs=(ColumnInput("text", ids["text"].id()), ColumnInput("box.was", width)),
        kept=(FunctionVersion("count", "1"),),
    )
    table.add_columns(column_bindings.bind(pa.field("n", pa.int64()), bound))
    table.delete("text = 'b'")
    table.alter_columns({"path": "text", "name": "body"})
    (tmp_path / "lake" / "coming.lance" / "data").mkdir(parents=True)
    lance.write_dataset(ROWS, f"{tmp_path}/lake/__leman_scratch_1.lance")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def start(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "Popen", start)
    return tmp_path / "lake"


def test_names_tables_and_rows_are_read_without_services(lake):
    with leman.connect(lake) as db:
        assert db.table_names() == ["docs"]
        table = db.open_table("docs")
        assert (table.version, table.count_rows()) == (4, 3)
        assert table.to_arrow(["body"])["body"].to_pylist() == ["a", "c", "d"]
    assert not (lake / "_leman").exists()


def test_what_is_told_is_what_the_services_tell(lake):
    found = local_reads.local_table(str(lake), "docs")
    catalog = Catalog(LanceTables())
    assert catalog.tables(str(lake)) == local_reads.table_names(str(lake))
    snapshot = catalog.table(str(lake), "docs")
    assert (found.uri, found.version, found.row_count, found.fragment_count, found.stable_row_ids) == (
        snapshot.uri,
        snapshot.version,
        snapshot.live_rows,
        len(snapshot.fragments),
        snapshot.stable_row_ids,
    )
    assert found.schema.equals(snapshot.schema, check_metadata=True)
    (told,), (column,) = computed_columns(snapshot), found.computed_columns
    assert column.input_columns == told.input_columns == ("body", "box.w")
    assert (column.name, column.udf_name, column.udf_version) == (told.name, told.udf_name, told.udf_version)
    assert column.kept_versions == tuple(f"{kept.name}@{kept.version}" for kept in told.kept) == ("count@1",)


@pytest.mark.parametrize("entry", [DIGEST, UDF_VERSION, INPUTS, COLUMN_ID, FORMAT])
def test_what_makes_no_sense_is_asked_of_the_services(lake, entry):
    table = lance.dataset(f"{lake}/docs.lance")
    table.update_field_metadata({"n": {entry.decode(): "9" if entry == FORMAT else "[1]"}})
    assert local_reads.local_table(str(lake), "docs") is None


def test_a_table_that_is_not_there_is_told_with_what_may_be_meant(lake):
    with leman.connect(lake) as db:
        with pytest.raises(TableNotFound, match=r"There is no table at .*docz.lance: did you mean 'docs'\?"):
            db.open_table("docz")
        with pytest.raises(AssertionError, match="leman_local"):  # what is no name of a table the services refuse
            db.open_table("../lake/docs")


@pytest.mark.parametrize("change", ["expected", "called"])
def test_services_that_are_needed_anyway_are_asked(lake, monkeypatch, change):
    def locate(_self):
        raise StartFailed("asked")

    monkeypatch.setattr("leman._local.embedded_services.Embedded.locate_first", locate)
    with leman.connect(lake) as db:
        if change == "expected":
            db._services.expect_writes()
        else:
            db._services._locator._writes = True
        with pytest.raises(StartFailed, match="asked"):
            db.table_names()


@pytest.mark.parametrize("command", [["ls"], ["show"]])
def test_commands_that_look_at_tables_start_nothing(lake, monkeypatch, capsys, command):
    more = ["docs"] if command == ["show"] else []
    monkeypatch.setattr(sys, "argv", ["leman", "tables", *command, str(lake), *more])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    assert "docs" in capsys.readouterr().out


_PROGRAM = """
import sys
from leman.cli import main
sys.argv = ["leman", "tables", *sys.argv[1:]]
try:
    main()
finally:
    print(sorted({"grpc", "lance", "pandas"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("command", ["ls", "show"])
def test_a_command_that_looks_at_tables_needs_neither_pandas_nor_what_calls_services(lake, monkeypatch, command):
    monkeypatch.undo()
    environment = {"XDG_STATE_HOME": str(lake.parent / "state")}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, command, str(lake), *(["docs"] if command == "show" else [])],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stderr == "['lance']\n"
    assert "docs" in done.stdout
