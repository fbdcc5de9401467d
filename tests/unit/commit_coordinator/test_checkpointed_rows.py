"""Reads with values that no version has: which stored value a row shows, and which it does not."""

from __future__ import annotations

import datetime as dt
import os

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput, FunctionVersion
from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io import checkpointed_rows
from leman_coordinator.lance_io.row_reading import open_rows
from leman_core.model import keys
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import InvalidArgument
from leman_core.storage.checkpoint_records import FragmentRecord, Piece, to_checkpoint
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.column_files import ColumnFileReader
from leman_core.storage.lance_tables import LanceTables

ROWS = 10
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TEXT = pa.string()


class Stored:
    """A table `x` of two fragments with a column `y = f(x)` that was never computed, and what is stored of it."""

    def __init__(self, path, *, kept=(), kind=TEXT) -> None:
        self.uri, self.kind = str(path / "t.lance"), kind
        rows = pa.table({"x": pa.array(range(ROWS), pa.int64())})
        table = lance.write_dataset(rows, self.uri, max_rows_per_file=ROWS // 2, enable_stable_row_ids=True)
        bound = ColumnBinding("c0ffee", "f", "2", (ColumnInput("x", 0),), added_as="y", kept=kept)
        table.add_columns(column_bindings.bind(pa.field("y", kind), bound))
        self.bound, self.store = bound, LanceCheckpointStore(checkpoint_root(self.uri))

    def sources(self, fragment: int) -> str:
        found = LanceTables().snapshot(self.uri).fragments[fragment]
        return keys.sources([(0, found.file_of(0))])

    def prefix(self, fragment: int, version: str, where: str) -> str:
        family = keys.KeyFamily(udf_name="f", udf_version=version, column="y", uri=self.uri)
        return family.prefix_for(where, self.sources(fragment))

    def checkpoint(self, fragment, covered, values, *, version="2", where="", states=None, set_at=None, key=None):
        """Store values of the first rows of a range."""
        offsets = np.arange(covered[0], covered[0] + len(values))
        given = None if states is None else np.array(states, np.uint8)
        batch = to_checkpoint(fragment, "y", [Piece(offsets, pa.array(values, self.kind), given)], self.kind)
        key = key or keys.range_key(self.prefix(fragment, version, where), fragment, RowRange(*covered))
        self.store[key] = batch
        if set_at is not None:
            path = self.store._path(key)
            os.utime(path, (set_at, set_at))

    def finished_file(self, values: str) -> None:
        """Write a column file of the first fragment, and the record that names it; no version has it."""
        fingerprint = keys.fingerprint_of(keys.function_part("f", "2", self.bound.values_id), self.sources(0))
        name = keys.column_file_name(fingerprint, "a1", partial=False)
        with LanceFileWriter(f"{self.uri}/data/{name}", pa.schema([pa.field("y", TEXT)])) as writer:
            writer.write_batch(pa.record_batch({"y": pa.array(list(values))}))
        record = FragmentRecord(
            file=name,
            src_data_files=(),
            output_field_ids=(1,),
            column_id="c0ffee",
            fingerprint=fingerprint,
            size_bytes=1,
            digest="",
            physical_rows=len(values),
            rows_computed=len(values),
            rows_failed=0,
            replaces="",
        )
        self.store[keys.record_key(self.prefix(0, "2", ""), 0)] = record.to_batch()

    def read(self, *columns: str, **fields) -> list:
        found = open_rows(ReadRequest(self.uri, columns or ("y",), include_checkpointed=True, **fields), NOW)
        return pa.Table.from_batches(found.batches, found.schema)

    def values(self, **fields) -> list:
        return self.read(**fields).column("y").to_pylist()


def test_stored_values_show_and_other_rows_have_what_the_version_has(tmp_path):
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 2), ["a", "b"])
    stored.checkpoint(0, (2, 4), ["c", None])
    stored.checkpoint(1, (3, 5), ["d", "e"])
    assert stored.values() == ["a", "b", "c", None, None, None, None, None, "d", "e"]
    plain = open_rows(ReadRequest(stored.uri, ("y",)), NOW)
    assert [*pa.Table.from_batches(plain.batches)["y"].to_pylist()] == [None] * ROWS


def test_what_was_stored_before_the_table_was_moved_shows(tmp_path):
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 2), ["a", "b"])
    before = stored.values()
    (tmp_path / "t.lance").rename(tmp_path / "moved.lance")
    stored.uri = str(tmp_path / "moved.lance")
    assert stored.values() == before == ["a", "b", *[None] * (ROWS - 2)]


def test_what_another_table_stored_elsewhere_does_not_show(tmp_path, monkeypatch):
    """Two tables of two installations may share that place."""
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 2), ["a", "b"])
    (tmp_path / "t.lance").rename(tmp_path / "moved.lance")
    stored.uri = str(tmp_path / "moved.lance")
    monkeypatch.setattr("leman_coordinator.lance_io.checkpointed_rows.in_own_folder", lambda uri: False)
    assert stored.values() == [None] * ROWS


def test_a_row_that_failed_is_null_and_a_value_of_another_run_comes_before_the_failure(tmp_path):
    stored = Stored(tmp_path)
    failed, computed = RowState.FAILED, RowState.COMPUTED
    stored.checkpoint(0, (0, 3), ["a", None, None], states=[computed, failed, failed])
    stored.checkpoint(0, (1, 2), ["again"], where="failed rows of y.lance", set_at=1)
    assert stored.values(limit=3) == ["a", "again", None]


