"""The job history as it is stored: records of jobs, the tail in an object store, and the jobs that have not ended.

A record is one state of a job: JSON text with a digest. The job's request is in a field with the name of its kind,
`backfill` or `refresh`.

The tail holds states of jobs that are not in the history's table yet. An append to the table takes five requests to an
object store, and a conditional put takes one. So an executor that is alone on a database, with all services of the same
release, puts each state as an object `<database>/_leman/jobs_tail/<number>.json`. Numbers are consecutive, and of two
executors that put the same number one fails. So a successful put proves that no other executor wrote in between.
Folding moves the states of ended jobs to the table. It then puts an object with the states of running jobs, with which
the tail begins again: earlier objects no longer count, and are deleted later. `docs/decisions/0048-history-tail.md`
shows why no state is lost and no job exists twice.
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

#: What the table's column `state` holds for a deleted job.
DELETED = "DELETED"
_REQUESTS = {BackfillSpec: "backfill", RefreshSpec: "refresh"}


def _stored_type() -> type[msgspec.Struct]:
    """Return a struct with the fields of `Job`, but with a field for each kind of request instead of `request`.

    msgspec cannot decode a field that is a union of dataclasses.
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
    """The part of a job's progress that shows what a row costs, and whether rows failed."""

    rows_failed: int = 0
    rows_evaluated: int = 0
    udf_seconds: float = 0.0
    read_seconds: float = 0.0


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that says what is computed: a column of a table, or a view."""

    table: str = ""
    column: str = ""
    view: str = ""
    columns: tuple[str, ...] = ()


class JobHead(msgspec.Struct, frozen=True, gc=False):
    """The part of a record that is needed to find, filter and count jobs."""

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
    """The part of a record that holds the number of its format."""

    format: int | None = None


_format_decoder = msgspec.json.Decoder(_Numbered)
_head_decoder = msgspec.json.Decoder(JobHead)


def job_head(record: str) -> tuple[JobHead, str]:
    """Return the head of a record, and its text for `decode_job`. This takes a fifth of the time of `decode_job`.

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
        raise DataLoss("RECORD_DAMAGED", "a job with 0 requests, or with 2")
    return found, text


def encode_job(job: Job) -> str:
    """Return the job as JSON with its digest, without fields that have their default value."""
    fields = {_FORMAT: stored_documents.JOB.current, **_slim(job)}
    fields[_REQUESTS[type(job.request)]] = fields.pop("request")
    return stored_documents.seal_text(msgspec.json.encode(fields).decode())


def _check_format(text: str) -> None:
    check_format(stored_documents.JOB, _format_decoder.decode(text).format, "A record of the job history")


def decode_job(record: str) -> Job:
    """Return the job of a record. A record of an old release has no digest: only its structure is checked.

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
#: How many objects to read concurrently.
_READERS = 16
#: Objects up to this size are read in one request.
_SMALL_BYTES = 1 << 20
_TRIES = 3
#: An object that no longer counts may be deleted once an object was put this long after it. Until then, an executor
#: that has not seen it could put the same number; within this time each executor reads the tail again
#: (`leman_executor.history.job_history`).
KEPT_SECONDS = 600.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the tail."""

    number: int
    #: States of jobs, as in the table's column `record`, oldest first.
    records: tuple[str, ...] = ()
    #: Whether the tail begins here, so that earlier objects no longer count.
    begins: bool = False
    #: Why it cannot be read; empty if it can.
    damage: str = ""
    size_bytes: int = 0


