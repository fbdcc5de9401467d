"""Count the failed rows of a column, read its row states, and find input columns that are not current."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from leman_core.model import keys, row_states
from leman_core.model.plan import SETTLED, OnStaleInput, Plan, Reason, StaleInput
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_positions import RowRange, addresses_of, fragments_of
from leman_core.model.row_states import RowState, States, StateSummary, state_kinds
from leman_core.model.service_errors import FailedPrecondition, LemanError, Unavailable
from leman_core.model.table import TableSnapshot
from leman_core.model.view import RefreshPlan, RefreshSpec
from leman_core.storage import column_files
from leman_core.storage.scan import FragmentReader
from leman_planner.planning.column_graph import upstream_columns
from leman_planner.planning.fragment_status import Decisions, FragmentStatus, Statuses, decide_reuse
from leman_planner.planning.request_resolution import ResolvedRequest
from leman_planner.planning.stored_work import FailedNow

#: The filter is evaluated for at most this many failed rows.
MOST_ASKED = 10_000
#: The maximum number of fragments in which deleted rows with kept values are looked up.
MOST_LOOKED_INTO = 1_000

Offsets = npt.NDArray[np.int64]


def failed_now(resolved: ResolvedRequest, statuses: Statuses, decisions: Decisions) -> dict[int, FailedNow]:
    """Count the failed rows of fragments in which deletions or a filter may exclude some of them.

    Returns:
        The counts by fragment id. For every fragment without an entry, the count in its file's header is right.
    """
    where = "" if resolved.past is not None else resolved.filter.where  # filters are not evaluated in older versions
    has_failed = np.array([at for at, known in decisions.states.items() if known.failed], np.int64)
    may_be_less = has_failed if where else has_failed[statuses.fragments.deleted_rows[has_failed] > 0]
    unsure = list(statuses.take(may_be_less))
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
    """Return the offsets of rows that failed under the request's version and are not deleted."""
    return _live(np.flatnonzero(states_of(resolved, status) == RowState.FAILED), status, reader)


def _live(offsets: Offsets, status: FragmentStatus, reader: FragmentReader) -> Offsets:
    """Return the offsets whose rows are not deleted."""
    if not status.fragment.deleted_rows or not len(offsets):
        return offsets
    first, last = int(offsets[0]), int(offsets[-1])
    return offsets[reader.live(status.fragment.fragment_id, RowRange(first, last + 1))[offsets - first]]


def kept_now(resolved: ResolvedRequest, statuses: Statuses, decisions: Decisions) -> dict[int, Mapping[str, int]]:
    """Count the live rows with values of earlier versions, in fragments with deleted rows.

    The header of such a fragment's file counts deleted rows, too. At most `MOST_LOOKED_INTO` fragments are read.

    Returns:
        The counts by fragment id, and by version.
    """
    if not resolved.kept:
        return {}
    has_older = np.array([at for at, known in decisions.states.items() if known.older], np.int64)
    unsure = list(statuses.take(has_older[statuses.fragments.deleted_rows[has_older] > 0][:MOST_LOOKED_INTO]))
    if not unsure:
        return {}
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    return {s.fragment.fragment_id: _live_kept(resolved, s, reader) for s in unsure}


def _live_kept(resolved: ResolvedRequest, status: FragmentStatus, reader: FragmentReader) -> Mapping[str, int]:
    found = states_of(resolved, status)
    versions = row_states.state_versions(found)
    offsets = _live(np.flatnonzero((state_kinds(found) == RowState.COMPUTED) & (versions > 0)), status, reader)
    return dict(
        zip(resolved.versions, np.bincount(versions[offsets], minlength=len(resolved.versions)).tolist(), strict=True)
    )


def _failed_matching(reader: FragmentReader, rows: dict[int, Offsets], where: str) -> dict[int, int]:
    """Count the rows that match a filter, by fragment id. Return nothing if it cannot be evaluated."""
    bases = [addresses_of(fragment_id, offsets) for fragment_id, offsets in rows.items()]
    try:
        found = reader.matching(np.concatenate(bases).tolist(), where)
    except (Unavailable, FailedPrecondition):  # the backfill will report the problem
        return {}
    fragments, counts = np.unique(fragments_of(np.array(found, np.int64)), return_counts=True)
    return {**dict.fromkeys(rows, 0), **dict(zip(fragments.tolist(), counts.tolist(), strict=True))}


def states_of(resolved: ResolvedRequest, status: FragmentStatus) -> States:
    """Return the state of each physical row for the request's function."""
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
    """Return the states of a partial file. If it cannot be read, all rows count as not computed."""
    name = keys.parse_column_file_name(status.current_file)
    try:
        buffer = column_files.read_states_buffer(resolved.table.uri, status.current_file)
    except LemanError:
        buffer = None
    if buffer is None or name is None:
        return np.zeros(status.fragment.physical_rows, np.uint8)
    return row_states.decode_states_for(buffer, name.function_part, resolved.versions)


_STALE_REFRESH = {
    OnStaleInput.ERROR: "a refresh is rejected until these are computed, unless on_stale_input allows it",
    OnStaleInput.WARN: "the view gets their present values",
    OnStaleInput.FIRST: "the refresh computes these first and then plans again",
}

#: Returns the resolved request for a plain backfill of a column in a version of a table.
Resolve = Callable[[TableSnapshot, str], ResolvedRequest]
Inspect = Callable[[ResolvedRequest], Statuses]
ReadStates = Callable[[ResolvedRequest, Statuses], Mapping[str, StateSummary]]


