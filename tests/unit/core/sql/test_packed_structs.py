"""Packed structs: Lance reads them as a whole, and gives wrong values for their single fields, which are refused."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman import local
from leman_core.functions import arrow_types
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import TableSnapshot
from leman_core.storage.lance_tables import LanceTables

_ROWS = [{"a": n, "b": n / 2} for n in range(10)]


def _written(path: Path, file_format: str, key: str) -> str:
    field = pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.float32())]), metadata={key: "true"})
    lance.write_dataset(
        pa.table([pa.array(_ROWS, field.type), range(10)], schema=pa.schema([field, ("n", pa.int64())])),
        path,
        data_storage_version=file_format,
    )
    return str(path)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _written(tmp_path_factory.mktemp("packed") / "t.lance", "2.2", "packed")


@pytest.mark.xfail(strict=True, reason="Lance gives the bytes of other fields: once it does not, drop the refusals")
@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_lance_reads_single_fields(tmp_path, file_format):
    dataset = lance.dataset(_written(tmp_path / "t.lance", file_format, "packed"))
    assert dataset.to_table(columns=["s.b"])["s.b"].to_pylist() == [row["b"] for row in _ROWS]


@pytest.mark.parametrize("key", ["packed", "lance-encoding:packed"])
@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_lance_reads_whole_ones(tmp_path, file_format, key):
    dataset = lance.dataset(_written(tmp_path / "t.lance", file_format, key))
    assert arrow_types.is_packed(dataset.schema.field("s"))
    assert dataset.to_table(columns=["s"])["s"].to_pylist() == _ROWS
    assert dataset.count_rows(filter="s IS NOT NULL") == 10


@pytest.mark.parametrize("text", ["s.b > 2", "S['b'] > 2", "n > 1 AND get_field(s, 'b') > 2", "(s).b > 2"])
def test_single_fields_are_refused_in_sql(uri, text):
    for check in (LanceTables().check_filter, LanceTables().expression_type):
        with pytest.raises(InvalidArgument, match="s is a packed struct, of whose fields Lance gives wrong values"):
            check(uri, text.replace("S", "s"))


def test_the_sdk_leaves_them_to_the_services(uri):
    assert local.read_table(uri, None, "s.b > 2") is None
    assert local.read_table(uri, ["n", "s.b"], None) is None


def test_whole_ones_are_taken(uri):
    LanceTables().check_filter(uri, "s IS NOT NULL AND n > 1")
    assert pa.types.is_struct(LanceTables().expression_type(uri, "s"))
    rows = local.read_table(uri, ["s"], None, limit=2)
    assert rows is not None
    assert rows["s"].to_pylist() == _ROWS[:2]


def test_single_fields_are_no_inputs(uri):
    table: TableSnapshot = LanceTables().snapshot(uri)
    column, field = table.column("s"), table.find("s.b")
    assert column is not None
    assert field is not None
    with pytest.raises(FailedPrecondition, match=r"'s\.b' cannot be read: .* packed struct.* whole column 's'"):
        arrow_types.check_readable_path(field.name, column.arrow)
    arrow_types.check_readable_path("s", column.arrow)


def test_a_single_field_is_refused_as_an_input():
    packed = pa.field("s", pa.struct([("a", pa.int32())]), metadata={"packed": "true"})
    arrow_types.check_readable_path("s", packed)
    arrow_types.check_readable_path("s.a", packed.remove_metadata())
    with pytest.raises(
        FailedPrecondition, match="Lance gives wrong values for single fields of a packed struct"
    ) as refused:
        arrow_types.check_readable_path("s.a", packed)
    assert refused.value.reason == "TYPE_NOT_STORABLE"
