"""What is known of rows in files whose names do not tell: only what follows from what was there is believed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from leman_core.model import keys, row_states
from leman_core.model.plan import Reason
from leman_core.model.row_states import Predecessor, RowState
from leman_core.model.table import CompactionHistory, DataFile, Fragment, Rewrite
from leman_planner.planning.compacted_rows import RowTracer
from leman_planner.planning.fragment_status import inspect_fragments
from tests.unit.planner.planner_helpers import C, X, Y, column_file, fragment, pairs, resolved

UNTOUCHED, COMPUTED = RowState.UNTOUCHED, RowState.COMPUTED
PACKED = DataFile("packed.lance", (X, Y, C))


@dataclass
class Archive:
    """What older fragments left."""

    buffers: dict[str, bytes] = field(default_factory=dict)
    masks: dict[int, list[bool]] = field(default_factory=dict)
    followed: dict[str, list[Predecessor]] = field(default_factory=dict)

    def record(self, status):
        return None

    def states(self, status):
        return self.buffers.get(status.current_file)

    def live(self, version, fragment):
        mask = self.masks.get(fragment.fragment_id)
        return None if mask is None else np.array(mask)

    def predecessors(self, file):
        return self.followed.get(file, ())


def encoded(*states: RowState, filters: frozenset[str] = frozenset()) -> bytes:
    return row_states.encode_states(np.array(states, np.uint8), filters)


def traced(now: Fragment, rewrite: Rewrite | None, archive: Archive, where: str = "", names: tuple[str, ...] = ()):
    """What is known of a fragment: the reason, the state of each row where any is known, the filters that count."""
    request = resolved([now], where, names=names)
    history = CompactionHistory({PACKED.path: rewrite} if rewrite is not None else {})
    (status,) = inspect_fragments(request, [now])
    tracer = RowTracer(request, archive)
    tracer.add(history)
    found = tracer.trace(status)
    if found.moved is None:
        return found.reason, [], frozenset()
    states = row_states.decode_states(found.moved.states) if found.moved.states else [COMPUTED] * now.physical_rows
    return found.reason, list(states), found.moved.summary.filters


OLD_FILE = column_file(0, partial=True)
#: Of its rows the first and the last are computed, and the last but one was deleted.
OLD = fragment(0, 3, deleted=1, current=OLD_FILE)
EMPTY = fragment(1, 2)
MADE = Fragment(5, 4, 0, (PACKED,))
REWRITE = Rewrite(6, (OLD, EMPTY), (MADE,))
ARCHIVE = Archive({OLD_FILE: encoded(COMPUTED, UNTOUCHED, COMPUTED)}, {0: [True, False, True]})


def test_a_compacted_fragment_has_the_live_rows_of_the_old_ones_in_their_order():
    states = [COMPUTED, COMPUTED, UNTOUCHED, UNTOUCHED]
    assert traced(MADE, REWRITE, ARCHIVE) == (Reason.PARTIAL, states, frozenset())


@pytest.mark.parametrize(
    ("rewrite", "archive"),
    [
        (Rewrite(6, (OLD,), (MADE,)), ARCHIVE),
        (Rewrite(6, (OLD, EMPTY, fragment(2, 1)), (MADE,)), ARCHIVE),
        (REWRITE, Archive(ARCHIVE.buffers)),
        (REWRITE, Archive(ARCHIVE.buffers, {0: [True, True, True]})),
        (Rewrite(6, (OLD, EMPTY), (Fragment(5, 3, 0, (PACKED,)), Fragment(6, 1, 0, ()))), ARCHIVE),
    ],
    ids=["lost rows", "more rows", "deletions are not known", "other deletions", "another number of rows now"],
)
def test_a_compaction_that_does_not_add_up_is_not_believed(rewrite, archive):
    assert traced(MADE, rewrite, archive) == (Reason.HISTORY_LOST, [], frozenset())


def test_rows_are_followed_through_a_thousand_compactions():
    """Each compaction adds a fragment of one row, as a table that grows has one each hour."""
    now, states, rewrites = fragment(0, 2, current=column_file(0)), [COMPUTED, COMPUTED], {}
    for number in range(1000):
        old, file = (now, fragment(2 * number + 1, 1)), DataFile(f"{number}.lance", (X, Y, C))
        now = Fragment(2 * number + 2, len(states) + 1, 0, (file,))
        rewrites[file.path] = Rewrite(number + 2, old, (now,))
        states.append(UNTOUCHED)
    request = resolved([now])
    (status,) = inspect_fragments(request, [now])
    tracer = RowTracer(request, Archive())
    tracer.add(CompactionHistory(rewrites))
    found = tracer.trace(status)
    assert found.reason is Reason.PARTIAL
    assert list(row_states.decode_states(found.moved.states)) == states


def test_states_of_another_number_of_rows_are_not_believed():
    archive = Archive({OLD_FILE: encoded(COMPUTED, COMPUTED)}, ARCHIVE.masks)
    assert traced(MADE, REWRITE, archive) == (Reason.HISTORY_LOST, [], frozenset())


def test_an_input_that_others_wrote_after_the_compaction_makes_its_rows_stale():
    now = Fragment(5, 4, 0, (DataFile(PACKED.path, (Y, C)), DataFile("update.lance", (X,))))
    assert traced(now, REWRITE, ARCHIVE) == (Reason.INPUT_CHANGED, [], frozenset())


@pytest.mark.parametrize("rewritten", [False, True])
def test_a_filter_is_settled_only_while_the_columns_that_it_reads_are_the_same(rewritten):
    where, names = "y > 'a'", ("y",)
    settled = keys.md5(resolved([OLD], where, names=names).filter_identity(OLD))
    both = Rewrite(6, (OLD,), (Fragment(5, 2, 0, (PACKED,)),))
    archive = Archive({OLD_FILE: encoded(COMPUTED, UNTOUCHED, UNTOUCHED, filters=frozenset({settled}))}, ARCHIVE.masks)
    files = (DataFile(PACKED.path, (X, C)), DataFile("update.lance", (Y,))) if rewritten else (PACKED,)
    now = Fragment(5, 2, 0, files)
    asked = keys.md5(resolved([now], where, names=names).filter_identity(now))
    reason, states, filters = traced(now, both, archive, where, names)
    assert (reason, states) == (Reason.PARTIAL, [COMPUTED, UNTOUCHED])
    assert (asked in filters) is not rewritten


NOW = Fragment(1, 4, 0, (DataFile("now1.lance", (X, Y)), DataFile(column_file(1, source="old"), (C,))))


def followed(*changed: bool, file: str = "old1.lance") -> Archive:
    """An input's file follows another one, from which some rows differ."""
    return Archive(followed={"now1.lance": [Predecessor.of_mask(file, np.array(changed))]})


