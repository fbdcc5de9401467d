"""A plan's tasks and what goes with them, in messages of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message

from leman_core.model.plan import FragmentTask, Plan
from leman_core.model.task_columns import CheckpointedFragments, UntouchedFragments
from leman_core.wire import convert
from leman_internal.v1 import plan_pb2, planning_pb2
from leman_planner.fragment_tasks import Tasks

#: A message of a plan's stream holds at most so many tasks, and no further one beyond so many bytes.
MAX_BATCH_TASKS = 4000
MAX_BATCH_BYTES = 1 << 20

Part = TypeVar("Part", bound=Message)
Columns = TypeVar("Columns", UntouchedFragments, CheckpointedFragments)


def messages(
    plan: Plan, *, untouched: bool = False, checkpointed: bool = False, compared: bool = False
) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield what CreatePlan answers, the header first. Each message is made when it is asked for.

    Args:
        plan: the plan.
        untouched: whether the caller reads UntouchedFragments, see `CreatePlanRequest.reads_untouched`.
        checkpointed: whether it reads CheckpointedFragments too.
        compared: whether it reads ComparedFile.
    """
    yield planning_pb2.CreatePlanResponse(header=convert.header_to_proto(plan.header))
    if untouched and isinstance(plan.tasks, Tasks):
        yield from _columns(plan.tasks, checkpointed=checkpointed)
    else:
        yield from _one_by_one(plan.tasks)
    for files in _sized(map(convert.traced_to_proto, plan.traced)):
        yield planning_pb2.CreatePlanResponse(traced=plan_pb2.TracedFileBatch(files=files))
    for rows in _sized(map(convert.migrated_to_proto, plan.migrated)):
        yield planning_pb2.CreatePlanResponse(migrated=plan_pb2.MigratedRowsBatch(rows=rows))
    for rewritten in _sized(map(convert.compared_to_proto, plan.compared if compared else ())):
        yield planning_pb2.CreatePlanResponse(compared=plan_pb2.ComparedFileBatch(files=rewritten))


def _columns(tasks: Tasks, *, checkpointed: bool) -> Iterator[planning_pb2.CreatePlanResponse]:
    for part in tasks.parts(MAX_BATCH_TASKS, checkpointed=checkpointed):
        if part.untouched is not None:
            for untouched in _halved(part.untouched, convert.untouched_to_proto):
                yield planning_pb2.CreatePlanResponse(untouched=untouched)
        if part.checkpointed is not None:
            for stored in _halved(part.checkpointed, convert.checkpointed_to_proto):
                yield planning_pb2.CreatePlanResponse(checkpointed=stored)
        yield from _one_by_one(part.others)


def _halved(columns: Columns, to_proto: Callable[[Columns], Part]) -> Iterator[Part]:
    """Yield fragments in messages that are halved until each is small enough: a fragment may have very many files."""
    message = to_proto(columns)
    if message.ByteSize() <= MAX_BATCH_BYTES or len(columns) == 1:
        yield message
        return
    half = len(columns) // 2
    yield from _halved(columns.part(0, half), to_proto)
    yield from _halved(columns.part(half, len(columns)), to_proto)


def _one_by_one(tasks: Iterable[FragmentTask]) -> Iterator[planning_pb2.CreatePlanResponse]:
    """Yield the tasks in messages that stay far below the 4 MiB that a client takes by default, if a task allows."""
    for batch in _task_batches(tasks):
        yield planning_pb2.CreatePlanResponse(tasks=batch)


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
