"""A database that is copied or moved is one of its own: its views read its tables, and its jobs run in it."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import lance
import pytest

import leman
from leman._format import view_definitions
from leman_core.storage.lance_tables import INCARNATION_KEY
from leman_core.storage.view_data_files import definition_in
from tests.conftest import System
from tests.integration.call_log import CallLog, numbers
from tests.integration.views.view_lake import ViewLake, column


def as_before(uri: str) -> None:
    """Rewrite a view's metadata as releases did that did not know of copies."""
    dataset = lance.dataset(uri)
    dataset.update_schema_metadata({view_definitions.IN_OWN_DATABASE: None})
    assert view_definitions.IN_OWN_DATABASE.encode() not in lance.dataset(uri).schema.metadata


def source_of(lake: ViewLake, database: Path, name: str = "v") -> str:
    found = definition_in(lake.tables.snapshot(f"{database}/{name}.lance"))
    assert found is not None
    return found.source_uri


@pytest.fixture
def lake(tmp_path) -> ViewLake:
    made = ViewLake(tmp_path / "first", fragments=1)
    made.create(made.query(column("id")))
    return made


@pytest.mark.parametrize("former_stays", [True, False])
def test_a_view_of_an_earlier_release_reads_the_copy_of_its_source(lake, tmp_path, former_stays):
    as_before(f"{lake.database}/v.lance")
    copy = Path(shutil.copytree(lake.database, tmp_path / "second"))
    if not former_stays:
        shutil.rmtree(lake.database)
    assert source_of(lake, copy) == f"{copy}/t.lance"


def test_another_view_in_the_former_place_does_not_tell_that_this_one_was_copied(lake, tmp_path):
    as_before(f"{lake.database}/v.lance")
    copy = Path(shutil.copytree(lake.database, tmp_path / "second"))
    lance.dataset(f"{lake.database}/v.lance").update_config({INCARNATION_KEY: "another"})
    assert source_of(lake, copy) == lake.uri


def test_a_copy_of_a_source_is_known_though_the_version_that_the_view_read_was_cleaned(tmp_path):
    lake = ViewLake(tmp_path / "first", fragments=1)
    lance.dataset(lake.uri).update_config({INCARNATION_KEY: "i"})
    lake.create(lake.query(column("id")))
    as_before(f"{lake.database}/v.lance")
    copy = Path(shutil.copytree(lake.database, tmp_path / "second"))
    source = lance.dataset(f"{copy}/t.lance")
    source.delete("id = 0")
    source.cleanup_old_versions(timedelta(0))
    assert source_of(lake, copy) == f"{copy}/t.lance"


def test_a_refresh_says_where_a_view_of_an_earlier_release_lies_now(lake, tmp_path):
    as_before(f"{lake.database}/v.lance")
    copy = Path(shutil.copytree(lake.database, tmp_path / "second"))
    found = definition_in(lake.tables.snapshot(f"{copy}/v.lance"))
    assert found is not None
    lance.dataset(f"{copy}/v.lance").update_schema_metadata(view_definitions.updates(found))
    metadata = lance.dataset(f"{copy}/v.lance").schema.metadata
    assert metadata[view_definitions.BASE_DATABASE.encode()].decode() == str(copy)
    assert metadata[view_definitions.IN_OWN_DATABASE.encode()] == b"true"
    assert source_of(lake, copy) == f"{copy}/t.lance"


def test_a_view_over_another_database_reads_that_one_although_its_own_has_a_copy_of_the_source(lake, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    query = lake.query(column("id"), database=lake.database)
    made = lake.creation(query, "w", str(other))
    lance.write_dataset(made.schema.empty_table(), made.uri)
    shutil.copytree(lake.uri, other / "t.lance")
    as_before(made.uri)
    assert source_of(lake, other, "w") == lake.uri


def test_a_source_of_another_table_that_has_its_name_is_not_taken_for_the_copy(lake, tmp_path):
    as_before(f"{lake.database}/v.lance")
    copy = Path(shutil.copytree(lake.database, tmp_path / "second"))
    shutil.rmtree(copy / "t.lance")
    ViewLake(tmp_path / "third", fragments=2)
    shutil.copytree(tmp_path / "third/t.lance", copy / "t.lance")
    assert source_of(lake, copy) == lake.uri


def test_a_copy_of_a_database_goes_on_by_itself(system: System, db: leman.Database, tmp_path: Path, call_log: CallLog):
    """The drill: copy while a job is unfinished, open the copy elsewhere, go on; neither sees what the other does."""
    table = db.create_table("t", numbers(10))
    view = db.create_materialized_view("v", table.search(None).where("x >= 2").select(["x"]))
    view.refresh(progress=False)
    table.add_columns({"y": (call_log.double(version="1"), ["x"])})
    job = table.backfill_async("y")
    job.pause()
    first = Path(table.uri).parent
    copy = Path(shutil.copytree(first, tmp_path / "copied"))
    table.add({"x": [100]})
    with system.connect(copy) as copied:
        assert {found.database for found in copied.jobs()} == {str(copy)}
        copied.open_table("t").add({"x": [200]})
        result = copied.open_view("v").refresh(progress=False)
        assert result.rows_added == 1
        assert sorted(copied.open_view("v").to_arrow()["x"].to_pylist()) == [*range(2, 10), 200]
        assert copied.views()[0].source_database == str(copy)
        copied.open_table("t").backfill("y", progress=False)
        assert copied.open_table("t").to_arrow()["y"].null_count == 0
        assert not copied.verify().findings
    assert lance.dataset(table.uri).count_rows() == 11
    assert view.refresh(progress=False).rows_added == 1
    assert sorted(view.to_arrow()["x"].to_pylist()) == [*range(2, 10), 100]
