"""Drives the production code in one process: planner, work queue, units of work, commit queues of the coordinator. No
network."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman_coordinator.commits import group_commit
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import (
    AddColumnsRequest,
    BeginAttemptRequest,
    CommitResult,
    ReplaceRequest,
    Status,
)
from leman_core.functions.column_checks import NewColumn
from leman_core.model import keys
from leman_core.model.job import Attempt, Job, JobState
from leman_core.model.plan import BackfillSpec, FragmentReplacement, FragmentTask, Plan, StagedFile
from leman_core.model.row_states import RowState
from leman_core.model.work import InFlightRows, ProgressReport, RowError, WorkUnit
from leman_core.settings import Settings
from leman_core.storage.checkpoint_records import forget_file, read_record
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.object_stores import lance_options
from leman_core.storage.udf_registry import UdfRegistry
from leman_executor.coordination.reservations import InProcessReservations
from leman_executor.jobs.checkpoint_maintenance import compare_inputs, migrate_checkpoints, store_traced
from leman_executor.jobs.work_context import work_context
from leman_executor.scheduling.work_queue import WorkQueue
from leman_executor.worker import fragment_pass, row_checkpoints
from leman_executor.worker.unit_runner import UnitRunner
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.planning.stale_inputs import states_of
from tests.integration.stateful import udfs

SKIP = ErrorPolicy(rules=(ErrorRule(ErrorAction.SKIP),), store_errors=False)
_FROZEN_SECONDS = 60.0
_NO_ATTEMPT = Attempt("job", 0)
_OFFSET_MASK = (1 << 32) - 1
_SETTINGS = Settings()


class Killed(BaseException):
    """The process is dead: nothing that it does from here on has an effect."""


@dataclass
class Fate:
    """At which point the process dies: `point` is passed `passes` times."""

    point: str = ""
    passes: int = 1
    dead: bool = False

    @property
    def over(self) -> bool:
        """Whether it asks for no more units."""
        return False

    def at(self, name: str) -> None:
        if name == self.point:
            self.passes -= 1
            self.dead = self.dead or self.passes <= 0
        if self.dead:
            raise Killed(name)


class Frozen(Fate):
    """At that point the process stands still until it is woken: all in another thread, of which no one asks anything
    while it is under way."""

    def __init__(self, point: str, passes: int) -> None:
        super().__init__(point, passes)
        self._stands, self._woken = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._error: list[BaseException] = []

    @property
    def over(self) -> bool:
        """Its workers learn of the end as soon as they are heard again."""
        return self._woken.is_set()

    def begin(self, work: Callable[[], None]) -> None:
        """Works until it freezes, or is through."""
        self._work = work
        self._thread.start()
        assert self._stands.wait(_FROZEN_SECONDS)

    def wake(self) -> None:
        """Continues to the end. Raises what that comes to."""
        self._woken.set()
        self._thread.join(_FROZEN_SECONDS)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error[0]

    def at(self, name: str) -> None:
        if name == self.point and not self._woken.is_set():
            self.passes -= 1
            if self.passes <= 0:
                self._stands.set()
                assert self._woken.wait(_FROZEN_SECONDS)

    def _live(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 it is raised to who wakes it
            self._error.append(error)
        finally:
            self._stands.set()


class WatchedStore(LanceCheckpointStore):
    """The real store; says what was stored, and is out of reach for the dead."""

    def __init__(self, uri: str, fate: Fate, stored: Callable[[str, pa.RecordBatch], None]) -> None:
        super().__init__(checkpoint_root(uri))
        self._fate = fate
        self._stored = stored

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None:
        self._fate.at("store")
        super().__setitem__(key, value)
        self._stored(key, value)


class Nobody:
    """Takes progress reports, in-flight rows and failed rows, and keeps none of them."""

    def send(self, report: ProgressReport) -> None:
        pass

    def in_flight(self, in_flight: InFlightRows) -> None:
        pass

    def store(self, failures: Sequence[RowError]) -> None:
        pass


@dataclass
class Made:
    """What one plan execution made, by fragment; `requests` was sent, or would have been. `attempt`: whose it is,
    `in_flight` the unit that it had last."""

    plan: Plan
    attempt: Attempt = _NO_ATTEMPT
    reservations: InProcessReservations = field(default_factory=lambda: InProcessReservations(60))
    staged: dict[int, StagedFile] = field(default_factory=dict)
    in_flight: WorkUnit | None = None

    def request(self, uri: str, fragments: Sequence[int]) -> ReplaceRequest:
        tasks = {task.fragment_id: task for task in self.plan.tasks}
        header = self.plan.header
        return ReplaceRequest(
            uri=uri,
            incarnation=header.incarnation,
            request_id=uuid.uuid4().hex,
            job_id=self.attempt.job_id,
            attempt=self.attempt.number,
            read_version=header.read_version,
            output=header.output,
            replacements=tuple(_replacement(tasks[i], self.staged[i]) for i in fragments),
            input_field_ids=header.input_field_ids,
        )


def _replacement(task: FragmentTask, staged: StagedFile) -> FragmentReplacement:
    return FragmentReplacement(
        fragment_id=task.fragment_id, staged=staged, input_files=task.input_files, replaces=task.current_file
    )


class System:
    """A database with one table, and the services' code around it."""

    def __init__(self, database: str, *, register: bool) -> None:
        self.database = database
        self.uri = f"{self.database}/t.lance"
        self.options = lance_options(self.uri)
        if register:
            self._register()
        self._runner = asyncio.Runner()
        self._queues = self._runner.run(_queues())

    def _register(self) -> None:
        registry = UdfRegistry(self.database)
        for name, inputs in (("f", ("id", "x")), ("g", ("id", "c")), ("h", ("id", "s"))):
            for version in (1, 2, 3) if name != "h" else (1,):
                entrypoint = f"{udfs.__name__}:{name}{version}"
                registry.put(
                    UdfDefinition(
                        name,
                        str(version),
                        UdfKind.SCALAR,
                        inputs,
                        pa.int64(),
                        entrypoint=entrypoint,
                        error_policy=SKIP,
                        batch_size=4,
                    )
                )

    def close(self) -> None:
        self._runner.run(self._queues.close())
        self._runner.close()

    def restart_coordinator(self) -> None:
        self._runner.run(self._queues.close())
        self._queues = self._runner.run(_queues())

    def open(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(self.uri, version=version, storage_options=self.options)

    # what is there

    def layout(self) -> dict[int, dict[int, int]]:
        """Fragment → physical offset → id, of live rows."""
        found: dict[int, dict[int, int]] = {}
        table = self.open().to_table(columns=["id"], with_row_address=True)
        for i, address in zip(table["id"].to_pylist(), table["_rowaddr"].to_pylist(), strict=True):
            found.setdefault(address >> 32, {})[address & _OFFSET_MASK] = i
        return found

    def rows(self) -> dict[int, dict[str, int | None]]:
        return {row["id"]: row for row in self.open().to_table().to_pylist()}

    # work

    def add_column(self, name: str, function: str, version: int, inputs: tuple[str, ...]) -> None:
        column = NewColumn(name, function, str(version), inputs)
        addition = Catalog(LanceTables()).addition(self.database, "t", [column], "")
        self._runner.run(
            self._queues.submit(
                AddColumnsRequest(
                    uri=addition.uri, incarnation="", request_id=addition.request_id, schema=addition.schema
                )
            )
        )

    def plan(self, spec: BackfillSpec) -> Plan:
        """As a job plans: what was traced is recorded, what is stored elsewhere is migrated first."""
        plan = self._plan_and_record(spec)
        while plan.compared and (found := compare_inputs(self._store, plan, threading.Event()).files):
            store_traced(self._store, plan, found)
            plan = self._plan_and_record(spec)
        while plan.migrated and migrate_checkpoints(self._store, plan, threading.Event()):
            plan = self._plan_and_record(spec)
        return plan

    def _plan_and_record(self, spec: BackfillSpec) -> Plan:
        plan = PlanMaker(LanceTables()).plan(spec)
        if plan.traced:
            store_traced(self._store, plan)
        return plan

    @property
    def _store(self) -> LanceCheckpointStore:
        return LanceCheckpointStore(checkpoint_root(self.uri))

    def settled(self, spec: BackfillSpec) -> set[int]:
        """Ids of the rows that a backfill takes for computed, or failed, by the function that it asks for."""
        plans, layout = PlanMaker(LanceTables()), self.layout()
        resolved = plans.resolved(spec)
        found: set[int] = set()
        for status in plans.statuses(resolved):
            known = {RowState.COMPUTED, RowState.FAILED}  # of no earlier version
            states = states_of(resolved, status).tolist()
            found |= {i for o, i in layout.get(status.fragment.fragment_id, {}).items() if states[o] in known}
        return found

    def clean(self) -> set[str]:
        """All versions but the latest, and those with a tag, are cleaned away; keys of records whose files went
        with them."""
        self.open().cleanup_old_versions(older_than=dt.timedelta(0), error_if_tagged_old_versions=False)
        records = [k for k in self._store.list_keys() if keys.parse_record_key(k) is not None]
        files = {key: record.file for key in records if (record := read_record(self._store, key)) is not None}
        left = LanceTables().existing_data_files(self.uri, files.values())
        return {key for key, file in files.items() if file not in left}

    def compute(
        self, spec: BackfillSpec, made: Made, fate: Fate, stored: Callable[[str, pa.RecordBatch], None]
    ) -> None:
        """Works off a plan, as two workers would, one unit after the other. Raises Killed."""
        plan = made.plan
        made.staged.update({t.fragment_id: t.staged for t in plan.tasks if t.staged is not None})
        attempt = made.attempt
        job = Job(attempt.job_id, "", JobState.RUNNING, spec, 0.0, 0.0, attempt=attempt.number or 1)
        context = work_context(job, plan.header, _SETTINGS)
        work_queue = WorkQueue(plan.tasks, 2, task_size=spec.task_size)
        first = work_queue.first_units()
        store = WatchedStore(self.uri, fate, stored)
        with _points(fate):
            while not work_queue.empty and not fate.over:
                unit: WorkUnit | None = first.pop(0) if first else work_queue.take()
                assert unit is not None, "the work queue is neither empty nor has it work"
                made.in_flight = unit
                outcome = UnitRunner(
                    context, unit, store=store, reservations=made.reservations, sink=Nobody(), errors=Nobody()
                ).run()
                assert outcome.failure is None, outcome.failure
                work_queue.note(outcome)
                made.staged.update({r.fragment_id: r.staged for r in outcome.results if r.staged is not None})

    def submit(self, request: ReplaceRequest) -> CommitResult:
        return self._runner.run(self._queues.submit(request))

    def take_over(self, job_id: str) -> None:
        """The second attempt at a job begins."""
        request = BeginAttemptRequest(
            uri=self.uri, incarnation="", request_id=uuid.uuid4().hex, job_id=job_id, attempt=2
        )
        self._runner.run(self._queues.submit(request))

    def forget(self, task: FragmentTask, file: str) -> None:
        """As the executor does with a file that was refused for what it holds."""
        store = LanceCheckpointStore(checkpoint_root(self.uri))
        forget_file(store, task.checkpoint_prefix, task.fragment_id, file)

    def column_in(self, file: str) -> str:
        """What a column file calls its column."""
        reader = LanceFileReader(f"{self.uri}/data/{file}", storage_options=self.options)
        return str(reader.metadata().schema.names[0])

    def damage_file(self, file: str) -> None:
        """Flips a byte of a column file."""
        with _changed(f"{self.uri}/data/{file}") as data:
            data[0] ^= 0xFF

    def rewrite(self, column: str, fragment: int, values: Callable[[int], int | None]) -> None:
        """Writes a column of one fragment again, in place: `values` by physical offset."""
        dataset = self.open()
        found = dataset.get_fragment(fragment)
        writer = ColumnFileWriter(self.uri, dataset.schema.field(column))
        name = f"{uuid.uuid4().hex}.lance"
        writer.open(name)
        writer.write(pa.array([values(o) for o in range(found.metadata.physical_rows)], pa.int64()))
        writer.close(None, frozenset(), name)
        data_file = lance.fragment.DataFile.create(dataset, name)
        group = lance.LanceOperation.DataReplacementGroup(fragment, data_file)
        operation = lance.LanceOperation.DataReplacement([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def damage(self, number: int) -> str | None:
        """Flips a byte of a checkpoint's values; its key. None where there is none."""
        store = LanceCheckpointStore(checkpoint_root(self.uri))
        stored = [k for k in store.list_keys() if "_range-" in k]
        if not stored:
            return None
        key = stored[number % len(stored)]
        with _changed(store._path(key)) as data:
            data[:4] = b"\xff\xff\xff\xff"
            data[-4:] = b"\0\0\0\0"
        return key


@contextmanager
def _changed(uri: str) -> Iterator[bytearray]:
    """What a file or object holds; what is made of it takes its place."""
    files, path = filesystem_of(uri)
    with files.open_input_stream(path) as stream:
        data = bytearray(stream.read())
    yield data
    with files.open_output_stream(path) as stream:
        stream.write(bytes(data))


def decisions(result: CommitResult) -> dict[int, tuple[Status, str]]:
    """Fragment → what became of it, and why."""
    return {o.fragment_id: (o.status, o.reason) for o in result.outcomes}


async def _queues() -> CommitQueues:
    return CommitQueues(Limits())


@contextmanager
def _points(fate: Fate) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragment_pass, "crash_point", fate.at)
        patch.setattr(row_checkpoints, "crash_point", fate.at)
        patch.setattr(group_commit, "crash_point", lambda _: None)
        yield
