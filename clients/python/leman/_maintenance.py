"""Checkpoints and other files that Leman keeps next to a table's data, and the verification of a database."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from leman._wire.channel import Services
from leman._wire.conversions import seen
from leman._wire.wire_values import enum_word, or_none, time
from leman.errors import DeadlineExceeded, InvalidArgument
from leman.v1 import catalog_pb2, commit_pb2

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"(\d+)([smhdw])|0")
_USES = {
    "OPEN": "a fragment that is not finished can reuse it",
    "UNKNOWN": "not known to Leman",
    "SETTLED": "its rows are in the table",
    "NO_COLUMN": "its column is not in the table",
    "OTHER_FUNCTION": "of another function or version than its column, or of another path",
    "NO_SOURCES": "its fragment and inputs are in no version of the table",
    "NOT_INSTALLABLE": "written for a column that was dropped since",
    "FILE_MISSING": "its column file does not exist",
    "UNREFERENCED": "neither a version nor a record names it",
    "DAMAGED": "damaged",
    "UNFINISHED": "never finished",
    "LEGACY": "legacy, not used",
}
_FATES = {"KEPT": "kept", "YOUNG": "kept while young", "JOB": "kept for a job that has not ended", "GARBAGE": "garbage"}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file in a table's folder that no version of the table refers to.

    `kind`: `checkpoint`, `record`, `column_file`, `damaged`, `unfinished` or `other`. `use` and `fate` are words of
    `StoredFile` in protos/leman/v1/commit.proto. `start` and `end` are the physical rows that a checkpoint covers.
    """

    path: str
    kind: str
    use: str
    fate: str
    size_bytes: int
    modify_time: datetime.datetime
    key: str = ""
    udf_name: str = ""
    udf_version: str = ""
    column: str = ""
    fragment_id: int | None = None
    start: int | None = None
    end: int | None = None
    removed: bool = False

    @property
    def is_needed(self) -> bool:
        return self.use == "OPEN"

    @property
    def why(self) -> str:
        """Why the file is needed or not, and whether it stays, as text for people."""
        return f"{_USES.get(self.use, self.use)}: {_FATES.get(self.fate, self.fate)}"


@dataclass(frozen=True, slots=True)
class CheckpointCollection:
    """The result of a collection.

    `files_removed` and `bytes_removed`: what was deleted or, in a dry run, would be deleted. `files` lists at most
    `limit` of these files.
    """

    table_version: int
    dry_run: bool
    files_removed: int
    bytes_removed: int
    files_kept: int
    bytes_kept: int
    files: tuple[StoredFile, ...]

    def __str__(self) -> str:
        verb = "would be deleted" if self.dry_run else "deleted"
        return f"{self.files_removed:,} files ({self.bytes_removed:,} bytes) {verb}, {self.files_kept:,} kept"


def seconds_of(age: str | datetime.timedelta) -> int:
    """Return the seconds of an age such as `7d`, `12h`, `30m`, `45s`, `2w` or `0`. Raises InvalidArgument."""
    if isinstance(age, str) and (match := _AGE.fullmatch(age)) is not None:
        number, unit = match.groups()
        age = datetime.timedelta(**{_UNITS[unit]: int(number)}) if unit else datetime.timedelta()
    if not isinstance(age, datetime.timedelta) or age < datetime.timedelta():
        raise InvalidArgument(f"older_than is {age!r}: give a timedelta or text such as '7d', '12h', '30m' or '0'")
    return int(age.total_seconds())


def make_request(
    table: catalog_pb2.TableRef,
    older_than: str | datetime.timedelta | None,
    limit: int,
    *,
    dry_run: bool,
    include_kept: bool,
) -> commit_pb2.CollectGarbageRequest:
    if limit < 1:
        raise InvalidArgument(f"limit is {limit}: give a number of files, 1 or more")
    request = commit_pb2.CollectGarbageRequest(table=table, dry_run=dry_run, include_kept=include_kept, max_files=limit)
    if older_than is not None:
        request.older_than.FromSeconds(seconds_of(older_than))
    return request


def from_wire(message: commit_pb2.CollectGarbageResponse, *, dry_run: bool) -> CheckpointCollection:
    files = tuple(map(_file, message.files))
    return seen(CheckpointCollection, message, table_version=message.version, dry_run=dry_run, files=files)


