"""Answers about jobs are made once for each state of a job, however many ask."""

from dataclasses import replace

import pytest

from leman.v1.jobs_pb2 import GetJobResponse, ListJobsResponse
from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_core.server.call_streams import preserialized
from leman_executor.api import job_service
from leman_executor.api.job_service import JobMessageCache

RUNNING = Job("job-1", "r", JobState.RUNNING, BackfillSpec("/d", "t", "y"), 1.0, 1.0)
DONE = replace(RUNNING, state=JobState.DONE, updated_at=2.0)


def test_a_state_of_a_job_has_one_answer():
    answers = JobMessageCache()
    first = answers.part(GetJobResponse, RUNNING)
    assert answers.part(GetJobResponse, RUNNING) is first
    assert answers.part(GetJobResponse, replace(RUNNING)) is not first
    done = answers.part(GetJobResponse, DONE)
    assert answers.part(GetJobResponse, DONE) is done
    assert GetJobResponse.FromString(done).job.update_time.seconds == 2


def test_another_record_of_the_same_job_is_answered_as_it_is():
    answers = JobMessageCache()
    answers.part(GetJobResponse, DONE)
    other = GetJobResponse.FromString(answers.part(GetJobResponse, replace(DONE, table_version=7)))
    assert other.job.table_version == 7


@pytest.mark.parametrize("state", JobState)
def test_only_a_job_that_runs_has_time_left(state):
    """Its history has what was said of it as it ran."""
    job = replace(RUNNING, state=state, progress=Progress(rows_planned=10, eta_seconds=2.5))
    progress = job_service.job_message(job).progress
    assert progress.rows_planned == 10
    assert progress.HasField("remaining_duration") is (state is JobState.RUNNING)


def test_a_page_is_made_of_parts():
    answers = JobMessageCache()
    jobs = [replace(DONE, job_id=f"job-{n}") for n in range(3)]
    rest = ListJobsResponse(next_page_token="token", total_size=7)
    parts = [answers.part(ListJobsResponse, job) for job in jobs]
    page = ListJobsResponse.FromString(preserialized(ListJobsResponse, [*parts, rest.SerializeToString()]))
    assert [job.job_id for job in page.jobs] == ["job-0", "job-1", "job-2"]
    assert (page.next_page_token, page.total_size) == ("token", 7)
    alone = GetJobResponse.FromString(answers.part(GetJobResponse, jobs[1]))
    assert alone.job == page.jobs[1]


def test_the_oldest_answers_go_first(monkeypatch):
    monkeypatch.setattr(job_service, "_KEPT", 2)
    answers = JobMessageCache()
    jobs = [replace(DONE, job_id=f"job-{n}") for n in range(3)]
    made = [answers.part(GetJobResponse, job) for job in jobs]
    assert answers.part(GetJobResponse, jobs[2]) is made[2]
    assert answers.part(GetJobResponse, jobs[0]) is not made[0]
