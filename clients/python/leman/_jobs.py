"""Jobs of a database: futures, attributes, lists, and pages of failed rows and row states.

Lists that come in pages.

Rows of a computed column by what is known of their values.

What callers say of jobs beside what these are to do: labels, priorities, environments, and filters.

A job that runs while its caller does something else.

The jobs of a database, as methods of `leman.Database`.
"""

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
from leman._format.error_groups import MOST_EXAMPLES
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


def pages(call: Callable[[str, int], Any], limit: int | None = None, most: int = PAGE) -> Iterator[Any]:
    """The responses of a list call, `call(page_token, page_size)`, for `limit` items (None: all), `most` on a page."""
    token, left = "", limit
    while left is None or left > 0:
        size = most if left is None else min(most, left)
        response = call(token, size)
        yield response
        token = response.next_page_token
        left = None if left is None else left - size
        if not token:
            return


def list_errors(
    services: Services, database: str, job_id: str, column: str | None, limit: int | None, *, places_only: bool = False
) -> RowErrors:
    """The rows of a job for which the function failed, by row address. `places_only`: all of them, and only where they
    are. A UserWarning tells what of them is lost. Those of a local database without services this process reads."""
    if services.reads_alone() and not places_only:
        _locations.check_database_exists(database)
        found = local_reads.local_errors(database, job_id, column or "", limit)
        if found is not None:
            return RowErrors(found)
    requests = pages(
        lambda token, size: services.jobs.ListJobErrors(
            jobs_pb2.ListJobErrorsRequest(
                database=database,
                job_id=job_id,
                column=column or "",
                page_size=size,
                page_token=token,
                places_only=places_only,
            ),
        ),
        limit,
    )
    found = RowErrors()
    for page in requests:
        found += [conversions.row_error(item) for item in page.errors]
        for text in page.warnings:
            warn(text)
    return found


def group_errors(
    services: Services, database: str, job_id: str, column: str | None, limit: int | None, examples: int
) -> RowErrorGroups:
    """A job's failed rows by what went wrong. Those of a local database without services this process reads."""
    if not 0 <= examples <= MOST_EXAMPLES:
        raise InvalidArgument(f"examples is {examples}; 0 to {MOST_EXAMPLES} are allowed")
    if services.reads_alone():
        _locations.check_database_exists(database)
        alone = local_reads.local_error_groups(database, job_id, column or "", limit, examples)
        if alone is not None:
            return alone
    found = RowErrorGroups()
    requests = pages(
        lambda token, size: services.jobs.GroupJobErrors(
            jobs_pb2.GroupJobErrorsRequest(
                database=database,
                job_id=job_id,
                column=column or "",
                page_size=size,
                page_token=token,
                examples=examples,
            ),
        ),
        limit,
        _GROUPS,
    )
    for page in requests:
        found += [conversions.row_error_group(item) for item in page.groups]
        found.total, found.rows, found.rows_ungrouped = page.total_size, page.rows, page.rows_ungrouped
        for text in page.warnings:
            warn(text)
    return found


STATES = {
    "computed": planner_pb2.ROW_STATE_COMPUTED,
    "null": planner_pb2.ROW_STATE_NULL,
    "failed": planner_pb2.ROW_STATE_FAILED,
    "not_computed": planner_pb2.ROW_STATE_NOT_COMPUTED,
}
"""What `Table.rows_in_state` can be asked for."""

_PAGE = 100_000


def row_states(services: Services, table: catalog_pb2.TableRef, column: str) -> RowStates:
    """Counts of a column's rows by state."""
    request = planner_pb2.GetRowStatesRequest(table=table, column=column)
    return conversions.row_states(services.planner.GetRowStates(request))


def rows_in_state(services: Services, table: catalog_pb2.TableRef, column: str, state: str) -> dict[int, int | None]:
    """Current addresses of the rows in a state, ascending, to their stable row ids; to None where the table has none.

    Raises InvalidArgument.
    """
    if state not in STATES:
        raise InvalidArgument(f"state is one of {', '.join(STATES)}, not {state!r}")
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
    """Those of a column's failed rows (address to stable row id, or to None) on which a job failed."""
    errors = list_errors(services, database, job_id, column, None, places_only=True)
    ids = {error.row_id for error in errors if error.row_id is not None}
    places = {error.row_address for error in errors}
    return [address for address, row_id in rows.items() if (address in places if row_id is None else row_id in ids)]


