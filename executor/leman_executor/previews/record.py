"""The record of one preview: what its processes said of the rows, and what is to be done next. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

import pyarrow as pa

from leman_core.model import errors as error_tree
from leman_core.model.errors import FailedPrecondition, LemanError
from leman_core.model.udf import ErrorAction, UdfDefinition, UdfKind
from leman_core.model.work import RowFailure
from leman_core.storage.concatenation import joined
from leman_executor.scheduling.poison_rows import TIMEOUT_NAMES, WORKER_LOST_NAMES
from leman_executor.worker.preview_messages import (
    FAILED,
    FAILS,
    Attempted,
    Called,
    Calling,
    Overran,
    PlacedRow,
    PreviewMessage,
    Printed,
    Refused,
    RowCost,
    Rows,
    SetUp,
)
from leman_executor.worker.preview_values import batch_of

#: No more attempts are left: what a row meets now holds.
_LAST_ATTEMPT = 1 << 30


@dataclass(frozen=True, slots=True)
class TriedRow:
    """A row and what became of it; `attempted` None: the function has not come back with it."""

    place: PlacedRow
    attempted: Attempted | None = None
    #: None: the function was not called with it.
    seconds: float | None = None


@dataclass(slots=True)
class PreviewRecord:
    """What is known of a preview while it runs."""

    udf: UdfDefinition
    clock: Callable[[], float] = monotonic
    found: Rows | None = None
    set_up_seconds: float | None = None
    printed: str = ""
    printed_bytes: int = 0
    timed_out: bool = False
    #: The next row that the function is to be called with, and up to which one row at a time.
    next_row: int = 0
    alone_before: int = 0
    _tried: dict[int, tuple[Attempted, float]] = field(default_factory=dict)
    _values: dict[int, pa.Array] = field(default_factory=dict)
    _calls: list[tuple[int, float]] = field(default_factory=list)
    _calling: tuple[int, int, float] | None = None
    _overran: float = 0.0
    _row_cost: float | None = None
    _printed_before: int = 0

    def take(self, message: PreviewMessage) -> None:
        """Take in what a process says.

        Raises:
            LemanError: the process cannot go on.
        """
        match message:
            case Rows():
                self.found = message
            case SetUp():
                self.set_up_seconds = message.seconds if self.set_up_seconds is None else self.set_up_seconds
            case Calling():
                self._calling = (message.first, message.count, self.clock())
            case Called():
                self._called(message)
            case Overran():
                self._overran = message.seconds
            case RowCost():
                self._row_cost = message.seconds
            case Printed():
                self.printed += message.text
                self.printed_bytes = self._printed_before + message.total
            case Refused():
                kind: type[LemanError] = getattr(error_tree, message.kind, error_tree.Internal)
                error = kind(message.reason, message.message)
                error.facts = dict(message.facts)
                raise error

    def process_ended(self, how: str) -> None:
        """Take in that the process ended over what it had at hand; another one is to go on with the next row.

        Raises:
            FailedPrecondition: UDF_NOT_LOADABLE, WORKER_LOST, where it had no row at hand.
        """
        calling, self._calling = self._calling, None
        self._printed_before = self.printed_bytes
        if calling is None:
            raise self._ended_without_row(how)
        first, count, since = calling
        if count > 1:  # nobody knows which of them it was
            self.next_row, self.alone_before = first, first + count
            return
        self._tried[first] = (Attempted(*self._lost(first, how)), self.clock() - since)
        self._overran = 0.0
        self.next_row = first + 1

    def time_is_over(self, seconds: float) -> None:
        """Take in that the preview may go on no more.

        Raises:
            FailedPrecondition: UDF_NOT_LOADABLE, where the function is still being set up.
        """
        self.timed_out = True
        if self.found is not None and self.found.rows and self.set_up_seconds is None:
            raise FailedPrecondition(
                "UDF_NOT_LOADABLE",
                f"UDF '{self.udf.name}' was not set up within the {seconds:g} s of the preview: give it more time, or "
                "have it load less",
            )

    def rows(self) -> list[TriedRow]:
        """Return all rows, in the order of the table."""
        tried = []
        for at, place in enumerate(self.found.rows if self.found is not None else ()):
            attempted, seconds = self._tried.get(at, (None, None))
            if attempted is None and self._calling is not None:
                first, count, since = self._calling
                seconds = (self.clock() - since) / count if first <= at < first + count else None
            tried.append(TriedRow(place, attempted, seconds))
        return tried

    def outputs(self, output: pa.DataType) -> pa.Array:
        """Return the outputs of all rows; NULL where there is none, or where it is too large to be sent."""
        rows = len(self.found.rows) if self.found is not None else 0
        storage = output.storage_type if isinstance(output, pa.BaseExtensionType) else output
        return joined([self._values.get(at, pa.nulls(1, storage)) for at in range(rows)] or [pa.nulls(0, storage)])

    @property
    def fails(self) -> bool:
        """Tell whether a backfill would end with what happened."""
        return any(attempted.state == FAILS for attempted, _ in self._tried.values())

    def too_large(self) -> bool:
        """Tell whether outputs were too large to be sent."""
        return any(attempted.output and at not in self._values for at, (attempted, _) in self._tried.items())

    def seconds_per_row(self) -> float | None:
        """Return what a row costs: the first of several calls is left out, as functions set things up in it."""
        if self._row_cost is not None:
            return self._row_cost
        if self.udf.kind is UdfKind.SQL or not self._calls:
            return None
        calls = self._calls[1:] or self._calls
        return sum(seconds for _, seconds in calls) / sum(rows for rows, _ in calls)

    def _called(self, message: Called) -> None:
        rows = len(message.rows)
        self._calling = None
        self._calls.append((rows, message.seconds))
        values = batch_of(message.values).column(0)
        for at, attempted in enumerate(message.rows):
            self._tried[message.first + at] = (attempted, message.seconds / rows)
            if len(values):
                self._values[message.first + at] = values.slice(at, 1)
        self.next_row = message.first + rows

    def _lost(self, row: int, how: str) -> tuple[str, str, RowFailure]:
        """Return what the error policy makes of a row that ended its process."""
        if self._overran:
            kind, names = "UdfTimeout", TIMEOUT_NAMES
            message = f"a call took longer than the timeout of {self._overran:g} s"
        else:
            kind, names = "WorkerLost", WORKER_LOST_NAMES
            message = f"{how}: the function may use too much memory, end its process, or crash in native code"
        place = self.found.rows[row] if self.found is not None else PlacedRow(-1, -1, -1, ())
        failure = RowFailure(
            fragment_id=place.fragment_id,
            offset=place.offset,
            error_type=kind,
            message=message,
            traceback="",
            attempt=1,
        )
        rule = self.udf.error_policy.rule_for(names, message, _LAST_ATTEMPT)
        skips = rule is not None and rule.action is ErrorAction.SKIP
        return FAILED if skips else FAILS, "", failure

    def _ended_without_row(self, how: str) -> FailedPrecondition:
        if self.found is not None and self.set_up_seconds is None:
            return FailedPrecondition(
                "UDF_NOT_LOADABLE",
                f"UDF '{self.udf.name}' could not be set up: {how} meanwhile. Mend what it does then",
            )
        return FailedPrecondition("WORKER_LOST", f"The preview cannot go on: {how} while no row was at hand")
