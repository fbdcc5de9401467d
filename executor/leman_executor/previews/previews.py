"""Runs previews: asks the planner what a function reads, and has a function process try it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from leman_core.functions.function_policy import FunctionPolicy
from leman_core.model.errors import InvalidArgument, ResourceExhausted
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec, PlanHeader
from leman_core.model.udf import UdfDefinition
from leman_core.model.work import WorkContext
from leman_core.server.auth.requirements import check_code
from leman_core.settings import Settings
from leman_executor.jobs.function_env import check_may_set, check_usable
from leman_executor.jobs.job_environment import JobEnvironment, slots_of
from leman_executor.jobs.work_context import work_context
from leman_executor.previews.function_pool import FunctionPool, ProcessEnded
from leman_executor.previews.record import PreviewRecord
from leman_executor.worker.preview_messages import PreviewTask

#: Previews of one executor that may run at once: each has a process.
_MOST_AT_ONCE = 8


class PreviewPlanner(Protocol):
    """What knows tables and functions."""

    async def plan_preview(self, message: Any) -> PlanHeader:
        """Return what a preview reads and runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRequest:
    """What is asked of an executor; meanings in `protos/leman/v1/jobs.proto`."""

    #: The message, for the planner: without `env`.
    message: Any
    database: str
    table: str
    column: str
    rows: int
    seconds: float
    #: 0: as many as there are.
    concurrency: int
    bundle: bytes = b""
    #: Where the code is of a function that comes with the request, as far as a policy lists such places.
    entrypoint: str = ""
    addresses: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewResult:
    """What came of a preview."""

    header: PlanHeader
    record: PreviewRecord
    #: The type of the column, as workers convert values to it.
    output: pa.Schema
    workers: int


class Previews:
    """The previews of one executor."""

    def __init__(self, planner: PreviewPlanner, services: JobEnvironment, pool: FunctionPool) -> None:
        self._planner = planner
        self._services = services
        self._pool = pool
        self._policy = FunctionPolicy.of(services.settings.udf)
        self._running = 0

    async def run(self, request: PreviewRequest) -> PreviewResult:
        """Try a function on rows; cancelling ends its process.

        Raises:
            LemanError: what `JobService.PreviewFunction` (protos/leman/v1/jobs.proto) names.
        """
        check_sent_code(request, self._policy)
        check_may_set(request.env, self._policy)
        if self._running >= _MOST_AT_ONCE:
            raise ResourceExhausted("TOO_MANY_CALLS", f"{self._running} previews are at work: try again later")
        self._running += 1
        try:
            header = await self._planner.plan_preview(request.message)
            check_usable(request.env, [header.udf])
            workers = slots_of(header.udf, request.concurrency, self._services).count
            context = _context(header, request, self._services.settings)
            task = PreviewTask(context=msgspec.json.encode(context), rows=request.rows, bundle=request.bundle)
            record = await self._try(header.udf, task, request.seconds)
        finally:
            self._running -= 1
        output = pa.ipc.read_schema(pa.py_buffer(context.output_schema))
        return PreviewResult(header=header, record=record, output=output, workers=workers)

    async def _try(self, udf: UdfDefinition, task: PreviewTask, seconds: float) -> PreviewRecord:
        """Have new processes work through the rows, each from where the one before ended."""
        record, preview_id = PreviewRecord(udf), f"preview-{uuid.uuid4().hex[:12]}"
        deadline = time.monotonic() + seconds
        while True:
            left = msgspec.structs.replace(task, skip=record.next_row, alone_before=record.alone_before)
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._one_process(left, preview_id, record)
                return record
            except TimeoutError:
                record.time_is_over(seconds)
                return record
            except ProcessEnded as ended:
                record.process_ended(str(ended))
                if record.found is not None and record.next_row >= len(record.found.rows):
                    return record

    async def _one_process(self, task: PreviewTask, preview_id: str, record: PreviewRecord) -> None:
        said = self._pool.run(msgspec.json.encode(task).decode(), preview_id)
        async with contextlib.aclosing(said) as messages:
            async for message in messages:
                record.take(message)


def check_sent_code(request: PreviewRequest, policy: FunctionPolicy) -> None:
    """Refuse what would also be refused if it were to be registered: an entrypoint or a server that nobody listed.

    Raises:
        PermissionDenied: ROLE_REQUIRED.
        InvalidArgument: BUNDLE_TOO_LARGE.
    """
    if request.entrypoint and not policy.lists(request.entrypoint):
        check_code(f"Previewing the entrypoint {request.entrypoint}")
    for address in request.addresses:
        if not policy.lists_address(address):
            check_code(f"Previewing what is served at {address}")
    if 0 < policy.max_bundle_bytes < len(request.bundle):
        raise InvalidArgument(
            "BUNDLE_TOO_LARGE",
            f"The bundle has {len(request.bundle)} bytes, {policy.max_bundle_bytes} are allowed",
            field="bundle",
        )


def _context(header: PlanHeader, request: PreviewRequest, settings: Settings) -> WorkContext:
    """Return what a worker of a backfill would be told; nothing of it is stored, and no job is made."""
    spec = BackfillSpec(request.database, request.table, request.column or header.output.name)
    job = Job("preview", "", JobState.RUNNING, spec, created_at=0.0, updated_at=0.0)
    return work_context(job, header, settings, env=request.env)