_HIGHEST_PRIORITY = 100
_Result = TypeVar("_Result")


def check_labels(labels: Any) -> dict[str, str]:
    """Labels on the wire; None: none. Raises InvalidArgument."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping) or not all(isinstance(text, str) for item in labels.items() for text in item):
        raise InvalidArgument(f"labels map names to values, all of them str, not {labels!r}", facts={"field": "labels"})
    return dict(labels)


def check_priority(priority: Any) -> int:
    """A priority on the wire. Raises InvalidArgument."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > _HIGHEST_PRIORITY:
        raise InvalidArgument(
            f"priority is a whole number from -{_HIGHEST_PRIORITY} to {_HIGHEST_PRIORITY}, not {priority!r}",
            facts={"field": "priority"},
        )
    return priority


def check_env(env: Any) -> dict[str, str]:
    """Environment variables on the wire; None: none. Raises InvalidArgument, which tells no value."""
    if env is None:
        return {}
    if not isinstance(env, Mapping) or not all(isinstance(name, str) for name in env):
        raise InvalidArgument("env maps names of environment variables to values", facts={"field": "env"})
    for name, value in env.items():
        if not isinstance(value, str):
            raise InvalidArgument(f"env[{name!r}] is a str, not a {type(value).__name__}", facts={"field": "env"})
    return dict(env)


def with_usable_env(start: Callable[[Mapping[str, str] | None], _Result], env: Mapping[str, str] | None) -> _Result:
    """What starts one of several jobs with these variables, or without them where no function of it can have any (SQL,
    remote functions): of several columns or views some may be such."""
    try:
        return start(env)
    except FailedPrecondition as error:
        if env is None or error.reason != "ENV_NOT_USABLE":
            raise
    return start(None)


def job_filter(
    table: str | None, states: Iterable[JobState | str], labels: Mapping[str, str] | None
) -> jobs_pb2.JobFilter:
    """Which jobs are meant. Raises InvalidArgument."""
    if isinstance(states, str):
        states = [states]
    try:
        wanted = [JobState(state) for state in states]
    except ValueError:
        known = ", ".join(JobState)
        raise InvalidArgument(f"states are some of {known}, not {list(states)!r}", facts={"field": "states"}) from None
    return jobs_pb2.JobFilter(
        tables=[table] if table else [],
        states=[jobs_pb2.Job.State.Value(f"STATE_{state}") for state in wanted],
        labels=check_labels(labels),
    )


def is_wanted(job: Job, wanted: jobs_pb2.JobFilter) -> bool:
    """Whether a job is one that `job_filter` means."""
    return (
        (not wanted.tables or job.table in wanted.tables)
        and (not wanted.states or jobs_pb2.Job.State.Value(f"STATE_{job.state}") in wanted.states)
        and all(job.labels.get(key) == value for key, value in wanted.labels.items())
    )


_STREAM_SECONDS = 60.0
_CANCEL_SECONDS = 3.0  # in which a job that is cancelled has mostly ended

#: Reasons of a job whose table is gone, with all that was finished of it.
_NOTHING_KEPT = ("TABLE_NOT_FOUND", "TABLE_REPLACED")

log = logging.getLogger("leman")


