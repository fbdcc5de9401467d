"""The job history of one database, kept as a Lance table in it."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import structlog

from leman_core.model.errors import DataLoss, LemanError, Unavailable, UnknownFormat
from leman_core.model.job import Job, counted
from leman_core.storage import job_records
from leman_core.storage.append_log import AppendLog, quoted
from leman_core.storage.conditional_puts import check_store
from leman_core.storage.log_snapshot import LogRows, Snapshot, position
from leman_core.storage.storage_errors import STORE_UNAVAILABLE
from leman_executor.history.job_record import JobRecord
from leman_executor.history.unfolded_states import UnfoldedStates
from leman_executor.worker.error_store import errors_uri, open_log

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
#: How often a state is to be put into the tail where others are faster.
_TRIES = 20
#: A state of a job, and its record.
_Text = tuple[Job, str]

_log = structlog.get_logger(__name__)


class _Said(NamedTuple):
    """A state of a job as a row has it."""

    position: int
    record: JobRecord


class JobHistory:
    """The states of all jobs of a database, one row each. It blocks; any number of threads may call it.

    Several executors may write: which rows count is decided by the order of their appends alone (see `counted`,
    `log_snapshot.position`), so all who read agree on it.

    The states that count are kept here, about a kilobyte each, and brought up to date from fragments that were not read
    before. Damaged parts are set aside, so that the rest can be read, and `warnings` say so. Where the storage cannot
    be used, calls raise what `storage_errors.failed` gives.

    All states of a job are in the table, or all in the tail until the job has ended
    (`leman_core.storage.history_tail`).

    Args:
        has_tail: jobs begin in the tail, where there can be one: no other executor serves the database, and whoever
            else reads its history is of this release.
    """

    def __init__(self, database: str, *, has_tail: bool = False) -> None:
        self._home = database.rstrip("/")
        self.uri = f"{self._home}/_leman/jobs.lance"
        self._log = AppendLog(
            self.uri, _JOBS, called=f"The job history {self.uri}", compact_after=0, repairs=True, ordered=True
        )
        self._tail = UnfoldedStates(database, begins=has_tail)
        self._errors = open_log(errors_uri(database))
        self._prepared = False
        self._lock = threading.RLock()
        self._snapshot: Snapshot | None = None
        #: Names of the fragments that were read, how many rows they have, and what tells each row, by its row id.
        self._read: set[str] = set()
        self._rows = 0
        self._hashes = array("q")
        self._records: dict[str, JobRecord] = {}
        self._news: dict[str, JobRecord] = {}
        self._appended = 0
        #: Deleted jobs of which the table still has earlier states.
        self._leftover: set[str] = set()

    @property
    def prepared(self) -> bool:
        """Whether the tables of jobs and failed rows were there when `prepare` looked."""
        return self._prepared

    def prepare(self) -> None:
        """Create the tables of jobs and failed rows if there are none.

        A table of failed rows that cannot be used keeps no job from running: one that has failed rows tries again.
        """
        with self._lock:
            if not self._prepared:
                check_store(self.uri.removesuffix("/_leman/jobs.lance"))
                self._log.create()
                try:
                    self._errors.create()
                except LemanError as error:
                    _log.warning("failed rows cannot be stored", reason=error.reason, message=error.message)
                self._prepared = True

    def save(self, job: Job) -> Job:
        """Append the job's state, and return the one that counts.

        That is this one, or one that somebody else had written before: an end of the job, or a later attempt.
        """
        return self.save_all([job])[0]

    def save_all(self, jobs: Sequence[Job]) -> list[Job]:
        """Save states as `save` does one after the other, in one version."""
        said = [(job, job_records.encode(job)) for job in jobs]
        own: dict[JobRecord, Job] = {}
        with self._lock:
            left = self._put_into_tail(said, own)
            if left:
                self._append(left, own)
            kept = [self._records[job.job_id] for job in jobs]
        return [own.get(record) or record.job() for record in kept]

    def _put_into_tail(self, said: Sequence[_Text], own: dict[JobRecord, Job]) -> Sequence[_Text]:
        """Write those states that belong into the tail, and return the others."""
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
        raise Unavailable(STORE_UNAVAILABLE, f"Others were faster {_TRIES} times to write to the history {self.uri}")

    def _belongs_into_tail(self, job: Job) -> bool:
        return self._tail.has(job.job_id) or (self._tail.begins and job.job_id not in self._records)

    def _append(self, said: Sequence[_Text], own: dict[JobRecord, Job]) -> None:
        """Write states into the table."""
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
        """Return the state of one job that counts, of a deleted one what is left; None: there is no such job."""
        with self._lock:
            self._catch_up()
            record = self._records.get(job_id)
        return None if record is None else record.job()

    def load(self) -> dict[str, Job]:
        """Return the state of every job that counts, in the order of the jobs' first states."""
        with self._lock:
            self._catch_up()
            records = list(self._records.values())
        return {record.job_id: record.decode() for record in records if not record.deleted}

    def news(self) -> dict[str, JobRecord]:
        """Return the jobs whose state has changed since the last call; at first all."""
        with self._lock:
            self._catch_up()
            news, self._news = self._news, {}
            return news

    def warnings(self) -> list[str]:
        """Return what of the history and of the failed rows was damaged and set aside, for people."""
        with self._lock:
            lost = self._tail.warnings
        return [*self._log.warnings(), *self._errors.warnings(), *lost]

    @property
    def untidy(self) -> bool:
        """Tell whether it is time to `tidy`."""
        return self._appended >= _TIDY_AFTER or self._tail.is_long

    def tidy(self) -> None:
        """Merge many files into few, without what was said of jobs that are deleted by now; fold a tail that is long.

        What says that they are deleted stays. Merging holds up neither who writes nor who reads.
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
                self._note_whole(after)  # nobody came in between: the same rows in other fragments

    def forget_past(self) -> None:
        """Remove versions of the table, and objects of the tail, that are no longer needed.

        The former holds up neither who writes nor who reads.
        """
        with self._lock:
            self._tail.forget_past()
        self._log.forget_past()

    def fold(self) -> None:
        """Have the table say of jobs that have ended what the tail says, as far as it is known."""
        with self._lock:
            if self._tail.records:
                self._fold()

    def _fold(self) -> None:
        """Write what the tail says of ended jobs into the table, then begin it anew with the others.

        Who is killed between has both say it, which changes nothing: an end is final. Where the tail was not looked at
        for long it is looked at first, as nothing could be put behind it: the table would say the same again each time.
        """
        if not self._tail.is_seen:
            self._catch_up()
        ended, open_ = self._tail.divided(self._records.__getitem__)
        if ended:
            self._append([(job_records.decode(text), text) for text in ended], {})
            self._tail.begin_anew(open_)
        elif self._tail.is_long:
            self._tail.begin_anew(open_)

    def _remove_leftover(self) -> None:
        names, before = ", ".join(quoted(job_id) for job_id in sorted(self._leftover)), self._snapshot
        try:
            after = self._log.remove(f"job_id IN ({names}) AND state <> {quoted(job_records.DELETED)}")
        except LemanError as error:
            _log.warning("states of deleted jobs are still in the history", uri=self.uri, error=error.message)
            return
        self._leftover.clear()
        if before is not None and after is not None and after.version == before.version + 1:
            self._note_whole(after)  # nobody came in between: what is left was read
        else:
            self._catch_up()

    def _note_whole(self, snapshot: Snapshot) -> None:
        """Note that all rows of a version were read, in whichever fragments."""
        self._snapshot = snapshot
        self._read = set(snapshot.fragments)
        self._rows = snapshot.row_count

    def _catch_up(self) -> None:
        news = self._tail.news()  # before the table: what is folded meanwhile is in both
        try:
            self._catch_up_with_table()
        finally:  # the tail does not tell them again
            self._count_all(news)

    def _catch_up_with_table(self) -> None:
        if self._snapshot is not None:
            try:
                if self._snapshot.is_latest:
                    return
            except LemanError:  # damaged, or gone
                pass
        latest = self._log.snapshot()
        if latest is not None:
            self._take(latest)
        else:
            self._forget()

    def _take(self, snapshot: Snapshot) -> None:
        """Count the rows that were not read before; all of them anew where that is not enough."""
        try:
            if not self._go_on(snapshot):
                self._forget()
                self._go_on(snapshot)
        except LemanError:
            self._read_apart(snapshot)

    def _go_on(self, snapshot: Snapshot) -> bool:
        """Count the rows that came after those which were read.

        Where others compacted, rows that were read lie in new fragments as well: their ids and texts tell them from
        later ones, and from rows that got their ids after the latest version was lost.

        Returns:
            False, and nothing is counted, where rows of earlier positions came in, or rows are gone.
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
        """Read all fragments anew, each by itself, and what can be saved of those that are damaged."""
        self._forget()
        fragments = snapshot.fragments
        said = [state for number in fragments.values() for state in self._said_in(snapshot, number)]
        for state in sorted(said, key=lambda state: state.position):
            self._count(state.record)
        # what was saved is appended anew: the next look finds other fragments, and reads all of them
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
        kept = counted(known, record)
        if kept.deleted and not (record.deleted and (known is None or known.deleted)):
            self._leftover.add(record.job_id)
        self._records[record.job_id] = self._news[record.job_id] = kept

    def _said_in(self, snapshot: Snapshot, fragment_id: int) -> list[_Said]:
        try:
            return self._decoded(snapshot.fragment(fragment_id, ["record"]))
        except UnknownFormat:  # it is whole
            raise
        except LemanError as error:
            return self._decoded(self._log.salvage(snapshot, fragment_id, error, _is_usable))

    def _decoded(self, rows: Sequence[dict[str, object]]) -> list[_Said]:
        return [_Said(position(row), JobRecord.read(str(row["record"]), self._home)) for row in rows]


def _is_usable(row: dict[str, object]) -> bool:
    try:
        job_records.head(str(row["record"]))
    except DataLoss:
        return False
    return True


def _row(job: Job, record: str) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "table": job.request.table,
        "column": job.column,
        "state": job_records.DELETED if job.deleted else job.state.value,
        "created_at": int(job.created_at * 1e6),
        "updated_at": int(job.updated_at * 1e6),
        "rows_evaluated": job.progress.rows_evaluated,
        "rows_failed": job.progress.rows_failed,
        "table_version": job.table_version,
        "record": record,
    }
