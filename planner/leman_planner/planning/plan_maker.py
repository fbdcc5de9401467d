"""Make plans: read the required parts of a table, its checkpoints and its history. `plan_draft` makes the decisions."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
import structlog

from leman._format.column_bindings import ColumnBinding, FunctionVersion
from leman._format.stored_functions import UdfDefinition
from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.plan import (
    BackfillSpec,
    KeptRows,
    Plan,
    PlanHeader,
    Reason,
    StaleInput,
    TracedFile,
    rows_compared,
    rows_found,
)
from leman_core.model.plan_columns import planned_tasks
from leman_core.model.row_states import StateSummary
from leman_core.model.service_errors import DataLoss, LemanError, NotFound
from leman_core.model.table import TableSnapshot
from leman_core.model.work import CheckpointStore
from leman_core.sql import filters
from leman_core.sql.time_values import pin_relative_times
from leman_core.storage import column_files
from leman_core.storage.checkpoint_records import FragmentRecord, read_record, unpack_records
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root, in_own_folder
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import canonical_database, in_object_store, table_uri
from leman_core.storage.manifest import collector_paused
from leman_core.storage.source_rows import rows_still_there
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.telemetry import instruments, tracing
from leman_planner.planning.fragment_status import CODE, Statuses, decide_reuse, inspect_fragments
from leman_planner.planning.plan_draft import draft_plan, newly_traced_files
from leman_planner.planning.request_resolution import (
    ResolvedRequest,
    at_version,
    check_format,
    check_spec,
    defined_column,
    resolve_request,
    with_filter,
)
from leman_planner.planning.row_lineage import FileTracer, UnchangedInputs, migrated_rows
from leman_planner.planning.stale_inputs import StaleInputs, failed_now, kept_now
from leman_planner.planning.stored_work import KeptWork, OpenInputs, StoredWork, select_relevant

#: The phases of a plan. table: read the table, its functions and its filter. files: inspect names of files and the
#: history of compactions. stored: read row states, checkpoints and records, and a view's earlier values. decide: find
#: the work that is left. inputs: check whether inputs are current, and find usable rows elsewhere. send: make messages.
Phase: TypeAlias = Literal["table", "files", "stored", "decide", "inputs", "send"]


@contextlib.contextmanager
def measure_phase(kind: Literal["backfill", "refresh"], name: Phase) -> Iterator[None]:
    """Measure a phase of a plan. If the call is traced, also record it as a span."""
    begun = time.perf_counter()
    try:
        with tracing.span(name):
            yield
    finally:
        told = {instruments.JOB_KIND: kind, instruments.PHASE: name}
        instruments.PLAN_DURATION.record(time.perf_counter() - begun, told)


def replaced_values(
    resolved: ResolvedRequest,
    statuses: Statuses,
    registered: Callable[[], Iterable[FunctionVersion]],
    store: CheckpointStore,
) -> tuple[KeptRows, ...]:
    """Return the functions whose values a backfill replaces, beginning with the one with the most rows.

    The name of a column file contains a digest of its function, which identifies it among the registered ones. A file
    that an update or a compaction wrote counts if an earlier run recorded which function's values it has. With a
    filter, the numbers of rows are upper bounds.

    Args:
        resolved: The request.
        statuses: The statuses of all fragments.
        registered: Returns the registered functions. It is called only if values are replaced.
        store: Contains the records.
    """
    if resolved.failed_only:
        return ()
    rows: Counter[str] = Counter()
    places = np.flatnonzero(statuses.reasons == CODE[Reason.UDF_CHANGED])
    live = statuses.fragments.live_rows[places].tolist()
    for file, count in zip(statuses.current_files(places), live, strict=True):
        if (name := keys.parse_column_file_name(file)) is not None:
            rows[name.function_part] += count
    rows += _moved_rows(resolved, statuses, store)
    if not rows:
        return ()
    ids = dict.fromkeys((resolved.output.column_id, resolved.values_id or resolved.output.column_id))
    made = {keys.function_part(f.name, f.version, i): f for f in registered() for i in ids}
    return tuple(KeptRows(made[part], count) for part, count in rows.most_common() if part in made)


def _moved_rows(resolved: ResolvedRequest, statuses: Statuses, store: CheckpointStore) -> Counter[str]:
    """Count the rows of other functions in files that an update or a compaction wrote, by digest of the function."""
    rows: Counter[str] = Counter()
    written = itertools.chain.from_iterable(map(statuses.having, _WRITTEN))
    live = {
        s.current_file: s.fragment.live_rows for _, s in written if keys.parse_column_file_name(s.current_file) is None
    }
    own = set(map(keys.traced_key, resolved.versions))
    for key in set(store.list_keys(keys.traced_key(""))) - own if live else ():
        with contextlib.suppress(KeyError):
            for record in unpack_records(store[key]):
                if record.column_id == resolved.output.column_id:
                    rows[keys.function_of(record.fingerprint)] += min(live.get(record.file, 0), record.rows_computed)
    return +rows


_log = structlog.get_logger(__name__)

#: If a fragment has one of these reasons, an update or a compaction may have written its file.
_WRITTEN = (Reason.EXTERNAL_WRITE, Reason.UDF_CHANGED, Reason.HISTORY_LOST)
_READERS = 8
_PARTS = 8

Value = TypeVar("Value")


def _checkpoints_of(uri: str) -> CheckpointStore:
    return LanceCheckpointStore(checkpoint_root(uri))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Forecast(NamedTuple):
    """A plan that would be made for another definition of a column."""

    #: Rows that the job would migrate count as reused.
    header: PlanHeader
    rows_found: int
    #: The number of rows to compute that the job would first compare with earlier versions.
    rows_compared: int


class PlanMaker:
    """Makes plans. It is stateless, so any number of threads may use it."""

    def __init__(
        self,
        tables: LanceTables,
        *,
        registry: Callable[[str], UdfRegistry] = UdfRegistry,
        checkpoints: Callable[[str], CheckpointStore] = _checkpoints_of,
        now: Callable[[], dt.datetime] = _now,
    ) -> None:
        self._tables = tables
        self._registry = registry
        self._checkpoints = checkpoints
        self._now = now

    def plan(self, spec: BackfillSpec) -> Plan:
        """Make the plan for a request from the latest version of its table.

        Raises:
            LemanError: See `PlanningService.CreatePlan` (protos/leman/internal/v1/planning.proto).
        """
        with collector_paused():
            with measure_phase("backfill", "table"):
                resolved = self.resolved(spec)
            with measure_phase("backfill", "files"):
                statuses = self.statuses(resolved)
            with measure_phase("backfill", "stored"):
                resolved, stored_work = self.stored_work(resolved, statuses)
            with measure_phase("backfill", "decide"):
                made = draft_plan(resolved, statuses, stored_work)
            plan, fragments, rows = made.plan, made.fragments_collected, made.rows_collected
            with measure_phase("backfill", "inputs"):
                plan = self._with_inputs(resolved, plan, statuses, stored_work, spec.database)
        if fragments or rows:
            message = f"Collected {fragments} checkpointed fragments with {rows} rows"
            _log.info(message, column=resolved.output.name)
        return plan

    def _with_inputs(
        self, resolved: ResolvedRequest, plan: Plan, statuses: Statuses, stored_work: StoredWork, place: str
    ) -> Plan:
        """Add the following to a plan: stale inputs, replaced values, and traced, migrated and compared rows."""
        if stale := self._stale_inputs(resolved, plan, place):
            plan = replace(plan, header=replace(plan.header, stale_inputs=stale))
        database, store = canonical_database(place), self._checkpoints(resolved.table.uri)
        if replaced := replaced_values(resolved, statuses, lambda: self._registry(database).versions(), store):
            plan = replace(plan, header=replace(plan.header, replaced=replaced))
        if plan.traced:
            plan = replace(plan, traced=(*plan.traced, *self._traced_of_others(resolved, place)))
        plan = self._migrated(resolved, plan, statuses, stored_work)
        return self._compared(resolved, plan, statuses, stored_work)

    def _compared(self, resolved: ResolvedRequest, plan: Plan, statuses: Statuses, stored_work: StoredWork) -> Plan:
        """Add the rows that a job would compare with earlier versions to a plan with all its migrated rows."""
        if not plan.tasks:
            return plan
        store = self._checkpoints(resolved.table.uri)
        unchanged = UnchangedInputs(resolved, self._tables, store, was_used=stored_work.was_used)
        return replace(plan, compared=unchanged.compared(plan, statuses))

    def forecast(self, table: TableSnapshot, column: str, udf: UdfDefinition, *, compares: bool = False) -> Forecast:
        """Return the plan that a backfill without options would have for the given state of the table.

        Args:
            table: The state of the table.
            column: The column.
            udf: The function of the column.
            compares: Whether to look for rows to compare, which walks through the table's history.

        Raises:
            LemanError: As `plan`.
        """
        with collector_paused():
            resolved = resolve_request(BackfillSpec("", "", column), table, udf, udf)
            statuses = self.statuses(resolved)
            resolved, stored_work = self.stored_work(resolved, statuses)
            plan = draft_plan(resolved, statuses, stored_work).plan
            if stored_work.was_used:
                plan = self._migrated(resolved, plan, statuses, stored_work)
                plan = self._compared(resolved, plan, statuses, stored_work) if compares else plan
        found, header = rows_found(plan), plan.header
        header = replace(header, rows_reused=header.rows_reused + found, rows_to_compute=header.rows_to_compute - found)
        return Forecast(header, found, rows_compared(plan))

    def stale_inputs(self, database: str) -> StaleInputs:
        """Return the finder of computed columns of a database that are not current."""
        registry = self._registry(canonical_database(database))

        def resolved(table: TableSnapshot, column: str) -> ResolvedRequest:
            _, bound = defined_column(table, column)
            spec = BackfillSpec(database, "", column)
            udf, own = _functions(registry, spec, bound)
            return resolve_request(spec, table, udf, own)

        def states(request: ResolvedRequest, statuses: Statuses) -> dict[str, StateSummary]:
            return _states(request.table.uri, _partial_files(statuses))

        return StaleInputs(resolved, self.statuses, states)

    def _stale_inputs(self, resolved: ResolvedRequest, plan: Plan, database: str) -> tuple[StaleInput, ...]:
        past = resolved.past
        read = resolved.table if past is None else self._tables.snapshot(resolved.table.uri, past.version)
        return self.stale_inputs(database).of_plan(resolved, plan, read)

    def resolved(self, spec: BackfillSpec) -> ResolvedRequest:
        """Resolve a request against the latest version of its table."""
        check_spec(spec)
        uri = table_uri(spec.database, spec.table)
        table = self._tables.snapshot(uri)
        check_format(table)
        registry = self._registry(canonical_database(spec.database))
        _, bound = defined_column(table, spec.column)
        udf, bound_udf = _functions(registry, spec, bound)
        resolved = resolve_request(spec, table, udf, bound_udf, registry.bundle_uri(udf))
        if resolved.source is not None:
            self._tables.check_place(resolved.source.uri)
        version = self._tables.tagged(uri, spec.read_tag) if spec.read_tag else spec.read_version
        old = self._tables.snapshot(uri, version) if version else None
        if spec.where:
            resolved = self._filtered(resolved, spec.where, old or table)
        if old is not None:
            resolved = at_version(
                resolved, old, lambda fragments: rows_still_there(uri, table.version, fragments, old.version)
            )
        return resolved

    def statuses(self, resolved: ResolvedRequest) -> Statuses:
        """Return the statuses of all fragments. For compacted fragments they include the states of the rows."""
        statuses = inspect_fragments(resolved)
        if resolved.past is not None:  # for an older version, later compactions do not matter
            return statuses
        return FileTracer(resolved, self._checkpoints(resolved.table.uri)).trace(resolved.table, statuses)

    def stored_work(self, resolved: ResolvedRequest, statuses: Statuses) -> tuple[ResolvedRequest, StoredWork]:
        """Read the row states of partial files and, for fragments with work, checkpoint keys and records.

        Returns:
            The request with the location in its checkpoint keys, and the stored work.
        """
        uri = resolved.table.uri
        partial = _partial_files(statuses)
        states = _states(uri, partial)
        decisions = decide_reuse(resolved, statuses, states)
        failed = failed_now(resolved, statuses, decisions)
        kept_rows = kept_now(resolved, statuses, decisions)
        wanted = OpenInputs(statuses, decisions)
        if not wanted:
            return resolved, StoredWork(states=states, decisions=decisions, failed=failed, kept_rows=kept_rows)
        store = self._checkpoints(uri)
        resolved, listed = _listed(store, resolved)
        sifted = select_relevant(resolved, wanted, listed)
        if sifted.fragments_outdated:
            mismatched = sifted.fragments_outdated
            _log.info("Checkpoint data files mismatch", column=resolved.output.name, fragments=mismatched)
        records = self._records(uri, store, sifted.records)
        staged = {r.file for r in records.values()} - partial
        return resolved, StoredWork(
            states={**states, **_states(uri, staged)},
            found=sifted.found,
            records=records,
            gone=sifted.gone,
            outdated=sifted.outdated,
            decisions=decisions,
            failed=failed,
            kept_rows=kept_rows,
            kept=() if resolved.failed_only else tuple(self._kept_work(resolved, wanted, store)),
            was_used=bool(listed) or _has_traced(resolved, statuses, store),
        )

    def _kept_work(self, resolved: ResolvedRequest, wanted: OpenInputs, store: CheckpointStore) -> Iterator[KeptWork]:
        """Yield the stored work of kept functions for fragments with work."""
        for version, earlier in enumerate(resolved.of_kept, 1):
            asked, listed = _listed(store, earlier)
            if listed:
                sifted = select_relevant(asked, wanted, listed)
                records = self._records(resolved.table.uri, store, sifted.records)
                stored = StoredWork(found=sifted.found, records=records, gone=sifted.gone, outdated=sifted.outdated)
                yield KeptWork(version=version, resolved=asked, stored=stored)

    def _migrated(self, resolved: ResolvedRequest, plan: Plan, statuses: Statuses, stored: StoredWork) -> Plan:
        """Add rows that are stored elsewhere to a plan, including those of kept functions."""
        if resolved.failed_only or resolved.past:
            return plan
        everyone = [(resolved, statuses, stored)]
        everyone += [(kept.resolved, self.statuses(kept.resolved), kept.stored) for kept in stored.kept]
        elsewhere = [work for work in everyone if work[2].records or work[2].gone or work[2].outdated]
        if not elsewhere or not planned_tasks(plan.tasks).rows_missing.any():
            return plan
        store = self._checkpoints(resolved.table.uri)
        existing = partial(self._tables.existing_data_files, resolved.table.uri)
        found = (migrated_rows(asked, plan, seen, work, store, existing) for asked, seen, work in elsewhere)
        return replace(plan, migrated=tuple(itertools.chain.from_iterable(found)))

    def _traced_of_others(self, resolved: ResolvedRequest, database: str) -> Iterator[TracedFile]:
        """Yield, for the table's other computed columns, records of where compactions moved their rows.

        This is recorded now, because the history may be cleaned up before the next job of those columns.
        """
        registry = self._registry(canonical_database(database))
        asked = (resolved.output.name, resolved.udf.name, resolved.udf.version)
        for column in resolved.table.fields:
            with contextlib.suppress(LemanError):  # its function cannot be used now
                bound = binding.read(column.arrow)
                udf = None if bound is None else registry.find_expected(bound.udf_name, bound.udf_version)
                if udf is not None and (column.name, udf.name, udf.version) != asked:
                    other = resolve_request(BackfillSpec(database, "", column.name), resolved.table, udf, udf)
                    yield from newly_traced_files(other, self.statuses(other))

    def _filtered(self, resolved: ResolvedRequest, where: str, read: TableSnapshot) -> ResolvedRequest:
        """Return the request with a checked filter, which is evaluated in the version `read`."""
        pinned = self.pinned(read, where)
        return with_filter(resolved, pinned, filters.names_in_filter(pinned), read.fields)

    def pinned(self, read: TableSnapshot, where: str) -> str:
        """Check a filter against the version that is read. Return it with relative times replaced by absolute ones.

        Raises:
            InvalidArgument: INVALID_FILTER.
        """
        filters.check_length(where)
        filters.check_filter(where, read.schema.names)
        pinned = pin_relative_times(where, self._now())
        self._tables.check_filter(read.uri, pinned, read.version)
        return pinned

    def _records(self, uri: str, store: CheckpointStore, wanted: list[str]) -> dict[str, FragmentRecord]:
        """Return the records whose files exist."""

        read = _in_threads(lambda key: read_record(store, key), wanted)
        records = {key: record for key, record in read if record is not None}
        files = {record.file for record in records.values()}
        existing = self._tables.existing_data_files(uri, files) if files else set()
        return {key: record for key, record in records.items() if record.file in existing}


def _functions(
    registry: UdfRegistry, spec: BackfillSpec, bound: ColumnBinding
) -> tuple[UdfDefinition, UdfDefinition | None]:
    """Return the function to use, and the column's own if it is still registered."""
    own = registry.find_expected(bound.udf_name, bound.udf_version)
    if spec.udf_name:
        return registry.usable(spec.udf_name, spec.udf_version), own
    if own is None:
        wanted = f"{bound.udf_name}@{bound.udf_version}"
        raise NotFound(
            "UDF_NOT_FOUND",
            f"The function {wanted} of column {spec.column} is not registered in {spec.database}: register it again",
            udf=wanted,
        )
    registry.policy.check(own)
    return own, own


