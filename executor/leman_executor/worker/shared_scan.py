"""One scan of a fragment for several SQL expressions, one for each pass. Imports no gRPC and no Spark."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa

from leman_core.model.errors import LemanError
from leman_core.model.ranges import RowRange
from leman_core.storage.scan import Chunk, Columns, FragmentReader
from leman_executor.worker.chunk_merging import gathered


class SharedScan:
    """One scan for several members, in lockstep: a chunk is given to all of them before the next one is read.

    Members are passes in threads of their own. Each reads by a `reader_for` it, and has to `leave`, whatever becomes of
    it. Where one expression fails, the scan fails for all, and each member reads the rest by itself. A scan that ends
    before the fragment does, for any reason, raises in all members: none takes what it was given for everything.
    """

    def __init__(self, reader: FragmentReader, fragment_id: int, covered: RowRange, members: int) -> None:
        self._reader = reader
        self._fragment_id = fragment_id
        self._covered = covered
        self._members = set(range(members))
        self._turn = threading.Condition()
        #: What those ask for that have begun to read.
        self._columns: dict[int, str] = {}
        self._names: dict[int, str] = {}
        #: Members that still have the chunk at hand.
        self._reading: set[int] = set()
        self._chunk: Chunk | None = None
        self._number = 0
        self._over = False
        self._error: BaseException | None = None

    def reader_for(self, member: int) -> FragmentReader:
        """Return the reader of one member."""
        reader = copy.copy(self._reader)
        shared = _SharedReader.__new__(_SharedReader)
        shared.__dict__ = {**reader.__dict__, "_shared": self, "_member": member}
        return shared

    def is_whole(self, fragment_id: int, covered: RowRange) -> bool:
        """Tell whether this is what the scan reads."""
        return (fragment_id, covered) == (self._fragment_id, self._covered)

    def run(self, *, deletions: bool) -> None:
        """Read once all members that have not left have begun to; return when all have what there is. Blocks."""
        with self._turn:
            self._turn.wait_for(lambda: self._members <= self._columns.keys())
            self._names = {member: f"c{member}" for member in self._members}
            wanted = {self._names[member]: self._columns[member] for member in sorted(self._members)}
        ended: BaseException | None = _Abandoned()
        try:
            chunks = self._reader.read(self._fragment_id, self._covered, wanted, deletions=deletions) if wanted else ()
            if all(self._hand_out(chunk) for chunk in gathered(iter(chunks))):
                ended = None
        except BaseException as error:  # noqa: BLE001 - whatever it is, the members raise it
            ended = error
        with self._turn:
            self._turn.wait_for(lambda: not self._reading)
            self._error, self._over = ended, True
            self._turn.notify_all()

    def _hand_out(self, chunk: Chunk) -> bool:
        """Give a chunk to all members once they are through with the one before; False: none is left."""
        with self._turn:
            self._turn.wait_for(lambda: not self._reading)
            self._chunk = chunk
            self._number += 1
            self._reading = set(self._members)
            self._turn.notify_all()
            return bool(self._members)

    def chunks(self, member: int, columns: Mapping[str, str]) -> Iterator[Chunk]:
        """Yield the chunks of one member; see `FragmentReader.read`."""
        (name, expression), seen = next(iter(columns.items())), 0
        with self._turn:
            self._columns[member] = expression
            self._turn.notify_all()
        while True:
            with self._turn:
                self._reading.discard(member)
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._over or self._number > seen)  # noqa: B023 - called at once
                if self._number == seen:
                    if self._error is not None:
                        raise _copy_of(self._error) from self._error
                    if member not in self._names:
                        raise _Abandoned
                    return
                seen, chunk = self._number, self._chunk
            if chunk is not None:
                values = chunk.rows.column(self._names[member])
                yield Chunk(chunk.covered, chunk.offsets, pa.RecordBatch.from_arrays([values], names=[name]))

    def leave(self, member: int) -> None:
        """Read on without a member."""
        with self._turn:
            self._members.discard(member)
            self._reading.discard(member)
            self._turn.notify_all()

    def abandon(self) -> None:
        """Have all members leave: some of them may never begin."""
        with self._turn:
            self._members.clear()
            self._reading.clear()
            self._turn.notify_all()


class _Abandoned(RuntimeError):
    """All others have left the scan."""


def _copy_of(error: BaseException) -> BaseException:
    """Return an error for one thread: several of them would add their traces to the same one."""
    if isinstance(error, LemanError):
        found = type(error)(error.reason, error.message)
        found.__dict__.update(error.__dict__)
        return found
    return RuntimeError(f"the scan for several columns failed: {type(error).__name__}: {error}")


class _SharedReader(FragmentReader):
    """A reader whose first look at the whole fragment is that of the scan."""

    _shared: SharedScan | None
    _member: int

    def read(
        self, fragment_id: int, covered: RowRange, columns: Columns, *, deletions: bool, where: str = ""
    ) -> Iterator[Chunk]:
        scan = self._shared
        if scan is None or where or not isinstance(columns, Mapping) or not scan.is_whole(fragment_id, covered):
            yield from super().read(fragment_id, covered, columns, deletions=deletions, where=where)
            return
        self._shared = None
        yield from scan.chunks(self._member, columns)
