"""Fields of structs as inputs: `box.w`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from leman._format.stored_functions import UdfKind
from leman_core.model.service_errors import FailedPrecondition
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.source_rows import SourceRows, plain_columns
from leman_planner.catalog.table_catalog import computed_columns
from tests.integration.types.types_pipeline import Pipeline

_POINT = pa.struct([("x", pa.int64()), ("label", pa.string())])
_BOX = pa.struct([("w", pa.int64()), ("tags", pa.list_(pa.string())), ("at the top", _POINT)])
ROWS = [
    {"w": 1, "tags": ["a"], "at the top": {"x": 10, "label": "p"}},
    {"w": None, "tags": None, "at the top": None},
    None,
    {"w": 4, "tags": [], "at the top": {"x": None, "label": "q"}},
    {"w": 5, "tags": ["b", None], "at the top": {"x": 50, "label": None}},
]
PATHS = {
    "box.w": pa.int64(),
    "box.tags": pa.list_(pa.string()),
    "box.at the top": _POINT,
    "box.at the top.x": pa.int64(),
}


def boxes(pipeline: Pipeline) -> str:
    return pipeline.table(pa.table({"id": range(5), "box": pa.array(ROWS, _BOX)}))


def at(path: str) -> list[object]:
    found: list[object] = list(ROWS)
    for name in path.split(".")[1:]:
        found = [row[name] if isinstance(row, dict) else None for row in found]
    return found


@pytest.mark.parametrize("path", PATHS)
def test_a_function_is_given_the_field(pipeline, path):
    table = boxes(pipeline)
    for kind in (UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH):
        pipeline.add(table, kind.value, pipeline.function(PATHS[path], kind), (path,))
        pipeline.backfill(table, kind.value, where="id <> 4 and box.w is null" if kind is UdfKind.ARRAY else "")
        pipeline.backfill(table, kind.value)
        assert pipeline.values(table, kind.value).to_pylist() == at(path)
        assert not pipeline.backfill(table, kind.value).tasks
    source = SourceRows(pipeline.open(table).uri, 1)
    assert source.take(np.concatenate(list(source.all_ids())), plain_columns([path])).column(0).to_pylist() == at(path)


def test_rows_that_were_deleted_are_left_out(pipeline):
    table = boxes(pipeline)
    pipeline.open(table).delete("id = 0")
    pipeline.add(table, "y", pipeline.function(pa.int64()), ("box.w",))
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").to_pylist() == at("box.w")[1:]


def test_whatever_is_written_to_the_column_makes_values_stale(pipeline):
    table = boxes(pipeline)
    pipeline.add(table, "y", pipeline.function(pa.int64()), ("box.w",))
    pipeline.backfill(table, "y")
    dataset = pipeline.open(table)
    dataset.update({"box": "box"}, where="id = 0")
    plan = pipeline.backfill(table, "y")
    assert len(plan.tasks) == 1
    assert plan.header.rows_to_compute == 1


def test_a_field_or_column_that_is_renamed_is_traced(pipeline):
    table = boxes(pipeline)
    pipeline.add(table, "y", pipeline.function(pa.int64()), ("box.at the top.x",))
    pipeline.open(table).alter_columns({"path": "box.at the top.x", "name": "y"})
    pipeline.open(table).alter_columns({"path": "box", "name": "crate"})
    snapshot = LanceTables().snapshot(pipeline.open(table).uri)
    assert [c.input_columns for c in computed_columns(snapshot)] == [("crate.at the top.y",)]
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").to_pylist() == at("box.at the top.x")


def test_another_field_of_the_same_column_is_another_input(pipeline):
    table = boxes(pipeline)
    snapshot = LanceTables().snapshot(pipeline.open(table).uri)
    w, x = snapshot.find("box.w"), snapshot.find("box.at the top.x")
    assert w.field_ids != x.field_ids
    assert set(snapshot.column("box").field_ids) == set(w.field_ids) == set(x.field_ids)


@pytest.mark.parametrize("path", ["box.nope", "box.tags.item", "id.x", "box.", ".w", "box.w.z"])
def test_a_field_that_is_none_is_refused(pipeline, path):
    table = boxes(pipeline)
    with pytest.raises(FailedPrecondition) as caught:
        pipeline.add(table, "y", pipeline.function(pa.int64()), (path,))
    assert caught.value.reason == "INPUT_COLUMN_MISSING"


def test_its_type_is_checked(pipeline):
    with pytest.raises(FailedPrecondition, match=r"Type mismatch for column box\.w"):
        pipeline.add(boxes(pipeline), "y", pipeline.function(pa.int64(), input_types=(pa.string(),)), ("box.w",))