class JobFuture(Shown):
    """A job of a database; it runs in the services, whatever becomes of this object."""

    def __init__(self, services: Services, database: str, job_id: str, ended: Job | None = None) -> None:
        self.job_id = job_id
        self._ended = ended  # a job that had nothing to do has ended when its caller is notified
        self._services = services
        self._database = database

    def __repr__(self) -> str:
        return f"<leman.JobFuture {self.job_id}>"

    @boundary
    def job(self) -> Job:
        """The job as it stands now. Raises JobNotFound."""
        request = jobs_pb2.GetJobRequest(database=self._database, job_id=self.job_id)
        return conversions.job(self._services.jobs.GetJob(request).job)

    def status(self) -> JobState:
        """Its state, which is also a str: `RUNNING`, `DONE`, …"""
        return self.job().state

    def progress(self) -> Progress:
        """How far it is."""
        return self.job().progress

    def done(self) -> bool:
        """True when it has ended, however it did."""
        return self.status().terminal

    @boundary
    def cancel(self) -> JobState:
        """Ask it to stop; finished work is kept. Returns the state after that, usually CANCELLING."""
        request = jobs_pb2.CancelJobRequest(database=self._database, job_id=self.job_id)
        return conversions.job(self._services.jobs.CancelJob(request).job).state

    @boundary
    def pause(self) -> JobState:
        """Have it stop for a while: what its workers have at hand is stored first, and all that is finished is kept. It
        stays paused, over restarts of the services too, until `resume` or `cancel`. Returns the state after that:
        PAUSING, or PAUSED where it waited for its turn. Raises FailedPrecondition (JOB_ENDED, JOB_CANCELLING)."""
        request = jobs_pb2.PauseJobRequest(database=self._database, job_id=self.job_id)
        return conversions.job(self._services.jobs.PauseJob(request).job).state

    @boundary
    def resume(self) -> JobState:
        """Have it go on after `pause`: it waits for its turn again, and computes what is left. Returns the state after
        that, usually PENDING; a job that is not paused stays as it is. Raises as `pause`."""
        request = jobs_pb2.ResumeJobRequest(database=self._database, job_id=self.job_id)
        return conversions.job(self._services.jobs.ResumeJob(request).job).state

    @boundary
    def delete(self) -> None:
        """Once it has ended: take it out of the history for good, with what is stored of its failed rows. What it
        computed stays. Raises FailedPrecondition (JOB_RUNNING) and JobNotFound."""
        self._services.jobs.DeleteJob(jobs_pb2.DeleteJobRequest(database=self._database, job_id=self.job_id))

    @boundary
    def update(self, *, labels: Mapping[str, str] | None = None, priority: int | None = None) -> Job:
        """Give it other labels (all of them), or another priority, which counts while it waits for its turn; None
        leaves what it has. Returns the job after that. Raises InvalidArgument, and FailedPrecondition (JOB_ENDED)."""
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
        """Once the job has ended: calls the function again for its failed rows. See `Database.retry_job_async`."""
        registration = Registration(self._services, self._database)
        return retry_job(
            *(self._services, registration, self._database, self.job_id, udf),
            keep_others=keep_others,
            env=env,
            report=report,
            request_id=request_id,
        )

    @boundary
    def result(self, timeout: float | None = None, *, progress: Callable[[Progress], object] | None = None) -> str:
        """Wait for the end and return the job's id. `progress`: called with each Progress meanwhile.

        A job that ended as DONE_WITH_ERRORS returns too; one that is paused is waited for. Raises JobFailed,
        JobCancelled, and DeadlineExceeded (a TimeoutError) after `timeout` seconds; the job then goes on. So it does
        after an interrupt (Ctrl-C): the KeyboardInterrupt says how to find it again.
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
        """What happens in the job, from its beginning on, until it ends.

        Where its executor is restarted or dies, what had happened there and was not told yet may be missing.
        """
        for update in self.updates():
            yield from update.events

    @boundary
    def watch(self, timeout: float | None = None) -> Iterator[tuple[Job, list[JobEvent]]]:
        """The job and the events of each of the `updates`."""
        for update in self.updates(timeout=timeout):
            yield update.job, update.events

    @boundary
    def updates(self, *, after: int = 0, timeout: float | None = None) -> Iterator[JobUpdate]:
        """The job now and whenever something changed, with what happened since; the last has a terminal
        state.

        Continues where it was when services are restarted. It starts none where those of this machine were ended
        meanwhile, but waits a minute for others, and then raises Unavailable; it does where they were killed, but for
        those of `leman up`. `after`: begin behind an update that was seen before, by this process or another one: its
        `sequence`. Raises DeadlineExceeded after `timeout` seconds. The job goes on when no one watches it any more; a
        KeyboardInterrupt says how to find it again.
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
        """As `watch`, without a call where the end is known, and without its events then."""
        check_timeout(timeout)
        return self.watch(timeout) if self._ended is None else iter([(self._ended, [])])

    def _before_next_stream(self, failure: grpc.RpcError | None, patience: RetryBudget, heard_until: float) -> None:
        """Between a stream that ended early and the next. Raises where another one would not help."""
        if failure is None:
            patience.pause()
            return
        code: grpc.StatusCode = failure.code()
        if code is not grpc.StatusCode.DEADLINE_EXCEEDED:  # ours: a stream is renewed once a minute
            self._services.wait_as_watch("executor", failure, patience, heard_until)


