"""GetJob answers anew about running jobs and keeps what it said about ended ones."""

from dataclasses import replace

from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from executor import job_service
from executor.job_service import _EndedJobs

RUNNING = Job("job-1", "r", JobState.RUNNING, BackfillSpec("/d", "t", "y"), 1.0, 1.0)
DONE = replace(RUNNING, state=JobState.DONE, updated_at=2.0)


def test_an_ended_job_has_one_answer():
    ended = _EndedJobs()
    assert ended.answer(RUNNING) is not ended.answer(RUNNING)
    first = ended.answer(DONE)
    assert ended.answer(DONE) is first
    assert first.job.update_time.seconds == 2


def test_another_record_of_the_same_job_is_answered_as_it_is():
    ended = _EndedJobs()
    ended.answer(DONE)
    assert ended.answer(replace(DONE, table_version=7)).job.table_version == 7


def test_the_oldest_answers_go_first(monkeypatch):
    monkeypatch.setattr(job_service, "_ANSWERS_KEPT", 2)
    ended = _EndedJobs()
    jobs = [replace(DONE, job_id=f"job-{n}") for n in range(3)]
    answers = [ended.answer(job) for job in jobs]
    assert ended.answer(jobs[2]) is answers[2]
    assert ended.answer(jobs[0]) is not answers[0]
