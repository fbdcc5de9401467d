"""Read and write the job history of one database: a Lance table, and a tail of small objects for recent states. Each
process has one writer for a history.

States that arrive during a write are written together by the next write. States of jobs that had nothing to do may wait
longer. Each append that is saved this way saves five object-store requests.
"""

from __future__ import annotations

import asyncio
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import structlog

from leman._format.stored_logs import JOBS, newer_state, position, sql_quoted
from leman_core.model.job import Job
from leman_core.model.service_errors import DataLoss, LemanError, Unavailable, UnknownFormat
from leman_core.server.blocking import BlockingPool, PoolOfPlace
from leman_core.storage import stored_jobs, whole_files
from leman_core.storage.append_log import AppendLog
from leman_core.storage.log_snapshot import LogRows, Snapshot
from leman_core.storage.storage_errors import STORE_UNAVAILABLE
from leman_core.storage.stored_jobs import KEPT_SECONDS, Entry, tail_of
from leman_core.storage.table_creation import check_conditional_puts
from leman_executor.history.job_index import JobRecord
from leman_executor.worker.error_store import errors_uri, open_log

#: If the tail has more objects, it is folded into the table, because each process that opens the database reads all
#: objects.
_FOLD_AFTER = 32
#: If the last read of the tail is older, the tail is read again before a write, because the number of an object that
#: was deleted meanwhile must not be used again.
_SEEN_SECONDS = KEPT_SECONDS / 4
#: Seconds between two reads of the tail while nothing was ever written to it. After that, every call reads the tail.
_LOOK_SECONDS = 30.0


def _now() -> tuple[float, float]:
    return time.time(), time.monotonic()


