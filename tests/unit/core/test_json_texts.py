"""A JSON column holds a text's value unchanged, or refuses it: what is refused is what Lance would change."""

from __future__ import annotations

import json

import lance
import pyarrow as pa
import pytest

from leman._format import value_casts

KEPT = [
    *("0.1234567890123456789", "-0", "-0.0", "1.0", "1e2", "1E5", "5e-324", "0e-400", "1e22", "9007199254740993"),
    *("-9223372036854775808", "18446744073709551615", '"\\u0000"', '"\\ud83d\\ude00"', '"\\\\ud83d"', "[]", '{"":1}'),
    *('["1e999","99999999999999999999999"]', '{"a": 1, "b": [1, 2.50, null, true]}'),
]
CHANGED = [
    *('{"id": 123456789012345678901}', "18446744073709551616", "-9223372036854775809", "9" * 5000, "1e400", "-1e400"),
    *("1.7976931348623159e308", "1e-400", '"\\ud83d"', '["\\ude00\\ud83d"]', '{"\\uD83d": 1}', f"[{'9' * 400}.5]"),
    *("[" * 3000 + "1e999" + "]" * 3000, "[" * 3000 + "123456789012345678901" + "]" * 3000),
]
NO_JSON = ["", "NaN", "-Infinity", "{", "'a'", "[" * 3000 + "NaN" + "]" * 3000]


@pytest.mark.parametrize("text", KEPT)
def test_a_text_is_taken_where_storage_keeps_its_value(text, tmp_path):
    value_casts.check_json_text(text)
    column = pa.table({"j": pa.array([text], pa.json_())})
    lance.write_dataset(column, tmp_path / "t", data_storage_version="2.2")
    (stored,) = lance.dataset(tmp_path / "t").to_table()["j"].to_pylist()
    assert json.loads(stored) == json.loads(text)


@pytest.mark.parametrize("text", [*CHANGED, *NO_JSON], ids=lambda text: text[:30])
def test_a_text_that_storage_would_change_is_refused(text):
    with pytest.raises(ValueError, match=r"JSON|Expecting"):
        value_casts.check_json_text(text)


def test_a_text_that_is_deeper_than_python_reads_is_taken():
    value_casts.check_json_text("[" * 3000 + '"1e999 \\" NaN"' + "]" * 3000)
