"""How many rows are read at once, before and after their width is known."""

import pyarrow as pa
import pytest

from leman_core.storage.scan import CHUNK_ROWS
from leman_executor.worker.row_source import first_rows, rows_within

BYTES = 1 << 16


@pytest.mark.parametrize("wide", [pa.string(), pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.string())])])
def test_a_few_rows_are_read_to_learn_how_wide_they_are(wide):
    assert first_rows(BYTES, pa.schema([("id", pa.int64()), ("wide", wide)])) == 64


def test_rows_of_known_width_fill_a_batch():
    schema = pa.schema([("id", pa.int64()), ("set", pa.bool_()), ("x", pa.float32()), ("at", pa.timestamp("us"))])
    rows = first_rows(BYTES, schema)
    batch = pa.RecordBatch.from_pylist([{}] * rows, schema=schema)
    assert BYTES / 2 < batch.nbytes <= BYTES
    assert rows_within(BYTES, batch) >= rows


def test_no_more_than_a_chunk():
    assert first_rows(1 << 40, pa.schema([("id", pa.int64())])) == CHUNK_ROWS
