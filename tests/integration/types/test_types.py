"""Every Arrow type that Lance stores, as input and as output of every kind of function."""

from __future__ import annotations

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from leman._format.stored_functions import CheckpointBounds, UdfKind
from leman_core.functions import arrow_types
from leman_core.model.service_errors import FailedPrecondition
from leman_core.storage.panics import panics_as_errors
from tests.integration.types.matrix import FORMATS
from tests.integration.types.type_cases import CASES, REFUSED, Case
from tests.integration.types.types_pipeline import SKIP, Pipeline

KINDS = (UdfKind.SCALAR, UdfKind.ARRAY, UdfKind.RECORD_BATCH)


def with_null(values: pa.Array) -> pa.Array:
    """The same values in a dictionary of its own, which holds NULL."""
    return pc.dictionary_encode(values.dictionary_decode(), null_encoding="encode").cast(values.type)


def with_input(pipeline: Pipeline, case: Case, file_format: str = "2.2") -> str:
    stored = case.make().cast(arrow_types.stored_type(case.kind))
    return pipeline.table(pa.table({"id": range(len(stored)), "x": stored}), file_format)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_round_trip(pipeline, case):
    table = with_input(pipeline, case)
    expected = pipeline.values(table, "x")
    for kind in KINDS:
        udf = pipeline.function(case.kind, kind, checkpoint=CheckpointBounds(checkpoint_size=2))
        pipeline.add(table, kind.value, udf)
        assert pipeline.values(table, kind.value).null_count == len(expected)
        pipeline.backfill(table, kind.value)
        found = pipeline.values(table, kind.value)
        assert found.type == arrow_types.stored_type(case.kind)
        assert found.to_pylist() == expected.to_pylist(), kind
        assert not pipeline.backfill(table, kind.value).tasks, "nothing is left"


@pytest.mark.parametrize("file_format", ["2.0", "2.1"])
def test_older_file_formats(pipeline, file_format):
    """Column files are written in the table's format: Lance can still compact what it then holds."""
    one_of_each = {case.kind.id: case for case in CASES if case.since <= FORMATS[file_format]}
    for case in one_of_each.values():
        table = with_input(pipeline, case, file_format)
        udf = pipeline.function(case.kind, UdfKind.ARRAY)
        pipeline.add(table, "y", udf)
        pipeline.backfill(table, "y")
        files = [file for fragment in pipeline.open(table).get_fragments() for file in fragment.data_files()]
        assert {(f.file_major_version, f.file_minor_version) for f in files} == {FORMATS[file_format]}
        pipeline.open(table).optimize.compact_files()
        assert pipeline.values(table, "y").to_pylist() == pipeline.values(table, "x").to_pylist(), case.title


@pytest.mark.parametrize("case", [*CASES, *REFUSED], ids=lambda case: case.title)
def test_what_is_refused_is_what_lance_refuses(tmp_path, case):
    for name, file_format in FORMATS.items():
        refused = not _allowed(case, file_format)
        assert refused is not _lance_stores(case, name, tmp_path / name), name
        assert refused is not (case in CASES and case.since <= file_format), name


def _allowed(case: Case, file_format: tuple[int, int]) -> bool:
    try:
        arrow_types.check_storable("y", case.kind, file_format)
    except FailedPrecondition as error:
        return not _well_said(error, case)
    return True


def _well_said(error: FailedPrecondition, case: Case) -> bool:
    """It names column and type, and says what to do."""
    what, _, advice = error.message.rstrip(")").partition(". ")
    return error.reason == "TYPE_NOT_STORABLE" and "Column 'y'" in what and str(case.kind) in what and len(advice) > 10


def _lance_stores(case: Case, file_format: str, path: object) -> bool:
    """Beside another column in one file, as compaction writes them; and whether Arrow can then join what it reads."""
    array = case.make()
    if arrow_types.stored_type(case.kind) != case.kind:  # as a column has it
        array = array.cast(arrow_types.stored_type(case.kind))
    try:
        with panics_as_errors():
            written = lance.write_dataset(
                pa.table({"c": array, "n": range(len(array))}), str(path), data_storage_version=file_format
            )
            return written.to_table()["c"].to_pylist() == array.to_pylist() and _arrow_joins(array)
    except (OSError, ValueError, RuntimeError, NotImplementedError, pa.ArrowException):
        return False


