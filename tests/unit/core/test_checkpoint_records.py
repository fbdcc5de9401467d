"""Fragment records as they are stored."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from leman_core.model.plan import TracedFile
from leman_core.storage.checkpoint_records import FragmentRecord, pack_records, unpack_records

TRACED = TracedFile(
    fragment_id=5,
    file="c.lance",
    physical_rows=3,
    fingerprint="f" * 32,
    input_files=("b.lance", "a.lance"),
    row_states=b"\0states",
    rows_computed=2,
    rows_failed=1,
    column_id="id",
    output_field_ids=(4, 5),
)


def test_a_record_is_read_as_it_was_written():
    record = FragmentRecord.of_traced(TRACED)
    back = FragmentRecord.from_batch(record.to_batch())
    assert back is not None
    assert (back.file, back.states, back.output_field_ids, back.column_id) == ("c.lance", b"\0states", (4, 5), "id")
    assert (back.src_data_files, back.rows_failed) == (("a.lance", "b.lance"), 1)


def as_before(record: FragmentRecord) -> dict[str, object]:
    """A column for each field, as earlier releases stored a record."""
    fields = {name: getattr(record, name) for name in FragmentRecord.__dataclass_fields__}
    lists = {name: json.dumps(list(fields[name])) for name in ("src_data_files", "output_field_ids")}
    return fields | lists


def test_a_record_of_an_earlier_release_is_read():
    record = FragmentRecord.of_traced(TRACED)
    assert FragmentRecord.from_batch(pa.RecordBatch.from_pylist([as_before(record)])) == record
    row = as_before(record)
    del row["states"], row["rows_older"]
    back = FragmentRecord.from_batch(pa.RecordBatch.from_pylist([row]))
    assert back is not None
    assert (back.states, back.rows_older) == (b"", 0)


def test_records_with_and_without_states_are_stored_together():
    one = FragmentRecord.of_traced(TRACED)
    other = replace(one, file="d.lance", src_data_files=("a.lance",), states=b"")
    assert unpack_records(pack_records([one, other])) == [replace(one, src_data_files=("a.lance", "b.lance")), other]
    assert pack_records([other]).num_columns == 4


def test_a_record_without_any_other_field_is_not_used():
    record = FragmentRecord.of_traced(TRACED)
    for name in FragmentRecord.__dataclass_fields__:
        if name not in ("states", "rows_older", "compared"):
            row = {k: v for k, v in as_before(record).items() if k != name}
            assert FragmentRecord.from_batch(pa.RecordBatch.from_pylist([row])) is None
    batch = record.to_batch()
    for name in batch.schema.names:
        if name != "states":
            assert FragmentRecord.from_batch(batch.drop_columns([name])) is None


@pytest.mark.parametrize("more", ["{}", "[1]", "no JSON", "null", None])
def test_a_record_of_which_a_part_cannot_be_read_is_not_used(more):
    row = FragmentRecord.of_traced(TRACED).to_batch().to_pylist()[0] | {"more": more}
    assert FragmentRecord.from_batch(pa.RecordBatch.from_pylist([row])) is None
