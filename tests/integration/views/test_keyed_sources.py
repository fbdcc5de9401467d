"""Tables with an unenforced primary key: columns and views that are computed from them carry no key."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

import leman
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewFunction
from tests.integration.views.view_lake import ViewLake, column

KEY = "lance-schema:unenforced-primary-key"
PLACES = [{KEY: "true"}, {f"{KEY}:position": "1"}, {"lance-schema:unenforced-clustering-key:position": "1"}]


def keyed(metadata: dict[str, str], rows: int = 6) -> pa.Table:
    """`x` is the key; `inner.k` as well where it is a primary one."""
    second = {KEY: "true"} if metadata.get(KEY) else None
    inner = pa.struct([pa.field("k", pa.int64(), nullable=False, metadata=second), pa.field("w", pa.int64())])
    schema = pa.schema(
        [
            pa.field("x", pa.int64(), nullable=False, metadata={**metadata, "unit": "m"}),
            pa.field("inner", inner, nullable=False),
        ]
    )
    return pa.Table.from_pylist([{"x": i, "inner": {"k": i, "w": -i}} for i in range(rows)], schema=schema)


def keys_in(schema: pa.Schema) -> list[str]:
    return [line for line in str(schema).splitlines() if "lance-schema:" in line]


@pytest.mark.parametrize("metadata", PLACES, ids=["flag", "position", "clustering"])
def test_a_copy_of_a_key_is_no_key(tmp_path, metadata):
    lake = ViewLake(tmp_path)
    data = keyed(metadata)
    lance.write_dataset(data, f"{lake.database}/keyed.lance", enable_stable_row_ids=True)
    assert keys_in(lake.creation(lake.query(table="keyed"), "whole").schema) == []
    columns = [column("x"), ViewColumn("renamed", "x"), ViewColumn("sum", "x + 1"), ViewColumn("same", "`inner`")]
    struct = UdfDefinition(
        "inside", "1", UdfKind.SCALAR, ("x",), data.schema.field("inner").type, (pa.int64(),), entrypoint="m:inside"
    )
    lake.registry.put(struct)
    function = ViewFunction("made", "inside", "", ("x",))
    schema = lake.creation(lake.query(*columns, functions=[function], table="keyed"), "chosen").schema
    assert keys_in(schema) == []
    assert schema.field("x").metadata[b"unit"] == b"m"
    lance.write_dataset(schema.empty_table(), f"{lake.database}/tried.lance")


def test_columns_and_views_of_a_table_with_a_key_follow_it(db, call_log):
    data = keyed({KEY: "true"})
    table = db.create_table("keyed", data)
    inner = data.schema.field("inner").type
    double = call_log.double(version="1")

    @leman.udf(data_type=inner)
    def again(inner: dict[str, int]) -> dict[str, int]:
        return inner

    table.add_columns({"y": double, "again": again, "next": "x + 1"})
    for name in ("y", "again", "next"):
        table.backfill(name, progress=False)
    view = db.create_materialized_view(
        "v", table.search(None).select(["x", "inner", "y", "next"]).add_column("z", again)
    )
    view.refresh(progress=False)
    new = keyed({}, 8).slice(5).cast(data.schema)
    table.to_lance().merge_insert("x").when_matched_update_all().when_not_matched_insert_all().execute(new)
    for name in ("y", "again", "next"):
        table.backfill(name, progress=False)
    table.to_lance().optimize.compact_files()
    view.refresh(progress=False)

    rows = sorted(view.to_arrow().to_pylist(), key=lambda row: row["x"])
    assert [row["x"] for row in rows] == list(range(8))
    assert all(row["y"] == 2 * row["x"] and row["next"] == row["x"] + 1 for row in rows)
    assert all(row["z"] == row["inner"] == {"k": row["x"], "w": -row["x"]} for row in rows)
    assert sorted(set(call_log.seen())) == list(range(8))
    assert keys_in(view.to_lance().schema) == []
    assert len(keys_in(table.to_lance().schema)) == 2
