"""What the metadata of computed columns says, where their inputs are another table's."""

import json

import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman_core.functions import binding
from leman_core.model.service_errors import AlreadyExists, DataLoss
from leman_core.model.udf import ColumnBinding, ColumnInput, InputSource

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
