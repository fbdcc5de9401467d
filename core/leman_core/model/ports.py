"""The narrow interfaces between packages. What implements them does I/O; what uses them can be tested without."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from leman_core.model.ranges import RowRange
from leman_core.model.table import TableSnapshot
from leman_core.model.work import InFlightRows, ProgressReport, RowFailure


class CheckpointStore(Protocol):
    """Batches of computed values under text keys. Implementations pass one conformance suite.

    A key that is set again takes the new value. Reading verifies the stored digest: a damaged checkpoint is set aside
    and reads as absent. Keys may hold any character; `list_keys` gives them back as they were set. Where the storage
    cannot be used, calls raise what `storage_errors.failed` gives.
    """

    def __setitem__(self, key: str, value: pa.RecordBatch) -> None: ...

    def __getitem__(self, key: str) -> pa.RecordBatch:
        """Return the batch under a key.

        Raises:
            KeyError: the key is absent or its file was damaged.
        """
        ...

    def __contains__(self, key: str) -> bool: ...

    def __delitem__(self, key: str) -> None: ...

    def list_keys(self, prefix: str | None = None) -> list[str]:
        """Return all keys that begin with `prefix`, sorted."""
        ...


class TableReader(Protocol):
    """What reads manifests."""

    def snapshot(self, uri: str, version: int = 0) -> TableSnapshot:
        """Return a version of the table (0: latest).

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
        """
        ...

    def check_filter(self, uri: str, where: str) -> None:
        """Check that Lance takes the expression on this table.

        Raises:
            InvalidArgument: INVALID_FILTER.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Answer to a reservation."""

    #: Ours until released or expired.
    granted: tuple[RowRange, ...]
    #: Someone else's.
    busy: tuple[RowRange, ...]
    #: Whether another holder has released finished work in this scope since it was first reserved: look at the
    #: checkpoint store again before computing.
    others_finished: bool
    #: The reservations that `busy` is due to, each with a mark that changes whenever it is renewed.
    holds: tuple[str, ...] = ()
    #: Whether a later attempt at the job reserves here; stop then.
    overtaken: bool = False


class Reservations(Protocol):
    """Who is computing what, so that two jobs do not compute the same rows.

    Saves work; correctness never rests on it.

    A scope is one fragment's values. Holders are attempts at jobs, `job#attempt`: a job never gives out a row twice at
    once, and takes over by itself what one of its dead workers held, or an earlier attempt, dead or not. What a dead
    job held expires.
    """

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        """Take what is free. Those `ignored`, out of `Grant.holds`, count as free if they were not renewed since."""
        ...

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        """Renew what the holder has in the scopes; False: a later attempt at the job reserves in one of them; stop."""
        ...

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        """Give back granted ranges; `finished` says that their results are stored."""
        ...

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        """Give back whatever the holder has in the scopes: its workers were ended and cannot."""
        ...


class ErrorSink(Protocol):
    """What stores failed rows, before the checkpoint or file that says that they failed."""

    def store(self, failures: Sequence[RowFailure]) -> None: ...


class ProgressSink(Protocol):
    """What takes the reports of a unit while it runs. Losing them delays a display, never a value."""

    def send(self, report: ProgressReport) -> None: ...

    def in_flight(self, in_flight: InFlightRows) -> None:
        """Say what the unit is about to do, in case its worker dies over it."""
        ...