class StaleInputs:
    """Finds computed columns that are not current. The constructor gets the steps of planning one column."""

    def __init__(self, resolve: Resolve, statuses: Inspect, read_states: ReadStates) -> None:
        self._resolve = resolve
        self._statuses = statuses
        self._read_states = read_states

    def of_plan(self, resolved: ResolvedRequest, plan: Plan, table: TableSnapshot) -> tuple[StaleInput, ...]:
        """Return the stale columns on which a plan's values depend, directly or indirectly, each before its readers.

        If the request selects rows, only the rows in the plan's fragments that match its filter count: a column is
        stale if it is stale for one of them.

        Args:
            resolved: The request.
            plan: The plan.
            table: The version whose rows are read, with all of its fragments.
        """
        if resolved.source is not None:
            return ()
        inputs = [field for i in resolved.inputs if (field := table.find_id(i.field_id) or table.find(i.name))]
        names = upstream_columns(table, resolved.output.name, inputs)
        if not names:
            return ()
        selective = bool(resolved.filter.where or resolved.num_frags or resolved.failed_only)
        only = set(planned_tasks(plan.tasks).fragment_ids.tolist()) if selective else None
        return self.of_columns(table, names, resolved.filter.where, only)

    def of_columns(
        self, table: TableSnapshot, names: Sequence[str], where: str = "", only: Collection[int] | None = None
    ) -> tuple[StaleInput, ...]:
        """Return the columns among `names` that are not current, in the same order.

        Args:
            table: The version that is read.
            names: The columns.
            where: A checked filter. Only matching rows count. If empty, all rows count.
            only: The ids of the fragments that count, or None for all.
        """
        kept = table.fragments if only is None else tuple(f for f in table.fragments if f.fragment_id in only)
        part = replace(table, fragments=kept)
        counted = ((name, self._rows(part, name, where)) for name in names)
        return tuple(StaleInput(name, rows) for name, rows in counted if rows)

    def _rows(self, table: TableSnapshot, name: str, where: str) -> int:
        with contextlib.suppress(LemanError):  # a column whose function is missing can be neither checked nor computed
            resolved = self._resolve(table, name)
            statuses = self._statuses(resolved)
            states = self._read_states(resolved, statuses)
            unsettled = list(_unsettled(statuses, decide_reuse(resolved, statuses, states)))
            if where and unsettled:
                with contextlib.suppress(LemanError):  # if the filter fails on a row, all rows count
                    return _matching(resolved, [status for status, _ in unsettled], where)
            return sum(rows for _, rows in unsettled)
        return 0


def _unsettled(statuses: Statuses, decisions: Decisions) -> Iterator[tuple[FragmentStatus, int]]:
    """Yield the fragments that a backfill would compute, each with its number of rows."""
    places = np.flatnonzero(~decisions.is_settled & (statuses.fragments.live_rows > 0))
    for at, status in zip(places.tolist(), statuses.take(places), strict=True):
        live, known = status.fragment.live_rows, decisions.states.get(at)
        yield status, live if known is None else min(live, known.untouched + known.failed_older)


def _matching(resolved: ResolvedRequest, statuses: Sequence[FragmentStatus], where: str) -> int:
    """Count the rows of some fragments that are not current and match a filter."""
    reader = FragmentReader(resolved.table.uri, resolved.table.version)
    found = reader.rows_matching([status.fragment.fragment_id for status in statuses], where)
    total = 0
    for status in statuses:
        matched = found.get(status.fragment.fragment_id)
        if matched is not None:
            total += int(np.count_nonzero(state_kinds(states_of(resolved, status))[matched] == RowState.UNTOUCHED))
    return total


def refuse_stale(plan: Plan, on_stale_input: OnStaleInput) -> Plan:
    """Return the plan, unless its inputs are stale and the request does not allow that.

    Raises:
        FailedPrecondition: INPUT_COLUMN_STALE.
    """
    stale = plan.header.stale_inputs
    if not stale or on_stale_input is not OnStaleInput.ERROR:
        return plan
    raise _input_column_stale(f"Column {plan.header.output.name}", plan.header.output.name, stale)


def refuse_stale_refresh(plan: RefreshPlan, spec: RefreshSpec) -> RefreshPlan:
    """Return the plan of a refresh, unless its inputs are stale and the request does not allow that.

    Raises:
        FailedPrecondition: INPUT_COLUMN_STALE.
    """
    stale = plan.stale_inputs
    if not stale or spec.on_stale_input is OnStaleInput.WARN:
        return plan
    if plan.stale_in_source_view:
        how = (
            f"Refresh the view {plan.definition.query.table} first (cascade does both), or set on_stale_input to "
            "'warn' to use the present values"
        )
        raise _input_column_stale(f"View {spec.view}", spec.view, stale, how)
    if spec.on_stale_input is OnStaleInput.FIRST:
        return plan
    raise _input_column_stale(f"View {spec.view}", spec.view, stale)


def stale_words(stale: Sequence[StaleInput], on_stale_input: OnStaleInput) -> list[str]:
    """Describe stale columns in the plan of a refresh."""
    found = [
        f"it reads {s.column}, in which {s.rows:,} rows of the source are stale or not computed yet" for s in stale
    ]
    return [*found, _STALE_REFRESH[on_stale_input]] if found else []


def _input_column_stale(subject: str, name: str, stale: Sequence[StaleInput], how: str = "") -> FailedPrecondition:
    listed = ", ".join(f"{found.column} ({found.rows:,} rows)" for found in stale)
    first = " and then ".join(found.column for found in stale)
    how = how or (
        f"Backfill {first} first, or set on_stale_input: with 'first' the job computes them first, with 'warn' it "
        "uses their present values"
    )
    return FailedPrecondition(
        "INPUT_COLUMN_STALE",
        f"{subject} depends on computed columns that are stale or not computed yet: {listed}. {how}",
        column=name,
        inputs=", ".join(found.column for found in stale),
        rows=max(found.rows for found in stale),
    )
