"""A view's metadata for services: its definition, and the requests that created and altered it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from leman._format import view_definitions
from leman._format.stored_documents import Damaged, OtherFormat
from leman._format.view_definitions import PREFIX, ViewDefinition, ViewQuery
from leman_core.model import keys
from leman_core.model.service_errors import DataLoss, unknown_format
from leman_core.model.view import AskedCommit

#: The request that created the view, and a digest of it, to answer a repeated request.
MADE_BY = f"{PREFIX}request"

#: The last alterations, newest first: JSON of pairs of a request's digest and its id.
ALTERED_BY = f"{PREFIX}altered"
MOST_ALTERATIONS = 16

#: The last refresh that ended before any job history knew it: JSON of its job's id and its commit.
AT_ONCE = f"{PREFIX}at_once"

#: Created at import, in one thread: msgspec crashes if two threads are the first to decode a type.
_at_once_decoder = msgspec.json.Decoder(tuple[str, AskedCommit])


def read(schema: pa.Schema, uri: str = "") -> ViewDefinition | None:
    """Return the view's definition in a table's schema; None if the table is not a view.

    Args:
        uri: The view's current location. A source in the view's own database is looked up there. If it is empty, the
            stored location is used.

    Raises:
        DataLoss: VIEW_DAMAGED.
    """
    return from_metadata(schema.metadata or {}, uri)


def from_metadata(metadata: Mapping[bytes, bytes], uri: str = "") -> ViewDefinition | None:
    """Return what `read` does, given the schema's metadata."""
    try:
        return view_definitions.from_metadata(metadata, uri)
    except OtherFormat as error:
        raise unknown_format(error) from None
    except Damaged as error:
        raise DataLoss(
            "VIEW_DAMAGED",
            f"The table's metadata does not say what the view holds ({error}): restore the previous version; "
            "without one, drop the view and create it again",
        ) from None


def request(request_id: str, query: ViewQuery, max_rows_per_fragment: int) -> str:
    """Return the note about the request that creates a view; empty if it has no id."""
    if not request_id:
        return ""
    return f"{keys.md5(_text([view_definitions.query_json(query), max_rows_per_fragment]))} {request_id}"


def made_by(metadata: Mapping[bytes, bytes]) -> str:
    """Return the note about the request that created a view; empty if the request had no id."""
    return metadata.get(MADE_BY.encode(), b"").decode()


def alterations(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the last alterations of a view, newest first: request id → digest of the request."""
    try:
        return {str(request_id): str(body) for body, request_id in json.loads(metadata.get(ALTERED_BY.encode(), b"[]"))}
    except (ValueError, TypeError):  # no digest covers it: a forgotten request is executed again
        return {}


def with_alteration(metadata: Mapping[bytes, bytes], request_id: str, body: str) -> dict[str, str]:
    """Return the metadata with one more alteration."""
    noted = {request_id: body, **alterations(metadata)}
    return {ALTERED_BY: _text([[by, known] for known, by in noted.items()][:MOST_ALTERATIONS])}


def at_once(job_id: str, commit: AskedCommit) -> dict[str, str]:
    """Return the metadata with a commit and its job, which no job history has."""
    return {AT_ONCE: msgspec.json.encode([job_id, commit]).decode()}


def done_at_once(metadata: Mapping[bytes, bytes], job_id: str) -> AskedCommit | None:
    """Return the commit of a job that no job history had at that time, or None."""
    try:
        noted, commit = _at_once_decoder.decode(metadata.get(AT_ONCE.encode(), b""))
    except msgspec.MsgspecError:
        return None
    return commit if noted == job_id else None


def same_id(noted: str, other: str) -> bool:
    """Return whether two notes about requests have the same request id."""
    return bool(noted and other) and noted.partition(" ")[2] == other.partition(" ")[2]


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
