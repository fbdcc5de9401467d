"""Blob columns, as output and as input of functions, in tables of the older and of the newer file format."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman._format.stored_functions import CheckpointBounds, UdfKind
from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_core.functions.arrow_types import is_blob
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import FailedPrecondition, NotFound
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.scan import FragmentReader
from tests.integration.types.types_pipeline import SKIP, Pipeline

FORMATS = ("2.0", "2.1", "2.2")
LARGE = 300_000
SIZES = [3, None, 0, LARGE, 1, None, 70_000]


def letters(size: int | None) -> bytes | None:
    """As many letters as asked for."""
    return None if size is None else b"x" * size


def letters_of_all(sizes: pa.Array) -> pa.Array:
    """The same for a batch."""
    return pa.array([letters(size) for size in sizes.to_pylist()], pa.binary())


def length(value: bytes | None) -> int | None:
    """Of bytes, and nothing else."""
    assert value is None or isinstance(value, bytes)
    return None if value is None else len(value)


def lengths(values: pa.Array) -> pa.Array:
    """The same for a batch."""
    assert values.type == pa.large_binary()
    return pa.array([length(value) for value in values.to_pylist()], pa.int64())


def length_or_fail(value: bytes | None) -> int | None:
    """As `length`, but not of one byte."""
    if value is not None and len(value) == 1:
        raise ValueError("one byte")
    return length(value)


def yes(_: bytes | None) -> bool:
    """For every row that is asked for."""
    return True


def lengths_of_first(batch: pa.RecordBatch) -> pa.Array:
    """Of the only column."""
    return lengths(batch.column(0))


def blob_sizes(dataset: lance.LanceDataset, column: str) -> list[int | None]:
    blobs = dataset.take_blobs(column, indices=range(dataset.count_rows()))
    found = []
    for blob in blobs:
        data = None if blob is None else blob.read()
        assert data is None or data == b"x" * len(data)
        found.append(None if data is None else len(data))
    return found


def blob_function(pipeline: Pipeline, kind: UdfKind = UdfKind.SCALAR, **more: object):
    name = letters.__name__ if kind is UdfKind.SCALAR else letters_of_all.__name__
    return pipeline.function(pa.large_binary(), kind, f"{__name__}:{name}", blob=True, **more)


@pytest.mark.parametrize("kind", [UdfKind.SCALAR, UdfKind.ARRAY], ids=lambda k: k.value)
@pytest.mark.parametrize("file_format", FORMATS)
def test_output(pipeline, file_format, kind):
    table = pipeline.table(pa.table({"x": SIZES}), file_format)
    pipeline.add(table, "b", blob_function(pipeline, kind, checkpoint=CheckpointBounds(checkpoint_size=2)))
    assert is_blob(pipeline.open(table).schema.field("b"))
    assert blob_sizes(pipeline.open(table), "b") == [None] * 7
    pipeline.backfill(table, "b")
    assert blob_sizes(pipeline.open(table), "b") == SIZES
    assert not pipeline.backfill(table, "b").tasks
    files = [f for fragment in pipeline.open(table).get_fragments() for f in fragment.data_files()]
    assert {f"{f.file_major_version}.{f.file_minor_version}" for f in files} == {file_format}


@pytest.mark.parametrize("file_format", FORMATS)
def test_output_outlives_what_is_done_to_the_table(pipeline, file_format):
    table = pipeline.table(pa.table({"x": SIZES, "n": range(7)}), file_format)
    pipeline.add(table, "b", blob_function(pipeline))
    pipeline.backfill(table, "b")
    lance.write_dataset(pa.table({"x": [5], "n": [7]}), pipeline.open(table).uri, mode="append")
    pipeline.open(table).update({"n": "n + 100"}, where="n = 3")
    pipeline.open(table).delete("n = 4")
    pipeline.backfill(table, "b")
    rows = pipeline.open(table).to_table(columns=["x", "n"])
    assert blob_sizes(pipeline.open(table), "b") == rows["x"].to_pylist()
    pipeline.open(table).optimize.compact_files()
    assert not pipeline.backfill(table, "b").tasks, "compaction leaves them current"
    rows = pipeline.open(table).to_table(columns=["x", "n"])
    assert blob_sizes(pipeline.open(table), "b") == rows["x"].to_pylist()
    lance.write_dataset(pa.table({"x": [9], "n": [8]}), pipeline.open(table).uri, mode="append")
    pipeline.backfill(table, "b")
    assert sorted(s or 0 for s in blob_sizes(pipeline.open(table), "b"))[-3:] == [9, 70_000, LARGE]


@pytest.mark.parametrize("file_format", FORMATS)
def test_filter_keeps_the_other_blobs(pipeline, file_format):
    table = pipeline.table(pa.table({"x": SIZES}), file_format)
    pipeline.add(table, "b", blob_function(pipeline))
    pipeline.backfill(table, "b", where="x >= 70000")
    assert blob_sizes(pipeline.open(table), "b") == [None, None, None, LARGE, None, None, 70_000]
    pipeline.backfill(table, "b", where="x < 70000")
    assert blob_sizes(pipeline.open(table), "b") == SIZES
    pipeline.backfill(table, "b")
    assert blob_sizes(pipeline.open(table), "b") == SIZES


@pytest.mark.parametrize("kind", [UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH], ids=lambda k: k.value)
@pytest.mark.parametrize("file_format", FORMATS)
def test_input_is_bytes(pipeline, file_format, kind):
    field = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([pa.array([letters(s) for s in SIZES], pa.large_binary())], schema=pa.schema([field]))
    table = pipeline.table(data, file_format)
    name = {UdfKind.SCALAR: "length", UdfKind.ARRAY: "lengths", UdfKind.RECORD_BATCH: "lengths_of_first"}[kind]
    declared = (pa.binary(),) if kind is UdfKind.ARRAY else ()
    udf = pipeline.function(pa.int64(), kind, f"{__name__}:{name}", input_types=declared)
    pipeline.add(table, "n", udf)
    pipeline.backfill(table, "n")
    assert pipeline.values(table, "n").to_pylist() == SIZES
    pipeline.open(table).delete("n = 3")
    pipeline.add(table, "m", udf)
    pipeline.backfill(table, "m", where="n > 1")
    assert pipeline.values(table, "m").to_pylist() == [None, None, LARGE, None, None, 70_000]
    pipeline.add(table, "k", pipeline.function(pa.bool_(), entrypoint=f"{__name__}:yes"))
    pipeline.backfill(table, "k", where="x IS NULL")
    assert pipeline.values(table, "k").to_pylist() == [True, None, None, None, True, None]


def test_input_of_the_newer_kind_and_failing_rows(pipeline):
    table = pipeline.table(pa.table({"x": lance.blob_array([letters(s) for s in SIZES])}))
    udf = pipeline.function(pa.int64(), entrypoint=f"{__name__}:length_or_fail", error_policy=SKIP)
    pipeline.add(table, "n", udf)
    pipeline.backfill(table, "n")
    assert pipeline.values(table, "n").to_pylist() == [3, None, 0, LARGE, None, None, 70_000]
    wrong = pipeline.function(pa.int64(), UdfKind.ARRAY, f"{__name__}:lengths", input_types=(pa.int32(),))
    with pytest.raises(FailedPrecondition, match=r"Type mismatch for column x: .* the column is large_b"):
        pipeline.add(table, "m", wrong)


def described(box) -> str:
    return repr(box)


@pytest.mark.parametrize("path", ["x", "x.b"])
@pytest.mark.parametrize("file_format", FORMATS)
def test_input_inside_of_a_struct_is_bytes(pipeline, file_format, path):
    values = [b"a", None, b"", letters(LARGE)]
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    boxes = pa.StructArray.from_arrays(
        [pa.array(values, blob.type), pa.array(range(4))], fields=[blob, pa.field("i", pa.int64())]
    )
    table = pipeline.table(pa.table({"x": boxes}), file_format, rows_per_file=2)
    pipeline.add(table, "d", pipeline.function(pa.string(), entrypoint=f"{__name__}:described"), inputs=(path,))
    pipeline.backfill(table, "d")
    expected = [{"b": value, "i": n} for n, value in enumerate(values)] if path == "x" else values
    assert pipeline.values(table, "d").to_pylist() == [repr(value) for value in expected]
    pipeline.open(table).delete("x.i = 1")
    pipeline.open(table).optimize.compact_files()
    assert not pipeline.backfill(table, "d").tasks
    pipeline.add(table, "e", pipeline.function(pa.string(), entrypoint=f"{__name__}:described"), inputs=(path,))
    pipeline.backfill(table, "e")
    assert pipeline.values(table, "e").to_pylist() == [repr(expected[n]) for n in (0, 2, 3)]


def test_bytes_that_lie_outside_of_the_table_are_read(pipeline, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"outside")
    data = pa.table({"x": lance.blob_array([(tmp_path / "a.bin").as_uri(), b"inside!!", None])})
    table = pipeline.table(data, allow_external_blob_outside_bases=True)
    pipeline.add(table, "n", pipeline.function(pa.int64(), entrypoint=f"{__name__}:length"))
    pipeline.backfill(table, "n")
    assert pipeline.values(table, "n").to_pylist() == [7, 8, None]
    (tmp_path / "a.bin").unlink()
    reader = FragmentReader(pipeline.open(table).uri, 0)
    with pytest.raises(NotFound, match=r"a\.bin is missing: .* Put the file back") as caught:  # not to be tried again
        reader.values(0, RowRange(0, 3), "x")
    assert caught.value.reason == "FILE_MISSING"


def test_a_part_of_a_fragment_is_replaced_beside_blobs(pipeline):
    """`update_columns` writes another column of some rows in place."""
    table = pipeline.table(pa.table({"x": SIZES, "n": range(7)}), rows_per_file=7)
    pipeline.add(table, "b", blob_function(pipeline))
    pipeline.backfill(table, "b")
    dataset = pipeline.open(table)
    changed, fields = dataset.get_fragments()[0].update_columns(
        pa.table({"n": [2], "m": [77]}).rename_columns(["n", "x"]), left_on="n", right_on="n"
    )
    update = lance.LanceOperation.Update(
        updated_fragments=[changed], new_fragments=[], removed_fragment_ids=[], fields_modified=fields
    )
    lance.LanceDataset.commit(dataset.uri, update, read_version=dataset.version)
    assert blob_sizes(pipeline.open(table), "b") == SIZES
    pipeline.backfill(table, "b")
    assert blob_sizes(pipeline.open(table), "b") == [3, None, 77, *SIZES[3:]]


def test_checkpoints_hold_the_bytes(pipeline):
    table = pipeline.table(pa.table({"x": [5, 6, 7, 8]}), rows_per_file=4)
    pipeline.add(table, "b", blob_function(pipeline, checkpoint=CheckpointBounds(checkpoint_size=2)))
    pipeline.backfill(table, "b")
    store = LanceCheckpointStore(checkpoint_root(pipeline.open(table).uri))
    stored = [store[key] for key in store.list_keys() if "_range-" in key]
    assert [batch.column("b").to_pylist() for batch in stored] == [[b"x" * 5, b"x" * 6], [b"x" * 7, b"x" * 8]]


def test_a_blob_type_as_data_type_is_refused_with_what_to_do(pipeline):
    table = pipeline.table(pa.table({"x": [1]}))
    with pytest.raises(FailedPrecondition, match="lance-encoding:blob") as caught:
        pipeline.add(table, "b", pipeline.function(lance.blob_field("b").type))
    assert caught.value.reason == "TYPE_NOT_STORABLE"


def test_a_column_of_plain_bytes_takes_no_blobs_and_a_blob_column_takes_bytes(pipeline):
    table = pipeline.table(pa.table({"x": SIZES}))
    plain = pipeline.function(pa.binary(), entrypoint=f"{__name__}:letters")
    blob = blob_function(pipeline)
    pipeline.add(table, "plain", plain)
    pipeline.add(table, "blob", blob)
    with pytest.raises(FailedPrecondition, match=r"Type mismatch for column plain: .* gives blobs") as caught:
        pipeline.backfill(table, "plain", udf_name=blob.name, udf_version="1")
    assert caught.value.reason == "TYPE_MISMATCH"
    pipeline.backfill(table, "blob", udf_name=plain.name, udf_version="1")
    assert blob_sizes(pipeline.open(table), "blob") == SIZES


@pytest.mark.parametrize("file_format", FORMATS)
def test_collecting_garbage_leaves_blobs_alone(pipeline, file_format):
    """Compaction puts large blobs of the newer kind into files of their own."""
    table = pipeline.table(pa.table({"x": SIZES}), file_format)
    pipeline.add(table, "b", blob_function(pipeline, checkpoint=CheckpointBounds(checkpoint_size=2)))
    pipeline.backfill(table, "b")
    pipeline.open(table).optimize.compact_files()
    collector = GarbageCollector(pipeline.open(table).uri, 0.0)
    _, decisions = collector.look()
    assert collector.sweep(decisions), "checkpoints of what is committed"
    assert blob_sizes(pipeline.open(table), "b") == SIZES