def test_values_hold_in_rows_whose_input_is_the_same_in_its_new_file():
    states = [COMPUTED, UNTOUCHED, COMPUTED, COMPUTED]
    assert traced(NOW, None, followed(False, True, False, False)) == (Reason.PARTIAL, states, frozenset())


@pytest.mark.parametrize(
    "archive",
    [followed(False, True, False), followed(False, True, False, False, file="another.lance"), Archive()],
    ids=["of other rows", "of another file", "not known"],
)
def test_values_from_an_input_that_is_not_followed_are_stale(archive):
    assert traced(NOW, None, archive) == (Reason.INPUT_CHANGED, [], frozenset())


def test_no_filter_is_settled_by_values_from_an_earlier_input():
    where = "x > 1"
    earlier = NOW._replace(files=(DataFile("old1.lance", (X, Y)),))
    asked = resolved([earlier], where)
    settled = keys.md5(asked.filter_identity(earlier))
    file = keys.column_file_name(keys.fingerprint("f", "1", "c" * 32, pairs(1, "old")), "a1", partial=True)
    now = NOW._replace(files=(NOW.files[0], DataFile(file, (C,))))
    archive = followed(False, False, False, True)
    archive.buffers[file] = encoded(COMPUTED, UNTOUCHED, COMPUTED, COMPUTED, filters=frozenset({settled}))
    states = [COMPUTED, UNTOUCHED, COMPUTED, UNTOUCHED]
    assert traced(now, None, archive, where) == (Reason.PARTIAL, states, frozenset())
