"""Renamed fields of structs in inputs: a function is given the names that they had when its column was bound."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import binding
from leman_core.model.service_errors import FailedPrecondition
from leman_planner.catalog import table_catalog
from tests.integration.types.types_pipeline import Pipeline

_S = pa.struct([("a", pa.int64()), ("b", pa.int64())])
_KINDS = {
    "s": _S,
    "l": pa.list_(_S),
    "m": pa.map_(pa.string(), _S),
    "n": pa.struct([("in", _S)]),
}
_PATHS = {"s": "s.a", "l": "l.item.a", "m": "m.entries.value.a", "n": "n.in.a"}


def shown(value: Any) -> str:
    return json.dumps(value)


def shown_batch(values: pa.Array) -> pa.Array:
    return pa.array([json.dumps(value) for value in values.to_pylist()], pa.string())


def row(name: str, a: int | None, first: str = "a", second: str = "b") -> Any:
    value = None if a is None else {first: a, second: 10}
    return {"s": value, "l": [value], "m": [("k", value)], "n": {"in": value}}[name]


def made(pipeline: Pipeline, *rows: int | None) -> str:
    columns = {name: pa.array([row(name, a) for a in rows], kind) for name, kind in _KINDS.items()}
    return pipeline.table(pa.table({"id": pa.array(range(len(rows)), pa.int64()), **columns}))


def append(pipeline: Pipeline, table: str, a: int) -> None:
    """Append a row under the names that the table has."""
    dataset = pipeline.open(table)
    fields = list(dataset.schema)[: 1 + len(_KINDS)]
    old = pa.table({"id": pa.array([99], pa.int64()), **{n: pa.array([row(n, a)], k) for n, k in _KINDS.items()}})
    values = [
        pa.Array._import_from_c_capsule(field.type.__arrow_c_schema__(), column.chunk(0).__arrow_c_array__()[1])
        for field, column in zip(fields, old.columns, strict=True)
    ]
    dataset.insert(pa.Table.from_arrays(values, schema=pa.schema(fields)))


def rename(pipeline: Pipeline, table: str, *paths: tuple[str, str]) -> None:
    for path, name in paths:
        pipeline.open(table).alter_columns({"path": path, "name": name})


def function(pipeline: Pipeline, kind: UdfKind = UdfKind.SCALAR, **more: Any) -> UdfDefinition:
    name = shown if kind is UdfKind.SCALAR else shown_batch
    return pipeline.function(pa.string(), kind, f"{__name__}:{name.__name__}", **more)


def expression(pipeline: Pipeline, text: str, inputs: tuple[str, ...], output: pa.DataType) -> UdfDefinition:
    return pipeline.sql(table_catalog.sql_function_definition(text, inputs, output))


def test_rows_before_and_after_a_rename_are_given_the_same_names(pipeline):
    table = made(pipeline, 1, None)
    for column, kind in zip(_KINDS, [UdfKind.SCALAR, UdfKind.ARRAY] * 2, strict=True):
        pipeline.add(table, f"y{column}", function(pipeline, kind, input_types=(_KINDS[column],)), (column,))
        pipeline.backfill(table, f"y{column}")
    rename(pipeline, table, *((path, "renamed") for path in _PATHS.values()))
    append(pipeline, table, 3)
    for column in _KINDS:
        assert pipeline.backfill(table, f"y{column}").header.rows_to_compute == 1
        assert pipeline.values(table, f"y{column}").to_pylist() == [json.dumps(row(column, a)) for a in (1, None, 3)]


def test_names_that_are_exchanged_stay_with_their_fields(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "y", function(pipeline), ("s",))
    pipeline.add(table, "q", expression(pipeline, "s.a - s['b']", ("s",), pa.int64()), ("s",))
    rename(pipeline, table, ("s.a", "other"), ("s.b", "a"), ("s.other", "b"))
    for column in ("y", "q"):
        pipeline.backfill(table, column)
    assert pipeline.values(table, "y").to_pylist() == [json.dumps({"a": 1, "b": 10})]
    assert pipeline.values(table, "q").to_pylist() == [-9]


def test_an_expression_follows_fields_to_their_new_names(pipeline):
    table = made(pipeline, 1)
    texts = {
        "s.a * 10": "s",
        "case when s is not null then `s`['a'] * 10 end": "s",
        "l[1].a * 10": "l",
        "case when cardinality(l) = 1 then l[cast(array_length(l) as bigint)]['a'] * 10 end": "l",
        "n.in.a * 10": "n",
        "get_field(n.in, 'a') * 10": "n",
    }
    columns = {f"q{number}": text for number, text in enumerate(texts)}
    for name, text in columns.items():
        pipeline.add(table, name, expression(pipeline, text, (texts[text],), pa.int64()), (texts[text],))
    pipeline.backfill(table, "q0")
    rename(pipeline, table, *((path, "it's new") for path in _PATHS.values()), ("s", "top"))
    append(pipeline, table, 2)
    for name in columns:
        assert pipeline.backfill(table, name).header.rows_to_compute == (1 if name == "q0" else 2)
        assert pipeline.values(table, name).to_pylist() == [10, 20]


def test_an_expression_that_is_the_struct_keeps_its_names(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "q", expression(pipeline, "s", ("s",), _S), ("s",))
    rename(pipeline, table, ("s.a", "b2"))
    pipeline.backfill(table, "q")
    assert pipeline.values(table, "q").to_pylist() == [{"a": 1, "b": 10}]


def test_an_expression_that_may_see_a_new_name_is_refused(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "q", expression(pipeline, "coalesce(s, s).a", ("s",), pa.int64()), ("s",))
    rename(pipeline, table, ("s.a", "aa"))
    with pytest.raises(FailedPrecondition, match=r"Name single fields \(`s\.x`\)") as caught:
        pipeline.backfill(table, "q")
    assert caught.value.reason == "TYPE_MISMATCH"


def test_a_field_that_takes_the_name_of_a_renamed_one_is_refused(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "y", function(pipeline), ("s",))
    rename(pipeline, table, ("s.a", "aa"), ("s.b", "a"))
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").to_pylist() == [json.dumps({"a": 1, "b": 10})]
    pipeline.open(table).add_columns(pa.schema([pa.field("s", pa.struct([("b", pa.int64())]))]))
    with pytest.raises(FailedPrecondition, match="another field is now called 'b'") as caught:
        pipeline.backfill(table, "y")
    assert caught.value.reason == "TYPE_MISMATCH"


def test_an_older_version_is_read_under_the_same_names(pipeline):
    table = made(pipeline, 1)
    first = pipeline.open(table).version
    rename(pipeline, table, ("s.a", "aa"))
    pipeline.add(table, "y", function(pipeline), ("s",))
    pipeline.add(table, "q", expression(pipeline, "s.aa * 10", ("s",), pa.int64()), ("s",))
    for column in ("y", "q"):
        pipeline.backfill(table, column, read_version=first)
    assert pipeline.values(table, "y").to_pylist() == [json.dumps({"aa": 1, "b": 10})]
    assert pipeline.values(table, "q").to_pylist() == [10]


def test_a_column_that_is_bound_again_is_given_the_new_names_in_all_rows(pipeline):
    table = made(pipeline, 1)
    udf = function(pipeline)
    pipeline.add(table, "y", udf, ("s",))
    pipeline.backfill(table, "y")
    rename(pipeline, table, ("s.a", "aa"))
    pipeline.alter(table, "y", udf, keep=True)
    assert not pipeline.backfill(table, "y").tasks
    rename(pipeline, table, ("s.aa", "new"))
    pipeline.alter(table, "y", udf)
    append(pipeline, table, 2)
    assert pipeline.backfill(table, "y").header.rows_to_compute == 2
    assert pipeline.values(table, "y").to_pylist() == [json.dumps({"new": a, "b": 10}) for a in (1, 2)]
    assert not pipeline.backfill(table, "y").tasks


def test_a_filter_with_exchanged_names_is_another_filter(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "y", function(pipeline), ("id",))
    assert pipeline.backfill(table, "y", where="s.a = 10").tasks
    assert not pipeline.backfill(table, "y", where="s.a = 10").tasks
    rename(pipeline, table, ("s.a", "other"), ("s.b", "a"), ("s.other", "b"))
    pipeline.backfill(table, "y", where="s.a = 10")
    assert pipeline.values(table, "y").to_pylist() == ["0"]


def test_a_binding_without_names_gets_them_with_its_next_values(pipeline):
    table = made(pipeline, 1)
    pipeline.add(table, "y", function(pipeline), ("s",))
    dataset = pipeline.open(table)
    field = dataset.schema.field("y")
    bound = binding.read(field)
    named = (bound.column_id, bound.udf_name, bound.udf_version, bound.inputs, "y")
    older = column_bindings.bind(field, type(bound)(*named))
    dataset.update_field_metadata({"y": {k.decode(): v.decode() for k, v in older.metadata.items()}}, replace=True)
    assert binding.read(pipeline.open(table).schema.field("y")).input_names is None
    pipeline.backfill(table, "y")
    assert not pipeline.backfill(table, "y").tasks
    rename(pipeline, table, ("s.a", "aa"))
    append(pipeline, table, 2)
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").to_pylist() == [json.dumps(row("s", a)) for a in (1, 2)]
