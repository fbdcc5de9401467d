"""A state of a job as a text of the history, with a digest of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from core import sealed_documents
from core.domain.job import Job

#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_decoder = msgspec.json.Decoder(Job)


def encode(job: Job) -> str:
    """Its JSON without what is as by default, sealed."""
    return sealed_documents.seal_text(msgspec.json.encode(_slim(job)).decode())


def is_sealed(record: str) -> bool:
    """Whether it carries a digest; records of earlier releases do not."""
    return not record.startswith("{")


def decode(record: str) -> Job:
    """Of one that is not sealed, only that it makes sense is known. Raises ValueError where it is damaged."""
    text = sealed_documents.unseal_text(record) if is_sealed(record) else record
    try:
        return _decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


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
