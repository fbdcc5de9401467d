"""Stored rows are stored again only where it is certain which rows they are now, and what they were computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from leman_core.model import keys
from leman_core.model.row_positions import RowRange
from leman_core.model.table import CompactionHistory, DataFile, Fragment, Rewrite
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.compacted_rows import CheckpointMigrator
from leman_planner.planning.fragment_status import inspect_fragments
from leman_planner.planning.stored_work import StoredWork
from tests.unit.planner.planner_helpers import (
    UDF,
    X,
    Y,
    column_file,
    fingerprint,
    fragment,
    plan,
    prefix,
    range_key,
    record,
    resolved,
)

ROWS = 10
ANOTHER = "d" * 32


@dataclass
class Reader:
    """What lies in the store and in older versions."""

    records: dict[str, FragmentRecord] = field(default_factory=dict)
    masks: dict[int, list[bool]] = field(default_factory=dict)

    def record(self, key):
        return self.records.get(key)

    def live(self, version, fragment):
        mask = self.masks.get(fragment.fragment_id)
        return None if mask is None else np.array(mask)

    def predecessors(self, file):
        return ()


# ------------------------------------------------------------------ files that another function's replaced

REPLACED = fragment(0, ROWS, current=column_file(0, udf=replace(UDF, version="0")))
KEY = keys.record_key(prefix(0), 0)
RECORD = record(0, column_file(0, "a2"), rows=ROWS)


def from_file(stored: FragmentRecord) -> list[str]:
    """The sources of what is stored again for the fragment, of which the store has a record."""
    asked = resolved([REPLACED])
    migrator = CheckpointMigrator(asked, StoredWork(records={KEY: stored}), Reader({KEY: stored}))
    return [rows.source for rows in migrator.replaced(plan(asked), inspect_fragments(asked))]


def test_rows_of_a_replaced_file_are_stored_anew():
    assert from_file(RECORD) == [KEY]


def test_rows_of_a_file_of_another_column_with_the_same_function_and_inputs_are_too():
    file = column_file(0, column_id=ANOTHER)
    assert from_file(replace(RECORD, column_id=ANOTHER, file=file, fingerprint=fingerprint(0, column_id=ANOTHER))) == [
        KEY
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"file": "others.lance"},
        {"file": column_file(0, column_id=ANOTHER)},
        {"fingerprint": fingerprint(0, column_id=ANOTHER)},
        {"column_id": ANOTHER},
        {"file": column_file(0, source="old"), "fingerprint": fingerprint(0, source="old")},
        {"physical_rows": ROWS + 1},
        {"src_data_files": ("old0.lance",)},
    ],
    ids=" and ".join,
)
def test_a_record_that_says_something_else_is_no_source(other):
    assert from_file(replace(RECORD, **other)) == []


# ------------------------------------------------------------------ fragments that compaction took away

#: The row in the middle was deleted.
OLD, NEXT = fragment(0, 3, deleted=1), fragment(1, 2)
PACKED = DataFile("packed.lance", (X, Y))
MADE = Fragment(5, 4, 0, (PACKED,))
REWRITE = Rewrite(6, (OLD, NEXT), (MADE,))
LIVE = {0: [True, False, True]}


def moved(now: Fragment, rewrite: Rewrite, masks, *, inputs=("x",)):
    """Where stored rows of the old fragments are stored again: the source, and which rows it covers."""
    asked = resolved([now])
    asked = replace(asked, inputs=tuple(asked.table.column(name) for name in inputs))
    pairs = {i: [(at, f"in{i}.lance") for at in asked.input_ids] for i in (0, 1)}
    gone = [keys.range_key(asked.family.prefix("", pairs[i]), i, RowRange(0, rows)) for i, rows in ((0, 3), (1, 2))]
    migrator = CheckpointMigrator(asked, StoredWork(gone=gone), Reader(masks=masks))
    found = migrator.moved(plan(asked), inspect_fragments(asked), CompactionHistory({PACKED.path: rewrite}))
    return sorted((gone.index(rows.source), rows.covered, rows.at) for rows in found)


def test_rows_go_to_where_the_live_ones_lie():
    assert moved(MADE, REWRITE, LIVE) == [(0, RowRange(0, 2), 0), (1, RowRange(2, 4), 2)]


@pytest.mark.parametrize("masks", [{}, {0: [True, True, True]}], ids=["not known", "other ones"])
def test_without_its_deletions_nothing_is_taken_of_a_fragment(masks):
    assert moved(MADE, REWRITE, masks) == [(1, RowRange(2, 4), 2)]


@pytest.mark.parametrize("old", [(OLD,), (OLD, NEXT, fragment(2, 1))], ids=["lost rows", "more rows"])
def test_of_a_compaction_that_does_not_add_up_nothing_is_taken(old):
    assert moved(MADE, Rewrite(6, old, (MADE,)), LIVE) == []


def test_of_a_fragment_that_got_another_input_since_nothing_is_taken():
    now = MADE._replace(files=(DataFile(PACKED.path, (X,)), DataFile("update.lance", (Y,))))
    assert moved(MADE, REWRITE, LIVE, inputs=("x", "y")) == moved(MADE, REWRITE, LIVE)
    assert moved(now, REWRITE, LIVE, inputs=("x", "y")) == []


def test_what_is_stored_already_is_not_stored_again():
    asked = resolved([MADE])
    key, there = range_key(1, 0, 2), keys.range_key(asked.family.prefix("", [(X, PACKED.path)]), 5, RowRange(2, 4))
    migrator = CheckpointMigrator(asked, StoredWork(gone=[key, there]), Reader(masks=LIVE))
    history = CompactionHistory({PACKED.path: REWRITE})
    assert list(migrator.moved(plan(asked), inspect_fragments(asked), history)) == []
