"""Answers about jobs are made once for each state of a job, however many ask."""

from dataclasses import replace

from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from executor import job_service
from executor.job_service import _KnownAnswers

RUNNING = Job("job-1", "r", JobState.RUNNING, BackfillSpec("/d", "t", "y"), 1.0, 1.0)
DONE = replace(RUNNING, state=JobState.DONE, updated_at=2.0)


def test_a_state_of_a_job_has_one_answer():
    known = _KnownAnswers()
    assert known.answer(RUNNING) is known.answer(RUNNING)
    assert known.answer(replace(RUNNING)) is not known.answer(RUNNING)
    first = known.answer(DONE)
    assert known.answer(DONE) is first
    assert first.job.update_time.seconds == 2


def test_another_record_of_the_same_job_is_answered_as_it_is():
    known = _KnownAnswers()
    known.answer(DONE)
    assert known.answer(replace(DONE, table_version=7)).job.table_version == 7


def test_the_oldest_answers_go_first(monkeypatch):
    monkeypatch.setattr(job_service, "_ANSWERS_KEPT", 2)
    known = _KnownAnswers()
    jobs = [replace(DONE, job_id=f"job-{n}") for n in range(3)]
    answers = [known.answer(job) for job in jobs]
    assert known.answer(jobs[2]) is answers[2]
    assert known.answer(jobs[0]) is not answers[0]
