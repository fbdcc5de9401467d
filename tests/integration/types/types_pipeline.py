"""Tables of any type and file format, and the production code around them in one process: catalog, planner, units of
work, coordinator."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import AddColumnsRequest, BindColumnsRequest, ReplaceRequest, Status
from leman_core.functions.column_checks import NewColumn
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, FragmentReplacement, Plan, StagedFile
from leman_core.model.work import InFlightRows, ProgressReport, RowError, WorkUnit
from leman_core.settings import Settings
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.wire import convert_plans
from leman_executor.coordination.reservations import InProcessReservations
from leman_executor.jobs.work_context import work_context
from leman_executor.scheduling.work_queue import WorkQueue
from leman_executor.worker.unit_runner import UnitRunner
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker

SKIP = ErrorPolicy(rules=(ErrorRule(ErrorAction.SKIP),))


def same(value: Any) -> Any:
    """As it came."""
    return value


def first(batch: pa.RecordBatch) -> pa.Array:
    """The first column."""
    return batch.column(0)


ENTRYPOINTS = {
    UdfKind.SCALAR: f"{__name__}:same",
    UdfKind.ARRAY: f"{__name__}:same",
    UdfKind.RECORD_BATCH: f"{__name__}:first",
}


class Pipeline:
    """A database, and what backfills its tables."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder)
        self.failures: list[RowError] = []
        self._registry = UdfRegistry(self.database)
        self._names = (f"t{n}" for n in itertools.count())
        self._runner = asyncio.Runner()
        self._queues = self._runner.run(_queues())

    def close(self) -> None:
        self._runner.run(self._queues.close())
        self._runner.close()

    def table(
        self, data: pa.Table, file_format: str = "2.2", rows_per_file: int = 3, *, stable: bool = True, **more: Any
    ) -> str:
        name = next(self._names)
        lance.write_dataset(
            data,
            f"{self.database}/{name}.lance",
            max_rows_per_file=rows_per_file,
            data_storage_version=file_format,
            enable_stable_row_ids=stable,
            **more,
        )
        return name

    def open(self, table: str) -> lance.LanceDataset:
        return lance.dataset(f"{self.database}/{table}.lance")

    def values(self, table: str, column: str) -> pa.Array:
        found = self.open(table).scanner(columns=[column], blob_handling="all_binary").to_table().column(0)
        return pa.concat_arrays(found.chunks)

    def function(
        self, output: pa.DataType, kind: UdfKind = UdfKind.SCALAR, entrypoint: str = "", **more: Any
    ) -> UdfDefinition:
        made = UdfDefinition(
            f"f{uuid.uuid4().hex}", "1", kind, ("x",), output, entrypoint=entrypoint or ENTRYPOINTS[kind], **more
        )
        self._registry.put(made)
        return made

    def sql(self, definition: UdfDefinition) -> UdfDefinition:
        self._registry.put(definition)
        return definition

    def add(self, table: str, column: str, udf: UdfDefinition, inputs: tuple[str, ...] = ()) -> None:
        wanted = NewColumn(column, udf.name, udf.version, inputs)
        addition = Catalog(LanceTables()).addition(self.database, table, [wanted], "")
        request = AddColumnsRequest(
            uri=addition.uri, incarnation="", request_id=addition.request_id, schema=addition.schema
        )
        self.submit(request)

    def alter(self, table: str, column: str, udf: UdfDefinition, *, keep: bool = False) -> None:
        """Give a column another function."""
        wanted = NewColumn(column, udf.name, udf.version, keep_values=keep)
        found = Catalog(LanceTables()).alteration(self.database, table, [wanted], "")
        self.submit(BindColumnsRequest(uri=found.uri, incarnation="", request_id=found.request_id, schema=found.schema))

    def submit(self, request: AddColumnsRequest | BindColumnsRequest) -> None:
        self._runner.run(self._queues.submit(request))

    def backfill(self, table: str, column: str, settings: Settings | None = None, **spec: Any) -> Plan:
        """Works off one plan as the executor does, its inputs having been on the wire."""
        asked = BackfillSpec(self.database, table, column, **spec)
        plan = PlanMaker(LanceTables()).plan(asked)
        header = convert_plans.header_from_proto(convert_plans.header_to_proto(plan.header))
        plan = Plan(header, plan.tasks)
        uri = f"{self.database}/{table}.lance"
        context = work_context(Job("job", "", JobState.RUNNING, asked, 0, 0), header, settings or Settings())
        work_queue, store = WorkQueue(plan.tasks, 2), LanceCheckpointStore(checkpoint_root(uri))
        staged: dict[int, StagedFile] = {}
        first_units = work_queue.first_units()
        while not work_queue.empty:
            unit: WorkUnit | None = first_units.pop(0) if first_units else work_queue.take()
            assert unit is not None
            outcome = UnitRunner(
                context, unit, store=store, reservations=InProcessReservations(60), sink=self, errors=self
            ).run()
            assert outcome.failure is None, outcome.failure
            work_queue.note(outcome)
            staged.update({r.fragment_id: r.staged for r in outcome.results if r.staged is not None})
        self._commit(uri, plan, staged)
        return plan

    def _commit(self, uri: str, plan: Plan, staged: dict[int, StagedFile]) -> None:
        header = plan.header
        tasks = {task.fragment_id: task for task in plan.tasks}
        replacements = tuple(
            FragmentReplacement(
                fragment_id=i, staged=file, input_files=tasks[i].input_files, replaces=tasks[i].current_file
            )
            for i, file in staged.items()
        )
        if not replacements:
            return
        request = ReplaceRequest(
            uri=uri,
            incarnation=header.incarnation,
            request_id=uuid.uuid4().hex,
            job_id="job",
            read_version=header.read_version,
            output=header.output,
            replacements=replacements,
            input_field_ids=header.input_field_ids,
            inputs_version=header.inputs_version,
        )
        result = self._runner.run(self._queues.submit(request))
        refused = [o for o in result.outcomes if o.status is not Status.COMMITTED]
        assert not refused, refused

    # what units say

    def store(self, failures: Sequence[RowError]) -> None:
        self.failures.extend(failures)

    def send(self, report: ProgressReport) -> None:
        pass

    def in_flight(self, in_flight: InFlightRows) -> None:
        pass


async def _queues() -> CommitQueues:
    return CommitQueues(Limits())
