"""The job history as it is stored: records of jobs, the tail in an object store, and the jobs that are open.

A record is a state of a job as text with its digest. The request stands in a field named after its kind, `backfill` or
`refresh`.

The tail holds states of jobs that are not in the history's table yet. An append to the table takes five requests to an
object store, a conditional put takes one: so an executor that is alone on a database, with all services of one release,
puts states as objects `<database>/_leman/jobs_tail/<number>.json`. The numbers are consecutive: to put the next one
proves that no one wrote in between, and of two that put it one fails. Folding moves the states of ended jobs to the
table, and then puts an object that begins the tail again with the states of running jobs; earlier objects no longer
count, and are deleted later. `docs/decisions/0048-history-tail.md` says why no state is lost and no job exists twice.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import structlog

from leman._format import stored_documents
from leman._format.stored_logs import JOBS, is_sealed, newer_state
from leman_core.model.garbage import OpenJob
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.service_errors import UNREADABLE, DataLoss, Unavailable, check_format
from leman_core.model.view import RefreshSpec
from leman_core.storage.append_log import AppendLog
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.locations import OWN_FOLDER, TABLE_ENDING
from leman_core.storage.storage_errors import STORE_UNAVAILABLE

#: The state of a deleted job, beside its record.
DELETED = "DELETED"
_REQUESTS = {BackfillSpec: "backfill", RefreshSpec: "refresh"}


def _stored_type() -> type[msgspec.Struct]:
    """Return a struct with the fields of `Job`, and one for each kind of request in place of `request`.

    msgspec cannot decode a union of dataclasses.
    """
    types = typing.get_type_hints(Job)
    others = (field for field in dataclasses.fields(Job) if field.name != "request")
    plain = [(field.name, types[field.name], *_default(field)) for field in others]
    requests = [(name, kind | None, None) for kind, name in _REQUESTS.items()]
    return msgspec.defstruct("StoredJob", [*plain, *requests], kw_only=True)


def _default(field: dataclasses.Field[Any]) -> tuple[Any, ...]:
    if field.default_factory is not dataclasses.MISSING:
        return (msgspec.field(default_factory=field.default_factory),)
    return () if field.default is dataclasses.MISSING else (field.default,)


StoredJob = _stored_type()
#: Created at import, in one thread: msgspec crashes if two threads decode a type first.
_decoder = msgspec.json.Decoder(StoredJob)


class CallCost(msgspec.Struct, frozen=True, gc=False):
    """The part of a job's progress that gives the cost of a row, and whether rows failed."""

    rows_failed: int = 0
    rows_evaluated: int = 0
    udf_seconds: float = 0.0
    read_seconds: float = 0.0


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that names the target: a column of a table, or a view."""

    table: str = ""
    column: str = ""
    view: str = ""
    columns: tuple[str, ...] = ()


class JobHead(msgspec.Struct, frozen=True, gc=False):
    """The part of a record that finds, filters and counts jobs."""

    job_id: str
    state: JobState
    created_at: float
    request_id: str = ""
    attempt: int = 1
    executor: str = ""
    udf_name: str = ""
    udf_version: str = ""
    progress: CallCost = CallCost()
    backfill: Asked | None = None
    refresh: Asked | None = None
    labels: dict[str, str] = {}
    initiator: str = ""
    deleted: bool = False
    table_version: int = 0


_FORMAT = "format"


class _Numbered(msgspec.Struct, frozen=True, gc=False):
    """The part of a record that states its format."""

    format: int | None = None


_format_decoder = msgspec.json.Decoder(_Numbered)
_head_decoder = msgspec.json.Decoder(JobHead)


def job_head(record: str) -> tuple[JobHead, str]:
    """Return the head of a record, and the whole text for `decode_job`. It takes a fifth of the time of `decode_job`.

    Raises:
        DataLoss: RECORD_DAMAGED.
        UnknownFormat: FORMAT_TOO_NEW.
    """
    if not is_sealed(record):
        decode_job(record)
        return _head_decoder.decode(record), record
    try:
        text = stored_documents.unseal_text(record)
        _check_format(text)
        found = _head_decoder.decode(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise DataLoss("RECORD_DAMAGED", str(error)) from None
    if (found.backfill is None) is (found.refresh is None):
        raise DataLoss("RECORD_DAMAGED", "a job with 0 requests or 2")
    return found, text


def encode_job(job: Job) -> str:
    """Return the job as sealed JSON, without default values."""
    fields = {_FORMAT: stored_documents.JOB.current, **_slim(job)}
    fields[_REQUESTS[type(job.request)]] = fields.pop("request")
    return stored_documents.seal_text(msgspec.json.encode(fields).decode())


def _check_format(text: str) -> None:
    check_format(stored_documents.JOB, _format_decoder.decode(text).format, "A record of the job history")


def decode_job(record: str) -> Job:
    """Return the job of a record. An unsealed record is only checked for its structure.

    Raises:
        DataLoss: RECORD_DAMAGED.
        UnknownFormat: FORMAT_TOO_NEW.
    """
    try:
        text = stored_documents.unseal_text(record) if is_sealed(record) else record
        _check_format(text)
        fields = msgspec.structs.asdict(_decoder.decode(text))
    except (ValueError, msgspec.MsgspecError) as error:
        raise DataLoss("RECORD_DAMAGED", str(error)) from None
    requests = [request for name in _REQUESTS.values() if (request := fields.pop(name)) is not None]
    if len(requests) != 1:
        raise DataLoss("RECORD_DAMAGED", f"a job with {len(requests)} requests")
    return Job(request=requests[0], **fields)


def _slim(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _slim(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not _is_default(field, getattr(value, field.name))
        }
    if isinstance(value, tuple | list):
        return [_slim(item) for item in value]
    if isinstance(value, dict):
        return {key: _slim(item) for key, item in value.items()}
    return value


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return bool(value == field.default)
    return field.default_factory is not dataclasses.MISSING and bool(value == field.default_factory())


FOLDER = "jobs_tail"
_SCHEME = "s3://"
_ENDING = ".json"
_DIGITS = 20
#: Objects to read concurrently.
_READERS = 16
#: Objects up to this size are read in one request.
_SMALL_BYTES = 1 << 20
_TRIES = 3
#: An object that does not count any more is deleted when the last one was put so long after it: anyone who would put
#: one of its number, as it knows of none, has looked at the tail in the meantime
#: (`leman_executor.history.job_history`).
KEPT_SECONDS = 600.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the tail.

    `records`: states of jobs, as in the table's column `record`, in their order. `begins`: earlier objects no longer
    count. `damage`: why it cannot be read; empty: it can.
    """

    number: int
    records: tuple[str, ...] = ()
    begins: bool = False
    damage: str = ""
    size_bytes: int = 0


