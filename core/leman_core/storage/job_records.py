"""A state of a job as a text of the history, with a digest of its own.

The request stands in a field named after its kind, `backfill` or `refresh`: that is how a reader tells which it is.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import msgspec

from leman_core.model.errors import DataLoss
from leman_core.model.job import Job, JobState
from leman_core.model.plan import BackfillSpec
from leman_core.model.refresh import RefreshSpec
from leman_core.storage import sealed_documents, stored_formats

#: Stands as the state of a job that was deleted, beside the record that says so.
DELETED = "DELETED"
_REQUESTS = {BackfillSpec: "backfill", RefreshSpec: "refresh"}


def _stored_type() -> type[msgspec.Struct]:
    """Return the fields of `Job`, with one for each kind of request in the place of `request`.

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
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_decoder = msgspec.json.Decoder(StoredJob)


class CallCost(msgspec.Struct, frozen=True, gc=False):
    """The part of a job's progress that tells what a row cost, and whether rows failed."""

    rows_failed: int = 0
    rows_evaluated: int = 0
    udf_seconds: float = 0.0
    read_seconds: float = 0.0


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that says what a job writes to: a column of a table, or a view."""

    table: str = ""
    column: str = ""
    view: str = ""
    columns: tuple[str, ...] = ()


class JobHead(msgspec.Struct, frozen=True, gc=False):
    """The part of a record by which a job is found, filtered and counted."""

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
    """The part of a record that tells its format."""

    format: int | None = None


_format_decoder = msgspec.json.Decoder(_Numbered)
_head_decoder = msgspec.json.Decoder(JobHead)


def head(record: str) -> tuple[JobHead, str]:
    """Return the head of a record, and the text of the whole of it, which `decode` takes.

    It takes a fifth of the time of `decode`.

    Raises:
        DataLoss: RECORD_DAMAGED.
        UnknownFormat: FORMAT_TOO_NEW.
    """
    if not is_sealed(record):
        decode(record)
        return _head_decoder.decode(record), record
    try:
        text = sealed_documents.unseal_text(record)
        _check_format(text)
        found = _head_decoder.decode(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise DataLoss("RECORD_DAMAGED", str(error)) from None
    if (found.backfill is None) is (found.refresh is None):
        raise DataLoss("RECORD_DAMAGED", "a job with 0 requests or 2")
    return found, text


def encode(job: Job) -> str:
    """Return the job as JSON without what is as by default, sealed."""
    fields = {_FORMAT: stored_formats.JOB.current, **_slim(job)}
    fields[_REQUESTS[type(job.request)]] = fields.pop("request")
    return sealed_documents.seal_text(msgspec.json.encode(fields).decode())


def _check_format(text: str) -> None:
    stored_formats.JOB.check(_format_decoder.decode(text).format, "A record of the job history")


def is_sealed(record: str) -> bool:
    """Tell whether a record carries a digest."""
    return not record.startswith("{")


def decode(record: str) -> Job:
    """Return the job of a record.

    Of one that is not sealed, only that it makes sense is known.

    Raises:
        DataLoss: RECORD_DAMAGED.
        UnknownFormat: FORMAT_TOO_NEW.
    """
    try:
        text = sealed_documents.unseal_text(record) if is_sealed(record) else record
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
