"""Row states of a column's files, row by row, and which of the failed rows a request still asks for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from leman_core.model import keys, row_states
from leman_core.model.errors import FailedPrecondition, LemanError, Unavailable
from leman_core.model.plan import SETTLED, Reason
from leman_core.model.ranges import RowRange
from leman_core.model.row_address import addresses_of, fragments_of
from leman_core.model.row_states import RowState, States, StateSummary
from leman_core.storage import column_files
from leman_core.storage.scan import FragmentReader
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, decide
from leman_planner.statuses import Statuses
from leman_planner.stored_work import FailedNow

#: Where more rows failed than this, it is not looked up which of them a filter matches.
MOST_ASKED = 10_000

Offsets = npt.NDArray[np.int64]


def failed_now(
    resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]
) -> dict[int, FailedNow]:
    """Count the failed rows of those fragments whose header alone does not tell how many still count.

    That is where some rows are deleted, or a filter may leave them out.

    Returns:
        The counts, by id of the fragment.
    """
    where = "" if resolved.past is not None else resolved.filter.where  # an older version's rows are another matter
    may_be_less = statuses.with_states if where else statuses.with_states & (statuses.fragments.deleted_rows > 0)
    some = statuses.some(np.flatnonzero(may_be_less))
    unsure = [status for status in some if (known := decide(resolved, status, states).states) and known.failed]
    if not unsure:
        return {}
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    live = {status.fragment.fragment_id: _live_failures(resolved, status, reader) for status in unsure}
    counts = {fragment_id: len(offsets) for fragment_id, offsets in live.items()}
    asked = counts
    if where and sum(counts.values()) <= MOST_ASKED:
        asked = _matching(reader, live, where) or counts
    return {fragment_id: FailedNow(rows, asked[fragment_id]) for fragment_id, rows in counts.items()}


def _live_failures(resolved: ResolvedRequest, status: FragmentStatus, reader: FragmentReader) -> Offsets:
    """Return the offsets of the rows that failed under the request's version and that are not deleted."""
    offsets: Offsets = np.flatnonzero(states_of(resolved, status) == RowState.FAILED)
    if not status.fragment.deleted_rows or not len(offsets):
        return offsets
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets[reader.live(status.fragment.fragment_id, RowRange(first, last + 1))[offsets - first]]


def _matching(reader: FragmentReader, rows: dict[int, Offsets], where: str) -> dict[int, int]:
    """Return how many of the rows a filter matches; empty where it cannot be evaluated for them."""
    bases = [addresses_of(fragment_id, offsets) for fragment_id, offsets in rows.items()]
    try:
        found = reader.matching(np.concatenate(bases).tolist(), where)
    except (Unavailable, FailedPrecondition):  # the backfill says so itself, where it comes to that row
        return {}
    fragments, counts = np.unique(fragments_of(np.array(found, np.int64)), return_counts=True)
    return {**dict.fromkeys(rows, 0), **dict(zip(fragments.tolist(), counts.tolist(), strict=True))}


def states_of(resolved: ResolvedRequest, status: FragmentStatus) -> States:
    """Return the state of each physical row, as the column's function sees them."""
    rows = status.fragment.physical_rows
    if status.moved is not None:
        if not status.moved.states:
            return np.full(rows, RowState.COMPUTED, np.uint8)
        return row_states.decode_for(status.moved.states, resolved.versions[0], resolved.versions)
    if status.reason is Reason.PARTIAL:
        return _of_partial_file(resolved, status)
    if status.reason in SETTLED:
        return np.full(rows, row_states.of_version(RowState.COMPUTED, status.version), np.uint8)
    return np.zeros(rows, np.uint8)


def _of_partial_file(resolved: ResolvedRequest, status: FragmentStatus) -> States:
    """Return the states of a partial file. One that cannot be read counts for nothing: it is computed again."""
    name = keys.parse_column_file_name(status.current_file)
    try:
        buffer = column_files.read_states_buffer(resolved.table.uri, status.current_file)
    except LemanError:
        buffer = None
    if buffer is None or name is None:
        return np.zeros(status.fragment.physical_rows, np.uint8)
    return row_states.decode_for(buffer, name.function_part, resolved.versions)
