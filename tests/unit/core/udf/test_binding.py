"""What the metadata of computed columns says, where their inputs are another table's."""

import dataclasses
import json

import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, InputSource
from leman_core.functions import binding
from leman_core.model.service_errors import AlreadyExists, DataLoss
from leman_core.model.table import TableField

PLAIN = ColumnBinding("id", "f", "1", (ColumnInput("__source_row_id", 0),))
SOURCE = InputSource("/data/t.lance", 7, ("x", "y z"))
FIELD = pa.field("c", pa.int64(), metadata={"mine": "stays"})


def sourced():
    return column_bindings.bind(FIELD, ColumnBinding("id", "f", "1", PLAIN.inputs, source=SOURCE))


def test_source_is_read_as_it_was_written():
    assert binding.read(sourced()).source == SOURCE
    assert json.loads(sourced().metadata[b"leman::source"]) == {
        "uri": "/data/t.lance",
        "version": 7,
        "columns": ["x", "y z"],
    }


def test_a_column_of_the_table_itself_has_none():
    assert binding.read(column_bindings.bind(FIELD, PLAIN)).source is None
    assert b"leman::source" not in column_bindings.bind(FIELD, PLAIN).metadata


def test_another_binding_takes_the_source_away():
    again = column_bindings.bind(sourced(), PLAIN)
    assert binding.read(again) == PLAIN
    assert again.metadata[b"mine"] == b"stays"


@pytest.mark.parametrize("stored", [b"{", b"[]", b'{"uri": "u"}', b'{"uri": "u", "version": "x", "columns": []}'])
def test_a_damaged_source_is_told(stored):
    field = sourced()
    with pytest.raises(DataLoss, match="drop the column"):
        binding.read(field.with_metadata({**field.metadata, b"leman::source": stored}))


def test_the_id_of_a_request_that_made_a_column_is_refused_to_another_one():
    fields = [FIELD, binding.mark(FIELD, "r", "body")]
    binding.check_request(fields, "r", "body")
    binding.check_request(fields, "s", "other")
    binding.check_request([binding.mark(FIELD, "", "body")], "", "other")
    with pytest.raises(AlreadyExists) as caught:
        binding.check_request(fields, "r", "other")
    assert caught.value.reason == "REQUEST_ID_REUSED"


def struct(name: str) -> TableField:
    child = TableField(pa.field(name, pa.int64()), (1,))
    return TableField(pa.field("s", pa.struct([(name, pa.int64())])), (0, 1), (child,))


def test_values_are_stale_once_a_field_of_an_input_has_another_name_unless_they_are_kept():
    first = binding.names_of([struct("a")])
    assert first is not None
    assert first.names == ((1, "a"),)
    before = ColumnBinding("c0ffee", "f", "1", (ColumnInput("s", 0),), added_as="y", input_names=first)
    assert binding.names_of([struct("a")], before) == first
    renamed = binding.names_of([struct("b")], before)
    assert renamed is not None
    assert (renamed.names, renamed.since != first.since) == (((1, "b"),), True)
    kept = binding.names_of([struct("b")], before, keep=True)
    assert kept is not None
    assert (kept.names, kept.since) == (((1, "b"),), first.since)
    unknown = dataclasses.replace(before, input_names=None)  # of an earlier release
    assert binding.names_of([struct("b")], unknown) == binding.names_of([struct("b")])
    assert binding.names_of([TableField(pa.field("x", pa.int64()), (0,))], before) is None
