"""The jobs of a database: lists, futures, checks of their arguments, failed rows, and row states of columns."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import grpc
from google.protobuf import field_mask_pb2

from leman import _locations
from leman._call_boundary import boundary, warn
from leman._columns import ColumnChange, report_lost
from leman._format.stored_logs import MOST_EXAMPLES
from leman._functions.registration import Registration
from leman._functions.udf_decorator import UDF
from leman._job_model import Job, JobEvent, Jobs, JobState, JobUpdate, Progress, interrupted_line, left_line
from leman._local import local_reads
from leman._message_text import Shown
from leman._table_model import RowErrorGroups, RowErrors, RowStates
from leman._wire import conversions
from leman._wire.channel import RetryBudget, Services, check_timeout
from leman._wire.wire_values import checked_request_id
from leman.errors import DeadlineExceeded, FailedPrecondition, InvalidArgument, JobCancelled, JobFailed, LemanError
from leman.progress import Display, errors_command, make_display, result_line
from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2

PAGE = 1000
_GROUPS = 200


def pages(call: Callable[[Any], Any], request: Any, limit: int | None = None, most: int = PAGE) -> Iterator[Any]:
    """Yield the pages of a list call, `call(page_token, page_size)`, with at most `limit` items in all (None: any)."""
    left, told = limit, set[str]()
    while left is None or left > 0:
        request.page_size = most if left is None else min(most, left)
        response = call(request)
        for text in getattr(response, "warnings", ()):
            if text not in told:
                told.add(text)
                warn(text)
        yield response
        request.page_token = response.next_page_token
        left = None if left is None else left - request.page_size
        if not request.page_token:
            return


def list_errors(
    services: Services, database: str, job_id: str, column: str | None, limit: int | None, *, places_only: bool = False
) -> RowErrors:
    """Return a job's failed rows by row address. Warn if records are lost.

    `places_only`: return only the places of the rows, including rows whose error was not stored. If no services run,
    this process reads the records of a local database itself.
    """
    if services.reads_alone() and not places_only:
        _locations.check_database_exists(database)
        found = local_reads.local_errors(database, job_id, column or "", limit)
        if found is not None:
            return RowErrors(found)
    found = RowErrors()
    request = jobs_pb2.ListJobErrorsRequest(
        database=database, job_id=job_id, column=column or "", places_only=places_only
    )
    for page in pages(services.jobs.ListJobErrors, request, limit):
        found += map(conversions.row_error, page.errors)
    return found


def group_errors(
    services: Services, database: str, job_id: str, column: str | None, limit: int | None, examples: int
) -> RowErrorGroups:
    """Return a job's failed rows by error. If no services run, this process reads the local database itself."""
    if not 0 <= examples <= MOST_EXAMPLES:
        raise InvalidArgument(f"examples is {examples}; 0 to {MOST_EXAMPLES} are allowed")
    if services.reads_alone():
        _locations.check_database_exists(database)
        alone = local_reads.local_error_groups(database, job_id, column or "", limit, examples)
        if alone is not None:
            return alone
    found = RowErrorGroups()
    request = jobs_pb2.GroupJobErrorsRequest(database=database, job_id=job_id, column=column or "", examples=examples)
    for page in pages(services.jobs.GroupJobErrors, request, limit, _GROUPS):
        found += map(conversions.row_error_group, page.groups)
        found.total, found.rows, found.rows_ungrouped = page.total_size, page.rows, page.rows_ungrouped
    return found


STATES = {
    "computed": planner_pb2.ROW_STATE_COMPUTED,
    "null": planner_pb2.ROW_STATE_NULL,
    "failed": planner_pb2.ROW_STATE_FAILED,
    "not_computed": planner_pb2.ROW_STATE_NOT_COMPUTED,
}
"""The states that `Table.rows_in_state` accepts."""

_PAGE = 100_000


def row_states(services: Services, table: catalog_pb2.TableRef, column: str) -> RowStates:
    request = planner_pb2.GetRowStatesRequest(table=table, column=column)
    return conversions.row_states(services.planner.GetRowStates(request))


