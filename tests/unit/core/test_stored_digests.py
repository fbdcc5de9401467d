"""Whatever bit is flipped in what is stored about a column, a view or a file's rows: it is refused, not believed."""

import numpy as np
import pyarrow as pa
import pytest

from leman._format import column_bindings, stored_documents, view_definitions
from leman._format.column_bindings import ColumnBinding, ColumnInput, FunctionVersion, InputSource
from leman._format.view_definitions import ViewColumn, ViewDefinition, ViewFormat, ViewFunction, ViewQuery
from leman_core.functions import binding
from leman_core.model import row_states, view_metadata
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import DataLoss, UnknownFormat

BINDINGS = {
    "plain": ColumnBinding("id", "f", "1", (ColumnInput("x", 0), ColumnInput("y", 1)), "c"),
    "kept": ColumnBinding("id", "f", "2", (ColumnInput("x", 0),), "c", (FunctionVersion("f", "1"),)),
    "sourced": ColumnBinding("id", "f", "1", (ColumnInput("x", 0),), "c", (), InputSource("/t.lance", 7, ("x",))),
}
QUERY = ViewQuery(
    database="/data",
    table="t",
    columns=(ViewColumn("a", "`a`", "a"),),
    functions=(ViewFunction("n", "f", "1", ("a",)),),
    where="a > 21",
    shuffle=True,
    seed=42,
    limit=100,
    offset=0,
)
VIEW = ViewDefinition(
    query=QUERY,
    source_uri="/data/t.lance",
    base_version=7,
    base_incarnation="inc",
    format=ViewFormat.STABLE_ROW_IDS,
    filled={"n": "f@1"},
)


def flips(data):
    """The data with each of its bits flipped."""
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            yield bytes(flipped)


def damaged(metadata):
    """The entries with each bit of each key and value flipped."""
    for key, value in metadata.items():
        rest = {k: v for k, v in metadata.items() if k != key}
        for changed in flips(key):
            yield {**rest, changed: value}
        for changed in flips(value):
            yield {**rest, key: changed}


@pytest.mark.parametrize("bound", BINDINGS.values(), ids=BINDINGS)
def test_no_flipped_bit_binds_a_column_to_something_else(bound):
    field = column_bindings.bind(pa.field("c", pa.int64()), bound)
    assert binding.read(field) == bound
    for metadata in damaged(field.metadata):
        try:
            found = binding.read(field.with_metadata(metadata))
        except DataLoss:
            continue
        except UnknownFormat:  # the number of the format, which no digest can cover
            assert metadata.get(column_bindings.FORMAT) != field.metadata[column_bindings.FORMAT]
        else:  # without a number it is of format 1
            assert found == bound
            assert column_bindings.FORMAT not in metadata


@pytest.mark.parametrize(
    "key", [column_bindings.KEPT, column_bindings.SOURCE, column_bindings.ADDED_AS, column_bindings.DIGEST]
)
def test_no_entry_of_a_binding_can_be_lost_unnoticed(key):
    whole = {**column_bindings.bind(pa.field("c", pa.int64()), BINDINGS["sourced"]).metadata}
    if key == column_bindings.KEPT:
        whole = {**column_bindings.bind(pa.field("c", pa.int64()), BINDINGS["kept"]).metadata}
    del whole[key]
    with pytest.raises(DataLoss):
        binding.read(pa.field("c", pa.int64(), metadata=whole))


def test_no_flipped_bit_makes_a_view_hold_something_else():
    written = view_definitions.write(pa.schema([]), VIEW).metadata
    assert view_metadata.from_metadata(written) == VIEW
    for metadata in damaged(written):
        try:
            found = view_metadata.from_metadata(metadata)
        except DataLoss:
            continue
        except UnknownFormat:
            assert metadata.get(view_definitions.FORMAT.encode()) != written[view_definitions.FORMAT.encode()]
        else:  # without the entry it is a view of an earlier release
            assert found == VIEW
            assert view_definitions.IN_OWN_DATABASE.encode() not in metadata


@pytest.mark.parametrize("older", [(), ("0123456789abcdef",)], ids=["own", "older"])
def test_no_flipped_bit_of_row_states_is_believed(older):
    states = np.array([RowState.UNTOUCHED, RowState.COMPUTED, RowState.FAILED] * 40, np.uint8)
    if older:
        states[:10] = row_states.with_version(RowState.COMPUTED, 1)
    buffer = row_states.encode_states(states, frozenset({"f" * 32}), older)
    assert row_states.decode_states(buffer).tolist() == states.tolist()
    for changed in [*flips(buffer), b"", buffer[:-1], buffer + b"x"]:
        for read in (row_states.decode_states, row_states.decode_state_summary):
            with pytest.raises(ValueError, match="digest"):
                read(changed)


def test_sealed_documents_are_read_as_they_were_written():
    assert stored_documents.unseal(stored_documents.seal({"a": 1.5, "b": ["ü", None]})) == {"a": 1.5, "b": ["ü", None]}
    for changed in flips(stored_documents.seal({"a": 1})):
        with pytest.raises(ValueError):  # noqa: PT011 - damage may be found by the JSON parser
            stored_documents.unseal(changed)


@pytest.mark.parametrize("content", [b"[]", b"0", b"null", b'"sha256"', b"{}", b""])
def test_json_that_is_no_sealed_document_is_refused_as_damage(content):
    with pytest.raises(ValueError):  # noqa: PT011 - damage may be found by the JSON parser
        stored_documents.unseal(content)
