"""Views of a local database where no services run: read from their metadata, as the services tell them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import leman
from leman import cli
from leman._format import view_definitions
from leman._format.view_definitions import ViewColumn, ViewDefinition, ViewFormat, ViewFunction, ViewQuery
from leman._local import local_reads
from leman._wire import conversions
from leman._wire.conversions import view_info, view_summary
from leman.v1 import catalog_pb2
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire import convert_views
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import list_views

_SCHEMA = pa.schema(
    [
        pa.field("__source_row_id", pa.uint64()),
        pa.field("__is_set", pa.bool_()),
        pa.field("text", pa.string()),
        pa.field("loud", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("m", pa.int64()),
    ]
)


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A database with a table and two views of it, one with placeholders; services must not be started."""
    folder = tmp_path / "lake"
    lance.write_dataset(pa.table({"text": ["a", "b"]}), f"{folder}/docs.lance", enable_stable_row_ids=True)
    query = ViewQuery(
        database=str(folder),
        table="docs",
        columns=(ViewColumn("text", "`text`", "text"), ViewColumn("loud", "upper(text)", "")),
        functions=(ViewFunction("n", "count", "2", ("text",)), ViewFunction("m", "other", "1", ("text", "loud"))),
        where="text <> 'ä'",
        shuffle=True,
        seed=0,
        limit=9,
        offset=1,
    )
    definition = ViewDefinition(
        query=query,
        source_uri=f"{folder}/docs.lance",
        base_version=3,
        base_incarnation="i",
        format=ViewFormat.STABLE_ROW_IDS,
        filled={"n": "count@1", "m": "other@1"},
    )
    rows = {"__source_row_id": [1, 2, 3], "__is_set": [True, False, True], "text": ["a", None, "b"]}
    rows |= {"loud": ["A", None, "B"], "n": [1, None, 2], "m": [1, None, 2]}
    made = view_definitions.write(_SCHEMA, definition)
    lance.write_dataset(pa.table(rows, schema=made), f"{folder}/adults.lance", enable_stable_row_ids=True)
    plain = ViewQuery(
        database=str(folder), table="docs", columns=(ViewColumn("loud", "`te``xt`", "te`xt"),), limit=None
    )
    other = replace(definition, query=plain, format=ViewFormat.ADDRESSES, filled={})
    small = pa.schema([_SCHEMA.field(name) for name in ("__source_row_id", "__is_set", "loud")])
    rows = {"__source_row_id": [1], "__is_set": [True], "loud": ["A"]}
    lance.write_dataset(pa.table(rows, schema=view_definitions.write(small, other)), f"{folder}/loud.lance")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def start(*arguments, **options):
        raise AssertionError(arguments)

    monkeypatch.setattr(subprocess, "Popen", start)
    return folder


def told_by_services(lake, name: str) -> leman.ViewInfo:
    view = ViewReader(LanceTables()).view(str(lake), name)
    table = LanceTables().snapshot(f"{lake}/{name}.lance")
    described = catalog_pb2.DescribeTableResponse(
        uri=table.uri,
        version=table.version,
        row_count=table.live_rows,
        fragment_count=len(table.fragments),
        schema=table.schema.serialize().to_pybytes(),
        stable_row_ids=table.stable_row_ids,
    )
    return view_info(conversions.table_info(name, described), convert_views.view_to_proto(view))


@pytest.mark.parametrize("name", ["adults", "loud"])
def test_what_is_told_is_what_the_services_tell(lake, name):
    with leman.connect(lake) as db:
        view = db.open_view(name)
        told = view.describe()
        first = view.head(1)
    assert told == told_by_services(lake, name)
    if name == "adults":
        assert (told.row_count, told.rows_unset, told.stale_columns) == (2, 1, ("n",))
        assert first.to_pylist() == [{"text": "a", "loud": "A", "n": 1, "m": 1}]


def test_all_views_are_listed_as_the_services_list_them(lake):
    with leman.connect(lake) as db:
        found = db.views()
    told = [view_summary(convert_views.summary_to_proto(v)) for v in list_views(LanceTables(), str(lake), "", 9).views]
    counted = {"adults": (2, 1), "loud": (1, 0)}  # which the services leave to anyone who describes such a view
    assert found == [replace(v, row_count=counted[v.name][0], rows_unset=counted[v.name][1]) for v in told]


@pytest.mark.parametrize("entry", ["query", "digest", "filled", "version"])
def test_what_makes_no_sense_is_asked_of_the_services(lake, entry):
    table = lance.dataset(f"{lake}/adults.lance")
    table.update_schema_metadata({view_definitions.PREFIX + entry: "9"})
    assert local_reads.local_view_summaries(str(lake)) is None
    with leman.connect(lake) as db, pytest.raises(AssertionError, match="leman_local"):
        db.open_view("adults")


@pytest.mark.parametrize("command", ["tables ls", "tables show adults", "views ls", "views show adults"])
def test_commands_that_look_at_views_start_nothing(lake, monkeypatch, capsys, command):
    first, second, *more = command.split()
    monkeypatch.setattr(sys, "argv", ["leman", first, second, str(lake), *more])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code
    assert "adults" in capsys.readouterr().out
