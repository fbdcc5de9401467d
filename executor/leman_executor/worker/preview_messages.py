"""What the executor asks of a function process that previews a function, and what comes back, message by message."""

from __future__ import annotations

import msgspec

from leman_core.model.work import RowFailure

#: What became of a row: it has a value, it failed and is skipped, it failed and ends the job.
COMPUTED, FAILED, FAILS = "computed", "failed", "fails"


class PreviewTask(msgspec.Struct, frozen=True):
    """What is to be tried."""

    #: A `WorkContext` as JSON.
    context: bytes
    #: So many rows are looked for.
    rows: int
    #: The function's bundle; empty: it is read from storage.
    bundle: bytes = b""
    #: The first row that the function is to be called with: an earlier process ended over those before.
    skip: int = 0
    #: Rows before this one are given to the function one at a time: an earlier process ended over all of them.
    alone_before: int = 0


class PlacedRow(msgspec.Struct, frozen=True, array_like=True):
    """Where a row is. `row_id`: -1 where row ids are not stable."""

    fragment_id: int
    offset: int
    row_id: int
    #: Its inputs as JSON texts.
    inputs: tuple[str, ...]


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """The rows that were found."""

    rows: tuple[PlacedRow, ...]
    #: Their values as an Arrow IPC stream, without the columns `left_out`, which are too large.
    values: bytes
    left_out: tuple[str, ...] = ()


class SetUp(msgspec.Struct, frozen=True, tag="set_up"):
    """The function is loaded."""

    seconds: float


class Calling(msgspec.Struct, frozen=True, tag="calling"):
    """The function is about to be called with rows."""

    first: int
    count: int


class Overran(msgspec.Struct, frozen=True, tag="overran"):
    """The call took longer than the function's own timeout; the process ends."""

    seconds: float


class Attempted(msgspec.Struct, frozen=True, array_like=True):
    """What became of a row."""

    state: str
    #: Its value as a JSON text.
    output: str = ""
    failure: RowFailure | None = None


class Called(msgspec.Struct, frozen=True, tag="called"):
    """What the function did with the rows of a call."""

    first: int
    seconds: float
    rows: tuple[Attempted, ...]
    #: Their outputs, as an Arrow IPC stream of one column.
    values: bytes


class RowCost(msgspec.Struct, frozen=True, tag="row_cost"):
    """What a row costs, where that was measured on other rows."""

    seconds: float


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """What was printed since the last such message, as far as it is kept; `total`: bytes so far."""

    text: str
    total: int


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The preview cannot go on. `kind` is the class in `leman_core.model.errors`."""

    kind: str
    reason: str
    message: str
    facts: dict[str, str] = {}


PreviewMessage = Rows | SetUp | Calling | Overran | Called | RowCost | Printed | Refused
