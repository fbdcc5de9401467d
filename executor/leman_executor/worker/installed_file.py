"""What a column's current file says about the rows of a fragment: which are settled, which have failed.

Runs on Spark workers: imports no gRPC and no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from leman_core.model import keys, row_states
from leman_core.model.ranges import RowRange
from leman_core.model.row_states import RowState, States
from leman_core.model.sorted_sets import without
from leman_core.model.work import FragmentWork, WorkContext
from leman_core.storage import column_files
from leman_core.storage.checkpoints.rows import Piece
from leman_core.storage.scan import FragmentReader

Offsets = npt.NDArray[np.int64]

#: Failed rows that lie closer together are read in one go.
_GAP_ROWS = 4096


class InstalledFile:
    """The rows of one fragment in the column's current file, as the function's version sees them.

    A row is settled if it needs no evaluation. A row that failed under an earlier version is not settled: this version
    was not called with it. Where only failed rows are wanted, those are not settled, and rows never computed are left
    alone.
    """

    def __init__(self, context: WorkContext, work: FragmentWork, reader: FragmentReader, column: pa.Field) -> None:
        self._reader = reader
        self._fragment_id = work.fragment_id
        self._column = column
        self.filters: frozenset[str] = frozenset()
        self._states: States | None = None
        self._settled = np.empty(0, np.bool_)
        self._failed = np.empty(0, np.bool_)
        buffer, own = _buffer(context, work)
        if buffer is None:
            return
        accepted = context.versions or (own,)
        self.filters = row_states.seen_from(row_states.decode_summary(buffer), own, accepted).filters
        states = self._states = row_states.decode_for(buffer, own, accepted)
        if work.task.deleted_rows:  # they have no state or value left to copy
            live = reader.live(work.fragment_id, RowRange(0, work.task.physical_rows))
            states = self._states = np.where(live, states, np.uint8(RowState.UNTOUCHED))
        self._failed = row_states.kinds(states) == RowState.FAILED
        again = self._failed if context.failed_only else self._failed & (row_states.versions(states) > 0)
        self._settled = (states != RowState.UNTOUCHED) & ~again

    @property
    def failed_before(self) -> int:
        """Return how many rows have failed under this version and are not to be tried again."""
        return int(np.count_nonzero(self._settled & self._failed))

    def settled(self, covered: RowRange) -> Piece | None:
        """Return the rows of a range that need no evaluation; None where there are none."""
        return self._piece(covered, np.flatnonzero(self._settled[covered.start : covered.end]) + covered.start)

    def failed(self, covered: RowRange) -> Offsets:
        """Return the offsets of the rows of a range that are marked as failed."""
        found: Offsets = np.flatnonzero(self._failed[covered.start : covered.end]) + covered.start
        return found

    def failed_spans(self, covered: RowRange) -> Iterator[RowRange]:
        """Yield few ranges that together hold the failed rows of a range, in order."""
        offsets = self.failed(covered)
        if len(offsets):
            for run in np.split(offsets, np.flatnonzero(np.diff(offsets) > _GAP_ROWS) + 1):
                yield RowRange(int(run[0]), int(run[-1]) + 1)

    def still_failed(self, covered: RowRange, known: Sequence[Piece], live: npt.NDArray[np.bool_]) -> Piece | None:
        """Return the rows of a range that are marked as failed and that nobody has tried again.

        Args:
            covered: The range.
            known: Rows that were tried again.
            live: For each row of the range, whether it is there (True) or deleted.
        """
        tried = [p.offsets for p in known]
        offsets = without(self.failed(covered), np.concatenate(tried) if tried else np.empty(0, np.int64))
        return self._piece(covered, offsets[live[offsets - covered.start]])

    def _piece(self, covered: RowRange, offsets: Offsets) -> Piece | None:
        if self._states is None or not len(offsets):
            return None
        values = self._reader.values(self._fragment_id, covered, self._column.name)
        return Piece(offsets, values.take(pa.array(offsets - covered.start)), self._states[offsets], kept=True)


def _buffer(context: WorkContext, work: FragmentWork) -> tuple[bytes | None, str]:
    """Return the stored states, and the version that they are of."""
    own = keys.function_of(work.task.fingerprint)
    if not (work.task.extend_current and work.task.current_file):
        return None, own
    if work.task.row_states:
        return work.task.row_states, own
    name = keys.parse_column_file_name(work.task.current_file)
    buffer = column_files.read_states_buffer(context.uri, work.task.current_file)
    return buffer, own if name is None else name.function_part
