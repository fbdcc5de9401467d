"""The live display of one job, as a rich renderable."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from leman._model import Job, JobState, Progress
from leman.progress import duration

_BAR_WIDTH = 40
_STYLES = {"committed": "green", "ready to commit": "yellow", "checkpointed": "blue"}


def render(name: str, job: Job | None) -> Group:
    """Bar, counts of the three row states, speed."""
    if job is None or job.state in (JobState.PENDING, JobState.PLANNING):
        return Group(Text.assemble((name, "bold"), "  planning"))
    progress = job.progress
    states = row_states(progress)
    done = sum(states.values())
    share = done / progress.rows_planned if progress.rows_planned else 0.0
    first = Text.assemble((name, "bold"), "  ", _bar(progress, states), f"  {min(share, 1.0):4.0%}  ")
    first.append(f"{done:,} of {progress.rows_planned:,} rows")
    second = Text("  ")
    for state, rows in states.items():
        second.append("■ ", _STYLES[state])
        second.append(f"{state} {rows:,}   ")
    if progress.rows_failed:
        second.append(f"✗ failed {progress.rows_failed:,}", "red")
    return Group(first, second, Text("  " + _speed(job), style="dim"))


def row_states(progress: Progress) -> dict[str, int]:
    """Rows by the state that they are in now; a row is in one of the three."""
    committed, ready = progress.rows_committed, progress.rows_ready_to_commit
    return {
        "committed": committed,
        "ready to commit": ready,
        "checkpointed": max(0, progress.rows_checkpointed - committed - ready),
    }


def _bar(progress: Progress, states: dict[str, int]) -> Text:
    bar = Text()
    filled = rows_so_far = 0
    total = max(progress.rows_planned, sum(states.values()), 1)
    for state, rows in states.items():
        rows_so_far += rows
        until = round(_BAR_WIDTH * rows_so_far / total)
        bar.append("━" * (until - filled), _STYLES[state])
        filled = until
    bar.append("━" * (_BAR_WIDTH - filled), "bright_black")
    return bar


def _speed(job: Job) -> str:
    progress = job.progress
    parts = [f"{progress.rows_per_second:,.0f} rows/s", f"{duration(progress.elapsed_seconds)} so far"]
    if progress.eta_seconds:
        parts.append(f"{duration(progress.eta_seconds)} left")
    if progress.bottleneck:
        parts.append(f"bound by {progress.bottleneck}")
    if job.state is JobState.CANCELLING:
        parts.append("cancelling")
    return " · ".join(parts)
