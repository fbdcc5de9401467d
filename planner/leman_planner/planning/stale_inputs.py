"""Row states of a column's files, and the input columns that are not current.

Row states of a column's files, row by row, and which of the failed rows a request still asks for.

Computed columns that another one rests on and that are not current: what is computed from them is not either.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from leman_core.model import keys, row_states
from leman_core.model.plan import SETTLED, OnStaleInput, Plan, Reason, StaleInput
from leman_core.model.row_positions import RowRange, addresses_of, fragments_of
from leman_core.model.row_states import RowState, States, StateSummary, state_kinds
from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.model.table import TableSnapshot
from leman_core.model.view import RefreshPlan, RefreshSpec
from leman_core.storage import column_files
from leman_core.storage.scan import FragmentReader
from leman_planner.planning.column_graph import upstream_columns
from leman_planner.planning.fragment_status import SETTLES, FragmentStatus, Statuses, decide_reuse, outcome_codes
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import FailedNow

#: Where more rows failed than this, it is not looked up which of them a filter matches.
MOST_ASKED = 10_000
#: In more fragments than this, it is not looked up which of the kept rows are deleted.
MOST_LOOKED_INTO = 1_000

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
    unsure = [status for status in some if (known := decide_reuse(resolved, status, states).states) and known.failed]
    if not unsure:
        return {}
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    live = {status.fragment.fragment_id: _live_failures(resolved, status, reader) for status in unsure}
    counts = {fragment_id: len(offsets) for fragment_id, offsets in live.items()}
    asked = counts
    if where and sum(counts.values()) <= MOST_ASKED:
        asked = _failed_matching(reader, live, where) or counts
    return {fragment_id: FailedNow(rows, asked[fragment_id]) for fragment_id, rows in counts.items()}


def _live_failures(resolved: ResolvedRequest, status: FragmentStatus, reader: FragmentReader) -> Offsets:
    """Return the offsets of the rows that failed under the request's version and that are not deleted."""
    return _live(np.flatnonzero(states_of(resolved, status) == RowState.FAILED), status, reader)


def _live(offsets: Offsets, status: FragmentStatus, reader: FragmentReader) -> Offsets:
    """Return those of some offsets whose rows are not deleted."""
    if not status.fragment.deleted_rows or not len(offsets):
        return offsets
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets[reader.live(status.fragment.fragment_id, RowRange(first, last + 1))[offsets - first]]


def kept_now(
    resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]
) -> dict[int, Mapping[str, int]]:
    """Count the rows with values of earlier versions in fragments with deleted rows, whose header counts these, too.

    Of more than `MOST_LOOKED_INTO` such fragments, only the first are looked into.

    Returns:
        The counts by version, by id of the fragment.
    """
    if not resolved.kept:
        return {}
    some = statuses.some(np.flatnonzero(statuses.with_states & (statuses.fragments.deleted_rows > 0)))
    unsure = [status for status in some if (known := decide_reuse(resolved, status, states).states) and known.older]
    if not unsure:
        return {}
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    return {s.fragment.fragment_id: _live_kept(resolved, s, reader) for s in unsure[:MOST_LOOKED_INTO]}


def _live_kept(resolved: ResolvedRequest, status: FragmentStatus, reader: FragmentReader) -> Mapping[str, int]:
    found = states_of(resolved, status)
    versions = row_states.state_versions(found)
    offsets = _live(np.flatnonzero((state_kinds(found) == RowState.COMPUTED) & (versions > 0)), status, reader)
    return dict(
        zip(resolved.versions, np.bincount(versions[offsets], minlength=len(resolved.versions)).tolist(), strict=True)
    )


def _failed_matching(reader: FragmentReader, rows: dict[int, Offsets], where: str) -> dict[int, int]:
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
        return row_states.decode_states_for(status.moved.states, resolved.versions[0], resolved.versions)
    if status.reason is Reason.PARTIAL:
        return _of_partial_file(resolved, status)
    if status.reason in SETTLED:
        return np.full(rows, row_states.with_version(RowState.COMPUTED, status.version), np.uint8)
    return np.zeros(rows, np.uint8)


def _of_partial_file(resolved: ResolvedRequest, status: FragmentStatus) -> States:
    """Return the states of a partial file. One that cannot be read counts needlessly: it is computed again."""
    name = keys.parse_column_file_name(status.current_file)
    try:
        buffer = column_files.read_states_buffer(resolved.table.uri, status.current_file)
    except LemanError:
        buffer = None
    if buffer is None or name is None:
        return np.zeros(status.fragment.physical_rows, np.uint8)
    return row_states.decode_states_for(buffer, name.function_part, resolved.versions)


_STALE_REFRESH = {
    OnStaleInput.ERROR: "a refresh is refused until these are computed, unless on_stale_input says otherwise",
    OnStaleInput.WARN: "the view gets the values that are there",
    OnStaleInput.FIRST: "the refresh computes these first and then plans again",
}

#: Resolves a plain backfill of a column of a version of a table.
Resolve = Callable[[TableSnapshot, str], ResolvedRequest]
Inspect = Callable[[ResolvedRequest], Statuses]
ReadStates = Callable[[ResolvedRequest, Statuses], Mapping[str, StateSummary]]


