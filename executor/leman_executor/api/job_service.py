"""Serve JobService: translate calls, call the job manager, and translate its results back.

The message of a job is built once for each state. All callers share it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from leman.v1 import catalog_pb2, jobs_pb2, jobs_pb2_grpc
from leman_core.model.job import Job
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import InvalidArgument, Unavailable
from leman_core.model.view import RefreshSpec
from leman_core.server.call_streams import preserialized
from leman_core.server.callers import ANONYMOUS, UNNAMED, current_caller
from leman_core.server.interceptors import Context
from leman_core.server.paging import read_page
from leman_core.server.request_messages import body_digest
from leman_core.wire import convert_plans, convert_views
from leman_core.wire.convert_values import env_from_proto, labels_from_proto, seconds_from_proto
from leman_executor.api import convert_jobs
from leman_executor.api.convert_jobs import preview_from_proto, preview_to_proto
from leman_executor.api.job_forwarding import OtherExecutors, was_forwarded
from leman_executor.history.job_index import JobListing, job_age
from leman_executor.jobs import job_run
from leman_executor.jobs.function_previews import Previews
from leman_executor.jobs.job_status import JobUpdate
from leman_executor.manager import JobManager
from leman_executor.manager.job_admission import JobAttributes, RetryOptions

_KEPT = 4096
#: Maximum number of groups of failed rows on a page. With five examples each, of up to 6 KB, they fit into a message.
_MOST_GROUPS = 200


class _Known:
    """One state of a job, as a message and as parts of responses."""

    __slots__ = ("job", "message", "parts")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.message = job_message(job)
        self.parts: dict[type[Message], bytes] = {}


class JobMessageCache:
    """Cache the messages of recently requested jobs.

    Building the message of a job takes longer than all other work of a call, and copying it into a page takes almost as
    long. An ended job does not change. All watchers of a running job get the same object until the job changes.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def part(self, kind: type[Message], job: Job) -> bytes:
        """Return a serialized message of this kind. Its only field is `job` or `jobs`, with the job."""
        known = self._of(job)
        part = known.parts.get(kind)
        if part is None:
            repeated = "jobs" in kind.DESCRIPTOR.fields_by_name
            whole = kind(jobs=[known.message]) if repeated else kind(job=known.message)
            part = known.parts[kind] = whole.SerializeToString()
        return part

    def _of(self, job: Job) -> _Known:
        known = self._known.get(job.key)
        if known is None or known.job is not job:
            known = self._known[job.key] = _Known(job)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known


def job_message(job: Job) -> jobs_pb2.Job:
    """Return the message of a job."""
    return convert_jobs.job_to_proto(job, None if job.error is None else job_run.from_job_error(job.error))


_Result = TypeVar("_Result")

_HEARTBEAT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 60.0
#: Pause before a broken watch on another executor is resumed.
_AGAIN_SECONDS = 1.0