def retry_job(  # noqa: PLR0913 - what a retry takes
    services: Services,
    registration: Registration,
    database: str,
    job_id: str,
    udf: UDF | str | None,
    *,
    keep_others: bool,
    env: Mapping[str, str] | None,
    report: bool | Callable[[ColumnChange], object] | None,
    request_id: str | None,
) -> JobFuture:
    """See `Database.retry_job_async`."""
    if keep_others and udf is None:
        raise InvalidArgument("keep_others needs udf=: with the same function all other rows stay as they are anyway")
    found = None if udf is None else registration.resolve(udf)
    request = jobs_pb2.RetryJobRequest(
        database=database,
        job_id=job_id,
        keep_others=keep_others,
        request_id=checked_request_id(request_id),
        env=check_env(env),
    )
    if found is not None:
        request.udf.name, request.udf.version = found.name, found.version
    answer = services.jobs.RetryJob(request)
    report_lost([answer.column], report)
    job = conversions.job(answer.job)
    return JobFuture(services, database, job.job_id, job if job.state.terminal else None)


def follow(future: JobFuture, display: Display, *, cancel: bool = True) -> Job:
    """Show a job until its end and return it as it ended. An interrupt (Ctrl-C) cancels it if `cancel`: the
    KeyboardInterrupt says what is kept, and how to go on."""
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
    """Cancel a job, wait a moment for its end, and tell what it kept."""
    asked = False
    with contextlib.suppress(LemanError, KeyboardInterrupt):  # who asks twice does not wait
        future.cancel()
        asked = True
        for job, _ in future.watch(_CANCEL_SECONDS):
            last = job
    return interrupted_line(last, future.job_id) if asked else left_line(last, future._database, future.job_id)


def wait_for_job(future: JobFuture, name: str, *, progress: bool | Callable[[Progress], object] | None) -> Job:
    """Show a job until its end, with a warning in the log where rows failed. Raises as `check_ended`."""
    display = make_display(progress, name)
    job = follow(future, display)
    if job.state is JobState.DONE_WITH_ERRORS and not display.tells_result:
        log.warning("%s", result_line(job))
    check_ended(job)
    return job


#: Nothing was raised where a process ended or was ended.
_NO_TRACEBACK = frozenset({"WORKER_LOST", "UDF_TIMEOUT"})
#: How errors of the services say it by themselves.
_IS_KEPT = re.compile(r"[Ff]inished (work )?is kept")


