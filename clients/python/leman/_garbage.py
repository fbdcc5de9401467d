"""Files of Leman's beside a table's data: what they are for, and the removal of those that nothing needs."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

from leman._wire_values import given, time
from leman.errors import InvalidArgument
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
        """Whether it can still be used."""
        return self.use == "OPEN"

    @property
    def why(self) -> str:
        """What is known of its use, and what becomes of it, for people."""
        return f"{_USES.get(self.use, self.use)}: {_FATES.get(self.fate, self.fate)}"


@dataclass(frozen=True, slots=True)
class CheckpointCollection:
    """What a collection found. `files_removed` and `bytes_removed`: what it deleted or, in a dry run, would delete.

    `files` names them as far as the limit allows; the counts are of all.
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
    """Seconds of an age such as `7d`, `12h`, `30m`, `45s`, `2w` or `0`. Raises InvalidArgument."""
    if isinstance(age, str) and (match := _AGE.fullmatch(age)) is not None:
        number, unit = match.groups()
        age = datetime.timedelta(**{_UNITS[unit]: int(number)}) if unit else datetime.timedelta()
    if not isinstance(age, datetime.timedelta) or age < datetime.timedelta():
        raise InvalidArgument(f"older_than={age!r}: give a timedelta or text such as '7d', '12h', '30m' or '0'")
    return int(age.total_seconds())


def make_request(
    table: catalog_pb2.TableRef,
    older_than: str | datetime.timedelta | None,
    limit: int,
    *,
    dry_run: bool,
    include_kept: bool,
) -> commit_pb2.CollectGarbageRequest:
    """The call. Raises InvalidArgument."""
    if limit < 1:
        raise InvalidArgument(f"limit={limit}: at least one file is to be named")
    request = commit_pb2.CollectGarbageRequest(table=table, dry_run=dry_run, include_kept=include_kept, max_files=limit)
    if older_than is not None:
        request.older_than.FromSeconds(seconds_of(older_than))
    return request


def from_wire(message: Any, *, dry_run: bool) -> CheckpointCollection:
    """The answer."""
    return CheckpointCollection(
        table_version=message.version,
        dry_run=dry_run,
        files_removed=message.files_removed,
        bytes_removed=message.bytes_removed,
        files_kept=message.files_kept,
        bytes_kept=message.bytes_kept,
        files=tuple(_file(file) for file in message.files),
    )


def _file(message: commit_pb2.StoredFile) -> StoredFile:
    ranged = message.HasField("range")
    kinds = commit_pb2.StoredFile
    return StoredFile(
        path=message.path,
        kind=kinds.Kind.Name(message.kind).removeprefix("KIND_").lower(),
        use=kinds.Use.Name(message.use).removeprefix("USE_"),
        fate=kinds.Fate.Name(message.fate).removeprefix("FATE_"),
        size_bytes=message.size_bytes,
        modify_time=time(message.modify_time),
        key=message.key,
        udf_name=message.udf.name,
        udf_version=message.udf.version,
        column=message.column,
        fragment_id=given(message, "fragment_id"),
        start=message.range.start if ranged else None,
        end=message.range.end if ranged else None,
        removed=message.removed,
    )