def test_of_several_values_the_one_that_was_stored_last_shows(tmp_path):
    stored = Stored(tmp_path)
    for where, value, at in (("", "old", 1_000), ("x < 3", "new", 3_000), ("x < 2", "middle", 2_000)):
        stored.checkpoint(0, (0, 2), [f"{value} 0", f"{value} 1"], where=where, set_at=at)
    assert stored.values(limit=3) == ["new 0", "new 1", None]


@pytest.mark.parametrize(
    "other",
    [
        {"version": "1"},
        {"key": f"udf-f_ver-2_col-y_where-{'0' * 32}_uri-{'0' * 32}_srcfiles-{'0' * 32}_frag-0_range-0-5"},
    ],
)
def test_values_of_another_function_version_or_of_other_inputs_do_not_show(tmp_path, other):
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 5), ["a"] * 5, **other)
    assert stored.values() == [None] * ROWS


def test_values_of_a_kept_version_show_where_the_function_has_neither_value_nor_failure(tmp_path):
    stored = Stored(tmp_path, kept=(FunctionVersion("f", "1"),))
    failed, computed = RowState.FAILED, RowState.COMPUTED
    stored.checkpoint(0, (0, 5), ["one"] * 5, version="1", states=[computed] * 4 + [failed])
    stored.checkpoint(0, (0, 2), ["two", None], states=[computed, failed], set_at=1)
    assert stored.values(limit=5) == ["two", None, "one", "one", None]


def test_a_deleted_row_is_left_out_and_the_rest_stays_in_its_place(tmp_path):
    stored = Stored(tmp_path)
    lance.dataset(stored.uri).delete("x = 1 or x = 8")
    stored.checkpoint(0, (0, 4), list("abcd"))
    stored.checkpoint(1, (0, 5), list("fghij"))
    rows = stored.read("x", "y", with_row_id=True)
    assert rows.column_names == ["x", "y", "_rowid"]
    shown = dict(zip(*(rows.column(name).to_pylist() for name in ("x", "y")), strict=True))
    assert shown == {0: "a", 2: "c", 3: "d", 4: None, 5: "f", 6: "g", 7: "h", 9: "j"}


def test_a_filter_over_the_column_is_about_stored_values(tmp_path):
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 4), list("abca"))
    stored.checkpoint(1, (1, 3), list("ac"))
    assert stored.read("x", where="y = 'a'").column("x").to_pylist() == [0, 3, 6]
    assert stored.read("x", where="y IS NOT NULL", offset=1, limit=3).column("x").to_pylist() == [1, 2, 3]
    assert stored.read("y", where="y IS NULL AND x > 4").num_rows == 3
    assert stored.read("y", where="x >= 3 AND x < 7").column("y").to_pylist() == ["a", None, None, "a"]
    with pytest.raises(InvalidArgument, match="reads _rowid and a column with checkpointed values"):
        stored.read(where="y = 'a' AND _rowid < 3")


def test_fields_of_a_struct_come_from_stored_values_too(tmp_path):
    kind = pa.struct([("n", pa.int64()), ("box", pa.struct([("w", pa.string())]))])
    stored = Stored(tmp_path, kind=kind)
    stored.checkpoint(0, (0, 3), [{"n": 1, "box": {"w": "a"}}, None, {"n": 3, "box": None}])
    rows = stored.read("y.box.w", "y.n", where="y IS NOT NULL")
    assert rows.to_pydict() == {"y.box.w": ["a", None], "y.n": [1, 3]}


def test_a_finished_file_that_no_version_has_shows_and_what_is_missing_is_passed_over(tmp_path):
    stored = Stored(tmp_path)
    stored.finished_file("pqrst")
    gone = keys.range_key(stored.prefix(1, "2", ""), 1, RowRange(0, 5))
    stored.checkpoint(1, (0, 5), list("vwxyz"), key=gone)
    rows = open_rows(ReadRequest(stored.uri, ("y",), include_checkpointed=True), NOW)
    del stored.store[gone]
    assert pa.Table.from_batches(rows.batches)["y"].to_pylist() == [*"pqrst", *[None] * 5]


def test_wide_values_come_in_parts_and_no_part_holds_more_than_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpointed_rows, "_PART_BYTES", 1 << 16)
    stored = Stored(tmp_path)
    stored.checkpoint(0, (0, 5), ["a" * 50_000] * 5)
    stored.checkpoint(1, (0, 5), ["b" * 10] * 5)
    found = open_rows(ReadRequest(stored.uri, ("y",), include_checkpointed=True), NOW)
    windows = list(found.windows)
    assert [sum(batch.num_rows for batch in window) for window in windows[:5]] == [1] * 5
    assert sum(batch.num_rows for window in windows for batch in window) == ROWS


def test_of_a_finished_file_whose_values_no_array_can_hold_fewer_rows_are_read_at_once(tmp_path, monkeypatch):
    stored = Stored(tmp_path)
    stored.finished_file("pqrst")
    read = ColumnFileReader.values

    def few(reader: ColumnFileReader, covered: RowRange) -> pa.Array:
        if covered.rows > 1:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return read(reader, covered)

    monkeypatch.setattr(ColumnFileReader, "values", few)
    assert stored.values() == [*"pqrst", *[None] * 5]
