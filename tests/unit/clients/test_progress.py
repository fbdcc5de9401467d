"""What is shown of a job."""

from __future__ import annotations

import dataclasses
import io
import re
import threading

import pytest
from google.protobuf.duration_pb2 import Duration
from rich.console import Console

import leman
from leman._wire import conversions
from leman.progress import (
    CallbackDisplay,
    Display,
    LineDisplay,
    LiveDisplay,
    NotebookDisplay,
    duration,
    make_display,
    render,
    result_line,
    row_states,
)
from leman.v1 import jobs_pb2
from tests.unit.clients.fake_services import make_job, status

HALF = {
    "rows_total": 1200,
    "rows_reused": 200,
    "rows_planned": 1000,
    "rows_checkpointed": 500,
    "rows_ready_to_commit": 100,
    "rows_committed": 250,
    "rows_evaluated": 500,
    "rows_computed": 500,
    "rows_failed": 3,
    "rows_per_second": 250.0,
    "remaining_duration": Duration(seconds=2),
    "elapsed_duration": Duration(seconds=2),
    "bottleneck": jobs_pb2.Progress.BOTTLENECK_UDF,
    "fragments_planned": 4,
}


def job(state="RUNNING", progress=HALF, **fields):
    return conversions.job(make_job("job-1", state, progress=dict(progress), **fields))


def event(message):
    return conversions.event(jobs_pb2.JobEvent(sequence=1, kind=jobs_pb2.JobEvent.KIND_COMMIT, message=message))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(renderable, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(renderable)
    return console.file.getvalue()


def test_a_row_is_in_one_of_four_states():
    states = {"committed": 250, "ready to commit": 100, "checkpointed": 150}
    assert row_states(job().progress) == {**states, "computed": 0}
    ahead = dataclasses.replace(job().progress, rows_evaluated=600)
    assert row_states(ahead) == {**states, "computed": 100}


def test_the_bar_moves_before_the_first_checkpoint():
    begun = leman.Progress(rows_planned=1000, rows_evaluated=300)
    assert row_states(begun) == {"committed": 0, "ready to commit": 0, "checkpointed": 0, "computed": 300}
    again = dataclasses.replace(begun, rows_evaluated=5000)  # rows that were lost are computed again
    assert sum(row_states(again).values()) == 1000


def test_view_has_states_speed_and_bottleneck():
    text = shown(render("docs.n", job(), 120))
    assert "50%  500 of 1,000 rows" in text
    assert "committed 250" in text
    assert "ready to commit 100" in text
    assert "checkpointed 150" in text
    assert "failed 3" in text
    assert "250 rows/s · 2.0 s so far · 2.0 s left · bound by udf" in text


@pytest.mark.parametrize(
    ("state", "told"), [("PAUSING", "pausing"), ("PAUSED", "paused"), ("CANCELLING", "cancelling")]
)
def test_view_tells_of_a_job_that_was_asked_to_stop(state, told):
    text = shown(render("docs.n", job(state), 120))
    assert "committed 250" in text
    assert text.splitlines()[2].endswith(told)


def test_bar_is_as_long_whatever_the_counts():
    bars = [
        shown(render("n", job(progress={**HALF, **change}), 200)).count("━")
        for change in ({}, {"rows_committed": 1}, {"rows_planned": 0}, {"rows_committed": 5000})
    ]
    assert len(set(bars)) == 1


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_view_has_three_lines_on_any_terminal(width):
    lines = shown(render("a long name of a column", job(), width), width).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width


def test_view_tells_what_does_not_move():
    stall = jobs_pb2.Stall(worker="worker 1", message="worker 1 has not moved for 30 s at rows 0 to 9 of fragment 3")
    text = shown(render("docs.n", job(stalls=[stall]), 120))
    assert "  worker 1 has not moved for 30 s at rows 0 to 9 of fragment 3" in text.splitlines()


def test_view_before_the_plan():
    assert "planning" in shown(render("docs.n", None, 80))
    assert "planning" in shown(render("docs.n", job("PLANNING"), 80))
    assert "3 in the queue" in shown(render("docs.n", job("PENDING", queue_position=3), 80))


def test_fast_job_leaves_one_line_and_no_bar():
    console = Console(file=Terminal(), force_terminal=True, width=120)
    with LiveDisplay("docs.n", console, quiet_seconds=60) as display:
        display.update(job(), [])
        display.update(job("DONE", table_version=9), [])
    text = console.file.getvalue()
    assert "━" not in text
    assert "\x1b[?25l" not in text  # the cursor was never hidden
    assert text.count("\n") == 1
    assert "500 rows computed, 200 reused in 2.0 s, table version 9" in text


def test_what_a_job_waits_for_is_shown_until_rows_move():
    wait = conversions.event(jobs_pb2.JobEvent(sequence=1, kind=jobs_pb2.JobEvent.KIND_WAIT, message="Spark starts"))
    with LiveDisplay("docs.n", Console(file=Terminal(), width=120), quiet_seconds=60) as display:
        display.update(job(progress={}), [wait])
        display.update(job(progress={}), [])
        assert shown(display._render()).splitlines()[-1] == "  Spark starts"
        display.update(job(), [])
        assert "Spark" not in shown(display._render())


@pytest.mark.parametrize("quiet_seconds", [0, 60])
def test_what_a_job_lacks_has_a_line_that_stays(quiet_seconds, capsys):
    """Such as a job with environment variables, which does not resume by itself after a restart of all services."""
    lacks = conversions.event(
        jobs_pb2.JobEvent(sequence=1, kind=jobs_pb2.JobEvent.KIND_RESOURCES, message="[KEY] is lost")
    )
    console = Console(file=Terminal(), force_terminal=True, width=120)
    with LiveDisplay("docs.n", console, quiet_seconds=quiet_seconds) as display:
        display.update(job(), [lacks])
        display.update(job("DONE"), [])
    assert console.file.getvalue().count("docs.n: [KEY] is lost") == 1
    NotebookDisplay().update(job(), [lacks])
    assert capsys.readouterr().out.endswith(": [KEY] is lost\n")


def test_slow_job_shows_a_bar_and_takes_it_away():
    painted = threading.Event()

    class Watched(Terminal):
        def write(self, text):
            if "━" in text:
                painted.set()
            return super().write(text)

    console = Console(file=Watched(), force_terminal=True, width=120)
    with LiveDisplay("docs.n", console, quiet_seconds=0) as display:
        display.update(job(), [])
        assert painted.wait(10)
        display.update(job("DONE"), [])
    assert "rows computed" in console.file.getvalue().splitlines()[-1]


def test_live_display_ends_when_the_caller_fails():
    console = Console(file=Terminal(), force_terminal=True)
    with pytest.raises(RuntimeError), LiveDisplay("docs.n", console, quiet_seconds=0):
        raise RuntimeError
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer)]


