"""Which rows of a computed column are computed, failed, or neither: what the planner knows, row by row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from leman_core.model import row_states
from leman_core.model.plan import BackfillSpec, KeptRows, ValueState
from leman_core.model.ranges import RowRange
from leman_core.model.row_address import RowAddress, addresses_of
from leman_core.model.row_states import RowState, States
from leman_core.storage.scan import FragmentReader
from leman_planner.failed_row_states import states_of
from leman_planner.plan_maker import PlanMaker
from leman_planner.planning import draft
from leman_planner.resolved_request import ResolvedRequest
from leman_planner.reuse_decision import FragmentStatus
from leman_planner.statuses import Statuses

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ColumnStates:
    """Live rows by state, and the addresses of those in the state that was asked for."""

    uri: str
    version: int
    computed: int
    null: int
    failed: int
    not_computed: int
    kept: tuple[KeptRows, ...]
    addresses: list[int]
    #: Of the rows that are not computed, those whose value a checkpoint holds.
    checkpointed: int = 0
    #: Of the rows that are not computed, those in finished files that only have to be committed.
    ready: int = 0


class StatesReader:
    """What reads the states of one column: only states of partial files, deletions and NULLs are read."""

    def __init__(self, plans: PlanMaker) -> None:
        self._plans = plans

    def read(self, database: str, table: str, column: str, listed: ValueState | None) -> ColumnStates:
        """Count a column's live rows by state, and list the addresses of one state.

        Args:
            listed: the state whose addresses are wanted; None: none.

        Raises:
            LemanError: what `PlanMaker.plan` raises.
        """
        resolved = self._plans.resolved(BackfillSpec(database, table, column))
        statuses = self._plans.statuses(resolved)
        reader = FragmentReader(resolved.table.uri, resolved.table.version)
        nulls = reader.null_rows(resolved.output.name)
        counts = dict.fromkeys(ValueState, 0)
        kept = np.zeros(len(resolved.versions), np.int64)
        addresses: list[int] = []
        for status in sorted(statuses, key=lambda s: s.fragment.fragment_id):
            fragment = status.fragment
            states = states_of(resolved, status)
            live = _live(reader, status)
            for state, mask in _masks(fragment.physical_rows, states, nulls.get(fragment.fragment_id)):
                alive = mask & live
                counts[state] += int(alive.sum())
                if state is listed:
                    addresses.extend(addresses_of(fragment.fragment_id, np.flatnonzero(alive)).tolist())
            computed = states[live & (row_states.kinds(states) == RowState.COMPUTED)]
            kept += np.bincount(row_states.versions(computed), minlength=len(kept))[: len(kept)]
        checkpointed, ready = self._stored(resolved, statuses, counts[ValueState.NOT_COMPUTED])
        return ColumnStates(
            uri=resolved.table.uri,
            version=resolved.table.version,
            computed=counts[ValueState.COMPUTED],
            null=counts[ValueState.NULL],
            failed=counts[ValueState.FAILED],
            not_computed=counts[ValueState.NOT_COMPUTED],
            kept=tuple(KeptRows(f, int(n)) for f, n in zip(resolved.kept, kept[1:], strict=True) if n),
            addresses=addresses,
            checkpointed=checkpointed,
            ready=ready,
        )

    def _stored(self, resolved: ResolvedRequest, statuses: Statuses, not_computed: int) -> tuple[int, int]:
        """Return how many of the rows that no version has are in checkpoints, and how many in finished files."""
        if not not_computed:
            return 0, 0
        asked, stored_work = self._plans.stored_work(resolved, statuses)
        made = draft(asked, statuses, stored_work)
        stored = max(0, not_computed - made.plan.header.rows_to_compute)
        ready = min(stored, made.rows_ready)
        return stored - ready, ready

    @staticmethod
    def row_ids(found: ColumnStates, addresses: Sequence[int]) -> list[int]:
        """Return the stable row ids of addresses, which ascend; none at all where the table has none."""
        reader = FragmentReader(found.uri, found.version)
        ids: list[int] = []
        places = map(RowAddress.from_int, addresses)
        for fragment_id, group in itertools.groupby(places, key=lambda place: place.fragment_id):
            ids += reader.row_ids(fragment_id, [place.offset for place in group])
        return ids if ids and max(ids) >= 0 else []


def _live(reader: FragmentReader, status: FragmentStatus) -> Mask:
    fragment = status.fragment
    if not fragment.deleted_rows:
        return np.ones(fragment.physical_rows, np.bool_)
    return reader.live(fragment.fragment_id, RowRange(0, fragment.physical_rows))


def _masks(rows: int, states: States, nulls: npt.NDArray[np.int64] | None) -> Iterator[tuple[ValueState, Mask]]:
    found = row_states.kinds(states)
    null = np.zeros(rows, np.bool_)
    if nulls is not None:
        null[nulls] = True
    computed = found == RowState.COMPUTED
    yield ValueState.COMPUTED, computed
    yield ValueState.NULL, computed & null
    yield ValueState.FAILED, found == RowState.FAILED
    yield ValueState.NOT_COMPUTED, found == RowState.UNTOUCHED