def _file(message: commit_pb2.StoredFile) -> StoredFile:
    ranged = message.HasField("range")
    kinds = commit_pb2.StoredFile
    return seen(
        StoredFile,
        message,
        kind=kinds.Kind.Name(message.kind).removeprefix("KIND_").lower(),
        use=kinds.Use.Name(message.use).removeprefix("USE_"),
        fate=kinds.Fate.Name(message.fate).removeprefix("FATE_"),
        modify_time=time(message.modify_time),
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        fragment_id=or_none(message, "fragment_id"),
        start=message.range.start if ranged else None,
        end=message.range.end if ranged else None,
    )


#: Seconds after which a stream is renewed. A single file must not take longer.
_STREAM_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """Stored data that was changed or lost after it was written.

    `subject`: such as `column_file`, `function`, `checkpoint`. `flaw`: `damaged`, `missing` or `unreadable`. `path` is
    inside the database. `table`, `columns`, `fragment_id` and `rows` say what is affected. `message` ends with advice.
    """

    subject: str
    flaw: str
    path: str
    message: str
    table: str = ""
    columns: tuple[str, ...] = ()
    fragment_id: int | None = None
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Verified:
    """How many things of one subject were checked.

    `unverifiable` things have no digest, because other programs or a compaction wrote them; they exist and are
    readable. `flawed` things have findings.
    """

    subject: str
    looked: int = 0
    unverifiable: int = 0
    flawed: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of a verification so far.

    `resume_token`: pass it to `Database.verify` to continue; empty once everything was checked. `table`: the table that
    was checked last.
    """

    checked: tuple[Verified, ...] = ()
    findings: tuple[Finding, ...] = ()
    resume_token: str = ""
    table: str = ""

    @property
    def complete(self) -> bool:
        """True if everything was checked."""
        return not self.resume_token

    @property
    def sound(self) -> bool:
        """True if this run and the runs that it continues checked everything and found nothing."""
        return self.complete and not self.findings

    def __str__(self) -> str:
        looked, size = sum(c.looked for c in self.checked), sum(c.bytes for c in self.checked)
        left = sum(c.unverifiable for c in self.checked)
        found = f"{len(self.findings):,} finding{'' if len(self.findings) == 1 else 's'}"
        what = found if self.findings else "sound" if self.complete else "sound so far"
        return f"{what}: {looked:,} things ({size:,} bytes) checked, {left:,} of them not verifiable"


def verify(
    services: Services, database: str, resume_token: str, progress: Callable[[Verification], object] | None
) -> Verification:
    found = Verification(resume_token=resume_token)
    for message in _messages(services, database, resume_token):
        found = _plus(found, message)
        if progress is not None:
            progress(found)
    return found


def _messages(services: Services, database: str, token: str) -> Iterator[commit_pb2.VerifyDatabaseResponse]:
    """Yield all messages, and continue after interruptions of the service."""
    patience = services.patient()
    while True:
        began_at = token
        request = commit_pb2.VerifyDatabaseRequest(database=database, resume_token=token)
        stream = services.commits.VerifyDatabase(request, timeout=_STREAM_SECONDS)
        try:
            for message in stream:
                patience = services.patient()
                token = message.resume_token
                yield message
                if not token:
                    return
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                services.wait_or_raise("commit_coordinator", error, patience, repeatable=True)
            elif token == began_at:
                raise DeadlineExceeded(
                    f"the commit coordinator sent nothing about {database} for {_STREAM_SECONDS:g} seconds"
                ) from None
        finally:
            stream.cancel()


def _plus(found: Verification, message: commit_pb2.VerifyDatabaseResponse) -> Verification:
    counts = {c.subject: c for c in found.checked}
    for count in message.counts:
        name = _subject(count)
        known = counts.get(name, Verified(name))
        sums = {
            field: getattr(known, field) + getattr(count, field)
            for field in ("looked", "unverifiable", "flawed", "bytes")
        }
        counts[name] = Verified(name, **sums)
    findings = (*found.findings, *map(_finding, message.findings))
    return Verification(tuple(counts.values()), findings, message.resume_token, message.table)


def _finding(message: commit_pb2.VerificationFinding) -> Finding:
    flaw = enum_word(commit_pb2.VerificationFinding.Flaw, message.flaw, "FLAW_")
    return seen(Finding, message, subject=_subject(message), flaw=flaw, fragment_id=or_none(message, "fragment_id"))


def _subject(message: Any) -> str:
    return enum_word(commit_pb2.VerificationFinding.Subject, message.subject, "SUBJECT_")
