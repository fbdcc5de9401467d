"""Refreshes that need more than a change of the source."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import SOURCE_ROW_ID, ViewColumn, ViewFunction, ViewQuery
from leman_core.model import view_metadata
from leman_core.model.job import JobState
from leman_core.storage import view_data_files as view_files
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.source_rows import SourceRows
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.refresh import view_writer as refresh_files
from leman_executor.worker import row_source
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.views.histories import functions
from tests.integration.views.histories.harness import rows_of
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SHUFFLED = next(shape for shape in SHAPES if shape.name == "shuffled")


@pytest.fixture
def world(views_system, quick_folder):
    made = World(views_system, quick_folder / "db", [SHUFFLED])
    made.refresh_and_check()
    return made


def alter(world, version):
    UdfRegistry(world.database).put(
        UdfDefinition(
            "score", version, UdfKind.SCALAR, ("id", "x", "y"), pa.int64(), entrypoint=f"{functions.__name__}:score"
        )
    )
    wanted = [ViewFunction("score", "score", version, ("id", "x", "y"))]
    change = ViewCatalog(LanceTables()).alteration(world.database, "shuffled", wanted, "")
    lance.dataset(world.uri(SHUFFLED)).update_schema_metadata(change.metadata)


def test_another_function_and_another_source_version_at_once(world):
    """No one gave the source an incarnation: its identity is that of the version, which each of two commits records."""
    held = len(rows_of(world.uri(SHUFFLED))[0])
    world.change("append", 1)
    alter(world, "2")
    functions.EVALUATED.clear()
    job = world.system.refresh(world.database, "shuffled")
    ids, found = rows_of(world.uri(SHUFFLED))
    added = len(ids) - held
    assert job.state is JobState.DONE
    assert added > 0
    assert len(functions.EVALUATED) == len(ids)  # each row once
    assert job.refresh_result.rows_added == added
    expected = {i: SHUFFLED.row(r.values) for i, r in world.source.state.rows.items()}
    assert found == [expected[i] for i in ids]


def test_one_commit_brings_another_function_and_another_source_version(world):
    """No version of the view has the new function's values for rows of the old source."""
    before = view_metadata.read(lance.dataset(world.uri(SHUFFLED)).schema)
    world.change("append", 1)
    alter(world, "2")
    world.system.refresh(world.database, "shuffled")
    versions = lance.dataset(world.uri(SHUFFLED)).versions()
    recorded = [view_metadata.read(lance.dataset(world.uri(SHUFFLED), version=v["version"]).schema) for v in versions]
    made = [d for d in recorded if d.filled.get("score") == "score@2"]
    assert [d.base_version for d in made] == [world.source.version]
    assert made[0].base_incarnation != before.base_incarnation  # no one gave the source one: it is that of the version


BLOBS, SIZE, MOST = 60, 40_000, 200_000


def blob(row: int) -> bytes | None:
    return None if row % 11 == 4 else bytes([row]) * (SIZE + row)


@pytest.fixture(params=["2.1", "2.2"])
def blob_view(views_system, tmp_path, request):
    """A view of blobs, of either form, and of a function of them."""
    database = str(tmp_path)
    form = {"lance-encoding:blob": "true"}
    values = [blob(i) for i in range(BLOBS)]
    plain = request.param == "2.1"
    field = pa.field("raw", pa.large_binary(), metadata=form) if plain else lance.blob_field("raw")
    column = pa.array(values, pa.large_binary()) if plain else lance.blob_array(values)
    table = pa.table([pa.array(range(BLOBS), pa.int64()), column], schema=pa.schema([("id", pa.int64()), field]))
    lance.write_dataset(table, f"{database}/t.lance", data_storage_version=request.param, enable_stable_row_ids=True)
    UdfRegistry(database).put(
        UdfDefinition("size", "1", UdfKind.SCALAR, ("raw",), pa.int64(), entrypoint=f"{functions.__name__}:size")
    )
    query = ViewQuery(
        database,
        "t",
        (ViewColumn("id", "id", "id"), ViewColumn("raw", "raw", "raw")),
        (ViewFunction("size", "size", "1", ("raw",)),),
        where="id >= 3",
    )
    views_system.create(database, "v", query)
    return database


@pytest.fixture
def held(monkeypatch):
    """Bytes of the batches that were read from a source or written to a view."""
    found = []
    take, write = SourceRows.take, view_files.ViewFileWriter.write

    def taken(self, *asked):
        batch = take(self, *asked)
        found.append(batch.nbytes)
        return batch

    def written(self, batch):
        found.append(batch.nbytes)
        write(self, batch)

    monkeypatch.setattr(SourceRows, "take", taken)
    monkeypatch.setattr(view_files.ViewFileWriter, "write", written)
    for module, name in (
        (view_files, "_BATCH_BYTES"),
        (refresh_files, "_BATCH_BYTES"),
        (row_source, "_CHUNK_BYTES"),
    ):
        monkeypatch.setattr(module, name, MOST)
    return found


def test_blobs_pass_into_a_view_a_few_at_a_time(views_system, blob_view, held):
    def check(gone=()):
        job = views_system.refresh(blob_view, "v")
        assert job.state is JobState.DONE, job.error
        view = lance.dataset(f"{blob_view}/v.lance")
        ids = view.to_table(columns=["id"])["id"].to_pylist()
        assert sorted(i % 1000 for i in ids) == [i for i in range(3, BLOBS) if i not in gone]
        table = view.scanner(blob_handling="all_binary", columns=["id", "raw", "size", SOURCE_ROW_ID]).to_table()
        for row in table.to_pylist():
            wanted = blob(row["id"] % 1000)
            assert (row["raw"], row["size"]) == (wanted, None if wanted is None else len(wanted))
        return job.refresh_result

    assert check().rows_added == BLOBS - 3
    lance.dataset(f"{blob_view}/t.lance").update({"id": "id + 1000"}, where="id IN (7, 50)")
    lance.dataset(f"{blob_view}/t.lance").delete("id = 9")
    result = check(gone={9})
    assert (result.rows_recomputed, result.rows_evicted, result.fragments_rewritten) == (2, 1, 1)
    lance.dataset(f"{blob_view}/t.lance").update(
        {"id": "id + 1000"}, where="id = 12"
    )  # next to the row that was evicted
    assert check(gone={9}).rows_recomputed == 1
    assert max(held) < MOST + 2 * (SIZE + BLOBS) < BLOBS * SIZE / 4
