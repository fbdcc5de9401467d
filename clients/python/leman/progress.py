"""How a job's progress is shown: live on a terminal, as lines elsewhere, by a function, or not at all."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from leman._model import Job, JobEvent, JobState, Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

QUIET_SECONDS = 0.3
"""A live display appears only for jobs that take longer: others would make the screen flicker."""


class Display:
    """Shows a job. Used as a context manager; this one shows nothing."""

    tells_result = False
    """True when failed rows are told at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the display, whatever became of the job."""

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """Takes the job as it stands, and what happened since the last call."""


class CallbackDisplay(Display):
    """Calls a function with each Progress."""

    def __init__(self, callback: Callable[[Progress], object]) -> None:
        self._callback = callback

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:  # noqa: ARG002 - as in Display
        """See Display."""
        self._callback(job.progress)


class LineDisplay(Display):
    """One line for each event but changes of state, and one for the result.

    How a job failed is left to the exception, here and in the live display.
    """

    tells_result = True

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """See Display."""
        for event in events:
            if event.kind != "state":
                self._print(f"{self._name}: {event.message}")
        if is_done(job):
            self._print(result_line(job))

    def _print(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class LiveDisplay(Display):
    """A bar with the three row states, rate, time left and bottleneck; a single line once the job has ended."""

    tells_result = True

    def __init__(self, name: str, console: Console, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._name = name
        self._console = console
        self._job: Job | None = None
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
        """Takes the bar away."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._live.stop()
        if self._job is not None and is_done(self._job):
            self._console.print(_result_text(self._job), soft_wrap=True)

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:  # noqa: ARG002 - as in Display
        """See Display."""
        self._job = job

    def _show(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - only for jobs that last

        with self._lock:
            if not self._closed:
                self._live = Live(
                    console=self._console,
                    get_renderable=self._render,
                    refresh_per_second=8,
                    transient=True,
                )
                self._live.start()

    def _render(self) -> Any:
        from leman._progress_view import render  # noqa: PLC0415 - as above

        return render(self._name, self._job, self._console.width)


def make_display(
    progress: bool | Callable[[Progress], object] | None,  # noqa: FBT001 - the argument of backfill, passed on
    name: str,
    stream: TextIO | None = None,
) -> Display:
    """The display for the `progress` argument of `Table.backfill`; `stream`: standard error unless given."""
    if callable(progress):
        return CallbackDisplay(progress)
    if progress is False:
        return Display()
    target = sys.stderr if stream is None else stream
    if not target.isatty():
        return LineDisplay(name, target)
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed elsewhere

    return LiveDisplay(name, Console(file=target))


def is_done(job: Job) -> bool:
    """True for a job that has ended with its work done, failed rows or not."""
    return job.state in (JobState.DONE, JobState.DONE_WITH_ERRORS)


def result_line(job: Job) -> str:
    """How a job ended, in one line."""
    name, progress = job.target, job.progress
    if job.state is JobState.FAILED:
        why = job.error.message.splitlines()[0] if job.error is not None and job.error.message else "no reason given"
        return f"{name}: failed: {why} ({job.job_id})"
    if job.state is JobState.CANCELLED:
        kept = "is" if progress.rows_checkpointed == 1 else "are"
        return f"{name}: cancelled, {_rows(progress.rows_checkpointed)} {kept} kept ({job.job_id})"
    took = duration(progress.elapsed_seconds)
    if job.refresh_result is not None:
        text = f"{name}: {job.refresh_result.work} ({took})"
    elif progress.fragments_planned == 0:
        text = f"{name}: {job.plan_summary or 'nothing to do'} ({took})"
    else:
        text = f"{name}: {_work(progress)} in {took}"
        text += f", table version {job.table_version}" if job.table_version else ""
    if job.stale_indices:
        text += f"; {'; '.join(str(index) for index in job.stale_indices)} until optimize_indices"
    if job.state is not JobState.DONE_WITH_ERRORS:
        return text
    if progress.rows_failed:
        stay = "stays" if progress.rows_failed == 1 else "stay"
        text += f"; {_rows(progress.rows_failed)} failed and {stay} NULL: {errors_command(job)}"
        if job.failed_in and not progress.rows_failed_before:  # what a job that was not finished had found of them
            text += f", and {_where_failed(job)}"
    if progress.rows_failed_before or not progress.rows_failed:
        text += f"; {_failed_before(job)}"
    return text


def state_line(job: Job) -> str:
    """Its state, with its place where it waits for its turn: `PENDING, 3 in the queue`."""
    return f"{job.state}, {job.queue_position} in the queue" if job.queue_position else str(job.state)


def _failed_before(job: Job) -> str:
    rows = job.progress.rows_failed_before
    counted = f"{_rows(rows)} that failed before {'stays' if rows == 1 else 'stay'} NULL"
    if not job.failed_in:
        return counted
    return f"{counted}: {_where_failed(job)}"


def _where_failed(job: Job) -> str:
    others = f" (and in {len(job.failed_in) - 1} before it)" if len(job.failed_in) > 1 else ""
    return f"{errors_command(job, job.failed_in[0])}{others}"


def errors_command(job: Job, job_id: str = "") -> str:
    """The command line that lists a job's failed rows; `job_id`: those of another one in its database."""
    return f"leman errors {shlex.quote(job.database)} {job_id or job.job_id}"


def duration(seconds: float) -> str:
    """Seconds for people: `12 ms`, `1.4 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _work(progress: Progress) -> str:
    computed = f"{_rows(progress.rows_computed)} computed"
    if progress.rows_reused:
        computed += f", {progress.rows_reused:,} reused"
    return computed


def _result_text(job: Job) -> Any:
    from rich.text import Text  # noqa: PLC0415 - as above

    mark = ("✓", "green") if job.state is JobState.DONE else ("!", "yellow")
    return Text.assemble(mark, " ", result_line(job))
