"""Which rows of a refresh may have the values of an earlier version of the view."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewColumn, ViewDefinition, ViewFormat, ViewQuery
from leman_core.model.view import EarlierValues, RefreshMode, RefreshPlan, RefreshReason
from leman_core.storage.lance_tables import LanceTables
from leman_executor.refresh.earlier_values import earlier_rows, equal_inputs
from leman_planner.views.source_changes import changed_fragments

ROWS = 6
QUERY = ViewQuery("db", "t", (ViewColumn("x", "`x`", "x"),))
BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})


@dataclass(frozen=True)
class Lake:
    """A source of which each row is a fragment, and a view that has the rows named by the source's row ids."""

    source: lance.LanceDataset
    view: str

    def earlier(self, base: int) -> EarlierValues:
        """Return what the view's first version has, as one of the source's version `base`."""
        tables, latest = LanceTables(), self.source.latest_version
        then, now = (tables.snapshot(self.source.uri, version) for version in (base, latest))
        return EarlierValues(
            view_version=1,
            definition=self._definition(base),
            columns=("d",),
            changes=tuple(changed_fragments(QUERY, then, now, list)),
        )

    def plan(self) -> RefreshPlan:
        return RefreshPlan(
            uri=self.view,
            version=1,
            incarnation="",
            definition=self._definition(self.source.latest_version),
            schema=lance.dataset(self.view).schema,
            functions=(),
            target_version=self.source.latest_version,
            target_incarnation="",
            mode=RefreshMode.INCREMENTAL,
            reason=RefreshReason.SOURCE_CHANGED,
            message="",
        )

    def _definition(self, base: int) -> ViewDefinition:
        return ViewDefinition(
            query=QUERY,
            source_uri=self.source.uri,
            base_version=base,
            base_incarnation="",
            format=ViewFormat.STABLE_ROW_IDS,
        )


@pytest.fixture
def lake(tmp_path) -> Lake:
    rows = pa.table({"x": range(ROWS)})
    source = lance.write_dataset(rows, tmp_path / "t.lance", enable_stable_row_ids=True, max_rows_per_file=1)
    view = pa.table({SOURCE_ROW_ID: pa.array(range(ROWS + 1), pa.int64()), IS_SET: [True] * (ROWS + 1)})
    lance.write_dataset(view, tmp_path / "v.lance", enable_stable_row_ids=True)
    return Lake(source, str(tmp_path / "v.lance"))


def test_values_are_those_of_rows_that_both_versions_of_the_source_have(lake):
    """A view has rows of a later source version, too, while a refresh commits what is complete."""
    lake.source.delete("x = 1")
    lake.source.update({"x": "30"}, where="x = 3")
    lake.source.insert(pa.table({"x": [ROWS]}), mode="append")
    found = earlier_rows(lake.plan(), lake.earlier(1), np.arange(ROWS + 1))
    assert found.ids.tolist() == [0, 2, 3, 4, 5], "1 is gone, and 6 had not come"
    assert found.own_ids.tolist() == [0, 2, 3, 4, 5]
    assert found.ids[~found.same].tolist() == [3]


@pytest.mark.parametrize("file_format", ["2.0", "2.1", "2.2"])
def test_blobs_inside_of_other_columns_are_compared_by_their_bytes(tmp_path, file_format):
    """Not by their places: other bytes may lie in the same place of another file."""

    def rows(values: list[bytes]) -> pa.Table:
        fields = [BLOB, pa.field("i", pa.int64())]
        arrays = [pa.array(values, BLOB.type), pa.array([0] * len(values))]
        return pa.table({"x": [7] * len(values), "box": pa.StructArray.from_arrays(arrays, fields=fields), "k": [0, 1]})

    view = pa.table({SOURCE_ROW_ID: pa.array([0, 1], pa.int64()), IS_SET: [True, True]})
    lance.write_dataset(view, tmp_path / "v.lance")
    source = lance.write_dataset(
        rows([b"aa", b"bb"]), tmp_path / "t.lance", enable_stable_row_ids=True, data_storage_version=file_format
    )
    source.merge_insert("k").when_matched_update_all().execute(rows([b"aa", b"cc"]))
    lake = Lake(source, str(tmp_path / "v.lance"))

    def equal(*inputs: str) -> list[bool]:
        return equal_inputs(lake.plan(), lake.earlier(1), inputs, np.array([0, 1]), threading.Event()).tolist()

    assert equal("box") == equal("x", "box") == [True, False]
    assert equal("x") == [True, True], "others are compared"