def _arrow_joins(array: pa.Array) -> bool:
    """Whether dictionaries that differ become one."""
    if not isinstance(array, pa.DictionaryArray):
        return True
    other = pa.DictionaryArray.from_arrays(array.indices, pa.concat_arrays([array.dictionary, array.dictionary]))
    return pa.concat_arrays([array, other]).to_pylist() == array.to_pylist() * 2


def test_a_type_that_is_not_stored_is_refused_when_the_column_is_added(pipeline):
    table = pipeline.table(pa.table({"x": [1, 2]}))
    version = pipeline.open(table).version
    with pytest.raises(FailedPrecondition, match=r"list_view.*\. Use pa\.list_") as caught:
        pipeline.add(table, "y", pipeline.function(pa.list_(pa.list_view(pa.float32()))))
    assert caught.value.facts == {"column": "y", "type": "list<item: list_view<item: float>>"}
    assert pipeline.open(table).version == version
    old = pipeline.table(pa.table({"x": [1, 2]}), "2.0")
    with pytest.raises(FailedPrecondition, match=r"data_storage_version='2\.2'"):
        pipeline.add(old, "y", pipeline.function(pa.map_(pa.string(), pa.int32())))


@pytest.mark.parametrize("wrap", [lambda kind: kind, lambda kind: pa.struct([("a", kind)])])
def test_a_column_that_lance_cannot_read_is_no_input(pipeline, wrap):
    """Lance writes a fixed-size list of structs, and then does not find its values."""
    pairs = pa.array([[{"a": 1}, {"a": 2}]], pa.list_(pa.struct([("a", pa.int32())]), 2))
    kind = wrap(pairs.type)
    table = pipeline.table(pa.table({"x": pairs if kind == pairs.type else pa.StructArray.from_arrays([pairs], ["a"])}))
    with pytest.raises(FailedPrecondition, match=r"Column 'x' .* cannot be read: .* with pa\.list_") as caught:
        pipeline.add(table, "y", pipeline.function(pa.string()))
    assert (caught.value.reason, caught.value.facts) == ("TYPE_NOT_STORABLE", {"column": "x", "type": str(kind)})


@pytest.mark.parametrize("file_format", FORMATS)
def test_dictionaries_of_batches_that_hold_null_are_joined(pipeline, file_format):
    """Those that Lance reads of its oldest format do, and a function may make such ones."""
    kind = pa.dictionary(pa.int8(), pa.string())
    values = pa.array(["a", None, "b", "c", "d", None, "a", "e"]).dictionary_encode().cast(kind)
    table = pipeline.table(pa.table({"x": values}), file_format, rows_per_file=8)
    pipeline.add(table, "y", pipeline.function(kind, UdfKind.ARRAY, entrypoint=f"{__name__}:with_null", batch_size=2))
    pipeline.backfill(table, "y", where="x != 'c'")
    assert pipeline.values(table, "y").to_pylist() == ["a", None, "b", None, "d", None, "a", "e"]
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").to_pylist() == values.to_pylist()


def test_a_value_that_python_does_not_have_is_a_failed_row(pipeline):
    seconds = pa.array([0, 10**14, None], pa.timestamp("s"))
    table = pipeline.table(pa.table({"x": seconds, "n": range(3)}))
    pipeline.add(table, "y", pipeline.function(pa.timestamp("s"), error_policy=SKIP))
    pipeline.failures.clear()
    pipeline.backfill(table, "y")
    assert pipeline.values(table, "y").cast(pa.int64()).to_pylist() == [0, None, None]
    assert [(f.error_type, f.offset, f.attempt) for f in pipeline.failures] == [("InputError", 1, 1)]
    assert "a value of type timestamp[s] cannot be given to a function" in pipeline.failures[0].error_message
    pipeline.add(table, "z", pipeline.function(pa.timestamp("s"), UdfKind.ARRAY))
    pipeline.backfill(table, "z")
    assert pipeline.values(table, "z").equals(seconds), "a function of whole batches has no trouble with it"
