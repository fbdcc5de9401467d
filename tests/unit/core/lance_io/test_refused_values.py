"""Values that Lance refuses for good are refused by the name of their column, and not tried again."""

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation
from lance.file import LanceFileWriter
from lance.fragment import DataFile

from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.error_translation import is_definite
from leman_core.storage.lance_tables import LanceTables


def write(writer, values):
    writer.write(values)
    writer.close(None, frozenset(), "w.lance")


def test_a_dictionary_that_a_file_format_cannot_hold_is_refused_by_its_column(tmp_path):
    words = pa.array([f"v{i}" for i in range(128)])
    indices = pa.array([*range(128), None], pa.int8())
    values = pa.DictionaryArray.from_arrays(indices, words)
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), uri)
    writer = ColumnFileWriter(uri, pa.field("w", values.type), (2, 0))
    writer.open("w.lance")
    with pytest.raises(FailedPrecondition, match=r"column 'w' of type dictionary.*wider indices") as refused:
        write(writer, values)
    assert refused.value.reason == "TYPE_NOT_STORABLE"


@pytest.mark.parametrize(
    ("error", "definite"),
    [
        (OSError("LanceError(Arrow): Invalid argument error: Failed to encode JSON"), True),
        (ValueError("Invalid user input: dictionary indices use 32 bits"), True),
        (OSError("Lance panicked: out of range"), True),
        (OSError("LanceError(IO): timed out, Invalid user input"), False),
        (ValueError("LanceError(IO): Generic S3 error"), False),
        (OSError("No space left on device (os error 28)"), False),
        (OSError("something else"), False),
    ],
)
def test_what_is_definite(error, definite):
    assert is_definite(error) is definite


def overlay(uri: str, values: dict[str, str | int], offset: int) -> None:
    """Commit values over a row of fragment 0, without another file of its columns."""
    table = lance.dataset(uri)
    rows = pa.RecordBatch.from_pylist([values])
    writer = LanceFileWriter(f"{uri}/data/o.lance", rows.schema)
    writer.write_batch(rows)
    writer.close()
    over = LanceOperation.DataOverlayFile(DataFile.create(table, "o.lance"), [offset])
    operation = LanceOperation.DataOverlay([LanceOperation.DataOverlayGroup(0, [over])])
    lance.LanceDataset.commit(uri, operation, read_version=table.version)


def test_a_table_with_overlays_is_refused_by_their_name(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1, 2], "t": ["a", "b"]}), uri, enable_stable_row_ids=True)
    overlay(uri, {"t": "z"}, 1)
    with pytest.raises(FailedPrecondition, match="data overlay files") as refused:
        LanceTables().snapshot(uri)
    assert refused.value.reason == "TABLE_NOT_SUPPORTED"


def test_a_column_that_sql_does_not_find_is_named(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": [1]}), uri)
    with pytest.raises(FailedPrecondition, match="Column 'nothing' not found") as refused:
        LanceTables().expression_type(uri, "nothing + id")
    assert (refused.value.reason, refused.value.facts["columns"]) == ("INPUT_COLUMN_MISSING", "nothing")


@pytest.mark.parametrize("expression", ["s.x", "box.x + 1", "get_field(box, 'x')", "s.x.y"])
def test_a_field_that_a_column_lacks_is_no_missing_column(tmp_path, expression):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"s": ["a"], "box": [{"w": 1}]}), uri)
    with pytest.raises(
        InvalidArgument, match=r"has no field of that name|Cannot access field|not found in struct"
    ) as refused:
        LanceTables().expression_type(uri, expression)
    assert "not found in table" not in refused.value.message


@pytest.mark.parametrize("sql", ["cast(s as bogus)", "s::bogus", "try_cast(s as Bogus)"])
def test_an_unknown_type_is_named_without_the_parser_s_form_of_it(tmp_path, sql):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"s": ["a"]}), uri)
    for check, text in ((LanceTables().expression_type, sql), (LanceTables().check_filter, f"{sql} = 1")):
        with pytest.raises(InvalidArgument, match=r"(?i)'bogus' is no type.*bigint, int") as refused:
            check(uri, text)
        assert "Ident" not in refused.value.message
