"""Manifests are parsed in parts."""

import lance
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

from leman_core.storage import manifest
from leman_core.storage.manifest import parts_of


@pytest.fixture
def dataset(tmp_path):
    table = pa.table({"x": range(10), "y": [str(i) for i in range(10)]})
    dataset = lance.write_dataset(table, tmp_path / "t.lance", max_rows_per_file=2)
    dataset.delete("x = 3 or x = 5")
    dataset.add_columns({"z": "x + 1"})
    return dataset


@pytest.mark.parametrize("at_once", [1, 2, 5, 1000])
def test_parts_give_what_lance_says(dataset, at_once, monkeypatch):
    monkeypatch.setattr(manifest, "_AT_ONCE", at_once)
    found = manifest.read_fragments(dataset)
    assert found == manifest.walk_fragments(dataset)
    assert [one.deleted_rows for one in found] == [0, 1, 1, 0, 0]
    assert len({one.deletion_file for one in found}) == 3


def test_parts_are_all_of_the_message(dataset):
    content = manifest.manifest_bytes(dataset)
    parts = list(parts_of(content, 3))
    assert b"".join(parts) == content
    assert len(parts) > 3


@pytest.mark.parametrize("content", [b"\x08", b"\x0a\x05abc", b"\x0a", b"\x0b", b"\x80", b"\x0d\x00"])
def test_a_message_that_is_cut_off_is_no_message(content):
    with pytest.raises(DecodeError):
        list(parts_of(content, 2))
    assert manifest.parse_fragments(content) is None


def test_fields_of_every_kind_are_passed_over():
    message = b"\x08\x96\x01" + b"\x0d" + bytes(4) + b"\x09" + bytes(8) + b"\x92\x03\x02ab"
    assert list(parts_of(message, 1)) == [
        b"\x08\x96\x01",
        b"\x0d" + bytes(4),
        b"\x09" + bytes(8),
        b"\x92\x03\x02ab",
        b"",
    ]