class StaleInputs:
    """What finds them. The arguments are how a plan looks at one column."""

    def __init__(self, resolve: Resolve, statuses: Inspect, read_states: ReadStates) -> None:
        self._resolve = resolve
        self._statuses = statuses
        self._read_states = read_states

    def of_plan(self, resolved: ResolvedRequest, plan: Plan, table: TableSnapshot) -> tuple[StaleInput, ...]:
        """Return the stale inputs of what a plan computes, near and far, inputs before what reads them.

        Where only some rows are asked for, only those of the fragments that are computed count, and that the filter
        matches.

        Args:
            table: the version whose rows are read, with all of its fragments.
        """
        if resolved.source is not None:
            return ()
        inputs = [field for i in resolved.inputs if (field := table.find_id(i.field_id) or table.find(i.name))]
        names = upstream_columns(table, resolved.output.name, inputs)
        if not names:
            return ()
        selective = bool(resolved.filter.where or resolved.num_frags or resolved.failed_only)
        only = {task.fragment_id for task in plan.tasks} if selective else None
        return self.of_columns(table, names, resolved.filter.where, only)

    def of_columns(
        self, table: TableSnapshot, names: Sequence[str], where: str = "", only: Collection[int] | None = None
    ) -> tuple[StaleInput, ...]:
        """Return those of some computed columns that are not current, in the same order.

        Args:
            where: a checked filter; only rows that it matches count. Empty: all.
            only: ids of the fragments that count; None: all.
        """
        kept = table.fragments if only is None else tuple(f for f in table.fragments if f.fragment_id in only)
        part = replace(table, fragments=kept)
        counted = ((name, self._rows(part, name, where)) for name in names)
        return tuple(StaleInput(name, rows) for name, rows in counted if rows)

    def _rows(self, table: TableSnapshot, name: str, where: str) -> int:
        with contextlib.suppress(LemanError):  # its function is not there: no one can make it current, or tell
            resolved = self._resolve(table, name)
            statuses = self._statuses(resolved)
            states = self._read_states(resolved, statuses)
            unsettled = list(_unsettled(resolved, statuses, states))
            if where and unsettled:
                with contextlib.suppress(LemanError):  # the filter fails on a row: all rows count
                    return _matching(resolved, [status for status, _ in unsettled], where)
            return sum(rows for _, rows in unsettled)
        return 0


def _unsettled(
    resolved: ResolvedRequest, statuses: Statuses, states: Mapping[str, StateSummary]
) -> Iterator[tuple[FragmentStatus, int]]:
    """Yield fragments whose values a backfill would compute, and how many rows of each."""
    unsettled = ~SETTLES[outcome_codes(statuses, failed_only=resolved.failed_only)] | statuses.with_states
    for status in statuses.some(np.flatnonzero(unsettled)):
        decision = decide_reuse(resolved, status, states)
        live = status.fragment.live_rows
        if decision.settled or not live:
            continue
        known = decision.states
        yield status, live if known is None else min(live, known.untouched + known.failed_older)


def _matching(resolved: ResolvedRequest, statuses: Sequence[FragmentStatus], where: str) -> int:
    """Count the rows of some fragments that are not current and that a filter matches."""
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    found = reader.rows_matching([status.fragment.fragment_id for status in statuses], where)
    total = 0
    for status in statuses:
        matched = found.get(status.fragment.fragment_id)
        if matched is not None:
            total += int(np.count_nonzero(state_kinds(states_of(resolved, status))[matched] == RowState.UNTOUCHED))
    return total


def refuse_stale(plan: Plan, on_stale_input: OnStaleInput) -> Plan:
    """Return a plan that may be carried out.

    Raises:
        FailedPrecondition: INPUT_COLUMN_STALE.
    """
    stale = plan.header.stale_inputs
    if not stale or on_stale_input is not OnStaleInput.ERROR:
        return plan
    raise _input_column_stale(f"Column {plan.header.output.name}", plan.header.output.name, stale)


def refuse_stale_refresh(plan: RefreshPlan, spec: RefreshSpec) -> RefreshPlan:
    """Return a plan of a refresh that may be carried out.

    Raises:
        FailedPrecondition: INPUT_COLUMN_STALE.
    """
    stale = plan.stale_inputs
    if not stale or spec.on_stale_input is OnStaleInput.WARN:
        return plan
    if plan.stale_in_source_view:
        how = (
            f"Refresh the view {plan.definition.query.table} first (cascade does both), or set on_stale_input to "
            "'warn' to use the values as they are"
        )
        raise _input_column_stale(f"View {spec.view}", spec.view, stale, how)
    if spec.on_stale_input is OnStaleInput.FIRST:
        return plan
    raise _input_column_stale(f"View {spec.view}", spec.view, stale)


def stale_words(stale: Sequence[StaleInput], on_stale_input: OnStaleInput) -> list[str]:
    """Return what a plan of a refresh says about columns that are not current."""
    found = [
        f"it reads {s.column}, of which {s.rows:,} rows of the source are stale or not computed yet" for s in stale
    ]
    return [*found, _STALE_REFRESH[on_stale_input]] if found else []


def _input_column_stale(subject: str, name: str, stale: Sequence[StaleInput], how: str = "") -> FailedPrecondition:
    listed = ", ".join(f"{found.column} ({found.rows:,} rows)" for found in stale)
    first = " and then ".join(found.column for found in stale)
    how = how or (
        f"Backfill {first} first, or set on_stale_input: 'first' has the job compute them before, "
        "'warn' uses the values as they are"
    )
    return FailedPrecondition(
        "INPUT_COLUMN_STALE",
        f"{subject} rests on computed columns that are stale or not computed yet: {listed}. {how}",
        column=name,
        inputs=", ".join(found.column for found in stale),
        rows=max(found.rows for found in stale),
    )