class HistoryTail:
    """The tail of one database's job history. Any number of threads may call it.

    If the storage cannot be used, calls raise what `DocumentFolder` raises.
    """

    def __init__(self, database: str) -> None:
        self.uri = f"{database.rstrip('/')}/{OWN_FOLDER}/{FOLDER}"
        self._folder = DocumentFolder(self.uri, f"The tail {self.uri} of a job history")

    def since(self, number: int = 0) -> list[Entry]:
        """Return the objects after a number (0: all) that still count, oldest first.

        It takes one listing, and a request for each object.
        """
        for _ in range(_TRIES):
            found = self._since(number)
            if found is not None:
                return found
        message = f"The tail {self.uri} cannot be read now: objects of it are deleted at the same time"
        raise Unavailable(STORE_UNAVAILABLE, message, uri=self.uri)

    def _since(self, number: int) -> list[Entry] | None:
        """Return what `since` does; None if an object was deleted after the listing, as it no longer counts."""
        later = sorted((n for n in self._listed() if n > number), reverse=True)
        found: list[Entry] = []
        if not later:
            return found
        with ThreadPoolExecutor(min(_READERS, len(later)), thread_name_prefix="history-tail") as readers:
            for at in range(0, len(later), _READERS):
                for entry in readers.map(self._read, later[at : at + _READERS]):
                    if entry is None:
                        return None
                    found.append(entry)
                    if entry.begins:
                        return found[::-1]
        return found[::-1]

    def put(self, number: int, records: Sequence[str], *, begins: bool = False) -> bool:
        """Put the object of a number. Return False if another executor has put one.

        Raises:
            LemanError: The object may be there all the same.
        """
        document = {
            "format": stored_documents.TAIL.current,
            "id": uuid.uuid4().hex,
            "records": list(records),
            "begins": begins,
        }
        content = stored_documents.seal(document)
        return self._folder.create(_name(number), content) == content

    def forget_before(self, number: int) -> None:
        """Delete objects before this one that are so old that no executor will put one of their numbers.

        Both times are the store's.
        """
        listed = self._listed()
        if not listed:
            return
        last = max(listed.values())
        old = [_name(n) for n, at in listed.items() if n < number and at < last - KEPT_SECONDS]
        if old:
            self._folder.delete_objects(old)

    def _listed(self) -> dict[int, float]:
        """Return when each object was put, by its number."""
        stems = ((entry, entry.name.removesuffix(_ENDING)) for entry in self._folder.entries(_ENDING))
        return {int(stem): entry.modified for entry, stem in stems if stem.isdigit()}

    def _read(self, number: int) -> Entry | None:
        content = self._folder.read(_name(number), _SMALL_BYTES)
        if content is None:
            return None
        try:
            document = stored_documents.unseal(content)
            check_format(stored_documents.TAIL, document.get("format"), f"{self.uri}/{_name(number)}")
            records = tuple(map(str, document["records"]))
            return Entry(number, records, bool(document["begins"]), size_bytes=len(content))
        except (ValueError, KeyError, TypeError) as error:
            what = f"{self.uri}/{_name(number)} is damaged ({error}): the states of jobs in it are lost."
            _log.error("damage", uri=self.uri, what=what)
            return Entry(number, damage=what, size_bytes=len(content))


