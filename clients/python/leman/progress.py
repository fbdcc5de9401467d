"""Displays of a job's progress: live on a terminal, as lines elsewhere, through a function, or none.

rich is slow to import, so it is imported only to show progress on a terminal.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from leman._job_model import (
    Job,
    JobEvent,
    JobState,
    Progress,
    duration,
    errors_command,
    is_done,
    queue_line,
    result_line,
    state_line,
)

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

__all__ = [
    "CallbackDisplay",
    "Display",
    "LineDisplay",
    "LiveDisplay",
    "NotebookDisplay",
    "duration",
    "errors_command",
    "is_done",
    "make_display",
    "result_line",
    "state_line",
]

QUIET_SECONDS = 0.3
"""A live display appears only for jobs that take longer than this, so that the screen does not flicker."""

_RENEWAL_SECONDS = 0.25
_BAR_WIDTHS = (8, 40)
_STALLS_SHOWN = 3
_STOPPING = {JobState.CANCELLING: "cancelling", JobState.PAUSING: "pausing", JobState.PAUSED: "paused"}
_STYLES = {"committed": "green", "ready to commit": "yellow", "checkpointed": "blue", "computed": "cyan"}


class Display:
    """Shows a job's progress. Used as a context manager. This base class shows nothing."""

    tells_result = False
    """True if the display reports failed rows at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display, even if the job failed."""

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """Show the job's current state, and the events since the last call."""


class CallbackDisplay(Display):
    """Calls a function with each Progress."""

    def __init__(self, callback: Callable[[Progress], object]) -> None:
        self._callback = callback

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:  # noqa: ARG002 - as in Display
        self._callback(job.progress)


class LineDisplay(Display):
    """Prints a line for each event, except changes of state, and one for the result.

    If a job makes the same plan repeatedly, the plan is printed once. The reason of a failure is not printed, here or
    in the live display, because the exception contains it.
    """

    tells_result = True

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream
        self._told: dict[str, str] = {}

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        for event in events:
            if event.kind != "state" and self._told.get(event.kind) != event.message:
                self._told[event.kind] = event.message
                self._print(f"{self._name}: {event.message}")
        if is_done(job):
            self._print(result_line(job))

    def _print(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class LiveDisplay(Display):
    """A bar with the three row states, rate, time left and bottleneck. When the job ends, a single line replaces it.

    While the job makes no progress, the display shows what the job is waiting for. Missing resources (events of kind
    `resources`) get a line that stays.
    """

    tells_result = True

    def __init__(self, name: str, console: Console, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._name = name
        self._console = console
        self._job: Job | None = None
        self._wait = ""
        self._rows = 0
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._timer = threading.Timer(quiet_seconds, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._live.stop()
        if self._job is not None and is_done(self._job):
            self._console.print(_result_text(self._job), soft_wrap=True)

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        if job.progress.rows_evaluated != self._rows:
            self._rows, self._wait = job.progress.rows_evaluated, ""
        for event in events:
            if event.kind == "wait":
                self._wait = event.message
            elif event.kind == "resources":
                self._console.print(f"{self._name}: {event.message}", soft_wrap=True, markup=False, highlight=False)
        self._job = job

    def _show(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - only for jobs that last

        with self._lock:
            if not self._closed:
                self._live = Live(
                    console=self._console, get_renderable=self._render, refresh_per_second=8, transient=True
                )
                self._live.start()

    def _render(self) -> Group:
        return render(self._name, self._job, self._console.width, self._wait)


class NotebookDisplay(Display):
    """Renews a cell's output while the job runs: HTML, or a line of text where a page shows no HTML.

    Missing resources have a line that stays.
    """

    tells_result = True

    def __init__(self) -> None:
        self._handle: Any = None
        self._job: Job | None = None
        self._next = time.monotonic() + QUIET_SECONDS

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show how the job ended; the exception says how it failed."""
        if self._job is not None and (is_done(self._job) or self._handle is not None):
            self._show(self._job)

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        for event in events:
            if event.kind == "resources":
                sys.stdout.write(f"{job.target}: {event.message}\n")
        self._job = job
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _RENEWAL_SECONDS
            self._show(job)

    def _show(self, job: Job) -> None:
        from IPython.display import display  # noqa: PLC0415 - there is one: this process is a notebook's

        progress = job.progress
        text = f"{job.target}: {state_line(job)}, {progress.rows_checkpointed:,} of {progress.rows_planned:,} rows"
        bundle = {"text/plain": result_line(job) if job.state.terminal else text, "text/html": job._repr_html_()}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def _in_notebook() -> bool:
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def make_display(
    progress: bool | Callable[[Progress], object] | None,  # noqa: FBT001 - the argument of backfill, passed on
    name: str,
    stream: TextIO | None = None,
) -> Display:
    """Return the display for the `progress` argument of `Table.backfill`. `stream`: standard error by default."""
    if callable(progress):
        return CallbackDisplay(progress)
    if progress is False:
        return Display()
    if stream is None and _in_notebook():
        return NotebookDisplay()
    target = sys.stderr if stream is None else stream
    if not target.isatty():
        return LineDisplay(name, target)
    from rich.console import Console  # noqa: PLC0415

    return LiveDisplay(name, Console(file=target))


def _result_text(job: Job) -> Text:
    from rich.text import Text  # noqa: PLC0415

    mark = ("✓", "green") if job.state is JobState.DONE else ("!", "yellow")
    return Text.assemble(mark, " ", result_line(job))


def render(name: str, job: Job | None, width: int, wait: str = "") -> Group:
    """Return the live display of a job, with lines of at most `width` characters.

    It shows a bar, the counts of the row states, the speed, and what the job waits for or what makes no progress.
    """
    from rich.console import Group  # noqa: PLC0415

    if job is not None and job.queue_position:
        return Group(_line(name, f"  waits for its turn, {queue_line(job)}"))
    if job is None or job.state in (JobState.PENDING, JobState.PLANNING):
        return Group(_line(name, "  planning"))
    progress = job.progress
    states = row_states(progress)
    done = sum(states.values())
    share = done / progress.rows_planned if progress.rows_planned else 0.0
    tail = f"  {min(share, 1.0):4.0%}  {done:,} of {progress.rows_planned:,} rows"
    smallest, largest = _BAR_WIDTHS
    bar_width = max(smallest, min(largest, width - len(name) - 2 - len(tail)))
    first = _line(name, "  ").append(_bar(progress, states, bar_width)).append(tail)
    second = _line("", "  ")
    for state, rows in states.items():
        second.append("■ ", _STYLES[state]).append(f"{state} {rows:,}   ")
    if progress.rows_failed:
        second.append(f"✗ failed {progress.rows_failed:,}", "red")
    waits = job.stalls[:_STALLS_SHOWN] or ([wait] if wait else [])
    stalls = [_line("", "").append(f"  {each}", "yellow") for each in waits]
    return Group(first, second, _line("", "").append("  " + _speed(job), "dim"), *stalls)


def _line(name: str, text: str) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(no_wrap=True, overflow="ellipsis").append(name, "bold").append(text)


def row_states(progress: Progress) -> dict[str, int]:
    """Count rows by their current state, each row once.

    `computed` counts rows that are not in a checkpoint yet.
    """
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
    from rich.text import Text  # noqa: PLC0415

    bar = Text()
    filled = rows_so_far = 0
    total = max(progress.rows_planned, sum(states.values()), 1)
    for state, rows in states.items():
        rows_so_far += rows
        until = round(width * rows_so_far / total)
        bar.append("━" * (until - filled), _STYLES[state])
        filled = until
    return bar.append("━" * (width - filled), "bright_black")


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
