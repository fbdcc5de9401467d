"""How a job's progress is shown: live on a terminal, as lines elsewhere, by a function, or not at all."""

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
    result_line,
    state_line,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

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
"""A live display appears only for jobs that take longer: others would make the screen flicker."""


_RENEWAL_SECONDS = 0.25


class Display:
    """Shows a job. Used as a context manager; this one shows nothing."""

    tells_result = False
    """True when failed rows are told at the end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display, whatever became of the job."""

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """Take the job as it stands, and what happened since the last call."""


class CallbackDisplay(Display):
    """Calls a function with each Progress."""

    def __init__(self, callback: Callable[[Progress], object]) -> None:
        self._callback = callback

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:  # noqa: ARG002 - as in Display
        """See Display."""
        self._callback(job.progress)


class LineDisplay(Display):
    """One line for each event but changes of state, and one for the result. A job that plans again and finds the same
    says so once.

    How a job failed is left to the exception, here and in the live display.
    """

    tells_result = True

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._stream = stream
        self._told: dict[str, str] = {}

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """See Display."""
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
    """A bar with the three row states, rate, time left and bottleneck, and what the job waits for, until rows move
    again; a single line once the job has ended. What a job lacks (events of kind `resources`) has a line that stays."""

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
        """Take the bar away."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
            if self._live is not None:
                self._live.stop()
        if self._job is not None and is_done(self._job):
            self._console.print(_result_text(self._job), soft_wrap=True)

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """See Display."""
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
                    console=self._console,
                    get_renderable=self._render,
                    refresh_per_second=8,
                    transient=True,
                )
                self._live.start()

    def _render(self) -> Any:
        from leman._progress_view import render  # noqa: PLC0415 - as above

        return render(self._name, self._job, self._console.width, self._wait)


class NotebookDisplay(Display):
    """A cell's output that is renewed while the job runs: HTML, or a line of text where a page shows no HTML. What a
    job lacks has a line that stays."""

    tells_result = True

    def __init__(self) -> None:
        self._handle: Any = None
        self._job: Job | None = None
        self._next = time.monotonic() + QUIET_SECONDS

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Show how it ended; how it failed is left to the exception."""
        if self._job is not None and (is_done(self._job) or self._handle is not None):
            self._show(self._job)

    def update(self, job: Job, events: Iterable[JobEvent]) -> None:
        """See Display."""
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
    """The display for the `progress` argument of `Table.backfill`; `stream`: standard error unless given."""
    if callable(progress):
        return CallbackDisplay(progress)
    if progress is False:
        return Display()
    if stream is None and _in_notebook():
        return NotebookDisplay()
    target = sys.stderr if stream is None else stream
    if not target.isatty():
        return LineDisplay(name, target)
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not needed elsewhere

    return LiveDisplay(name, Console(file=target))


def _result_text(job: Job) -> Any:
    from rich.text import Text  # noqa: PLC0415 - as above

    mark = ("✓", "green") if job.state is JobState.DONE else ("!", "yellow")
    return Text.assemble(mark, " ", result_line(job))
