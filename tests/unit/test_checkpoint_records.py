"""Fragment records as they are stored."""

import pyarrow as pa

from core.checkpoints.records import FragmentRecord
from core.domain.plan import FollowedFile, OutputField
from core.domain.table import TableField

FOLLOWED = FollowedFile(5, "c.lance", 3, "f" * 32, ("b.lance", "a.lance"), b"\0states", 2, 1)
OUTPUT = OutputField(TableField(pa.field("c", pa.int64()), (4, 5)), "id")


def test_a_record_is_read_as_it_was_written():
    record = FragmentRecord.of_followed(FOLLOWED, OUTPUT)
    back = FragmentRecord.from_batch(record.to_batch())
    assert back is not None
    assert (back.file, back.states, back.output_field_ids, back.column_id) == ("c.lance", b"\0states", (4, 5), "id")
    assert (back.src_data_files, back.rows_failed) == (("a.lance", "b.lance"), 1)


def test_a_record_from_before_there_were_states_is_read():
    batch = FragmentRecord.of_followed(FOLLOWED, OUTPUT).to_batch().drop_columns(["states"])
    back = FragmentRecord.from_batch(batch)
    assert back is not None
    assert back.states == b""


def test_a_record_without_any_other_field_is_not_used():
    batch = FragmentRecord.of_followed(FOLLOWED, OUTPUT).to_batch()
    for name in batch.schema.names:
        if name != "states":
            assert FragmentRecord.from_batch(batch.drop_columns([name])) is None
