"""What callers are told about jobs: made once for each state of a job, however many ask."""

from __future__ import annotations

from collections import OrderedDict

from google.protobuf.message import Message

from leman.v1 import jobs_pb2
from leman_core.model.job import Job
from leman_executor import convert_jobs
from leman_executor.jobs import job_errors

_KEPT = 4096


class _Known:
    """A state of a job, as a message and as part of answers."""

    __slots__ = ("job", "message", "parts")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.message = job_message(job)
        self.parts: dict[type[Message], bytes] = {}


class JobAnswers:
    """The answers about the jobs that were asked for last.

    To make the message of a job takes longer than all else in a call, and to copy it into a page not much less. An
    ended job stays what it is, and all watchers of a running one are given the same object until there is news.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def part(self, kind: type[Message], job: Job) -> bytes:
        """Return a message of this kind as bytes in which `job` or `jobs` is the job, and nothing else is set."""
        known = self._of(job)
        part = known.parts.get(kind)
        if part is None:
            repeated = "jobs" in kind.DESCRIPTOR.fields_by_name
            whole = kind(jobs=[known.message]) if repeated else kind(job=known.message)
            part = known.parts[kind] = whole.SerializeToString()
        return part

    def _of(self, job: Job) -> _Known:
        known = self._known.get(job.job_id)
        if known is None or known.job is not job:
            known = self._known[job.job_id] = _Known(job)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return known


def job_message(job: Job) -> jobs_pb2.Job:
    """Return a job as its callers see it."""
    return convert_jobs.job_to_proto(job, None if job.error is None else job_errors.of_job(job.error))