class HistoryTailCache:
    """Read and write the tail of a job history, for one executor. Not thread-safe.

    If the storage cannot be used, calls raise the errors of `storage_failed`.

    Args:
        begins: Whether new jobs begin in the tail; see `docs/decisions/0048-history-tail.md`.
        now: Returns two times in seconds: of the wall clock, which an operator may set, and of the monotonic clock,
            which may stop while the machine sleeps.
    """

    def __init__(self, database: str, *, begins: bool, now: Callable[[], tuple[float, float]] = _now) -> None:
        self._tail = tail_of(database)
        self.begins = begins and self._tail is not None and whole_files.objects_are_supported(self._tail.uri)
        self._now = now
        self._seen_at: tuple[float, float] | None = None
        self._latest = 0
        self._entries: list[Entry] = []
        self._jobs: set[str] = set()

    @property
    def is_seen(self) -> bool:
        """Whether the last read is recent enough for a write. Always True while the tail has no jobs, because nothing
        is written then.
        """
        if self._tail is None:
            return True
        if self._seen_at is None:
            return False
        return not (self.begins or self._jobs) or self._since(self._seen_at) < _SEEN_SECONDS

    @property
    def records(self) -> list[str]:
        """Return the records that the table does not have, oldest first."""
        return [record for entry in self._entries for record in entry.records]

    @property
    def is_long(self) -> bool:
        """Return whether the tail is long enough to fold it into the table."""
        return len(self._entries) >= _FOLD_AFTER

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each part of the tail that cannot be read."""
        return [entry.damage for entry in self._entries if entry.damage]

    def has(self, job_id: str) -> bool:
        """Return whether the tail has states of a job. If so, the job's next state must be written to the tail too."""
        return job_id in self._jobs

    def news(self) -> list[str]:
        """Return the records that were written since the last read.

        Call this before you read the table. If a state is folded into the table in between, it is then read twice
        instead of never.
        """
        if self._tail is None or self._rests():
            return []
        if self._seen_at is None:
            self.begins = self.begins and whole_files.store_answers(self._tail.uri)
        at = self._now()
        found = self._tail.since(self._latest)
        for entry in found:
            self._take(entry)
        self._seen_at = at
        return [record for entry in found for record in entry.records]

    def _rests(self) -> bool:
        """Return whether a read can be skipped, because the tail was never written."""
        if self.begins or self._latest or self._seen_at is None:
            return False
        return self._since(self._seen_at) < _LOOK_SECONDS

    def put(self, records: Sequence[str]) -> bool:
        """Append records. Return False if another writer may have appended since the last read: read and retry."""
        return self._put(Entry(self._latest + 1, tuple(records)))

    def divided(self, known: Callable[[str], JobRecord]) -> tuple[list[str], list[str]]:
        """Return the records of ended jobs, and those of open jobs.

        For a deleted job, only the record of its deletion is returned.

        Args:
            known: Returns the current state of a job.
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
        """Write an object with these records that replaces all earlier objects. Return False as `put` does."""
        return self._put(Entry(self._latest + 1, tuple(records), begins=True))

    def forget_past(self) -> None:
        """Delete replaced objects that no reader needs."""
        if self._tail is not None and self._entries and self._entries[0].begins:
            self._tail.forget_before(self._entries[0].number)

    def _put(self, entry: Entry) -> bool:
        if self._tail is None or not self.is_seen:
            return False
        at = self._now()
        if not self._tail.put(entry.number, entry.records, begins=entry.begins):
            return False
        if self._since(at) >= _SEEN_SECONDS:  # the machine was suspended, and another process may have folded the tail
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


_JOBS = pa.schema(
    [
        ("job_id", pa.string()),
        ("table", pa.string()),
        ("column", pa.string()),
        ("state", pa.string()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("updated_at", pa.timestamp("us", "UTC")),
        ("rows_evaluated", pa.int64()),
        ("rows_failed", pa.int64()),
        ("table_version", pa.int64()),
        ("record", pa.string()),
    ]
)
_TIDY_AFTER = 32
#: Maximum number of attempts to put a state into the tail, if other writers append first.
_TRIES = 20
#: A state of a job, and its record.
_Text = tuple[Job, str]

_log = structlog.get_logger(__name__)


class _Said(NamedTuple):
    """A state of a job, as a row stores it."""

    position: int
    record: JobRecord


class JobHistory:
    """The states of all jobs of a database, one row for each state. Calls block. Any number of threads may call this.

    Several executors may write. Only the order of their appends decides which rows count (see `counted`,
    `log_snapshot.position`), so all readers agree.

    The current states are kept in memory, at about a kilobyte each, and updated from new fragments. Damaged parts are
    set aside, so that all other parts can be read; `warnings` lists the damaged parts. If the storage cannot be used,
    calls raise the errors of `storage_failed`.

    The states of a job are either all in the table or, until the job has ended, all in the tail
    (`leman_core.storage.stored_jobs`).

    Args:
        has_tail: Whether jobs may begin in the tail. That requires that no other executor serves the database, and that
            all other readers of its history are of this release.
    """

    def __init__(self, database: str, *, has_tail: bool = False) -> None:
        self._home = database.rstrip("/")
        self.uri = f"{self._home}/{JOBS}"
        self._log = AppendLog(
            self.uri, _JOBS, called=f"The job history {self.uri}", compact_after=0, repairs=True, ordered=True
        )
        self._tail = HistoryTailCache(database, begins=has_tail)
        self._errors = open_log(errors_uri(database))
        self._prepared = False
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        #: The names of the fragments that were read, their numbers of rows, and the key of each row by its row id.
        self._read: set[str] = set()
        self._rows = 0
        self._hashes = array("q")
        self._records: dict[str, JobRecord] = {}
        self._news: dict[str, JobRecord] = {}
        self._appended = 0
        #: Deleted jobs of which the table still has other states than the record of the deletion.
        self._leftover: set[str] = set()

    @property
    def prepared(self) -> bool:
        """Whether the tables of jobs and of failed rows existed when `prepare` was last called."""
        return self._prepared

    def prepare(self) -> None:
        """Create the tables of jobs and of failed rows if they do not exist.

        If the table of failed rows cannot be created, jobs run anyway. A job with failed rows then tries to create it.
        """
        with self._lock:
            if not self._prepared:
                check_conditional_puts(self.uri.removesuffix(f"/{JOBS}"))
                self._log.create()
                try:
                    self._errors.create()
                except LemanError as error:
                    _log.warning("the table of failed rows was not created", reason=error.reason, message=error.message)
                self._prepared = True

    def save(self, job: Job) -> Job:
        """Append a state of a job, and return the job's current state.

        The current state is a different one if another executor has already written an end of the job, or a later
        attempt.
        """
        return self.save_all([job])[0]

    def save_all(self, jobs: Sequence[Job]) -> list[Job]:
        """Write states, in this order, in one version of the table."""
        said = [(job, stored_jobs.encode_job(job)) for job in jobs]
        own: dict[JobRecord, Job] = {}
        with self._lock:
            left = self._put_into_tail(said, own)
            if left:
                self._append(left, own)
            kept = [self._records[job.job_id] for job in jobs]
        return [own.get(record) or record.job() for record in kept]

    def _put_into_tail(self, said: Sequence[_Text], own: dict[JobRecord, Job]) -> Sequence[_Text]:
        """Write those states that belong in the tail. Return the states that belong in the table."""
        for _ in range(_TRIES):
            if not self._tail.is_seen:
                self._catch_up()
            wanted = [self._belongs_into_tail(job) for job, _ in said]
            texts = [text for (_, text), wants in zip(said, wanted, strict=True) if wants]
            if texts and not self._tail.put(texts):
                self._catch_up()
                continue
            for (job, text), wants in zip(said, wanted, strict=True):
                if wants:
                    self._count_own(job, text, own)
            return [pair for pair, wants in zip(said, wanted, strict=True) if not wants]
        raise Unavailable(
            STORE_UNAVAILABLE, f"Other writers wrote to the history {self.uri} first, {_TRIES} times in a row"
        )

    def _belongs_into_tail(self, job: Job) -> bool:
        return self._tail.has(job.job_id) or (self._tail.begins and job.job_id not in self._records)

    def _append(self, said: Sequence[_Text], own: dict[JobRecord, Job]) -> None:
        before = self._snapshot
        written = self._log.append([_row(job, text) for job, text in said], before)
        self._appended += 1
        fragments = written.fragments
        unread = fragments.keys() - self._read
        if before is not None and written.version == before.version + 1 and len(unread) == 1:
            for job, text in said:
                self._count_own(job, text, own)
            texts = [text for _, text in said]
            self._note_rows(zip(written.row_ids(fragments[unread.pop()]), texts, strict=False))
            self._note_read(written, fragments, len(said))
        else:
            self._take(written)

    def _count_own(self, job: Job, text: str, own: dict[JobRecord, Job]) -> None:
        record = JobRecord.of(job, text, self._home)
        own[record] = job
        self._count(record)

    def find(self, job_id: str) -> Job | None:
        """Return the current state of a job, the record of its deletion, or None if it does not exist."""
        with self._lock:
            self._catch_up()
            record = self._records.get(job_id)
        return None if record is None else record.job()

    def load(self) -> dict[str, Job]:
        """Return the current state of each job, in the order of the jobs' first states."""
        with self._lock:
            self._catch_up()
            records = list(self._records.values())
        return {record.job_id: record.decode() for record in records if not record.deleted}

    def news(self) -> dict[str, JobRecord]:
        """Return the jobs whose state has changed since the last call. The first call returns all jobs."""
        with self._lock:
            self._catch_up()
            news, self._news = self._news, {}
            return news

    def warnings(self) -> list[str]:
        """Return a warning for each damaged part of the history or of the failed rows that was set aside."""
        with self._lock:
            lost = self._tail.warnings
        return [*self._log.warnings(), *self._errors.warnings(), *lost]

    @property
    def untidy(self) -> bool:
        """Return whether `tidy` should be called now."""
        return self._appended >= _TIDY_AFTER or self._tail.is_long

    def tidy(self) -> None:
        """Compact the table, drop the states of deleted jobs, and fold a long tail.

        The records of deletions stay. Other processes can read and write during the compaction.
        """
        with self._lock:
            if self._tail.is_long:
                self._fold()
                if self._appended < _TIDY_AFTER:
                    return
            self._catch_up()
            self._appended = 0
            if self._leftover:
                self._remove_leftover()
        done = self._log.tidy()
        if done is None:
            return
        before, after = done
        with self._lock:
            is_ours = self._snapshot is not None and self._snapshot.version == before.version
            if is_ours and before.fragments.keys() <= self._read and before.row_count == after.row_count:
                self._note_whole(after)  # no other write in between, so these are the same rows

    def forget_past(self) -> None:
        """Remove versions of the table, and objects of the tail, that are no longer needed.

        Other processes can read and write meanwhile.
        """
        with self._lock:
            self._tail.forget_past()
        self._log.forget_past()

    def fold(self) -> None:
        """Move the jobs in the tail that are known to have ended into the table."""
        with self._lock:
            if self._tail.records:
                self._fold()

    def _fold(self) -> None:
        """Write the ended jobs of the tail into the table, then restart the tail with the open jobs.

        After a crash between the two steps, both table and tail have the states of the ended jobs. That is harmless,
        because an end is final. If the last read of the tail is outdated, the tail is first read again. Otherwise the
        restart of the tail would fail each time, and each attempt would add the same states to the table again.
        """
        if not self._tail.is_seen:
            self._catch_up()
        ended, open_ = self._tail.divided(self._records.__getitem__)
        if ended:
            self._append([(stored_jobs.decode_job(text), text) for text in ended], {})
            self._tail.begin_anew(open_)
        elif self._tail.is_long:
            self._tail.begin_anew(open_)

    def _remove_leftover(self) -> None:
        names, before = ", ".join(sql_quoted(job_id) for job_id in sorted(self._leftover)), self._snapshot
        try:
            after = self._log.remove(f"job_id IN ({names}) AND state <> {sql_quoted(stored_jobs.DELETED)}")
        except LemanError as error:
            _log.warning("states of deleted jobs were not removed from the history", uri=self.uri, error=error.message)
            return
        self._leftover.clear()
        if before is not None and after is not None and after.version == before.version + 1:
            self._note_whole(after)  # no other write in between, so the other rows were read
        else:
            self._catch_up()

    def _note_whole(self, snapshot: Snapshot) -> None:
        """Note that all rows of a version were read."""
        self._snapshot = snapshot
        self._read = set(snapshot.fragments)
        self._rows = snapshot.row_count

    def _catch_up(self) -> None:
        news = self._tail.news()  # read before the table: states that are folded meanwhile are in both
        try:
            self._catch_up_with_table()
        finally:  # in any case, because the tail returns its news only once
            self._count_all(news)

    def _catch_up_with_table(self) -> None:
        if self._snapshot is not None:
            try:
                if self._snapshot.is_latest:
                    return
            except LemanError:  # the version is damaged, or was removed
                pass
        latest = self._log.snapshot()
        if latest is not None:
            self._take(latest)
        else:
            self._forget()

    def _take(self, snapshot: Snapshot) -> None:
        """Apply the new rows of a version. If earlier rows have changed, apply all its rows."""
        try:
            if not self._go_on(snapshot):
                self._forget()
                self._go_on(snapshot)
        except LemanError:
            self._read_apart(snapshot)

    def _go_on(self, snapshot: Snapshot) -> bool:
        """Apply the rows that follow those that were already read.

        After a compaction by another process, new fragments also contain old rows. Old rows are recognized by their row
        ids and keys. The keys are needed because, after the latest version was lost, other rows may get the same ids.

        Returns:
            False if rows were added at earlier positions, or if rows are missing. Nothing is applied then.
        """
        fragments = snapshot.fragments
        gone = not self._read <= fragments.keys()
        found = snapshot.rows_in([n for file, n in fragments.items() if file not in self._read], ["record"])
        if self._read and (found.saved or (gone and not found.ordered)):
            return False
        last = len(self._hashes) - 1
        later = found.after(last)
        if gone and (self._rows + len(later) != snapshot.row_count or not self._were_read(found.up_to(last))):
            return False
        for row_id, text in later.texts("record"):
            self._count(JobRecord.read(text, self._home))
            self._note_rows([(row_id, text)])
        self._note_read(snapshot, fragments, len(later))
        return True

    def _read_apart(self, snapshot: Snapshot) -> None:
        """Read all fragments again, one by one. Recover the readable rows of damaged fragments."""
        self._forget()
        fragments = snapshot.fragments
        said = [state for number in fragments.values() for state in self._said_in(snapshot, number)]
        for state in sorted(said, key=lambda state: state.position):
            self._count(state.record)
        # Recovered rows are appended again, so the next read finds other fragments and reads all of them.
        self._note_read(snapshot, fragments, len(said))

    def _were_read(self, rows: LogRows) -> bool:
        return all(self._hashes[row_id] == hash(text) for row_id, text in rows.texts("record"))

    def _note_rows(self, rows: Iterable[tuple[int, str]]) -> None:
        for row_id, text in rows:
            if row_id >= len(self._hashes):
                self._hashes.extend([0] * (row_id + 1 - len(self._hashes)))
            if row_id >= 0:
                self._hashes[row_id] = hash(text)

    def _note_read(self, snapshot: Snapshot, fragments: Iterable[str], rows: int) -> None:
        self._snapshot = snapshot
        self._read = set(fragments)
        self._rows += rows

    def _forget(self) -> None:
        self._snapshot = None
        self._read.clear()
        self._rows = 0
        self._hashes = array("q")
        self._records.clear()
        self._count_all(self._tail.records)

    def _count_all(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._count(JobRecord.read(text, self._home))

    def _count(self, record: JobRecord) -> None:
        known = self._records.get(record.job_id)
        kept = newer_state(known, record)
        if kept.deleted and not (record.deleted and (known is None or known.deleted)):
            self._leftover.add(record.job_id)
        self._records[record.job_id] = self._news[record.job_id] = kept

    def _said_in(self, snapshot: Snapshot, fragment_id: int) -> list[_Said]:
        try:
            return self._decoded(snapshot.fragment(fragment_id, ["record"]))
        except UnknownFormat:  # the data is intact
            raise
        except LemanError as error:
            return self._decoded(self._log.salvage(snapshot, fragment_id, error, _is_usable))

    def _decoded(self, rows: Sequence[dict[str, object]]) -> list[_Said]:
        return [_Said(position(row), JobRecord.read(str(row["record"]), self._home)) for row in rows]


def _is_usable(row: dict[str, object]) -> bool:
    try:
        stored_jobs.job_head(str(row["record"]))
    except DataLoss:
        return False
    return True


def _row(job: Job, record: str) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "table": job.request.table,
        "column": job.column,
        "state": stored_jobs.DELETED if job.deleted else job.state.value,
        "created_at": int(job.created_at * 1e6),
        "updated_at": int(job.updated_at * 1e6),
        "rows_evaluated": job.progress.rows_evaluated,
        "rows_failed": job.progress.rows_failed,
        "table_version": job.table_version,
        "record": record,
    }


