"""Reads what a plan rests on, and no more: a table of which every fragment is current costs one manifest."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import structlog

from core import keys
from core.checkpoints import LanceCheckpointStore
from core.checkpoints.lance_store import checkpoint_root
from core.checkpoints.records import FragmentRecord, read_record
from core.domain.plan import BackfillSpec, FollowedFile, Plan, Reason
from core.domain.table import TableSnapshot
from core.domain.udf import ColumnBinding, UdfDefinition
from core.errors import LemanError, NotFound
from core.lance_io import column_files
from core.lance_io.manifest import collector_paused
from core.lance_io.past_reader import rows_in
from core.lance_io.tables import LanceTables
from core.locations import canonical_database, table_uri
from core.ports import CheckpointStore
from core.row_states import StateSummary
from core.sql import filters
from core.sql.relative_time import pin
from core.storage import failed
from core.udf import binding
from core.udf.registry import UdfRegistry
from planner.compaction_tracing import carried, follow
from planner.failed_rows import failed_now
from planner.planning import draft, followed
from planner.request_resolution import (
    Question,
    at_version,
    check_format,
    check_spec,
    defined_column,
    resolve,
    with_filter,
)
from planner.reuse_decision import Sight, look, unnamed
from planner.stored_work import Evidence, open_inputs, sift

_log = structlog.get_logger(__name__)

_READERS = 8
_PARTS = 8

Value = TypeVar("Value")


def _checkpoints_of(uri: str) -> CheckpointStore:
    return LanceCheckpointStore(checkpoint_root(uri))


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class PlanReader:
    """Makes plans from what is stored. Holds no state: any number of threads may use one."""

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
        """Raises what `PlannerService.CreatePlan` (protos/leman/v1/planner.proto) names."""
        with collector_paused():
            question = self.question(spec)
            sights = self.sights(question)
            evidence = self.evidence(question, sights)
            plan, *collected = draft(question, sights, evidence)
            if plan.followed:
                others = self._followed_of_others(question, spec.database)
                plan = replace(plan, followed=(*plan.followed, *others))
            elsewhere = (evidence.records or evidence.gone) and not (question.failed_only or question.past)
            if elsewhere and any(task.missing for task in plan.tasks):
                store = self._checkpoints(question.table.uri)
                plan = replace(plan, carried=carried(question, plan, sights, evidence, store))
        if any(collected):
            fragments, rows = collected
            message = f"Collected {fragments} checkpointed fragments with {rows} rows"
            _log.info(message, column=question.output.name)
        return plan

    def question(self, spec: BackfillSpec) -> Question:
        """The request, resolved against the latest version of its table."""
        check_spec(spec)
        uri = table_uri(spec.database, spec.table)
        table = self._tables.snapshot(uri)
        check_format(table)
        registry = self._registry(canonical_database(spec.database))
        _, bound = defined_column(table, spec.column)
        udf, bound_udf = _functions(registry, spec, bound)
        question = resolve(spec, table, udf, bound_udf, registry.bundle_uri(udf))
        version = self._tables.tagged(uri, spec.read_tag) if spec.read_tag else spec.read_version
        old = self._tables.snapshot(uri, version) if version else None
        if spec.where:
            question = self._filtered(question, spec.where, old or table)
        if old is not None:
            question = at_version(question, old, lambda fragments: rows_in(uri, table.version, fragments, old.version))
        return question

    def sights(self, question: Question) -> list[Sight]:
        """All fragments; where compaction wrote the column's files, with what became of the rows."""
        sights = look(question)
        if question.past is not None:  # what became of rows since then is another question
            return sights
        if not any(unnamed(question, sight) for sight in sights):
            return sights
        return follow(question, sights, self._checkpoints(question.table.uri))

    def evidence(self, question: Question, sights: list[Sight]) -> Evidence:
        """Row states of partial files; for fragments with work their checkpoint keys and records too."""
        uri = question.table.uri
        partial = {s.current_file for s in sights if s.reason is Reason.PARTIAL}
        states = _states(uri, partial)
        failed = failed_now(question, sights, states)
        wanted = open_inputs(question, sights, states)
        if not wanted:
            return Evidence(states=states, failed=failed)
        store = self._checkpoints(uri)
        sifted = sift(question, wanted, store.list_keys(question.family.head))
        if sifted.outdated:
            count = len(sifted.outdated)
            _log.info("Checkpoint data files mismatch", column=question.output.name, fragments=count)
        records = self._records(uri, store, sifted.records)
        staged = {r.file for r in records.values()} - partial
        return Evidence({**states, **_states(uri, staged)}, sifted.found, records, sifted.gone, failed)

    def _followed_of_others(self, question: Question, database: str) -> Iterator[FollowedFile]:
        """What a compaction did to the table's other computed columns: the history that tells is cleaned for all of
        them, and a job of theirs may come too late."""
        registry = self._registry(canonical_database(database))
        asked = (question.output.name, question.udf.name, question.udf.version)
        for column in question.table.fields:
            with contextlib.suppress(LemanError):  # it is of no use to anybody now
                bound = binding.read(column.arrow)
                udf = None if bound is None else registry.find(bound.udf_name, bound.udf_version)
                if udf is not None and (column.name, udf.name, udf.version) != asked:
                    other = resolve(BackfillSpec(database, "", column.name), question.table, udf, udf)
                    yield from followed(other, self.sights(other))

    def _filtered(self, question: Question, where: str, read: TableSnapshot) -> Question:
        """`read`: the version in which the filter is evaluated."""
        filters.check(where, read.schema.names)
        pinned = pin(where, self._now())
        self._tables.check_filter(read.uri, pinned, read.version)
        return with_filter(question, pinned, filters.names(pinned), read.fields)

    def _records(self, uri: str, store: CheckpointStore, wanted: list[str]) -> dict[str, FragmentRecord]:
        """Those records whose file lies in the data folder."""

        read = _in_threads(lambda key: read_record(store, key), wanted)
        records = {key: record for key, record in read if record is not None}
        files = {record.file for record in records.values()}
        existing = self._tables.existing_data_files(uri, files) if files else set()
        return {key: record for key, record in records.items() if record.file in existing}


