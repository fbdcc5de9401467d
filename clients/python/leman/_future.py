"""A job that runs while its caller does something else."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping

import grpc
from google.protobuf import field_mask_pb2

from leman import _wire
from leman._channel import Services
from leman._column_changes import ColumnChange, report_lost
from leman._job_attributes import check_env, check_labels, check_priority
from leman._job_model import Job, JobEvent, JobState, JobUpdate, Progress
from leman._job_text import interrupted_line, left_line
from leman._patience import Patience, check_timeout
from leman._registration import Registration
from leman._request_id import id_of
from leman._shown import Shown
from leman._tracebacks import boundary
from leman._udf import UDF
from leman.errors import DeadlineExceeded, InvalidArgument, JobCancelled, JobFailed, LemanError
from leman.progress import Display, errors_command, make_display, result_line
from leman.v1 import jobs_pb2

_STREAM_SECONDS = 60.0
_CANCEL_SECONDS = 3.0  # in which a job that is cancelled has mostly ended

#: Reasons of a job whose table is gone, with all that was finished of it.
_NOTHING_KEPT = ("TABLE_NOT_FOUND", "TABLE_REPLACED")

log = logging.getLogger("leman")


class JobFuture(Shown):
    """A job of a database; it runs in the services, whatever becomes of this object."""

    def __init__(self, services: Services, database: str, job_id: str, ended: Job | None = None) -> None:
        self.job_id = job_id
        self._ended = ended  # a job that had nothing to do has ended when its caller hears of it
        self._services = services
        self._database = database

    def __repr__(self) -> str:
        return f"<leman.JobFuture {self.job_id}>"

    @boundary
    def job(self) -> Job:
        """The job as it stands now. Raises JobNotFound."""
        request = jobs_pb2.GetJobRequest(database=self._database, job_id=self.job_id)
        return _wire.job(self._services.jobs.GetJob(request).job)

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
        return _wire.job(self._services.jobs.CancelJob(request).job).state

    @boundary
    def pause(self) -> JobState:
        """Have it stop for a while: what its workers have at hand is stored first, and all that is finished is kept. It
        stays paused, over restarts of the services too, until `resume` or `cancel`. Returns the state after that:
        PAUSING, or PAUSED where it waited for its turn. Raises FailedPrecondition (JOB_ENDED, JOB_CANCELLING)."""
        request = jobs_pb2.PauseJobRequest(database=self._database, job_id=self.job_id)
        return _wire.job(self._services.jobs.PauseJob(request).job).state

    @boundary
    def resume(self) -> JobState:
        """Have it go on after `pause`: it waits for its turn again, and computes what is left. Returns the state after
        that, usually PENDING; a job that is not paused stays as it is. Raises as `pause`."""
        request = jobs_pb2.ResumeJobRequest(database=self._database, job_id=self.job_id)
        return _wire.job(self._services.jobs.ResumeJob(request).job).state

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
        return _wire.job(self._services.jobs.UpdateJob(request).job)

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

        Goes on where it was when services are restarted. It starts none where those of this machine were ended
        meanwhile, but waits a minute for others, and then raises Unavailable; it does where they were killed, but for
        those of `leman up`. `after`: begin behind an update that was seen before, by this process or another one: its
        `sequence`. Raises DeadlineExceeded after `timeout` seconds. The job goes on when nobody watches it any more; a
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
                        fresh = [_wire.event(e) for e in message.events if e.sequence > last_event]
                        last_event = max((e.sequence for e in fresh), default=last_event)
                        job = _wire.job(message.job)
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

    def _before_next_stream(self, failure: grpc.RpcError | None, patience: Patience, heard_until: float) -> None:
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
        request_id=id_of(request_id),
        env=check_env(env),
    )
    if found is not None:
        request.udf.name, request.udf.version = found.name, found.version
    answer = services.jobs.RetryJob(request)
    report_lost([answer.column], report)
    job = _wire.job(answer.job)
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


def wait(future: JobFuture, name: str, *, progress: bool | Callable[[Progress], object] | None) -> Job:
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
        text += "\nWhat was finished is kept: the same call goes on from there."
    if address and job.error.reason not in _NO_TRACEBACK:
        text += f" The traceback: table.get_errors(job_id={job.job_id!r}), or {errors_command(job)}"
    failed = JobFailed(text, reason=job.error.reason, facts=facts, job_id=job.job_id)
    failed.code = job.error.code
    raise failed
