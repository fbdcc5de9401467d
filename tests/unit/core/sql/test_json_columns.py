"""JSON in SQL is read by Lance's functions of it, and taken needlessly else."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import InvalidArgument
from leman_core.storage.lance_tables import LanceTables


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("json") / "t.lance")
    texts = pa.array(['{"a":{"b":1}}', None], pa.json_())
    lance.write_dataset(pa.table({"j": texts, "b": pa.array([b"x", None], pa.large_binary())}), folder)
    return folder


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("j", pa.json_()),
        ("`j`", pa.json_()),
        ("j IS NULL", pa.bool_()),
        ("json_extract(j, '$.a')", pa.string()),
        ("upper(json_extract(j, '$.a'))", pa.string()),
        ("json_get_int(json_get(j, 'a'), 'b') + 1", pa.int64()),
        ("json_get(j, 'a') IS NOT NULL AND json_exists(j, '$.a')", pa.bool_()),
        ("coalesce(b, b)", pa.large_binary()),
        ("json_extract(j, '$.a') = 'j'", pa.bool_()),
    ],
)
def test_it_is_read(uri, expression, kind):
    assert LanceTables().expression_type(uri, expression) == kind


@pytest.mark.parametrize(
    "expression",
    [
        "coalesce(j, b)",
        "md5(J)",
        "cast(j as string)",
        "b = j",
        "arrow_typeof(`j`)",
        "CASE WHEN j IS NULL THEN b ELSE j END",
    ],
)
def test_it_is_nothing_else(uri, expression):
    with pytest.raises(InvalidArgument, match="is JSON, which SQL reads with json_extract") as caught:
        LanceTables().expression_type(uri, expression)
    assert caught.value.reason == "INVALID_EXPRESSION"
    with pytest.raises(InvalidArgument, match="is JSON") as caught:
        LanceTables().check_filter(uri, f"({expression}) IS NULL")
    assert caught.value.reason == "INVALID_FILTER"


@pytest.mark.parametrize("expression", ["json_get(j, 'a')", "md5(json_get(j, 'a'))", "coalesce(json_get(j, 'a'), b)"])
def test_what_only_functions_of_it_read_is_no_value(uri, expression):
    with pytest.raises(InvalidArgument, match="json_get gives JSON for other functions"):
        LanceTables().expression_type(uri, expression)
