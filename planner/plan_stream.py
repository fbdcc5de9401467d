"""A plan's tasks and what goes with them, in messages of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from core.domain.plan import FragmentTask, Plan
from core.rpc import convert
from core.task_columns import UntouchedFragments
from leman_internal.v1 import plan_pb2, planning_pb2
from planner.fragment_tasks import Tasks

#: A message of a plan's stream holds at most so many tasks, and no further one beyond so many bytes.
MAX_BATCH_TASKS = 4000
MAX_BATCH_BYTES = 1 << 20

Part = TypeVar("Part", bound=Message)


def messages(plan: Plan, *, in_columns: bool) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield what CreatePlan answers, the header first. Each message is made when it is asked for.

    Args:
        plan: the plan.
        in_columns: whether the caller reads columns, see `CreatePlanRequest.reads_untouched`.
    """
    yield planning_pb2.CreatePlanResponse(header=convert.header_to_proto(plan.header))
    yield from _task_messages(plan.tasks, in_columns=in_columns)
    for files in _sized(map(convert.traced_to_proto, plan.traced)):
        yield planning_pb2.CreatePlanResponse(traced=plan_pb2.TracedFileBatch(files=files))
    for rows in _sized(map(convert.migrated_to_proto, plan.migrated)):
        yield planning_pb2.CreatePlanResponse(migrated=plan_pb2.MigratedRowsBatch(rows=rows))


def _task_messages(tasks: Sequence[FragmentTask], *, in_columns: bool) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield the tasks in messages that stay far below the 4 MiB that a client takes by default, if a task allows."""
    parts = tasks.parts(MAX_BATCH_TASKS) if in_columns and isinstance(tasks, Tasks) else [(None, tasks)]
    for untouched, others in parts:
        if untouched is not None:
            for columns in _sized_columns(untouched):
                yield planning_pb2.CreatePlanResponse(untouched=columns)
        for batch in _task_batches(others):
            yield planning_pb2.CreatePlanResponse(tasks=batch)


def _sized_columns(untouched: UntouchedFragments) -> Iterator[plan_pb2.UntouchedFragments]:
    """Yield fragments in messages that are halved until each is small enough: a fragment may have very many files."""
    columns = convert.untouched_to_proto(untouched)
    if columns.ByteSize() <= MAX_BATCH_BYTES or len(untouched) == 1:
        yield columns
        return
    half = len(untouched) // 2
    yield from _sized_columns(untouched.part(0, half))
    yield from _sized_columns(untouched.part(half, len(untouched)))


def _task_batches(tasks: Iterable[FragmentTask]) -> Iterator[plan_pb2.FragmentTaskBatch]:
    batch = plan_pb2.FragmentTaskBatch()
    size = 0
    for task in tasks:
        size += convert.add_task(batch, task).ByteSize()
        if len(batch.tasks) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = plan_pb2.FragmentTaskBatch(), 0
    if batch.tasks:
        yield batch


def _sized(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield lists of at most so many parts, and of about so many bytes."""
    batch: list[Part] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += part.ByteSize()
        if len(batch) >= MAX_BATCH_TASKS or size >= MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
