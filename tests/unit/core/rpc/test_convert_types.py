"""Arrow schemas without Arrow: every type that Lance stores comes back as it was, and what is no type is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from leman.v1 import types_pb2
from leman_core.functions import arrow_types
from leman_core.model.service_errors import InvalidArgument
from leman_core.wire.convert_types import schema_from_either, schema_from_json, schema_to_json
from tests.integration.types import matrix, type_cases

UNITS = ("s", "ms", "us", "ns")
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
PLAIN = [
    *INTEGERS,
    *(pa.null(), pa.bool_(), pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.date64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
    *(pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC", "+02:00", "Europe/Berlin")),
]
EXTENSIONS = [
    pa.json_(),
    pa.json_(pa.large_string()),
    pa.uuid(),
    pa.bool8(),
    pa.fixed_shape_tensor(pa.float32(), (2, 3)),
    pa.fixed_shape_tensor(pa.float32(), (2, 3), dim_names=("a", "b"), permutation=(1, 0)),
    pa.opaque(pa.binary(), "geometry", "postgis"),
]
WORDS = st.sampled_from(["a", "b", "é", "x y", "a.b", "`", "数", "🙂"])
METADATA = st.none() | st.dictionaries(WORDS, WORDS, min_size=1, max_size=2)


def decimals(make, most):
    return st.integers(1, most).flatmap(lambda p: st.integers(-100, min(p, most)).map(lambda s: make(p, s)))


def fields(kinds):
    return st.builds(pa.field, WORDS, kinds, nullable=st.booleans(), metadata=METADATA)


def _map(key, item):
    """Arrow calls the parts of a map so when it reads a schema, whatever they were called."""
    return pa.map_(key.with_name("key").with_nullable(False), item.with_name("value"))


def nested(kinds):
    child = fields(kinds)
    return st.one_of(
        child.map(pa.list_),
        child.map(pa.large_list),
        st.builds(pa.list_, child, st.integers(1, 1 << 20)),
        st.lists(child, max_size=3, unique_by=lambda field: field.name).map(pa.struct),
        st.builds(_map, child, child),
    )


LEAVES = st.one_of(
    st.sampled_from([*PLAIN, *EXTENSIONS]),
    st.integers(1, 1 << 20).map(pa.binary),
    decimals(pa.decimal32, 9),
    decimals(pa.decimal64, 18),
    decimals(pa.decimal128, 38),
    decimals(pa.decimal256, 76),
    st.builds(pa.dictionary, st.sampled_from(INTEGERS), st.sampled_from(PLAIN[8:])),
)
TYPES = st.recursive(LEAVES, nested, max_leaves=6)
SCHEMAS = st.builds(pa.schema, st.lists(fields(TYPES), max_size=4), metadata=METADATA)


def there_and_back(schema):
    """Through the JSON that a caller of the HTTP interface sees."""
    message = types_pb2.JsonArrowSchema()
    json_format.Parse(json_format.MessageToJson(schema_to_json(schema)), message)
    return schema_from_json(message, "json_schema")


@given(SCHEMAS)
def test_every_schema_comes_back(schema):
    found = there_and_back(schema)
    assert found.equals(schema, check_metadata=True)
    assert [(f.name, f.type, f.nullable) for f in found] == [(f.name, f.type, f.nullable) for f in schema]


@pytest.mark.parametrize("kind", [*PLAIN, *EXTENSIONS], ids=str)
def test_every_plain_and_every_extension_type_comes_back(kind):
    schema = pa.schema([pa.field("x", kind)])
    assert there_and_back(schema).field("x").type == kind


def test_every_type_that_lance_stores_comes_back_in_every_nesting():
    kinds = [case.kind for case in type_cases.CASES] + [cell.kind for cell in matrix.cells()]
    stored = [arrow_types.stored_type(kind) for kind in kinds if matrix.allowed(kind, (2, 2))]
    assert len(stored) > 100
    for kind in stored:
        schema = pa.schema([pa.field("x", kind)])
        assert there_and_back(schema).equals(schema, check_metadata=True), kind


def test_it_is_the_json_of_the_lance_namespace_specification():
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.list_(pa.float32(), 4)), ("d", pa.decimal128(10, 2))]
    )
    assert json.loads(json_format.MessageToJson(schema_to_json(schema))) == {
        "fields": [
            {"name": "id", "type": {"type": "int64"}, "nullable": False},
            {
                "name": "v",
                "type": {
                    "type": "fixed_size_list",
                    "length": "4",
                    "fields": [{"name": "item", "type": {"type": "float32"}, "nullable": True}],
                },
                "nullable": True,
            },
            {"name": "d", "type": {"type": "decimal128", "length": "10002"}, "nullable": True},
        ]
    }


def parsed(kind):
    message = types_pb2.JsonArrowSchema()
    json_format.ParseDict({"fields": [{"name": "x", "type": kind}]}, message)
    return message


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"type": "String"}, pa.string()),
        ({"type": "BOOLEAN"}, pa.bool_()),
        ({"type": "large_string"}, pa.large_string()),
        ({"type": "timestamp"}, pa.timestamp("us")),
        ({"type": "time32"}, pa.time32("ms")),
        ({"type": "decimal128", "length": 9999}, pa.decimal128(10, -1)),
        ({"type": "utf8", "dictionaryIndexType": "INT8"}, pa.dictionary(pa.int8(), pa.string())),
    ],
)
def test_what_people_write_by_hand_is_understood(kind, expected):
    field = schema_from_json(parsed(kind), "json_schema").field("x")
    assert (field.type, field.nullable) == (expected, True)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"type": "nonsense"},
        {"type": "list"},
        {"type": "map", "fields": [{"name": "e", "type": {"type": "int8"}}]},
        {"type": "fixed_size_list", "fields": [{"name": "e", "type": {"type": "int8"}}]},
        {"type": "fixed_size_list", "length": 1 << 40, "fields": [{"name": "e", "type": {"type": "int8"}}]},
        {"type": "fixed_size_binary"},
        {"type": "fixed_size_binary", "length": -1},
        {"type": "decimal128"},
        {"type": "decimal128", "length": 99_000},
        {"type": "timestamp", "unit": "minutes"},
        {"type": "timestamp", "timezone": "UTC\n"},
        {"type": "time32", "unit": "ns"},
        {"type": "utf8", "dictionaryIndexType": "float32"},
        {"type": "int8", "length": 4},
        {"type": "utf8", "unit": "ms"},
        {"type": "time32", "timezone": "UTC"},
        {"type": "list", "length": 2, "fields": [{"name": "e", "type": {"type": "int8"}}]},
        {"type": "int8", "fields": [{"name": "e", "type": {"type": "int8"}}]},
    ],
    ids=str,
)
def test_what_is_no_type_is_refused(kind):
    with pytest.raises(InvalidArgument) as caught:
        schema_from_json(parsed(kind), "json_schema")
    assert (caught.value.reason, caught.value.field) == ("BAD_SCHEMA", "json_schema")


def test_metadata_that_is_no_text_is_in_the_ipc_form_alone():
    schema = pa.schema([pa.field("x", pa.int8(), metadata={b"a": b"\xff", b"b": b"c"})])
    assert dict(schema_to_json(schema).fields[0].metadata) == {"b": "c"}


def test_both_forms_may_come_where_they_say_the_same():
    schema, other = pa.schema([("x", pa.int8())]), pa.schema([("x", pa.int16())])
    raw = bytes(schema.serialize())
    assert schema_from_either(raw, None, "schema") == schema
    assert schema_from_either(b"", schema_to_json(schema), "schema") == schema
    assert schema_from_either(raw, schema_to_json(schema), "schema") == schema
    with pytest.raises(InvalidArgument, match="contradict") as caught:
        schema_from_either(raw, schema_to_json(other), "schema")
    assert (caught.value.reason, caught.value.field) == ("BAD_SCHEMA", "json_schema")