def tail_of(database: str) -> HistoryTail | None:
    """Return the tail of a database's job history; None: its storage has none."""
    return HistoryTail(database) if database.startswith(_SCHEME) else None


def tail_records(database: str) -> list[str]:
    """Return the records of the tail, oldest first.

    Read the tail before the table: folding puts a state in both for a while.

    Raises:
        DataLoss: RECORD_DAMAGED.
        LemanError: What `storage_failed` gives.
    """
    tail = tail_of(database)
    entries: Iterable[Entry] = () if tail is None else tail.since()
    found: list[str] = []
    for entry in entries:
        if entry.damage:
            raise DataLoss("RECORD_DAMAGED", entry.damage)
        found += entry.records
    return found


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}{_ENDING}"


def open_jobs(uri: str) -> list[OpenJob]:
    """Return the open jobs of one table, oldest first.

    The history has a job before it writes anything and until it ends, whichever executor runs it; a lease would miss a
    job that waits for a takeover. A refresh that ends within its call, in seconds, is recorded only at its end.

    Raises:
        DataLoss: RECORD_DAMAGED, of the tail.
        Unavailable: STORE_UNAVAILABLE.
    """
    database, _, name = uri.rpartition("/")
    return _open_jobs(database, name.removesuffix(TABLE_ENDING))


def open_jobs_of(database: str) -> list[str]:
    """Return the ids of the open jobs of a database, oldest first.

    Raises:
        DataLoss: RECORD_DAMAGED, of the tail.
        Unavailable: STORE_UNAVAILABLE.
    """
    return [job.job_id for job in _open_jobs(database.rstrip("/"), None)]


def _open_jobs(database: str, table: str | None) -> list[OpenJob]:
    """Return the open jobs of a table; None: of all tables."""
    tail = tail_records(database)
    log = AppendLog(f"{database}/{JOBS}", pa.schema([]), called=f"The job history of {database}")
    rows = log.read(["job_id", "table", "column", "state", "created_at", "record"])
    jobs: dict[str, Job] = {}
    damaged: dict[str, OpenJob] = {}
    for row in rows:
        try:
            job = decode_job(str(row["record"]))
        except UNREADABLE:  # what is next to the record, without a digest, says enough to let the job's files be
            if table in (None, row["table"]) and not _has_ended(row["state"]):
                job_id = str(row["job_id"])
                damaged[job_id] = OpenJob(job_id, _text(row["column"]), _seconds(row["created_at"]))
            continue
        if job.deleted or table in (None, job.request.table):  # what is left of a deleted job names no table
            jobs[job.job_id] = newer_state(jobs.get(job.job_id), job)
    for record in tail:
        job = decode_job(record)
        if job.deleted or table in (None, job.request.table):
            jobs[job.job_id] = newer_state(jobs.get(job.job_id), job)
    going_on = (job for job in jobs.values() if not job.state.terminal)
    found = [OpenJob(job.job_id, job.column, job.created_at, job.incarnation) for job in going_on]
    found += [job for job_id, job in damaged.items() if job_id not in jobs]
    return sorted(found, key=lambda job: job.created_at)


def _has_ended(state: object) -> bool:
    """Return whether a state is terminal. An unknown word counts as open."""
    try:
        return state == DELETED or JobState(state).terminal
    except ValueError:
        return False


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _seconds(at: object) -> float:
    return at.timestamp() if isinstance(at, datetime) else 0.0
