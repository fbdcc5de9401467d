"""Compare rewritten rows with what they were: if the inputs are equal, no call is needed.

See `ComparedFile`. A row that has its value still is recorded like a row of a compacted file. One that lost it gets it
from the earlier version, as a checkpoint: Leman's own merges leave computed columns empty. The next plan finds both.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import structlog

from leman_core.functions import blobs
from leman_core.functions.nested_types import relabelled
from leman_core.model import keys, row_states
from leman_core.model.equal_values import Mask, equal_rows
from leman_core.model.errors import LemanError
from leman_core.model.plan import ComparedFile, EarlierRows, Plan, TracedFile
from leman_core.model.ports import CheckpointStore
from leman_core.model.ranges import RowRange, chunks
from leman_core.model.row_states import RowState, States
from leman_core.model.sorted_sets import among
from leman_core.storage.checkpoints.rows import Piece, to_checkpoint
from leman_core.storage.scan import CHUNK_ROWS, FragmentReader
from leman_executor.jobs.ports import Comparison

_log = structlog.get_logger(__name__)

Offsets = npt.NDArray[np.int64]


def compare_inputs(store: CheckpointStore, plan: Plan, stop: threading.Event) -> Comparison:
    """Compare the plan's compared files with earlier versions, until `stop` is set, and store values that were lost.

    A file that cannot be read is left out: its rows are computed.
    """
    header = plan.header
    prefixes = {task.fragment_id: task.checkpoint_prefix for task in plan.tasks} if plan.compared else {}
    readers: dict[int, FragmentReader] = {}

    def reader(version: int) -> FragmentReader:
        if version not in readers:
            readers[version] = FragmentReader(header.uri, version)
        return readers[version]

    columns, types = (*header.input_columns, header.output.name), header.input_types
    files: list[TracedFile] = []
    kept = restored = 0
    for compared in plan.compared:
        try:
            now = _Rows(reader(header.read_version), compared.known.fragment_id, columns, types)
            before = [_Earlier(_Rows(reader(e.version), e.fragment_id, e.columns, types), e) for e in compared.earlier]
            lost = _LostValues(store, plan, compared, prefixes[compared.known.fragment_id])
            states = _compared(compared, now, before, lost, stop)
        except LemanError as error:
            _log.warning("rows cannot be compared", uri=header.uri, file=compared.known.file, error=error.message)
            continue
        if stop.is_set():
            break
        files.append(_traced(compared.known, states, header.versions[1:]))
        kept += _settled(files[-1]) - _settled(compared.known)
        restored += lost.rows
    return Comparison(files, kept, restored)


def _settled(traced: TracedFile) -> int:
    return traced.rows_computed + traced.rows_failed


class _LostValues:
    """Stores values of rows of one fragment that have them no more.

    The checkpoints have a filter of their own, so that they say nothing of other rows. Each is of the function that
    computed its values.
    """

    def __init__(self, store: CheckpointStore, plan: Plan, compared: ComparedFile, prefix: str) -> None:
        self._store = store
        self._column = plan.header.output.name
        self._kind = blobs.values_field(plan.header.output.field.arrow).type
        self._fragment_id = compared.known.fragment_id
        #: Whether the column has no file in the fragment: then no row has its value.
        self.has_all = not compared.known.file
        own = keys.under_filter(prefix, keys.md5(f"rows before {compared.known.file}"))
        function = plan.header.udf.name, plan.header.udf.version
        kept = [(other.name, other.version) for other in plan.header.kept_functions]
        self._prefixes = [own, *(keys.of_function(own, function, other) for other in kept)]
        #: By version of the function, see `row_states.of_version`.
        self._pieces: dict[int, list[Piece]] = defaultdict(list)
        self.rows = 0

    def add(self, offsets: Offsets, values: pa.Array, states: States) -> None:
        """Take values; those of another type are left to be computed."""
        if values.type != self._kind:
            return
        versions, kinds = row_states.versions(states), row_states.kinds(states)
        for version in np.unique(versions).tolist():
            of = versions == version
            found = None if (kinds[of] == RowState.COMPUTED).all() else kinds[of]
            self._pieces[version].append(Piece(offsets[of], values.filter(pa.array(of)), found))

    def flush(self) -> None:
        """Store what was taken since the last time."""
        for version, pieces in self._pieces.items():
            batch = to_checkpoint(self._fragment_id, self._column, pieces, self._kind)
            offsets = np.concatenate([piece.offsets for piece in pieces])
            covered = RowRange(int(offsets.min()), int(offsets.max()) + 1)
            self._store[keys.range_key(self._prefixes[version], self._fragment_id, covered)] = batch
            self.rows += len(offsets)
        self._pieces.clear()


class _Rows:
    """Inputs and values of the rows of one fragment of one version; the inputs are as the function is given them."""

    def __init__(
        self, reader: FragmentReader, fragment_id: int, columns: Sequence[str], types: Sequence[pa.DataType]
    ) -> None:
        self.reader = reader
        self.fragment_id = fragment_id
        self._columns = columns
        self._types = types

    def read(self, covered: RowRange, offsets: Offsets) -> Iterator[tuple[Offsets, list[pa.Array]]]:
        """Yield the rows of a range that are among `offsets` and not deleted, in pieces: offsets, and the columns."""
        distinct = list(dict.fromkeys(self._columns))
        for chunk in self.reader.read(self.fragment_id, covered, distinct, deletions=True):
            wanted = among(chunk.offsets, offsets)
            if wanted.any():
                rows = chunk.rows.filter(pa.array(wanted))
                columns = [rows.column(distinct.index(name)) for name in self._columns]
                given = [relabelled(*pair) for pair in zip(columns, self._types, strict=False)]
                yield chunk.offsets[wanted], [*given, *columns[len(given) :]]

    def row_ids(self, offsets: Offsets) -> Offsets:
        """Return the stable row ids of some offsets; -1 where there is none."""
        return np.array(self.reader.row_ids(self.fragment_id, offsets.tolist()), np.int64)


class _Earlier:
    """The rows of an earlier fragment, to be found by those that they are now."""

    def __init__(self, rows: _Rows, earlier: EarlierRows) -> None:
        self._rows = rows
        self._earlier = earlier
        count = earlier.physical_rows
        computed = np.full(count, RowState.COMPUTED, np.uint8)
        self.states: States = row_states.decode(earlier.row_states) if earlier.row_states else computed
        self._by_id: tuple[Offsets, Offsets] | None = None

    def offsets_of(self, now: _Rows, offsets: Offsets) -> Offsets:
        """Return where some rows were; -1 for each that was not there, or not current."""
        if self._earlier.same_offsets:
            found = offsets.copy()
        else:
            ids, places = self._known_ids()
            wanted = now.row_ids(offsets)
            if not len(ids):
                return np.full(len(offsets), -1, np.int64)
            at = np.searchsorted(ids, wanted)
            at[at == len(ids)] = 0
            found = np.where((ids[at] == wanted) & (wanted >= 0), places[at], -1)
        there = (found >= 0) & (found < len(self.states))
        there[there] = self.states[found[there]] != RowState.UNTOUCHED
        return np.where(there, found, -1)

    def _known_ids(self) -> tuple[Offsets, Offsets]:
        if self._by_id is None:
            offsets = np.flatnonzero(self.states != RowState.UNTOUCHED).astype(np.int64)
            ids = self._rows.row_ids(offsets)
            order = np.argsort(ids)
            self._by_id = ids[order], offsets[order]
        return self._by_id

    def read(self, offsets: Offsets) -> tuple[Offsets, list[pa.Array]] | None:
        """Return the rows at some offsets that are not deleted, in ascending order."""
        pieces = []
        for part in chunks(RowRange(int(offsets.min()), int(offsets.max()) + 1), CHUNK_ROWS):
            inside = offsets[(offsets >= part.start) & (offsets < part.end)]
            if len(inside):
                pieces += list(self._rows.read(RowRange(int(inside.min()), int(inside.max()) + 1), inside))
        if not pieces:
            return None
        columns = [pa.concat_arrays(list(parts)) for parts in zip(*(columns for _, columns in pieces), strict=True)]
        return np.concatenate([found for found, _ in pieces]), columns


def _compared(
    compared: ComparedFile, now: _Rows, before: Sequence[_Earlier], lost: _LostValues, stop: threading.Event
) -> States:
    rows = compared.known.physical_rows
    known = compared.known.row_states
    states = row_states.decode(known).copy() if known else np.full(rows, RowState.COMPUTED, np.uint8)
    for part in chunks(RowRange(0, rows), CHUNK_ROWS):
        open_ = np.flatnonzero(states[part.start : part.end] == RowState.UNTOUCHED) + part.start
        if not len(open_) or stop.is_set():
            continue
        for offsets, columns in now.read(RowRange(int(open_[0]), int(open_[-1]) + 1), open_):
            left = np.ones(len(offsets), np.bool_)
            for earlier in before:
                left &= ~_take_over(states, offsets, columns, left=left, now=now, earlier=earlier, lost=lost)
            lost.flush()
    return states


def _take_over(
    states: States,
    offsets: Offsets,
    columns: Sequence[pa.Array],
    *,
    left: Mask,
    now: _Rows,
    earlier: _Earlier,
    lost: _LostValues,
) -> Mask:
    """Give rows their earlier states where inputs and value are the same as then, or their value where only these are.

    Args:
        states: of all rows.
        offsets: of the rows at hand.
        columns: their inputs and value.
        left: which of them to look at.
        now: reads them.
        earlier: where they may have been.
        lost: takes values.

    Returns:
        Which of the rows are settled by that.
    """
    settled = np.zeros(len(offsets), np.bool_)
    then = earlier.offsets_of(now, offsets) if left.any() else np.full(len(offsets), -1, np.int64)
    at = np.flatnonzero(left & (then >= 0))
    found = earlier.read(np.sort(then[at])) if len(at) else None
    if found is None:
        return settled
    places, values = found
    at = at[among(then[at], places)]
    took = pa.array(np.searchsorted(places, then[at]))
    same = np.ones(len(at), np.bool_)
    for mine, other in zip(columns[:-1], values[:-1], strict=True):
        same &= equal_rows(mine.take(pa.array(at)), other.take(took))
    value = values[-1].take(took)
    has_value = np.zeros(len(at), np.bool_) if lost.has_all else equal_rows(columns[-1].take(pa.array(at)), value)
    has_value &= same
    states[offsets[at[has_value]]] = earlier.states[then[at[has_value]]]
    settled[at[has_value]] = True
    before = earlier.states[then[at]]
    has_had_value = row_states.kinds(before) == RowState.COMPUTED  # also of a function whose values are kept
    lacks_value = same & ~has_value & (has_had_value | (lost.has_all & (before == RowState.FAILED)))
    if lacks_value.any():
        lost.add(offsets[at[lacks_value]], value.filter(pa.array(lacks_value)), before[lacks_value])
        settled[at[lacks_value]] = True
    return settled


def _traced(known: TracedFile, states: States, older: Sequence[str]) -> TracedFile:
    filters = row_states.decode_summary(known.row_states).filters if known.row_states else frozenset[str]()
    summary = row_states.summarize(states, filters, older)
    whole = summary.computed == len(states)
    return dataclasses.replace(
        known,
        row_states=b"" if whole else row_states.encode(states, filters, older),
        rows_computed=summary.computed,
        rows_failed=summary.failed,
        compared=True,
    )