def check_ended(job: Job) -> None:
    """Raises JobFailed or JobCancelled unless a job that has ended did so with its work done."""
    what = f"the backfill of {job.target}" if job.column or job.columns else f"the refresh of {job.target}"
    if job.state is JobState.CANCELLED:
        raise JobCancelled(
            f"{what} was cancelled ({job.job_id}); what it had finished is kept",
            job_id=job.job_id,
        )
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
    """What can be done with the jobs of a database."""

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
        """Jobs, running and ended, newest first: those of `table`, in one of `states` (none: in any), with all of
        `labels`; at most `limit` (None: all). A UserWarning tells what of the job history was damaged and set aside, if
        anything was: such jobs may be missing.

        Where pylance is installed and no services of a local database run, their history is read, and none are started:
        a UserWarning then tells of jobs that have not ended, as they go on once services run (`start`).

        Raises InvalidArgument, NotFound (DATABASE_NOT_FOUND)."""
        wanted = job_filter(table, states, labels)
        known = self._jobs_alone()
        if known is not None:
            chosen = [job for job in known if is_wanted(job, wanted)][: None if limit is None else max(limit, 0)]
            self._tell_of_waiting(chosen)
            return Jobs(chosen)
        requests = pages(
            lambda token, size: self._services.jobs.ListJobs(
                jobs_pb2.ListJobsRequest(database=self.uri, filter=wanted, page_size=size, page_token=token),
            ),
            limit,
        )
        found, damage = Jobs(), dict[str, None]()
        for page in requests:
            found += [conversions.job(item) for item in page.jobs]
            damage |= dict.fromkeys(page.warnings)
        for text in damage:
            warn(text)
        return found

    @boundary
    def cancel_jobs(
        self,
        table: str | None = None,
        *,
        states: Iterable[JobState | str] = (),
        labels: Mapping[str, str] | None = None,
    ) -> list[Job]:
        """Ask the jobs to stop that `jobs` would list and that have not ended; without arguments all of them. What they
        have finished is kept. Returns them as they stand after that; a UserWarning names those that could not be asked,
        as another executor runs them. Raises InvalidArgument."""
        request = jobs_pb2.CancelJobsRequest(database=self.uri, filter=job_filter(table, states, labels))
        answer = self._services.jobs.CancelJobs(request)
        if answer.jobs_elsewhere:
            warn(f"not cancelled, as another executor runs them: {', '.join(answer.jobs_elsewhere)}")
        return [conversions.job(job) for job in answer.jobs]

    @boundary
    def job(self, job_id: str) -> Job:
        """A job as it stands now; where no services run, as with `jobs`. Raises JobNotFound."""
        for job in self._jobs_alone() or ():
            if job.job_id == job_id:
                self._tell_of_waiting([job])
                return job
        return self.job_future(job_id).job()

    def _jobs_alone(self) -> list[Job] | None:
        """All jobs as history has them, where services would have to be started; None: they are to be asked."""
        if not self._services.reads_alone():
            return None
        _locations.check_database_exists(self.uri)
        return local_reads.local_jobs(self.uri)

    def _tell_of_waiting(self, jobs: Iterable[Job]) -> None:
        waiting = [job.job_id for job in jobs if not job.state.terminal and job.state is not JobState.PAUSED]
        if waiting:
            what = f"{waiting[0]} has" if len(waiting) == 1 else f"{len(waiting):,} jobs have"
            goes = "goes" if len(waiting) == 1 else "go"
            warn(f"{what} not ended and {goes} on once services run: `leman up {self.uri}`, or Database.start()")

    @boundary
    def get_errors(self, job_id: str, column_name: str | None = None, limit: int | None = None) -> RowErrors:
        """As `Table.get_errors`, for anyone who has no more than a job's id."""
        return list_errors(self._services, self.uri, job_id, column_name, limit)

    @boundary
    def error_groups(
        self, job_id: str, column_name: str | None = None, limit: int | None = None, *, examples: int = 1
    ) -> RowErrorGroups:
        """The rows of a job for which the function failed, counted by what went wrong, the largest group first. The
        services count: unlike `get_errors`, this fetches no row but `examples`, 0 to 5 of each group.

        A UserWarning tells what of the rows is lost. Raises JobNotFound, InvalidArgument.
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
        """As `retry_job_async`, but waits and returns the new job's id. `progress` and errors: as `Table.backfill`."""
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
        """Call the function again for the rows of an ended job's columns that are marked as failed, and for no others;
        also for those that failed in other jobs.
        They are found by their state, wherever updates and compaction have moved them; a row whose inputs changed
        since counts as not computed: a plain backfill computes it. The job's `where` holds for its retry.

        `udf`: another function, or another version, which is the column's from then on. `keep_others`: then the other
        rows keep their values and count as current; the version is recorded per row, `plan_backfill` names the rows
        that keep an earlier one's, and `alter_columns` to the same function makes those stale. Without `keep_others`
        all of them are stale, as after `alter_columns`, and the job computes them too. `report`: as for
        `Table.alter_columns`. `env` and `request_id`: as for `Table.backfill`; the retried job's own variables are not
        known any more.

        Raises JobNotFound, UdfNotFound, TypeMismatch, InvalidArgument, and FailedPrecondition: the job has not ended
        (JOB_RUNNING), it ended early and no row is marked as failed (NOTHING_TO_RETRY: run the backfill again),
        it refreshed a view (NOT_A_BACKFILL), keep_others with a function of other inputs (KEPT_INPUTS_DIFFER), or
        after a job that computed with a function that is not the column's (KEEP_OTHERS_FUNCTION).
        """
        return retry_job(
            *(self._services, self._registration, self.uri, job_id, udf),
            keep_others=keep_others,
            env=env,
            report=report,
            request_id=request_id,
        )

    def job_future(self, job_id: str) -> JobFuture:
        """To watch, cancel or wait for a job that someone started. Does not ask whether it exists."""
        return JobFuture(self._services, self.uri, job_id)
