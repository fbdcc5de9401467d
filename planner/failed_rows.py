"""Row states of a column's files, row by row, and which of the failed rows a request still asks for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from core import keys, row_states
from core.domain.plan import SETTLED, Reason
from core.domain.ranges import RowRange
from core.lance_io import column_files
from core.lance_io.scan import FragmentReader
from core.row_states import RowState, States, StateSummary
from planner.request_resolution import Question
from planner.reuse_decision import Sight, judge
from planner.stored_work import FailedNow

#: Of more failed rows it is not found out which of them a filter matches.
MOST_ASKED = 10_000

Offsets = npt.NDArray[np.int64]


def failed_now(question: Question, sights: Iterable[Sight], states: dict[str, StateSummary]) -> dict[int, FailedNow]:
    """The failed rows of fragments of which a header alone does not tell how many still count: some rows are deleted,
    or a filter may leave them out. By id of the fragment."""
    where = "" if question.past is not None else question.filter.where  # an older version's rows are another matter
    unsure = [sight for sight in sights if where or sight.fragment.deleted_rows]
    unsure = [sight for sight in unsure if (known := judge(question, sight, states).states) and known.failed]
    if not unsure:
        return {}
    reader = FragmentReader(question.table.uri, question.table.version)
    live = {sight.fragment.fragment_id: _live_failures(question, sight, reader) for sight in unsure}
    counts = {fragment_id: len(offsets) for fragment_id, offsets in live.items()}
    asked = counts
    if where and sum(counts.values()) <= MOST_ASKED:
        asked = _matching(reader, live, where) or counts
    return {fragment_id: FailedNow(rows, asked[fragment_id]) for fragment_id, rows in counts.items()}


def _live_failures(question: Question, sight: Sight, reader: FragmentReader) -> Offsets:
    """Offsets of the rows that failed under the question's version and that are not deleted."""
    offsets: Offsets = np.flatnonzero(states_of(question, sight) == RowState.FAILED)
    if not sight.fragment.deleted_rows or not len(offsets):
        return offsets
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets[reader.live(sight.fragment.fragment_id, RowRange(first, last + 1))[offsets - first]]


def _matching(reader: FragmentReader, rows: dict[int, Offsets], where: str) -> dict[int, int]:
    """How many of the rows a filter matches; empty where it cannot be evaluated for them."""
    bases = [(fragment_id << 32) + offsets for fragment_id, offsets in rows.items()]
    try:
        found = reader.matching(np.concatenate(bases).tolist(), where)
    except (OSError, ValueError, RuntimeError):  # the backfill says so itself, where it comes to that row
        return {}
    fragments, counts = np.unique(np.array(found, np.int64) >> 32, return_counts=True)
    return {**dict.fromkeys(rows, 0), **dict(zip(fragments.tolist(), counts.tolist(), strict=True))}


def states_of(question: Question, sight: Sight) -> States:
    """One for each physical row, as the column's function sees them."""
    rows = sight.fragment.physical_rows
    if sight.moved is not None:
        if not sight.moved.states:
            return np.full(rows, RowState.COMPUTED, np.uint8)
        return row_states.decode_for(sight.moved.states, question.versions[0], question.versions)
    if sight.reason is Reason.PARTIAL:
        return _of_partial_file(question, sight)
    if sight.reason in SETTLED:
        return np.full(rows, row_states.of_version(RowState.COMPUTED, sight.version), np.uint8)
    return np.zeros(rows, np.uint8)


def _of_partial_file(question: Question, sight: Sight) -> States:
    """What cannot be read is worth nothing: the planner has it computed again."""
    name = keys.parse_column_file_name(sight.current_file)
    try:
        buffer = column_files.read_states_buffer(question.table.uri, sight.current_file)
    except (OSError, ValueError, RuntimeError, KeyError):
        buffer = None
    if buffer is None or name is None:
        return np.zeros(sight.fragment.physical_rows, np.uint8)
    return row_states.decode_for(buffer, name.function_part, question.versions)
