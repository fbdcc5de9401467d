"""The alert rules: each sees what it is about, the first time that it happens, too."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from core.domain.job import Job, JobState
from core.domain.plan import BackfillSpec
from core.domain.refresh import RefreshSpec
from core.observability import measures
from executor.job_manager.measured_jobs import MeasuredJobs, show
from tests.unit.core.observability.page import Page, Scrape
from tests.unit.core.observability.test_dashboard import alerts

SELECTED = re.compile(r"(\w+)\{([^}]*)\}")
GROWTH = re.compile(r"(?:increase|rate)\((\w+(?:\{[^}]*\})?)\[\w+\]\)")
#: Rules about what begins with its first event: they are for what goes on.
GOES_ON = {"LemanCallsFail", "LemanCallsRefused", "LemanCommitsSlow", "LemanFragmentsRejected"}


def expression(name: str) -> str:
    (found,) = [rule["expr"] for rule in alerts() if rule["alert"] == name]
    return found


def selected(scrape: Scrape, selector: str) -> Scrape:
    """The series that a selector of Prometheus means."""
    name, matchers = SELECTED.fullmatch(selector if "{" in selector else selector + "{}").groups()
    wanted = re.findall(r'(\w+)(=~?)"([^"]*)"', matchers)
    return {
        (series, labels): value
        for (series, labels), value in scrape.items()
        if series == name
        and all(re.fullmatch(t if o == "=~" else re.escape(t), dict(labels).get(k, "")) for k, o, t in wanted)
    }


def growth(selector: str, *scrapes: Scrape) -> dict[str, float]:
    """How much series have grown between two scrapes, by the job's kind: of one that was not there nothing is said."""
    before, after = (selected(scrape, selector) for scrape in scrapes)
    grown: dict[str, float] = {}
    for series in before.keys() & after.keys():
        kind = dict(series[1])["leman_job_kind"]
        grown[kind] = grown.get(kind, 0.0) + after[series] - before[series]
    return grown


def job(kind: str) -> Job:
    spec = BackfillSpec("/lake", "t", "y") if kind == "backfill" else RefreshSpec("/lake", "v")
    return Job("j", "", JobState.RUNNING, spec, 100.0, 100.0)


@pytest.mark.parametrize("kind", ["backfill", "refresh"])
def test_the_first_job_of_an_executor_that_fails_is_told(page: Page, kind: str):
    (selector,) = GROWTH.findall(expression("LemanJobsFail"))
    jobs = MeasuredJobs()
    before = page.values()
    jobs.begin(job(kind))
    jobs.end(replace(job(kind), state=JobState.FAILED, ended_at=101.0))
    other = "refresh" if kind == "backfill" else "backfill"
    assert growth(selector, before, page.values()) == {kind: 1, other: 0}


@pytest.mark.parametrize("state", [state for state in JobState if state.terminal and state is not JobState.FAILED])
def test_another_end_is_no_failure(page: Page, state: JobState):
    (selector,) = GROWTH.findall(expression("LemanJobsFail"))
    jobs = MeasuredJobs()
    before = page.values()
    jobs.begin(job("backfill"))
    jobs.end(replace(job("backfill"), state=state, ended_at=101.0))
    assert growth(selector, before, page.values()) == {"backfill": 0, "refresh": 0}
    assert page.value("leman_job_ends_total", leman_job_state=state.value) == 1


def test_an_executor_that_has_not_finished_a_row_is_told_of_where_its_jobs_do_not_move(page: Page):
    running, moved = re.fullmatch(
        r"sum by \(instance\) \((.*)\) > 0 and sum by \(instance\) \((.*)\) == 0", expression("LemanJobsDoNotMove")
    ).groups()
    (selector,) = GROWTH.findall(moved)
    jobs, one = MeasuredJobs(), job("backfill")
    run = SimpleNamespace(status=SimpleNamespace(job=one, lost=False, metrics=SimpleNamespace(budget_used=0.0)))
    show({"j": run}, lambda: 0.0, lambda: 0)
    try:
        before = page.values()
        jobs.begin(one)
        assert sum(selected(page.values(), running).values()) == 1
        assert growth(selector, before, page.values()) == {"backfill": 0, "refresh": 0}
        jobs.look(one, replace(one.progress, rows_evaluated=1))
        assert growth(selector, before, page.values()) == {"backfill": 1, "refresh": 0}
    finally:
        for gauge in (measures.JOBS, measures.JOB_QUEUE, measures.STALLS, measures.LEASE_AGE, measures.ERROR_BUDGET):
            gauge.show(None)


@pytest.mark.parametrize("rule", [rule for rule in alerts() if GROWTH.search(rule["expr"])], ids=lambda r: r["alert"])
def test_what_a_rule_counts_is_there_before_it_happens_or_the_rule_is_for_what_goes_on(page: Page, rule: dict):
    MeasuredJobs()
    there = all(selected(page.values(), selector) for selector in GROWTH.findall(rule["expr"]))
    assert there == (rule["alert"] not in GOES_ON)
    assert there or rule["for"]