def rows_in_state(services: Services, table: catalog_pb2.TableRef, column: str, state: str) -> dict[int, int | None]:
    """Return the current addresses of the rows in a state, ascending, each with its stable row id or None.

    Raises InvalidArgument.
    """
    if state not in STATES:
        raise InvalidArgument(f"state must be one of {', '.join(STATES)}, not {state!r}")
    request = planner_pb2.GetRowStatesRequest(table=table, column=column, state=STATES[state], page_size=_PAGE)
    rows: dict[int, int | None] = {}
    while True:
        answer = services.planner.GetRowStates(request)
        rows |= zip(answer.row_addresses, answer.row_ids or [None] * len(answer.row_addresses), strict=True)
        request.page_token = answer.next_page_token
        if not request.page_token:
            return rows


def failed_rows_of_job(
    services: Services, database: str, job_id: str, column: str, rows: dict[int, int | None]
) -> list[int]:
    """Return the addresses of those `rows` (address → stable row id or None) of a column on which a job failed."""
    errors = list_errors(services, database, job_id, column, None, places_only=True)
    ids = {error.row_id for error in errors if error.row_id is not None}
    places = {error.row_address for error in errors}
    return [address for address, row_id in rows.items() if (address in places if row_id is None else row_id in ids)]


_HIGHEST_PRIORITY = 100
_Result = TypeVar("_Result")


def check_labels(labels: Any) -> dict[str, str]:
    """Check labels, and return them for the wire. None means no labels. Raises InvalidArgument."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for item in labels.items() for text in item):
        raise InvalidArgument(f"labels must map str to str, not {labels!r}", facts={"field": "labels"})
    return dict(labels)


def check_priority(priority: Any) -> int:
    """Check a priority, and return it for the wire. Raises InvalidArgument."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST_PRIORITY:
        raise InvalidArgument(
            f"priority is a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}, not {priority!r}",
            facts={"field": "priority"},
        )
    return priority


def check_env(env: Any) -> dict[str, str]:
    """Check environment variables, and return them for the wire.

    Raises InvalidArgument, without any value in its text.
    """
    if env is None:
        return {}
    if not isinstance(env, Mapping) or not all(isinstance(name, str) for name in env):
        raise InvalidArgument("env maps names of environment variables to values", facts={"field": "env"})
    for name, value in env.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"env[{name!r}] is a str, not a {type(value).__name__}", facts={"field": "env"})
    return dict(env)


def with_usable_env(start: Callable[[Mapping[str, str] | None], _Result], env: Mapping[str, str] | None) -> _Result:
    """Start one of several jobs with these variables, or without them if no function of the job can receive them.

    SQL and remote functions cannot receive variables.
    """
    try:
        return start(env)
    except FailedPrecondition as error:
        if env is None or error.reason != "ENV_NOT_USABLE":
            raise
    return start(None)


def job_filter(
    table: str | None, states: Iterable[JobState | str], labels: Mapping[str, str] | None
) -> jobs_pb2.JobFilter:
    if isinstance(states, str):
        states = [states]
    try:
        wanted = [JobState(state) for state in states]
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidArgument(
            f"states must be some of {known}, not {list(states)!r}", facts={"field": "states"}
        ) from None
    return jobs_pb2.JobFilter(
        tables=[table] if table else [],
        states=[jobs_pb2.Job.State.Value(f"STATE_{state}") for state in wanted],
        labels=check_labels(labels),
    )


def is_wanted(job: Job, wanted: jobs_pb2.JobFilter) -> bool:
    """Return whether a job passes a filter made by `job_filter`."""
    return (
        (not wanted.tables or job.table in wanted.tables)
        and (not wanted.states or jobs_pb2.Job.State.Value(f"STATE_{job.state}") in wanted.states)
        and all(job.labels.get(key) == value for key, value in wanted.labels.items())
    )


_STREAM_SECONDS = 60.0
_CANCEL_SECONDS = 3.0  # most cancelled jobs end within this time

#: Reasons of a job whose table is gone with all finished work.
_NOTHING_KEPT = ("TABLE_NOT_FOUND", "TABLE_REPLACED")

log = logging.getLogger("leman")


