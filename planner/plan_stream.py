"""A plan's tasks and what goes with them, in messages of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from google.protobuf.message import Message

from core.domain.plan import FragmentTask, Plan
from core.rpc import convert
from leman_internal.v1 import plan_pb2, planning_pb2

#: A message of a plan's stream holds at most so many tasks, and no further one beyond so many bytes.
MAX_BATCH_TASKS = 1000
MAX_BATCH_BYTES = 1 << 20

Part = TypeVar("Part", bound=Message)


def messages(plan: Plan) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield what CreatePlan answers, the header first. Each message is made when it is asked for."""
    yield planning_pb2.CreatePlanResponse(header=convert.header_to_proto(plan.header))
    for batch in task_batches(plan.tasks):
        yield planning_pb2.CreatePlanResponse(tasks=batch)
    for files in _sized(map(convert.traced_to_proto, plan.traced)):
        yield planning_pb2.CreatePlanResponse(traced=plan_pb2.TracedFileBatch(files=files))
    for rows in _sized(map(convert.migrated_to_proto, plan.migrated)):
        yield planning_pb2.CreatePlanResponse(migrated=plan_pb2.MigratedRowsBatch(rows=rows))


def task_batches(tasks: Sequence[FragmentTask]) -> Iterator[plan_pb2.FragmentTaskBatch]:
    """Yield the tasks in messages that stay far below the 4 MiB that a client takes by default, if a task allows."""
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
