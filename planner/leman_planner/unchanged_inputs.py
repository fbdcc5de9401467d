"""Find where rewritten rows were before, so that their inputs can be compared.

An upsert writes rows to a new fragment, also those that are as they were, and takes the values of computed columns
with them. A merge by an indexed key writes an input of a fragment in place. In both cases the value lies where it is
looked for, and it is right if the inputs are what they were. A plan reads no values: it names the fragments of earlier
versions in which the rows were current, and the executor compares (`docs/decisions/0055-equal-inputs.md`).

The table's history is walked back from the version that is planned for. Each transaction that wrote a file of the
column, or of one of its inputs, leads to the fragments of the version before. The walk goes on from those that were not
current there either.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import structlog

from leman_core.model import keys, row_states
from leman_core.model.equal_values import Mask
from leman_core.model.errors import LemanError
from leman_core.model.fragment_columns import FragmentColumns
from leman_core.model.plan import ComparedFile, EarlierRows, Plan, Reason
from leman_core.model.ports import CheckpointStore
from leman_core.model.row_states import RowState
from leman_core.model.table import Fragment, TableSnapshot
from leman_core.model.udf import UdfKind
from leman_core.storage import column_files, compactions
from leman_core.storage.tables import LanceTables
from leman_core.storage.transactions import Kind, Transaction, fragments_of
from leman_planner.compaction_tracing import is_compared, trace_files
from leman_planner.failed_row_states import states_of
from leman_planner.fragment_tasks import Tasks
from leman_planner.planning import traced_file
from leman_planner.resolved_request import Filter, ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, Moved, unnamed
from leman_planner.statuses import CODE, Statuses, inspect

_log = structlog.get_logger(__name__)

#: How far the walk goes: transactions, versions that are opened, and fragments that one plan compares.
_MOST_VERSIONS = 500
#: The same where all fragments lack the column's file: most were appended, long ago perhaps.
_MOST_IF_MISSING = 50
_MOST_OPENED = 50
_MOST_FRAGMENTS = 4096
_MOST_MISSING = 128
#: Earlier fragments that one fragment is compared with.
_MOST_EARLIER = 64
#: Reasons that others' writes give. An update of Leman leaves computed columns without a file.
_WRITTEN = frozenset({Reason.EXTERNAL_WRITE, Reason.INPUT_CHANGED, Reason.HISTORY_LOST, Reason.MISSING})
_CHANGES = frozenset({Kind.UPDATE, Kind.DATA_REPLACEMENT, Kind.REWRITE, Kind.MERGE, Kind.UNKNOWN})


@dataclass(slots=True, eq=False)
class _Compared:
    """A fragment that is planned for, and where its rows were current."""

    status: FragmentStatus
    earlier: list[EarlierRows] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Place:
    """A fragment of some version that has rows of a compared fragment, which were not current there."""

    compared: _Compared
    fragment: Fragment
    same_offsets: bool
    files: frozenset[str]


class _Places:
    """Where the walk has to go on, by the files that matter."""

    def __init__(self, places: Iterable[_Place]) -> None:
        self._all: dict[_Place, None] = {}
        self._by_file: dict[str, list[_Place]] = {}
        self.add(places)

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def have_values(self) -> bool:
        """Tell whether one of the fragments has a file of the column."""
        return any(place.compared.status.reason is not Reason.MISSING for place in self._all)

    def add(self, places: Iterable[_Place]) -> None:
        """Take in more."""
        for place in places:
            self._all[place] = None
            for file in place.files:
                self._by_file.setdefault(file, []).append(place)

    def pop(self, files: frozenset[str] | None) -> list[_Place]:
        """Take out those that any of the files matters to; None: all."""
        found = list(self._all) if files is None else [p for file in files for p in self._by_file.get(file, ())]
        hit = [place for place in dict.fromkeys(found) if place in self._all]
        for place in hit:
            del self._all[place]
        return hit


class UnchangedInputs:
    """The walk for one request.

    Args:
        resolved: the request.
        tables: opens earlier versions.
        store: has what was recorded of files whose names do not tell.
    """

    def __init__(self, resolved: ResolvedRequest, tables: LanceTables, store: CheckpointStore) -> None:
        self._resolved = resolved
        self._tables = tables
        self._store = store
        self._opened = 0

    def compared(self, plan: Plan, statuses: Statuses) -> tuple[ComparedFile, ...]:
        """Return the fragments of a plan whose rows may be what they were."""
        resolved = self._resolved
        if resolved.past is not None or resolved.source is not None or resolved.failed_only:
            return ()
        if resolved.udf.kind is UdfKind.SQL:  # an expression costs no more than the comparison
            return ()
        found = [_Compared(status) for status in self._candidates(plan, statuses)]
        if not found:
            return ()
        try:
            self._walk(found)
        except (LemanError, OSError, ValueError) as error:
            _log.warning("earlier versions cannot be looked at", uri=resolved.table.uri, error=str(error))
        return tuple(self._file(compared) for compared in found if compared.earlier)

    def _candidates(self, plan: Plan, statuses: Statuses) -> Iterator[FragmentStatus]:
        written = np.zeros(len(statuses), np.bool_)
        for reason in _WRITTEN - {Reason.MISSING}:
            written |= statuses.reasons == CODE[reason]
        for at, status in statuses.others.items():
            if status.moved is not None:
                written[at] = unnamed(self._resolved, status._replace(reason=Reason.EXTERNAL_WRITE)) != ""
        missing_file = statuses.reasons == CODE[Reason.MISSING]
        # where all lack it nothing was ever computed, and where very many do they were appended
        if not missing_file.all() and np.count_nonzero(missing_file) <= _MOST_MISSING:
            written |= missing_file & _may_have_older_rows(statuses.fragments, missing_file)
        if not written.any():
            return
        ids = set(statuses.fragments.ids[written][:_MOST_FRAGMENTS].tolist())
        tasks = plan.tasks.of(ids) if isinstance(plan.tasks, Tasks) else plan.tasks
        missing = {task.fragment_id for task in tasks if task.missing and task.fragment_id in ids}
        is_done = is_compared(self._resolved, self._store)
        open_ = (s for s in statuses.some(np.flatnonzero(statuses.fragments.with_ids(missing))) if not is_done(s))
        yield from open_

    def _walk(self, found: Sequence[_Compared]) -> None:
        table = self._resolved.table
        places = _Places(self._place(compared, compared.status.fragment, same_offsets=True) for compared in found)
        history = compactions.transactions(table.uri, table.version, _MOST_VERSIONS)
        for steps, transaction in enumerate(history, start=1):
            if transaction is None or transaction.kind is Kind.OVERWRITE:
                return
            if steps > _MOST_IF_MISSING and not places.have_values:
                return
            hit = places.pop(_files_in(transaction))
            # of other kinds the rows of those that are hit were not there before
            if hit and transaction.kind in _CHANGES and self._opened < _MOST_OPENED:
                self._opened += 1
                places.add(self._before(transaction, hit))
            if not places:  # the next transaction is not read
                return

    def _before(self, transaction: Transaction, hit: Sequence[_Place]) -> Iterator[_Place]:
        """Take in what was current before a transaction, and yield the places where the walk goes on."""
        table = self._resolved.table
        moved = {place: _rewritten_ids(transaction, place.fragment) for place in hit if table.stable_row_ids}
        wanted = {*(place.fragment.fragment_id for place in hit), *itertools.chain.from_iterable(moved.values())}
        before = self._tables.snapshot(table.uri, transaction.version - 1, wanted)
        fragments = FragmentColumns.of(before.fragments)
        found = fragments.some(np.flatnonzero(fragments.with_ids(wanted)))
        by_id = {fragment.fragment_id: fragment for fragment in found}
        earlier: list[tuple[_Place, Fragment, bool]] = []
        for place in hit:
            same = by_id.get(place.fragment.fragment_id)
            if same is not None and same.has_rows_of(place.fragment):
                if self._files(same) == place.files:  # the transaction was about something else
                    yield place
                else:
                    earlier.append((place, same, place.same_offsets))
            else:
                earlier += [(place, by_id[i], False) for i in moved.get(place, ()) if i in by_id]
        statuses = self._statuses(before, {fragment.fragment_id: fragment for _, fragment, _ in earlier}.values())
        columns = self._columns(before)
        for place, fragment, same_offsets in earlier:
            status = statuses[fragment.fragment_id]
            states = states_of(self._resolved, status)
            compared = place.compared
            useful = states.any() and columns and transaction.kind is not Kind.REWRITE
            if useful and len(compared.earlier) < _MOST_EARLIER:
                whole = bool((states == RowState.COMPUTED).all())
                compared.earlier.append(
                    EarlierRows(
                        version=before.version,
                        fragment_id=fragment.fragment_id,
                        physical_rows=fragment.physical_rows,
                        row_states=b"" if whole else self._encoded(states),
                        columns=columns,
                        same_offsets=same_offsets,
                    )
                )
            if not states.all() and (status.moved is not None or self._others_wrote(status)):
                yield self._place(compared, fragment, same_offsets=same_offsets)

    def _others_wrote(self, status: FragmentStatus) -> bool:
        """Tell whether others wrote the rows, or did before a filter left them out of a file that replaced it."""
        if status.reason is not Reason.PARTIAL:
            return status.reason in _WRITTEN
        earlier = column_files.read_predecessors(self._resolved.table.uri, status.current_file)
        return any(keys.parse_column_file_name(predecessor.file) is None for predecessor in earlier)

    def _statuses(self, table: TableSnapshot, fragments: Iterable[Fragment]) -> dict[int, FragmentStatus]:
        then = replace(self._resolved, table=replace(table, fragments=tuple(fragments)), filter=Filter(), num_frags=0)
        found = trace_files(then, inspect(then), self._store)
        return {status.fragment.fragment_id: status for status in found}

    def _columns(self, table: TableSnapshot) -> tuple[str, ...]:
        """Return what inputs and output were called in a version; nothing where one was missing or of another type."""
        wanted = [*self._resolved.inputs, self._resolved.output.field]
        found = [table.find_id(column.field_id) for column in wanted]
        pairs = zip(wanted, found, strict=True)
        names = self._resolved.names
        if any(then is None or then.type_under(names) != column.type_under(names) for column, then in pairs):
            return ()
        return tuple(column.name for column in found if column is not None)

    def _place(self, compared: _Compared, fragment: Fragment, *, same_offsets: bool) -> _Place:
        return _Place(compared, fragment, same_offsets, self._files(fragment))

    def _files(self, fragment: Fragment) -> frozenset[str]:
        """Return the files whose origin matters: those of the inputs, and of the output where others wrote it.

        Where the fragment has none of them, those that brought its rows: an update leaves out every column of a chain.
        """
        output = fragment.files_of(self._resolved.output.field.field_ids)
        matter = [*filter(_is_foreign, output), *fragment.files_of(self._resolved.input_ids)]
        return frozenset(matter or filter(_is_foreign, (file.path for file in fragment.files)))

    def _encoded(self, states: row_states.States) -> bytes:
        return row_states.encode(states, frozenset(), self._resolved.versions[1:])

    def _file(self, compared: _Compared) -> ComparedFile:
        status, older = compared.status, self._resolved.versions[1:]
        states = states_of(self._resolved, status)
        moved = status.moved
        if moved is None:
            moved = Moved(row_states.summarize(states, frozenset(), older), self._encoded(states), recorded=False)
        rows = min(int(np.count_nonzero(states == RowState.UNTOUCHED)), status.fragment.live_rows)
        known = traced_file(self._resolved, status, moved)
        return ComparedFile(known=known, earlier=tuple(compared.earlier), rows=rows)


def _may_have_older_rows(fragments: FragmentColumns, wanted: Mask) -> Mask:
    """Tell which of the wanted fragments may have rows that lay elsewhere before, without a request to the store.

    Who moves rows to a new fragment deletes them in one with a lower id, or takes that one away. Who writes a column in
    place adds a file. A fragment that was appended to a table without either has new rows only.
    """
    order = np.argsort(fragments.ids, kind="stable")
    changed_before = np.zeros(len(fragments), np.bool_)
    deleted = np.cumsum(fragments.deleted_rows[order] > 0) > 0
    changed_before[order] = deleted | (fragments.ids[order] != np.arange(len(fragments)))
    found = wanted & changed_before
    others = np.flatnonzero(wanted & ~changed_before)
    for at, fragment in zip(others.tolist(), fragments.some(others), strict=True):
        found[at] = sum(_is_foreign(file.path) for file in fragment.files) > 1
    return found


def _is_foreign(file: str) -> bool:
    """Tell whether a data file is none that a job wrote for a column."""
    return keys.parse_column_file_name(file) is None


def _files_in(transaction: Transaction) -> frozenset[str] | None:
    """Return the files that a transaction may have written; None: any."""
    operation = transaction.operation
    if transaction.kind is Kind.UPDATE:
        fragments = (*fragments_of(operation.new_fragments), *fragments_of(operation.updated_fragments))
    elif transaction.kind is Kind.REWRITE:
        fragments = tuple(new for rewrite in compactions.rewrites_of(transaction) for new in rewrite.new)
    elif transaction.kind is Kind.APPEND:
        fragments = fragments_of(operation.fragments)
    elif transaction.kind is Kind.DATA_REPLACEMENT:
        return frozenset(group.new_file.path for group in operation.replacements)
    else:
        return None if transaction.kind in (Kind.MERGE, Kind.UNKNOWN) else frozenset()
    return frozenset(file.path for fragment in fragments for file in fragment.files)


def _rewritten_ids(transaction: Transaction, made: Fragment) -> list[int]:
    """Return the ids of the fragments that had the rows of one that a transaction made, and perhaps of others."""
    operation = transaction.operation
    if transaction.kind is Kind.UPDATE:
        return [*operation.removed_fragment_ids, *(raw.id for raw in operation.updated_fragments)]
    if transaction.kind is not Kind.REWRITE:
        return []
    files = {file.path for file in made.files}
    return [
        old.fragment_id
        for rewrite in compactions.rewrites_of(transaction)
        if any(file.path in files for new in rewrite.new for file in new.files)
        for old in rewrite.old
    ]