def _functions(
    registry: UdfRegistry, spec: BackfillSpec, bound: ColumnBinding
) -> tuple[UdfDefinition, UdfDefinition | None]:
    """The function to use, and the column's own where it is still registered."""
    own = registry.find(bound.udf_name, bound.udf_version)
    if spec.udf_name:
        return registry.get(spec.udf_name, spec.udf_version), own
    if own is None:
        wanted = f"{bound.udf_name}@{bound.udf_version}"
        raise NotFound(
            "UDF_NOT_FOUND",
            f"Column {spec.column} is computed by function {wanted}, which is not registered in "
            f"{spec.database}: register it again",
            udf=wanted,
        )
    return own, own


def _states(uri: str, files: Iterable[str]) -> dict[str, StateSummary]:
    """Row states of those of the files that carry any; a file that is damaged or gone has none. Raises what
    `core.storage.failed` gives."""

    def read(file: str) -> StateSummary | None:
        try:
            return column_files.read_state_summary(uri, file)
        except (FileNotFoundError, ValueError, KeyError) as error:
            _log.warning("row states cannot be read", file=file, error=str(error))
            return None
        except OSError as error:
            raise failed(error, f"Row states of {file} cannot be read now: {error}", uri) from None

    partial = [f for f in files if (name := keys.parse_column_file_name(f)) is not None and name.partial]
    names = sorted(partial)
    # a local file takes 20 µs, which threads would make 100
    found = _in_threads(read, names) if "://" in uri else zip(names, map(read, names), strict=True)
    return {file: summary for file, summary in found if summary is not None}


def _in_threads(read: Callable[[str], Value], names: list[str]) -> Iterable[tuple[str, Value]]:
    if len(names) < 2:
        return [(name, read(name)) for name in names]
    size = -(-len(names) // (_READERS * _PARTS))  # one future each would cost more than the reading
    parts = [names[at : at + size] for at in range(0, len(names), size)]
    with ThreadPoolExecutor(min(_READERS, len(parts)), thread_name_prefix="plan") as pool:
        found = pool.map(lambda part: [(name, read(name)) for name in part], parts)
        return [pair for part in found for pair in part]
