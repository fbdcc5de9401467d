"""Of several makers of a table exactly one succeeds, and what it made is as `lance.write_dataset` makes it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io.table_handle import CommitConflict, commit_outcomes
from leman_core.storage.table_creation import create_empty

MAKERS = 32
SCHEMA = pa.schema(
    [
        pa.field("x", pa.int64(), metadata={"said": "of x"}),
        pa.field("d", pa.dictionary(pa.int32(), pa.string())),
        pa.field("s", pa.struct([("l", pa.list_(pa.string()))])),
        pa.field("v", pa.list_(pa.float32(), 4)),
        pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
    ],
    metadata={"said": "of the table"},
)
ROWS = {"x": [1], "d": ["a"], "s": [{"l": ["b"]}], "v": [[1.0, 2.0, 3.0, 4.0]]}


def test_of_makers_at_the_same_moment_one_succeeds(tmp_path):
    for n in range(5):  # with write_dataset two or three of them do, most of the times
        uri, together = str(tmp_path / f"t{n}.lance"), threading.Barrier(MAKERS)

        def make(maker: int, uri: str = uri, together: threading.Barrier = together) -> str:
            together.wait()
            try:
                create_empty(uri, pa.schema([(f"c{maker}", pa.int64())]))
            except FileExistsError:
                return ""
            return f"c{maker}"

        with ThreadPoolExecutor(MAKERS) as threads:
            made = [name for name in threads.map(make, range(MAKERS)) if name]

        found = lance.dataset(uri)
        assert made == found.schema.names
        assert found.version == 1


@pytest.mark.parametrize("stable", [True, False])
def test_the_table_is_as_lance_makes_it(tmp_path, stable):
    schema = pa.schema(list(SCHEMA)[:-1], SCHEMA.metadata)
    ours, theirs = str(tmp_path / "ours.lance"), str(tmp_path / "theirs.lance")
    create_empty(ours, schema, stable_row_ids=stable, properties={"request": "r"})
    lance.write_dataset(schema.empty_table(), theirs, enable_stable_row_ids=stable)

    made, expected = lance.dataset(ours), lance.dataset(theirs)
    assert made.schema.equals(expected.schema, check_metadata=True)
    assert made.has_stable_row_ids is expected.has_stable_row_ids is stable
    assert made.data_storage_version == expected.data_storage_version
    assert made.read_transaction(1).transaction_properties == {"request": "r"}
    appended = lance.write_dataset(pa.table(ROWS, schema=schema), ours, mode="append")
    assert appended.to_table().to_pylist() == [{name: values[0] for name, values in ROWS.items()}]


def test_a_format_that_is_not_lances_own_is_kept(tmp_path):
    uri = str(tmp_path / "t.lance")
    create_empty(uri, SCHEMA, version="2.1")
    assert lance.dataset(uri).data_storage_version == "2.1"
    with pytest.raises(FileExistsError):
        create_empty(uri, SCHEMA, version="2.1")


def test_for_the_coordinator_who_was_faster_is_another_writer(tmp_path):
    uri = str(tmp_path / "t.lance")
    create_empty(uri, SCHEMA.remove_metadata().empty_table().select(["x"]).schema)
    with pytest.raises(CommitConflict), commit_outcomes(uri):
        create_empty(uri, SCHEMA.empty_table().select(["x"]).schema)