class JobFuture(Shown):
    """A job of a database. It runs in the services, independent of this object."""

    def __init__(self, services: Services, database: str, job_id: str, ended: Job | None = None) -> None:
        self.job_id = job_id
        self._ended = ended  # set for a job that had nothing to do, and so has ended already
        self._services = services
        self._database = database

    def __repr__(self) -> str:
        return f"<leman.JobFuture {self.job_id}>"

    @boundary
    def job(self) -> Job:
        """Return the job's current state and figures. Raises JobNotFound."""
        return self._ask(self._services.jobs.GetJob, jobs_pb2.GetJobRequest)

    def _ask(self, call: Callable[[Any], Any], request: Callable[..., Any]) -> Job:
        return conversions.job(call(request(database=self._database, job_id=self.job_id)).job)

    def status(self) -> JobState:
        """Return its state, which is also a str: `RUNNING`, `DONE`, …"""
        return self.job().state

    def progress(self) -> Progress:
        """Return its counts of rows, speed and time left."""
        return self.job().progress

    def done(self) -> bool:
        """Return whether it has ended, in whatever state."""
        return self.status().terminal

    @boundary
    def cancel(self) -> JobState:
        """Cancel it. Finished work is kept. Return the state after the call, usually CANCELLING."""
        return self._ask(self._services.jobs.CancelJob, jobs_pb2.CancelJobRequest).state

    @boundary
    def pause(self) -> JobState:
        """Pause it until `resume` or `cancel`. It stays paused if the services restart.

        Its workers first store the values that they are computing; all finished work is kept. Return the state after
        the call: PAUSING, or PAUSED if the job had not started to run. Raises FailedPrecondition (JOB_ENDED,
        JOB_CANCELLING).
        """
        return self._ask(self._services.jobs.PauseJob, jobs_pb2.PauseJobRequest).state

    @boundary
    def resume(self) -> JobState:
        """Resume it after `pause`: it waits in the queue again, then computes the remaining rows.

        Return the state after the call, usually PENDING. A job that is not paused stays unchanged. Raises as `pause`.
        """
        return self._ask(self._services.jobs.ResumeJob, jobs_pb2.ResumeJobRequest).state

    @boundary
    def delete(self) -> None:
        """Delete the ended job and its failed rows from the history. Its computed values stay.

        Raises FailedPrecondition (JOB_RUNNING) and JobNotFound.
        """
        self._services.jobs.DeleteJob(jobs_pb2.DeleteJobRequest(database=self._database, job_id=self.job_id))

    @boundary
    def update(self, *, labels: Mapping[str, str] | None = None, priority: int | None = None) -> Job:
        """Replace its labels or its priority, and return the job. The priority matters only while the job is queued.

        None leaves labels or priority unchanged. Raises InvalidArgument, and FailedPrecondition (JOB_ENDED).
        """
        changed = [name for name, value in (("labels", labels), ("priority", priority)) if value is not None]
        request = jobs_pb2.UpdateJobRequest(
            database=self._database,
            job_id=self.job_id,
            labels=check_labels(labels),
            priority=0 if priority is None else check_priority(priority),
            update_mask=field_mask_pb2.FieldMask(paths=changed),
        )
        return conversions.job(self._services.jobs.UpdateJob(request).job)

    @boundary
    def retry(
        self,
        *,
        udf: UDF | str | None = None,
        keep_others: bool = False,
        env: Mapping[str, str] | None = None,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> JobFuture:
        """Compute its failed rows again after it has ended. See `Database.retry_job_async`."""
        if keep_others and udf is None:
            raise InvalidArgument(
                "keep_others needs udf=: with the same function, all other rows keep their values anyway"
            )
        found = None if udf is None else Registration(self._services, self._database).resolve(udf)
        request = jobs_pb2.RetryJobRequest(
            database=self._database,
            job_id=self.job_id,
            keep_others=keep_others,
            request_id=checked_request_id(request_id),
            env=check_env(env),
        )
        if found is not None:
            request.udf.name, request.udf.version = found.name, found.version
        answer = self._services.jobs.RetryJob(request)
        report_lost([answer.column], report)
        return _started(self._services, self._database, answer.job)

    @boundary
    def result(self, timeout: float | None = None, *, progress: Callable[[Progress], object] | None = None) -> str:
        """Wait for the end and return the job's id. `progress` is called with each Progress meanwhile.

        A job that ended as DONE_WITH_ERRORS raises nothing. While a job is paused, the call waits. Raises JobFailed,
        JobCancelled, and DeadlineExceeded (a TimeoutError) after `timeout` seconds. After a timeout or an interrupt
        (Ctrl-C) the job continues; the KeyboardInterrupt says how to find it again.
        """
        last: Job | None = None
        try:
            for job, _ in self._until_ended(timeout):
                last = job
                if progress is not None:
                    progress(job.progress)
                if job.state.terminal:
                    check_ended(job)
        except KeyboardInterrupt:
            told = left_line(last, self._database, self.job_id)
        else:
            return self.job_id
        raise KeyboardInterrupt(told)

    @boundary
    def events(self) -> Iterator[JobEvent]:
        """Yield the job's events, from its beginning until it ends.

        If its executor is restarted or crashes, events that it had not sent yet may be missing.
        """
        for update in self.updates():
            yield from update.events

    @boundary
    def watch(self, timeout: float | None = None) -> Iterator[tuple[Job, list[JobEvent]]]:
        """Yield the job and the new events of each update, see `updates`."""
        for update in self.updates(timeout=timeout):
            yield update.job, update.events

    @boundary
    def updates(self, *, after: int = 0, timeout: float | None = None) -> Iterator[JobUpdate]:
        """Yield the job now and after each change, with the events in between, until its state is terminal.

        If the services restart, the updates continue where they stopped. If the local services were ended, the call
        waits a minute for new ones, then raises Unavailable. It restarts local services that were killed, except those
        of `leman up`. `after`: begin after the update with this `sequence`. Raises DeadlineExceeded after `timeout`
        seconds. The job continues if the watch ends; a KeyboardInterrupt says how to find it again.
        """
        check_timeout(timeout)
        seen, last_event = after, 0
        job: Job | None = None
        end = None if timeout is None else time.monotonic() + timeout
        patience, heard_until = self._services.patient(), self._services.heard_until
        while True:
            seconds = _STREAM_SECONDS if end is None else min(_STREAM_SECONDS, end - time.monotonic())
            if seconds <= 0:
                raise DeadlineExceeded(f"job {self.job_id} is still running after {timeout:g} seconds")
            request = jobs_pb2.WatchJobRequest(database=self._database, job_id=self.job_id, after_sequence=seen)
            failure: grpc.RpcError | None = None
            stream = self._services.jobs.WatchJob(request, timeout=seconds)
            try:
                try:
                    for message in stream:
                        heard_until = self._services.hear()
                        patience = self._services.patient()
                        seen = max(seen, message.sequence)
                        fresh = [conversions.event(e) for e in message.events if e.sequence > last_event]
                        last_event = max((e.sequence for e in fresh), default=last_event)
                        job = conversions.job(message.job)
                        yield JobUpdate(job, fresh, message.events_missing, seen)
                        if job.state.terminal:
                            return
                except grpc.RpcError as error:
                    failure = error
                finally:
                    stream.cancel()
                self._before_next_stream(failure, patience, heard_until)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(left_line(job, self._database, self.job_id)) from None

    def _until_ended(self, timeout: float | None = None) -> Iterator[tuple[Job, list[JobEvent]]]:
        """Watch as `watch` does. If the job is known to have ended, yield it at once, without events."""
        check_timeout(timeout)
        return self.watch(timeout) if self._ended is None else iter([(self._ended, [])])

    def _before_next_stream(self, failure: grpc.RpcError | None, patience: RetryBudget, heard_until: float) -> None:
        """Wait before reopening a stream that ended early. Raise the Leman error if reopening would not help."""
        if failure is None:
            patience.pause()
            return
        code: grpc.StatusCode = failure.code()
        if code is not grpc.StatusCode.DEADLINE_EXCEEDED:  # this client's own deadline renews the stream each minute
            self._services.wait_as_watch("executor", failure, patience, heard_until)


def _started(services: Services, database: str, message: jobs_pb2.Job) -> JobFuture:
    job = conversions.job(message)
    return JobFuture(services, database, job.job_id, job if job.state.terminal else None)


def create_job(
    services: Services,
    database: str,
    labels: Mapping[str, str] | None,
    priority: int,
    env: Mapping[str, str] | None,
    request_id: str | None,
    **work: Any,
) -> JobFuture:
    """Create a job. `work` is its spec, as `backfill` or `refresh`. Raises the errors of planning it."""
    request = jobs_pb2.CreateJobRequest(
        request_id=checked_request_id(request_id),
        labels=check_labels(labels),
        priority=check_priority(priority),
        env=check_env(env),
        **work,
    )
    return _started(services, database, services.jobs.CreateJob(request).job)


def follow(future: JobFuture, display: Display, *, cancel: bool = True) -> Job:
    """Show a job's progress until it ends, and return the ended job.

    `cancel`: an interrupt (Ctrl-C) cancels it; the KeyboardInterrupt says what is kept, and how to continue.
    """
    last: Job | None = None
    try:
        with display:
            for job, events in future._until_ended():
                last = job
                display.update(job, events)
    except KeyboardInterrupt:
        told = _cancelled(future, last) if cancel else left_line(last, future._database, future.job_id)
    else:
        return last if last is not None else future.job()
    raise KeyboardInterrupt(told)


def _cancelled(future: JobFuture, last: Job | None) -> str:
    """Cancel a job, wait briefly for its end, and return a line about the work that is kept."""
    asked = False
    with contextlib.suppress(LemanError, KeyboardInterrupt):  # a second interrupt ends the wait
        future.cancel()
        asked = True
        for job, _ in future.watch(_CANCEL_SECONDS):
            last = job
    return interrupted_line(last, future.job_id) if asked else left_line(last, future._database, future.job_id)


def wait_for_job(future: JobFuture, name: str, *, progress: bool | Callable[[Progress], object] | None) -> Job:
    """Show a job until its end, and log a warning if rows failed. Raises the errors of `check_ended`."""
    display = make_display(progress, name)
    job = follow(future, display)
    if job.state is JobState.DONE_WITH_ERRORS and not display.tells_result:
        log.warning("%s", result_line(job))
    check_ended(job)
    return job


#: Reasons of failures without an exception: a process ended or was killed.
_NO_TRACEBACK = frozenset({"WORKER_LOST", "UDF_TIMEOUT"})
#: Messages of services that already say that work is kept.
_IS_KEPT = re.compile(r"[Ff]inished (work )?is kept")


def check_ended(job: Job) -> None:
    """Raise JobFailed or JobCancelled if an ended job failed or was cancelled."""
    what = f"the backfill of {job.target}" if job.column or job.columns else f"the refresh of {job.target}"
    if job.state is JobState.CANCELLED:
        raise JobCancelled(f"{what} was cancelled ({job.job_id}); what it had finished is kept", job_id=job.job_id)
    if job.state is not JobState.FAILED:
        return
    if job.error is None:
        raise JobFailed(f"{what} failed ({job.job_id})", job_id=job.job_id)
    facts = dict(job.error.facts)
    address = facts.get("row_address")
    text = f"{what} failed: {' '.join(job.error.message.split())}"
    if address and " of fragment " not in job.error.message:
        text += f" (row address {address})"
    if job.error.reason not in _NOTHING_KEPT and not _IS_KEPT.search(text):
        text += "\nWhat was finished is kept: the same call continues from there."
    if address and job.error.reason not in _NO_TRACEBACK:
        text += f" The traceback: table.get_errors(job_id={job.job_id!r}), or {errors_command(job)}"
    failed = JobFailed(text, reason=job.error.reason, facts=facts, job_id=job.job_id)
    failed.code = job.error.code
    raise failed


class DatabaseJobs:
    """The methods of `leman.Database` for its jobs."""

    uri: str
    _services: Services
    _registration: Registration

    @boundary
    def jobs(
        self,
        table: str | None = None,
        limit: int | None = 100,
        *,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Return running and ended jobs, newest first, at most `limit` (None: all).

        Filters: only jobs of `table`, in one of `states` (none: any), with all of `labels`. If parts of the job history
        were damaged and set aside, jobs may be missing: a UserWarning says so.

        If pylance is installed and a local database has no running services, this process reads the history itself and
        starts no services. Jobs that have not ended then continue only once services run (`start`): a UserWarning says
        so.

        Raises InvalidArgument, NotFound (DATABASE_NOT_FOUND).
        """
        wanted = job_filter(table, states, labels)
        known = self._jobs_alone()
        if known is not None:
            chosen = [job for job in known if is_wanted(job, wanted)][: None if limit is None else max(limit, 0)]
            self._tell_of_waiting(chosen)
            return Jobs(chosen)
        found = Jobs()
        for page in pages(
            self._services.jobs.ListJobs, jobs_pb2.ListJobsRequest(database=self.uri, filter=wanted), limit
        ):
            found += map(conversions.job, page.jobs)
        return found

    @boundary
    def cancel_jobs(
        self,
        table: str | None = None,
        *,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Cancel the jobs that have not ended and that match the arguments, which are those of `jobs`.

        Finished work is kept. Return the jobs with their state after the call. Jobs that another executor runs are not
        cancelled: a UserWarning names them. Raises InvalidArgument.
        """
        request = jobs_pb2.CancelJobsRequest(database=self.uri, filter=job_filter(table, states, labels))
        answer = self._services.jobs.CancelJobs(request)
        if answer.jobs_elsewhere:
            warn(f"not cancelled, as another executor runs them: {', '.join(answer.jobs_elsewhere)}")
        return [conversions.job(job) for job in answer.jobs]

    @boundary
    def job(self, job_id: str) -> Job:
        """Return a job's current state. If no services run, read it as `jobs` does. Raises JobNotFound."""
        for job in self._jobs_alone() or ():
            if job.job_id == job_id:
                self._tell_of_waiting([job])
                return job
        return self.job_future(job_id).job()

    def _jobs_alone(self) -> list[Job] | None:
        """Return all jobs of the history, read by this process, or None if services run and should be asked instead."""
        if not self._services.reads_alone():
            return None
        _locations.check_database_exists(self.uri)
        return local_reads.local_jobs(self.uri)

    def _tell_of_waiting(self, jobs: Iterable[Job]) -> None:
        waiting = [job.job_id for job in jobs if not job.state.terminal and job.state is not JobState.PAUSED]
        if waiting:
            what = f"{waiting[0]} has" if len(waiting) == 1 else f"{len(waiting):,} jobs have"
            goes = "continues" if len(waiting) == 1 else "continue"
            warn(f"{what} not ended and {goes} once services run: `leman up {self.uri}`, or Database.start()")

    @boundary
    def get_errors(self, job_id: str, column_name: str | None = None, limit: int | None = None) -> RowErrors:
        """Return the failed rows of a job, as `Table.get_errors` does."""
        return list_errors(self._services, self.uri, job_id, column_name, limit)

    @boundary
    def error_groups(
        self, job_id: str, column_name: str | None = None, limit: int | None = None, *, examples: int = 1
    ) -> RowErrorGroups:
        """Group a job's failed rows by error, and count each group, the largest first.

        The services count the rows. Unlike `get_errors`, this call fetches only `examples` rows of each group (0 to 5).
        If records of rows are lost, a UserWarning says which. Raises JobNotFound, InvalidArgument.
        """
        return group_errors(self._services, self.uri, job_id, column_name, limit, examples)

    @boundary
    def retry_job(
        self,
        job_id: str,
        *,
        udf: UDF | str | None = None,
        keep_others: bool = False,
        progress: bool | Callable[[Progress], object] | None = None,
        env: Mapping[str, str] | None = None,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> str:
        """As `retry_job_async`, but wait and return the new job's id. `progress` and errors: as `Table.backfill`."""
        future = self.retry_job_async(
            job_id, udf=udf, keep_others=keep_others, env=env, report=report, request_id=request_id
        )
        return wait_for_job(future, f"retry of {job_id}", progress=progress).job_id

    @boundary
    def retry_job_async(
        self,
        job_id: str,
        *,
        udf: UDF | str | None = None,
        keep_others: bool = False,
        env: Mapping[str, str] | None = None,
        report: bool | Callable[[ColumnChange], object] | None = None,
        request_id: str | None = None,
    ) -> JobFuture:
        """Compute again the rows of an ended job's columns that are marked as failed, by whatever job.

        The rows are found by their state, even if updates or compaction moved them. A row whose inputs changed since it
        failed counts as not computed, so a plain backfill computes it instead. The job's `where` also applies to the
        retry.

        `udf`: call another function, or another version, which becomes the column's function. With `keep_others`, the
        rows that did not fail keep their values, which count as current. The version is recorded for each row:
        `plan_backfill` reports the rows with values of an earlier version, and `alter_columns` to the same function
        makes those stale. Without `keep_others`, all rows that did not fail become stale, as after `alter_columns`, and
        the job computes them too. `report`: as for `Table.alter_columns`. `env` and `request_id`: as for
        `Table.backfill`. The variables of the retried job were not kept: give them again.

        Raises JobNotFound, UdfNotFound, TypeMismatch, InvalidArgument, and FailedPrecondition for these reasons.
        JOB_RUNNING: the job has not ended. NOTHING_TO_RETRY: it ended early, and no row is marked as failed; run the
        backfill again. NOT_A_BACKFILL: it refreshed a view. KEPT_INPUTS_DIFFER: `keep_others` with a function of other
        inputs. KEEP_OTHERS_FUNCTION: `keep_others` after a job whose function is not the column's.
        """
        future = self.job_future(job_id)
        return future.retry(udf=udf, keep_others=keep_others, env=env, report=report, request_id=request_id)

    def job_future(self, job_id: str) -> JobFuture:
        """Return a future to watch, cancel or wait for a job. Does not check whether the job exists."""
        return JobFuture(self._services, self.uri, job_id)
