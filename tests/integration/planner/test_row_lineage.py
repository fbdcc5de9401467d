"""What Lance's row lineage says of computed rows, and what not: why no plan rests on it (decision 11).

A row whose id and `_row_last_updated_at_version` are those of a time when its value was current looks as if nothing had
happened to it since. Two ways to change an input leave both as they are.
"""

import datetime as dt
import uuid

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from tests.integration.planner.planner_lake import Lake, why

ROWS = 30


@pytest.fixture
def filled(tmp_path):
    lake = Lake(tmp_path)
    lake.fill(lake.plan())
    return lake


def lineage(lake):
    """Row id → version that touched the row last."""
    table = lake.open().scanner(columns=["_row_last_updated_at_version"], with_row_id=True).to_table()
    return dict(zip(table["_rowid"].to_pylist(), table["_row_last_updated_at_version"].to_pylist(), strict=True))


def new_x(*ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([-1] * len(ids), pa.int64())})


def update(lake):
    lake.open().update({"x": "-1"}, where="id < 3")


def merge_insert(lake):
    lake.open().merge_insert("id").when_matched_update_all().execute(new_x(0, 1, 2))


def merge_insert_columns(lake):
    builder = lake.open().merge_insert("id").write_mode("rewrite_columns")
    builder.when_matched_update_all().execute(new_x(0, 1, 2))


def replace_file(lake):
    dataset, name = lake.open(), f"{uuid.uuid4().hex}.lance"
    schema = pa.schema([dataset.schema.field("x")])
    writer = LanceFileWriter(f"{lake.uri}/data/{name}", schema)
    writer.write_batch(pa.record_batch([pa.array([-1] * 10, pa.int64())], schema=schema))
    writer.close()
    group = lance.LanceOperation.DataReplacementGroup(0, lance.fragment.DataFile.create(dataset, name))
    operation = lance.LanceOperation.DataReplacement([group])
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def replace_file_behind_time(lake):
    """Staged before the last commit: Lance makes it a later version than the writer knew of."""
    before = lake.open()
    lake.open().update_config({"a": "b"})
    lake.open = lambda: before
    replace_file(lake)
    del lake.open


def cast(lake):
    lake.open().alter_columns({"path": "x", "data_type": pa.int32()})


def drop_and_fill_anew(lake):
    lake.open().drop_columns(["x"])
    lake.open().add_columns({"x": "id - 100"})


def update_columns(lake, **options):
    dataset = lake.open()
    made = dataset.get_fragment(0).update_columns(new_x(0, 1, 2), "id", "id", **options)
    more = {"updated_fragment_offsets": {0: made[2]}, "update_mode": "rewrite_columns"} if options else {}
    operation = lance.LanceOperation.Update(updated_fragments=[made[0]], fields_modified=made[1], **more)
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def update_columns_with_offsets(lake):
    update_columns(lake, with_offsets=True)


def drop_and_add(lake):
    lake.open().drop_columns(["x"])
    lake.open().add_columns(pa.field("x", pa.int64()))


def values(lake):
    table = lake.open().scanner(columns=["x"], with_row_id=True).to_table()
    return dict(zip(table["_rowid"].to_pylist(), table["x"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        update,
        merge_insert,
        merge_insert_columns,
        replace_file,
        replace_file_behind_time,
        cast,
        drop_and_fill_anew,
        update_columns_with_offsets,
    ],
)
def test_lineage_tells_of_most_changes(filled, change):
    before, old = lineage(filled), values(filled)
    change(filled)
    changed = {row for row, value in values(filled).items() if value != old[row] or change is cast}
    assert changed
    now = lineage(filled)
    assert all(now[row] > max(before.values()) for row in changed)


def test_lineage_stays_through_what_changes_no_value(filled):
    before = lineage(filled)
    filled.open().alter_columns({"path": "x", "name": "y"})
    filled.open().create_scalar_index("id", "BTREE")
    filled.open().update_config({"a": "b"})
    filled.open().optimize.compact_files()
    assert lineage(filled) == before


def test_a_restored_row_has_the_version_of_its_old_values(filled):
    """Anyone who recorded only that a row was current at some version and is older than it would be wrong."""
    unfilled = filled.open().version - 1
    before = lineage(filled)
    lance.dataset(filled.uri, version=unfilled).restore()
    assert all(now <= before[row] for row, now in lineage(filled).items())
    assert lineage(filled) != before
    assert set(why(filled.plan()).values()) == {"MISSING"}


@pytest.mark.parametrize("change", [update_columns, drop_and_add])
def test_lineage_does_not_tell_of_every_change(filled, change):
    before, old = lineage(filled), values(filled)
    change(filled)
    filled.open().optimize.compact_files()
    filled.open().update_config({"a": "b"})
    filled.open().cleanup_old_versions(older_than=dt.timedelta(0))
    assert values(filled) != old
    assert lineage(filled) == before  # "nothing happened", and the values of c are stale
    made = filled.plan()
    assert list(why(made).values()) == ["HISTORY_LOST"]
    assert made.header.rows_to_compute == ROWS