class JobServicer(jobs_pb2_grpc.JobServiceServicer):
    """The RPCs of JobService. Contracts: `protos/leman/v1/jobs.proto`. The server's interceptor maps errors."""

    def __init__(
        self,
        manager: JobManager,
        draining: asyncio.Event,
        previews: Previews,
        others: OtherExecutors,
    ) -> None:
        self._manager = manager
        self._others = others
        self._previews = previews
        self._draining = draining
        self._answers = JobMessageCache()

    def add_to(self, server: grpc.aio.Server) -> list[str]:
        """Register with this server. Return the full name of the service."""
        jobs_pb2_grpc.add_JobServiceServicer_to_server(self, server)
        return [jobs_pb2.DESCRIPTOR.services_by_name["JobService"].full_name]

    async def CreateJob(self, request: jobs_pb2.CreateJobRequest, _context: object) -> jobs_pb2.CreateJobResponse:
        self._check_open()
        body = body_digest(request)
        asked, attributes = _asked(request), _attributes(request)
        job = await self._manager.create(asked, request.request_id, body=body, attributes=attributes)
        return jobs_pb2.CreateJobResponse(job=job_message(job))

    def _check_open(self) -> None:
        if self._draining.is_set():
            raise Unavailable("DRAINING", "This executor is shutting down: try again")

    async def GetJob(self, request: jobs_pb2.GetJobRequest, context: Context) -> jobs_pb2.GetJobResponse:
        job = await self._manager.get(request.database, request.job_id)
        if self._goes_on_elsewhere(job):
            told = await self._others.ask(jobs_pb2.GetJobResponse, request, context)
            if told is not None:
                return told
        return preserialized(jobs_pb2.GetJobResponse, [self._answers.part(jobs_pb2.GetJobResponse, job)])

    async def ListJobs(self, request: jobs_pb2.ListJobsRequest, _context: object) -> jobs_pb2.ListJobsResponse:
        wanted, oldest_first = convert_jobs.filter_from_proto(request.filter), _oldest_first(request.order)
        scope = f"jobs:{request.database}:{body_digest(request.filter)}:{oldest_first}"
        page = read_page(request.page_size, request.page_token, scope)
        after = (int(page.after[0]), str(page.after[1])) if isinstance(page.after, tuple) else None
        listing = JobListing(filter=wanted, after=after, most=page.size + 1, oldest_first=oldest_first)
        jobs = await self._manager.list_jobs(request.database, listing)
        items = jobs[: page.size]
        rest = jobs_pb2.ListJobsResponse(
            next_page_token=page.token(job_age(items[-1])) if len(jobs) > page.size else "",
            warnings=await self._manager.warnings(request.database),
            total_size=await self._manager.count_jobs(request.database, wanted) if request.include_total_size else None,
        )
        parts = [self._answers.part(jobs_pb2.ListJobsResponse, job) for job in items]
        return preserialized(jobs_pb2.ListJobsResponse, [*parts, rest.SerializeToString()])

    async def WatchJob(
        self, request: jobs_pb2.WatchJobRequest, context: Context
    ) -> AsyncIterator[jobs_pb2.WatchJobResponse]:
        if request.after_sequence < 0:
            raise InvalidArgument(
                "BAD_NUMBER", "after_sequence is negative: use 0 for all events", field="after_sequence"
            )
        asked_from = 0.0
        while True:
            owner = ""
            watch = self._watch(request.database, request.job_id, request.after_sequence)
            async with contextlib.aclosing(watch) as messages:
                async for news in messages:
                    part = self._answers.part(jobs_pb2.WatchJobResponse, news.job)
                    yield preserialized(
                        jobs_pb2.WatchJobResponse, [part, convert_jobs.update_to_proto(news).SerializeToString()]
                    )
                    if news.is_last:
                        return  # else the caller's end of the stream would look like a cancel
                    request.after_sequence = news.sequence
                    goes_on_elsewhere = self._goes_on_elsewhere(news.job)
                    if goes_on_elsewhere and was_forwarded(context):
                        return  # this process restarted; the forwarding executor may have the job now
                    if goes_on_elsewhere and time.monotonic() >= asked_from:
                        owner = await self._others.owner(request.database, request.job_id, context)
                    if owner:
                        break
                else:
                    return
            told = self._others.watch(
                owner, request, context, lambda: self._manager.has(request.database, request.job_id)
            )
            async with contextlib.aclosing(self._until_draining(told)) as elsewhere:
                async for message in elsewhere:
                    yield preserialized(jobs_pb2.WatchJobResponse, [message.message])
                    if message.over:
                        return
                    request.after_sequence = message.sequence
            asked_from = time.monotonic() + _AGAIN_SECONDS  # the executor died, and may still hold the lease

    def _goes_on_elsewhere(self, job: Job) -> bool:
        return not (job.state.terminal or self._manager.has(job.request.database, job.job_id))

    async def WaitJob(self, request: jobs_pb2.WaitJobRequest, _context: object) -> jobs_pb2.WaitJobResponse:
        longest = min(seconds_from_proto(request, "timeout", default=_LONGEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
        job = await self._manager.get(request.database, request.job_id)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                async with contextlib.aclosing(self._watch(request.database, request.job_id, 0)) as messages:
                    async for news in messages:
                        job = news.job
        return preserialized(jobs_pb2.WaitJobResponse, [self._answers.part(jobs_pb2.WaitJobResponse, job)])

    async def _watch(self, database: str, job_id: str, after: int) -> AsyncGenerator[JobUpdate]:
        """Yield the changes of a job until it has ended.

        Raises:
            Unavailable: DRAINING.
        """
        watch = self._manager.watch(database, job_id, after, _HEARTBEAT_SECONDS)
        async with contextlib.aclosing(self._until_draining(watch)) as messages:
            async for news in messages:
                yield news

    async def _until_draining(self, watch: AsyncGenerator[_Result]) -> AsyncGenerator[_Result]:
        async with contextlib.aclosing(watch) as messages, _ended_with_it(self._draining.wait()) as drained:
            while True:
                async with _ended_with_it(anext(messages, None)) as upcoming:
                    await asyncio.wait((upcoming, drained), return_when=asyncio.FIRST_COMPLETED)
                    if not upcoming.done():
                        raise Unavailable("DRAINING", "This executor is shutting down: watch again")
                    message = await upcoming
                if message is None:
                    return
                yield message

    async def UpdateJob(self, request: jobs_pb2.UpdateJobRequest, context: Context) -> jobs_pb2.UpdateJobResponse:
        changes = _changes(request)

        async def here() -> jobs_pb2.UpdateJobResponse:
            job = await self._manager.update(request.database, request.job_id, **changes)
            return jobs_pb2.UpdateJobResponse(job=job_message(job))

        return await self._others.answer(jobs_pb2.UpdateJobResponse, request, context, here)

    async def CancelJobs(self, request: jobs_pb2.CancelJobsRequest, context: Context) -> jobs_pb2.CancelJobsResponse:
        if not request.HasField("filter"):
            raise InvalidArgument(
                "MISSING_FIELD",
                "filter is not set: set an empty one to cancel all jobs of the database",
                field="filter",
            )
        wanted = convert_jobs.filter_from_proto(request.filter)
        jobs, elsewhere = await self._manager.cancel_all(request.database, wanted)
        told = await self._others.cancel(request.database, elsewhere, context)
        asked = [*(job_message(job) for job in jobs), *told]
        asked.sort(key=lambda job: job.create_time.ToNanoseconds(), reverse=True)
        left = set(elsewhere).difference(job.job_id for job in told)
        return jobs_pb2.CancelJobsResponse(jobs=asked, jobs_elsewhere=[name for name in elsewhere if name in left])

    async def CancelJob(self, request: jobs_pb2.CancelJobRequest, context: Context) -> jobs_pb2.CancelJobResponse:
        async def here() -> jobs_pb2.CancelJobResponse:
            job = await self._manager.cancel(request.database, request.job_id)
            return jobs_pb2.CancelJobResponse(job=job_message(job))

        return await self._others.answer(jobs_pb2.CancelJobResponse, request, context, here)

    async def PreviewFunction(
        self, request: jobs_pb2.PreviewFunctionRequest, _context: object
    ) -> jobs_pb2.PreviewFunctionResponse:
        return preview_to_proto(await self._previews.run(preview_from_proto(request)))

    async def DeleteJob(self, request: jobs_pb2.DeleteJobRequest, _context: object) -> jobs_pb2.DeleteJobResponse:
        await self._manager.delete(request.database, request.job_id)
        return jobs_pb2.DeleteJobResponse()

    async def PauseJob(self, request: jobs_pb2.PauseJobRequest, context: Context) -> jobs_pb2.PauseJobResponse:
        async def here() -> jobs_pb2.PauseJobResponse:
            job = await self._manager.pause(request.database, request.job_id)
            return jobs_pb2.PauseJobResponse(job=job_message(job))

        return await self._others.answer(jobs_pb2.PauseJobResponse, request, context, here)

    async def ResumeJob(self, request: jobs_pb2.ResumeJobRequest, context: Context) -> jobs_pb2.ResumeJobResponse:
        async def here() -> jobs_pb2.ResumeJobResponse:
            job = await self._manager.resume(request.database, request.job_id)
            return jobs_pb2.ResumeJobResponse(job=job_message(job))

        return await self._others.answer(jobs_pb2.ResumeJobResponse, request, context, here)

    async def RetryJob(self, request: jobs_pb2.RetryJobRequest, _context: object) -> jobs_pb2.RetryJobResponse:
        self._check_open()
        retry = RetryOptions(
            job_id=request.job_id,
            udf_name=request.udf.name,
            udf_version=request.udf.version,
            keep_others=request.keep_others,
        )
        body, attributes = body_digest(request), _attributes(request)
        job, outcome = await self._manager.retry(
            request.database, retry, request.request_id, body=body, attributes=attributes
        )
        column = catalog_pb2.ColumnOutcome.FromString(outcome) if outcome else None
        return jobs_pb2.RetryJobResponse(job=job_message(job), column=column)

    async def ListJobErrors(
        self, request: jobs_pb2.ListJobErrorsRequest, _context: object
    ) -> jobs_pb2.ListJobErrorsResponse:
        scope = f"errors:{request.database}:{request.job_id}:{request.column}:{request.places_only}"
        page = read_page(request.page_size, request.page_token, scope)
        after = (int(page.after[0]), str(page.after[1])) if isinstance(page.after, tuple) else None
        (errors, go_on), lost = await self._manager.errors(
            request.database, request.job_id, request.column, after, page.size, all_places=request.places_only
        )
        found = [convert_jobs.row_error_to_proto(e, place_only=request.places_only) for e in errors]
        token = page.token(go_on) if go_on else ""
        return jobs_pb2.ListJobErrorsResponse(errors=found, next_page_token=token, warnings=lost)

    async def GroupJobErrors(
        self, request: jobs_pb2.GroupJobErrorsRequest, _context: object
    ) -> jobs_pb2.GroupJobErrorsResponse:
        scope = f"error-groups:{request.database}:{request.job_id}:{request.column}"
        page = read_page(request.page_size, request.page_token, scope, _MOST_GROUPS)
        begin = page.after if isinstance(page.after, int) else 0
        examples = convert_jobs.examples_from_proto(request)
        found, lost = await self._manager.error_groups(
            request.database, request.job_id, request.column, begin, page.size, examples=examples
        )
        end = begin + len(found.groups)
        return jobs_pb2.GroupJobErrorsResponse(
            groups=map(convert_jobs.error_group_to_proto, found.groups),
            next_page_token=page.token(end) if end < found.total and found.groups else "",
            warnings=lost,
            total_size=found.total,
            rows=found.rows,
            rows_ungrouped=found.ungrouped,
        )


@contextlib.asynccontextmanager
async def _ended_with_it(work: Awaitable[_Result]) -> AsyncIterator[asyncio.Future[_Result]]:
    """Run `work` for the duration of the block and cancel it on exit."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _attributes(request: jobs_pb2.CreateJobRequest | jobs_pb2.RetryJobRequest) -> JobAttributes:
    return JobAttributes(
        labels=labels_from_proto(request.labels),
        priority=convert_jobs.priority_from_proto(request.priority),
        initiator=_initiator(),
        env=env_from_proto(request.env),
    )


def _initiator() -> str:
    """Return the name of the caller; empty if it has none."""
    caller = current_caller()
    return "" if caller is None or caller.name in {ANONYMOUS, UNNAMED} else caller.name


def _changes(request: jobs_pb2.UpdateJobRequest) -> dict[str, Any]:
    """Return the changed fields of an update, under their names in `Job`.

    Raises:
        InvalidArgument: BAD_UPDATE_MASK, BAD_LABEL, BAD_NUMBER.
    """
    named = set(request.update_mask.paths)
    if not named or named - {"labels", "priority"}:
        raise InvalidArgument(
            "BAD_UPDATE_MASK", "update_mask must name the changed fields: labels, priority or both", field="update_mask"
        )
    changes: dict[str, Any] = {}
    if "labels" in named:
        changes["labels"] = labels_from_proto(request.labels)
    if "priority" in named:
        changes["priority"] = convert_jobs.priority_from_proto(request.priority)
    return changes


def _oldest_first(order: int) -> bool:
    if order not in jobs_pb2.JobOrder.values():
        raise InvalidArgument("UNKNOWN_VALUE", f"order is {order}; this release does not know it", field="order")
    return order == jobs_pb2.JOB_ORDER_OLDEST_FIRST


def _check_commit_rows(spec: BackfillSpec) -> None:
    """Raise InvalidArgument (BAD_REQUEST) if the request sets `commit_rows` but rules out partial commits."""
    with_ = {
        "where": spec.where,
        "failed_only": spec.failed_only,
        "read_version": spec.read_version,
        "read_tag": spec.read_tag,
    }
    name = next((name for name, value in with_.items() if value), "")
    if spec.commit_rows and name:
        raise InvalidArgument(
            "BAD_REQUEST",
            f"commit_rows is {spec.commit_rows} and {name} is given: with {name}, the rows of a fragment become "
            f"visible together. Leave out commit_rows or {name}",
            field="commit_rows",
        )


def _asked(request: jobs_pb2.CreateJobRequest) -> BackfillSpec | RefreshSpec:
    """Return the requested work. The planner checks names, types and the filter."""
    match request.WhichOneof("request"):
        case "backfill":
            spec = convert_plans.spec_from_proto(request.backfill)
            _check_commit_rows(spec)
            return spec
        case "refresh":
            return convert_views.refresh_spec_from_proto(request.refresh)
        case _:
            raise InvalidArgument("BAD_REQUEST", "set either backfill or refresh", field="backfill")