def test_lines_when_piped():
    stream = io.StringIO()
    display = make_display(None, "docs.n", stream)
    assert isinstance(display, LineDisplay)
    with display:
        display.update(job(), [event("4 of 4 fragments to do"), event("committed 2 fragments")])
        display.update(job(), [])
        display.update(job(), [event("committed 2 fragments")])  # the same again, after another plan
        display.update(job("DONE", table_version=9), [])
    assert stream.getvalue().splitlines() == [
        "docs.n: 4 of 4 fragments to do",
        "docs.n: committed 2 fragments",
        "docs.n: 500 rows computed, 200 reused in 2.0 s, table version 9",
    ]


def test_choice_of_display():
    assert isinstance(make_display(None, "n", Terminal()), LiveDisplay)
    assert isinstance(make_display(True, "n", io.StringIO()), LineDisplay)
    assert isinstance(make_display(print, "n", Terminal()), CallbackDisplay)
    assert type(make_display(False, "n", Terminal())) is Display


@pytest.mark.parametrize(
    ("ended", "line"),
    [
        (job("CANCELLED"), r"docs\.n: cancelled, 500 rows are kept \(job-1\)"),
        (job("DONE_WITH_ERRORS"), r".*; 3 rows failed and stay NULL: leman errors db job-1"),
        (
            job("DONE_WITH_ERRORS", failed_in=["job-9"]),
            r".*; 3 rows failed and stay NULL: leman errors db job-1, and leman errors db job-9",
        ),
        (
            job("DONE_WITH_ERRORS", {**HALF, "rows_failed": 1, "rows_computed": 1}),
            r".*: 1 row computed, .*; 1 row failed and stays NULL: leman errors db job-1",
        ),
        (
            job("DONE_WITH_ERRORS", {**HALF, "rows_evaluated": 9, "rows_failed": 9, "rows_computed": 0}),
            r".*: 0 rows computed, .*; all of 9 rows failed and stay NULL: leman errors db job-1",
        ),
        (
            job("DONE", {**HALF, "rows_checkpointed": 1500, "rows_evaluated": 1, "rows_computed": 1}, attempt=3),
            r".*: 1 row computed since the job resumed, 1,499 stored before, 200 reused in 2.0 s.*",
        ),
        (job("DONE", attempt=2), r".*: 500 rows computed, 200 reused in 2.0 s.*"),
        (
            job("DONE", {**HALF, "input_rows_evaluated": 20}),
            r".*: 500 rows computed, 200 reused, 20 rows of inputs computed first, in 2.0 s.*",
        ),
        (
            job(
                "DONE_WITH_ERRORS",
                {"rows_failed_before": 4},
                plan_summary="nothing to do",
                failed_in=["job-9", "job-8"],
            ),
            r".*nothing to do .*; 4 rows that failed before stay NULL: leman errors db job-9 \(and in 1 before it\)",
        ),
        (job("FAILED", error=status("INTERNAL", "X", "one\ntwo")), r"docs\.n: failed: one \(job-1\)"),
    ],
)
def test_result_lines(ended, line):
    assert re.fullmatch(line, result_line(ended))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (1.44, "1.4 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
