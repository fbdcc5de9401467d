"""The alert rules: each sees what it is about, the first time that it happens, too."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
import typer
from structlog.testing import capture_logs
from typer.core import TyperGroup

from leman.cli import app
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.view import RefreshSpec
from leman_core.settings import Settings
from leman_core.telemetry import instruments
from leman_executor.manager.job_store import RunningJobs
from leman_executor.manager.job_telemetry import MeasuredJobs, show_job_gauges
from tests.unit.core.observability.page import Page, Scrape
from tests.unit.core.observability.test_dashboard import FOLDER, alerts
from tests.unit.executor.job_manager.test_job_manager import lives

SELECTED = re.compile(r"(\w+)\{([^}]*)\}")
GROWTH = re.compile(r"(?:increase|rate)\((\w+(?:\{[^}]*\})?)\[\w+\]\)")
COMMAND = re.compile(r"`(leman [^`]*)`")
ROOT = FOLDER.parents[1]
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
    show_job_gauges({"j": run}, lambda: 0.0, lambda: 0)
    try:
        before = page.values()
        jobs.begin(one)
        assert sum(selected(page.values(), running).values()) == 1
        assert growth(selector, before, page.values()) == {"backfill": 0, "refresh": 0}
        jobs.look(one, replace(one.progress, rows_evaluated=1))
        assert growth(selector, before, page.values()) == {"backfill": 1, "refresh": 0}
    finally:
        for gauge in (
            instruments.JOBS,
            instruments.JOB_QUEUE,
            instruments.STALLS,
            instruments.LEASE_AGE,
            instruments.ERROR_BUDGET,
        ):
            gauge.show(None)


@pytest.mark.parametrize("rule", [rule for rule in alerts() if GROWTH.search(rule["expr"])], ids=lambda r: r["alert"])
def test_what_a_rule_counts_is_there_before_it_happens_or_the_rule_is_for_what_goes_on(page: Page, rule: dict):
    MeasuredJobs()
    there = all(selected(page.values(), selector) for selector in GROWTH.findall(rule["expr"]))
    assert there == (rule["alert"] not in GOES_ON)
    assert there or rule["for"]


def commands() -> list[str]:
    """All that the rules and their page say to anyone who is paged."""
    texts = [" ".join(rule["annotations"].values()) for rule in alerts()]
    heads = re.sub(r"\n# ?", " ", (FOLDER / "alerts.yaml").read_text().split("\ngroups:")[0])
    page = (ROOT / "docs/observability.md").read_text().split("To find the job of an alert")[1].split("\n\n")[0]
    return sorted({" ".join(found.split()) for text in (*texts, heads, page) for found in COMMAND.findall(text)})


@pytest.mark.parametrize("said", commands())
def test_a_command_that_somebody_is_told_to_say_is_one(said: str):
    command, (_, *words) = typer.main.get_command(app), shlex.split(said)
    while isinstance(command, TyperGroup):
        name = words.pop(0)
        command = command.get_command(None, name)
        assert command is not None, f"there is no command {name}"
    with command.make_context(name, words) as given:  # it raises what the shell would get
        assert given.params["endpoint"] == "HOST:PORT", "alerts are about services that run elsewhere"
        states = given.params.get("state") or ()
        assert {JobState[state] for state in states} <= {JobState.RUNNING, JobState.FAILED}


def test_all_rules_about_jobs_say_how_to_find_them():
    about = {"LemanJobsFail", "LemanJobsDoNotMove", "LemanJobStalled", "LemanErrorBudgetNearlyUsed"}
    assert {rule["alert"] for rule in alerts() if COMMAND.search(rule["annotations"]["description"])} == about


def test_a_job_that_another_executor_has_is_measured_there(page: Page):
    """Also one that was about to be ended here, and never ran."""
    running = RunningJobs()
    before = page.values()
    running.measured.begin(job("backfill"))
    running.lose(job("backfill").key)
    running.measured.end(replace(job("backfill"), state=JobState.FAILED, ended_at=101.0))
    (selector,) = GROWTH.findall(expression("LemanJobsFail"))
    assert growth(selector, before, page.values()) == {"backfill": 0, "refresh": 0}


def test_the_log_names_the_job_that_failed_and_its_database(tmp_path):
    (tmp_path / "_leman").mkdir()

    def told() -> list[dict[str, object]]:
        return [line for line in lines if line["event"] == "a job failed"]

    with capture_logs() as lines:  # a look at the history may find the end before its writer knows that it is written
        job_id = lives(tmp_path, ["die"] * Settings().executor.job_attempts_max, until=lambda: bool(told())).job_id
    where = {"job_id": job_id, "database": str(tmp_path)}
    assert told() == [{"event": "a job failed", "log_level": "warning", "reason": "EXECUTOR_LOST", **where}]
    assert any("event_kind" in line for line in lines)
    assert all(line.items() >= where.items() for line in lines if "event_kind" in line)