def _listed(store: CheckpointStore, resolved: ResolvedRequest) -> tuple[ResolvedRequest, list[str]]:
    """Return the request with the location that its stored keys contain, and these keys."""
    listed = store.list_keys(resolved.family.head)
    if not listed or resolved.tells_versions or not in_own_folder(resolved.table.uri):
        return resolved, listed
    former = resolved.family.as_made(listed).former_place
    return (replace(resolved, former_place=former) if former else resolved), listed


def _has_traced(resolved: ResolvedRequest, statuses: Statuses, store: CheckpointStore) -> bool:
    """Return whether another function replaced values, and an earlier run recorded traced rows of this function."""
    has_others = CODE[Reason.UDF_CHANGED] in statuses.reasons
    return has_others and keys.traced_key(resolved.versions[0]) in store


def _partial_files(statuses: Statuses) -> set[str]:
    return set(statuses.current_files(np.flatnonzero(statuses.reasons == CODE[Reason.PARTIAL])))


def _states(uri: str, files: Iterable[str]) -> dict[str, StateSummary]:
    """Read the row states of partial files. Damaged and missing files are left out.

    Raises:
        LemanError: See `storage_errors.failed`.
    """

    def read(file: str) -> StateSummary | None:
        try:
            return column_files.read_state_summary(uri, file)
        except (NotFound, DataLoss) as error:
            _log.warning("row states cannot be read", file=file, error=error.message)
            return None

    partial = [f for f in files if (name := keys.parse_column_file_name(f)) is not None and name.partial]
    names = sorted(partial)
    # Reading a local file takes 20 µs, and in threads 100 µs.
    found = _in_threads(read, names) if in_object_store(uri) else zip(names, map(read, names), strict=True)
    return {file: summary for file, summary in found if summary is not None}


def _in_threads(read: Callable[[str], Value], names: list[str]) -> Iterable[tuple[str, Value]]:
    if len(names) < 2:
        return [(name, read(name)) for name in names]
    size = -(-len(names) // (_READERS * _PARTS))  # one future for each file would cost more than reading it
    parts = [names[at : at + size] for at in range(0, len(names), size)]
    with ThreadPoolExecutor(min(_READERS, len(parts)), thread_name_prefix="plan") as pool:
        found = pool.map(lambda part: [(name, read(name)) for name in part], parts)
        return [pair for part in found for pair in part]
