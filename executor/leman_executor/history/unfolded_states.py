"""The states of jobs in the tail of a history, as one executor knows them, and what it writes there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from leman_core.storage import store_objects
from leman_core.storage.history_tail import KEPT_SECONDS, Entry, tail_of
from leman_executor.history.job_record import JobRecord

#: After so many objects the tail is folded: whoever opens the database reads each.
_FOLD_AFTER = 32
#: What was seen of the tail so long ago is looked at again before anything is put: no number of an object that was
#: deleted meanwhile is to be given again.
_SEEN_SECONDS = KEPT_SECONDS / 4
#: Who writes nothing there by itself looks so often, and where anything was ever put there each time.
_LOOK_SECONDS = 30.0


def _now() -> tuple[float, float]:
    return time.time(), time.monotonic()


class UnfoldedStates:
    """What one executor knows of a tail, and puts there; for one thread at a time.

    Where the storage cannot be used, calls raise what `storage_errors.failed` gives.

    Args:
        begins: new jobs begin here; see `docs/decisions/0048-history-tail.md` for when they may.
        now: returns the seconds of two clocks: one may have been set, the other one have stood still with the machine.
    """

    def __init__(self, database: str, *, begins: bool, now: Callable[[], tuple[float, float]] = _now) -> None:
        self._tail = tail_of(database)
        self.begins = begins and self._tail is not None and store_objects.are_possible(self._tail.uri)
        self._now = now
        self._seen_at: tuple[float, float] | None = None
        self._latest = 0
        self._entries: list[Entry] = []
        self._jobs: set[str] = set()

    @property
    def is_seen(self) -> bool:
        """Whether what is known is new enough to write by it; nothing is put here where no job is or begins."""
        if self._tail is None:
            return True
        if self._seen_at is None:
            return False
        return not (self.begins or self._jobs) or self._since(self._seen_at) < _SEEN_SECONDS

    @property
    def records(self) -> list[str]:
        """Return the records that are not in the table, oldest first."""
        return [record for entry in self._entries for record in entry.records]

    @property
    def is_long(self) -> bool:
        """Tell whether it is time to fold."""
        return len(self._entries) >= _FOLD_AFTER

    @property
    def warnings(self) -> list[str]:
        """Return what cannot be read, for people."""
        return [entry.damage for entry in self._entries if entry.damage]

    def has(self, job_id: str) -> bool:
        """Tell whether states of a job are here: then its next one belongs here, too."""
        return job_id in self._jobs

    def news(self) -> list[str]:
        """Return records that were put since the last look.

        Whoever takes in the table as well looks here first: what is folded meanwhile is in both then.
        """
        if self._tail is None or self._rests():
            return []
        if self._seen_at is None:
            self.begins = self.begins and store_objects.are_answered(self._tail.uri)
        at = self._now()
        found = self._tail.since(self._latest)
        for entry in found:
            self._take(entry)
        self._seen_at = at
        return [record for entry in found for record in entry.records]

    def _rests(self) -> bool:
        """Tell whether to look would cost more than it is worth: nobody has ever written here."""
        if self.begins or self._latest or self._seen_at is None:
            return False
        return self._since(self._seen_at) < _LOOK_SECONDS

    def put(self, records: Sequence[str]) -> bool:
        """Put records after all that is known; False: others were faster, or may have been: look, and try again."""
        return self._put(Entry(self._latest + 1, tuple(records)))

    def divided(self, known: Callable[[str], JobRecord]) -> tuple[list[str], list[str]]:
        """Return the records of jobs that have ended, and those of jobs that go on.

        Of a deleted job only the word of that is left.

        Args:
            known: returns the state of a job that counts.
        """
        ended: list[str] = []
        open_: list[str] = []
        for text in self.records:
            record = JobRecord.read(text)
            counts = known(record.job_id)
            if not counts.state.terminal:
                open_.append(text)
            elif record.deleted or not counts.deleted:
                ended.append(text)
        return ended, open_

    def begin_anew(self, records: Sequence[str]) -> bool:
        """Put an object before which nothing counts, with these records; False: as `put`."""
        return self._put(Entry(self._latest + 1, tuple(records), begins=True))

    def forget_past(self) -> None:
        """Delete what does not count any more, if it is old enough."""
        if self._tail is not None and self._entries and self._entries[0].begins:
            self._tail.forget_before(self._entries[0].number)

    def _put(self, entry: Entry) -> bool:
        if self._tail is None or not self.is_seen:
            return False
        at = self._now()
        if not self._tail.put(entry.number, entry.records, begins=entry.begins):
            return False
        if self._since(at) >= _SEEN_SECONDS:  # the machine stood still meanwhile: others may have folded it long ago
            self._seen_at = None
            return False
        self._take(entry)
        self._seen_at = at
        return True

    def _take(self, entry: Entry) -> None:
        if entry.begins:
            self._entries.clear()
            self._jobs.clear()
        self._latest = entry.number
        self._entries.append(entry)
        self._jobs.update(JobRecord.read(record).job_id for record in entry.records)

    def _since(self, at: tuple[float, float]) -> float:
        return max(now - then for now, then in zip(self._now(), at, strict=True))
