"""The live display of one job, as a rich renderable."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from leman._job_model import Job, JobState, Progress, duration, queue_line

_BAR_WIDTHS = (8, 40)
_STALLS_SHOWN = 3
_STOPPING = {JobState.CANCELLING: "cancelling", JobState.PAUSING: "pausing", JobState.PAUSED: "paused"}
_STYLES = {"committed": "green", "ready to commit": "yellow", "checkpointed": "blue", "computed": "cyan"}


def render(name: str, job: Job | None, width: int, wait: str = "") -> Group:
    """Bar, counts of the three row states, speed, what does not move, and what the job waits for: lines of at most
    `width` characters."""
    if job is not None and job.queue_position:
        waits = f"  waits for its turn, {queue_line(job)}"
        return Group(_line().append(name, "bold").append(waits))
    if job is None or job.state in (JobState.PENDING, JobState.PLANNING):
        return Group(_line().append(name, "bold").append("  planning"))
    progress = job.progress
    states = row_states(progress)
    done = sum(states.values())
    share = done / progress.rows_planned if progress.rows_planned else 0.0
    tail = f"  {min(share, 1.0):4.0%}  {done:,} of {progress.rows_planned:,} rows"
    smallest, largest = _BAR_WIDTHS
    bar_width = max(smallest, min(largest, width - len(name) - 2 - len(tail)))
    first = _line().append(name, "bold").append("  ").append(_bar(progress, states, bar_width)).append(tail)
    second = _line().append("  ")
    for state, rows in states.items():
        second.append("■ ", _STYLES[state]).append(f"{state} {rows:,}   ")
    if progress.rows_failed:
        second.append(f"✗ failed {progress.rows_failed:,}", "red")
    stalls = [_line().append(f"  {stall}", "yellow") for stall in job.stalls[:_STALLS_SHOWN]]
    if wait and not stalls:
        stalls = [_line().append(f"  {wait}", "yellow")]
    return Group(first, second, _line().append("  " + _speed(job), "dim"), *stalls)


def _line() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")


def row_states(progress: Progress) -> dict[str, int]:
    """Rows by the state that they are in now; a row is in one of them. `computed`: no checkpoint has it yet."""
    committed, ready = progress.rows_committed, progress.rows_ready_to_commit
    checkpointed = max(0, progress.rows_checkpointed - committed - ready)
    safe = committed + ready + checkpointed
    return {
        "committed": committed,
        "ready to commit": ready,
        "checkpointed": checkpointed,
        "computed": max(0, min(progress.rows_evaluated, progress.rows_planned) - safe),
    }


def _bar(progress: Progress, states: dict[str, int], width: int) -> Text:
    bar = Text()
    filled = rows_so_far = 0
    total = max(progress.rows_planned, sum(states.values()), 1)
    for state, rows in states.items():
        rows_so_far += rows
        until = round(width * rows_so_far / total)
        bar.append("━" * (until - filled), _STYLES[state])
        filled = until
    bar.append("━" * (width - filled), "bright_black")
    return bar


def _speed(job: Job) -> str:
    progress = job.progress
    parts = [f"{progress.rows_per_second:,.0f} rows/s", f"{duration(progress.elapsed_seconds)} so far"]
    if progress.eta_seconds:
        parts.append(f"{duration(progress.eta_seconds)} left")
    if progress.bottleneck:
        parts.append(f"bound by {progress.bottleneck}")
    if job.state in _STOPPING:
        parts.append(_STOPPING[job.state])
    return " · ".join(parts)