#: Maximum number of states in one version.
_MOST = 500
#: Maximum time that a state waits if it need not be written at once.
REST_SECONDS = 30.0


class HistoryWriter:
    """The writer of one job history, on one event loop. It writes states in the order in which they arrive."""

    def __init__(
        self, history: JobHistory, pool: BlockingPool | PoolOfPlace, rest_seconds: float = REST_SECONDS
    ) -> None:
        self._history = history
        self._pool = pool
        self._rest_seconds = rest_seconds
        self._resting: list[Job] = []
        #: Whether the history was deleted, so that waiting states are dropped.
        self._gone = False
        self._rest: asyncio.Task[None] | None = None
        self._waiting: list[tuple[Job, asyncio.Future[Job]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None

    async def save(self, job: Job) -> Job:
        """Write a state of a job, even if the caller is cancelled; see `JobHistory.save`.

        Raises the errors of `storage_failed`.
        """
        answer: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, answer))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await answer

    def save_with_others(self, job: Job) -> None:
        """Write a state of a job together with the next `save`, or after a delay, or when the writer ends.

        If the process is killed before that, the state is lost.
        """
        if self._gone:
            return
        self._resting.append(job)
        if len(self._resting) >= _MOST:
            self._write_resting()
        else:
            self._begin_rest()

    def leave_unwritten(self) -> None:
        """Drop waiting and later states, because the history was deleted."""
        self._gone = True
        self._resting.clear()
        if self._rest is not None:
            self._rest.cancel()

    def _begin_rest(self) -> None:
        if self._rest is None or self._rest.done():
            self._rest = asyncio.create_task(self._end_rest())

    async def _end_rest(self) -> None:
        await asyncio.sleep(self._rest_seconds)
        self._rest = None
        self._write_resting()

    def _write_resting(self) -> None:
        if self._resting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write())

    async def written(self) -> None:
        """Write all waiting states now. Return when they are written."""
        self._write_resting()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._rest is not None:
            self._rest.cancel()
        if self._tidying is not None:
            await asyncio.wait([self._tidying])
        if not self._gone:
            await self._carefully(self._history.fold, "the tail of the job history was not folded")

    async def _write(self) -> None:
        written = True
        while self._waiting or (self._resting and written):
            rested, self._resting = self._resting, []
            batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            written = await self._write_batch(rested, batch)
        if self._history.untidy and (self._tidying is None or self._tidying.done()):
            self._tidying = asyncio.create_task(self._tidy())  # this takes a second, so other writes continue meanwhile

    async def _tidy(self) -> None:
        await self._carefully(self._history.tidy, "the job history was not compacted")
        await self._carefully(self._history.forget_past, "versions of the job history were not removed")

    async def _write_batch(self, rested: Sequence[Job], batch: Sequence[tuple[Job, asyncio.Future[Job]]]) -> bool:
        """Write a batch. Return whether that succeeded. If not, put the delayed states back into the queue."""
        try:
            kept = await self._pool.run(self._history.save_all, [*rested, *(job for job, _ in batch)])
        except Exception as error:  # noqa: BLE001 - waiting callers must get any error
            if rested and not self._gone:
                ids = [job.job_id for job in rested]
                _log.warning(
                    "jobs that had nothing to do could not be written to the history; the next write includes them",
                    job_ids=ids,
                    error=str(error),
                )
                self._resting = [*rested, *self._resting]
                self._begin_rest()
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return False
        for (_, answer), job in zip(batch, kept[len(rested) :], strict=True):
            if not answer.done():
                answer.set_result(job)
        return True

    async def _carefully(self, work: Callable[[], None], failed: str) -> None:
        try:
            await self._pool.run(work)
        except Exception:  # noqa: BLE001 - a failure only leaves the history untidy
            _log.warning(failed, exc_info=True)