class HistoryTail:
    """The tail of one database's job history. Any number of threads may call it.

    If the storage cannot be used, calls raise the errors of `DocumentFolder`.
    """

    def __init__(self, database: str) -> None:
        self.uri = f"{database.rstrip('/')}/{OWN_FOLDER}/{FOLDER}"
        self._folder = DocumentFolder(self.uri, f"The tail {self.uri} of a job history")

    def since(self, number: int = 0) -> list[Entry]:
        """Return the objects with a number above `number` that still count, oldest first.

        It takes one listing, and a request for each object.
        """
        for _ in range(_TRIES):
            found = self._since(number)
            if found is not None:
                return found
        message = f"The tail {self.uri} cannot be read now, because its objects are deleted meanwhile: try again"
        raise Unavailable(STORE_UNAVAILABLE, message, uri=self.uri)

    def _since(self, number: int) -> list[Entry] | None:
        """Return what `since` does; None if an object that no longer counts was deleted after the listing."""
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
        """Put the object with a number. Return False if another executor has put that number.

        Raises:
            LemanError: The put failed, or its outcome is unknown: the object may exist nevertheless.
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
        """Delete the objects with lower numbers, except those that are too young (see `KEPT_SECONDS`).

        Ages are differences of the store's own times, so no executor's clock matters.
        """
        listed = self._listed()
        if not listed:
            return
        last = max(listed.values())
        old = [_name(n) for n, at in listed.items() if n < number and at < last - KEPT_SECONDS]
        if old:
            self._folder.delete_objects(old)

    def _listed(self) -> dict[int, float]:
        """Return when each object was put, by number."""
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
            what = f"{self.uri}/{_name(number)} is damaged ({error}): the job states in it are lost."
            _log.error("damage", uri=self.uri, what=what)
            return Entry(number, damage=what, size_bytes=len(content))


def tail_of(database: str) -> HistoryTail | None:
    """Return the tail of a database's job history; None if its storage is of a kind that has no tail."""
    return HistoryTail(database) if database.startswith(_SCHEME) else None


def tail_records(database: str) -> list[str]:
    """Return the records of a database's tail, oldest first.

    Read the tail before the table: folding adds states to the table before it removes them from the tail.

    Raises:
        DataLoss: RECORD_DAMAGED.
        LemanError: The storage cannot be used.
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
    """Return the jobs of one table that have not ended, oldest first.

    The history has each job from before its first write until its end, whichever executor runs it. Leases would miss
    jobs that wait for a takeover. Only a refresh that ends within its call, in seconds, is recorded at its end alone.

    Raises:
        DataLoss: RECORD_DAMAGED – an object of the tail is damaged.
        Unavailable: STORE_UNAVAILABLE.
    """
    database, _, name = uri.rpartition("/")
    return _open_jobs(database, name.removesuffix(TABLE_ENDING))


def open_jobs_of(database: str) -> list[str]:
    """Return the ids of the jobs of a database that have not ended, oldest first.

    Raises:
        DataLoss: RECORD_DAMAGED – an object of the tail is damaged.
        Unavailable: STORE_UNAVAILABLE.
    """
    return [job.job_id for job in _open_jobs(database.rstrip("/"), None)]


def _open_jobs(database: str, table: str | None) -> list[OpenJob]:
    """Return the jobs of a table, or of all tables for None, that have not ended."""
    tail = tail_records(database)
    log = AppendLog(f"{database}/{JOBS}", pa.schema([]), called=f"The job history of {database}")
    rows = log.read(["job_id", "table", "column", "state", "created_at", "record"])
    jobs: dict[str, Job] = {}
    damaged: dict[str, OpenJob] = {}
    for row in rows:
        try:
            job = decode_job(str(row["record"]))
        except UNREADABLE:  # the row's other columns have no digest, but suffice to spare the job's files
            if table in (None, row["table"]) and not _has_ended(row["state"]):
                job_id = str(row["job_id"])
                damaged[job_id] = OpenJob(job_id, _text(row["column"]), _seconds(row["created_at"]))
            continue
        if job.deleted or table in (None, job.request.table):  # the record of a deleted job names no table
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
    """Return whether a stored state is terminal. An unknown word counts as not terminal."""
    try:
        return state == DELETED or JobState(state).terminal
    except ValueError:
        return False


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _seconds(at: object) -> float:
    return at.timestamp() if isinstance(at, datetime) else 0.0
