"""Computed columns that another one rests on and that are not current: what is computed from them is not either."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from leman_core.model.errors import FailedPrecondition, LemanError
from leman_core.model.plan import OnStaleInput, Plan, StaleInput
from leman_core.model.refresh import RefreshPlan, RefreshSpec
from leman_core.model.row_states import RowState, StateSummary, kinds
from leman_core.model.table import TableSnapshot
from leman_core.storage.scan import FragmentReader
from leman_planner.column_graph import rests_on
from leman_planner.failed_row_states import states_of
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus, decide
from leman_planner.statuses import SETTLES, Statuses, outcome_codes

_STALE_REFRESH = {
    OnStaleInput.ERROR: "a refresh is refused until these are computed, unless on_stale_input says otherwise",
    OnStaleInput.WARN: "the view gets the values that are there",
    OnStaleInput.FIRST: "the refresh computes these first",
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
        names = rests_on(table, resolved.output.name, inputs)
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
        with contextlib.suppress(LemanError):  # its function is not there: nobody can make it current, or tell
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
        decision = decide(resolved, status, states)
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
            total += int(np.count_nonzero(kinds(states_of(resolved, status))[matched] == RowState.UNTOUCHED))
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
