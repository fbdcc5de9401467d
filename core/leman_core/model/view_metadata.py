"""What a view's metadata says to services: its definition, its source's identity, the requests that made it so."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pyarrow as pa

from leman._format import view_definitions
from leman._format.stored_documents import Damaged, OtherFormat
from leman._format.view_definitions import PREFIX
from leman_core.model import keys
from leman_core.model.service_errors import DataLoss, unknown_format
from leman_core.model.table import TableSnapshot
from leman_core.model.view import AskedCommit, ViewDefinition, ViewQuery

#: The request that made the view, and a digest of what it asked for: the same request again is answered with it.
MADE_BY = f"{PREFIX}request"

#: The last alterations, newest first: JSON of pairs of a digest of what was asked for, and the request's id.
ALTERED_BY = f"{PREFIX}altered"
MOST_ALTERATIONS = 16

#: The last refresh that was over before any job history knew of it: JSON of its job's id and of what it asked for.
AT_ONCE = f"{PREFIX}at_once"


_FILES = "files-"
#: Of the number of a fragment, which has 32 bits.
_MOST_DIGITS = 10
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_at_once_decoder = msgspec.json.Decoder(tuple[str, AskedCommit])


def read(schema: pa.Schema, uri: str = "") -> ViewDefinition | None:
    """Return the definition in a table's schema; None where the table is no view.

    Args:
        schema: Of the table.
        uri: Where the view lies: a source in its own database is looked for there. Empty: where it lay.

    Raises:
        DataLoss: VIEW_DAMAGED.
    """
    return from_metadata(schema.metadata or {}, uri)


def from_metadata(metadata: Mapping[bytes, bytes], uri: str = "") -> ViewDefinition | None:
    """Return what `read` does, from the schema's metadata alone."""
    try:
        return view_definitions.from_metadata(metadata, uri)
    except OtherFormat as error:
        raise unknown_format(error) from None
    except Damaged as error:
        raise DataLoss(
            "VIEW_DAMAGED",
            f"The table's metadata does not say what the view holds ({error}): restore the version before; where "
            "there is none, drop the view and create it again",
        ) from None


def request(request_id: str, query: ViewQuery, max_rows_per_fragment: int) -> str:
    """Return what is noted of the request that makes a view; empty where it has no id."""
    if not request_id:
        return ""
    return f"{keys.md5(_text([view_definitions.query_json(query), max_rows_per_fragment]))} {request_id}"


def made_by(metadata: Mapping[bytes, bytes]) -> str:
    """Return what is noted of the request that made a view; empty: it had no id."""
    return metadata.get(MADE_BY.encode(), b"").decode()


def alterations(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the last alterations of a view, newest first: request id → digest of what was asked for."""
    try:
        return {str(request_id): str(body) for body, request_id in json.loads(metadata.get(ALTERED_BY.encode(), b"[]"))}
    except (ValueError, TypeError):  # no digest covers it: a request that is not remembered is made again
        return {}


def with_alteration(metadata: Mapping[bytes, bytes], request_id: str, body: str) -> dict[str, str]:
    """Return the metadata that says of one more alteration which request it was."""
    noted = {request_id: body, **alterations(metadata)}
    return {ALTERED_BY: _text([[by, known] for known, by in noted.items()][:MOST_ALTERATIONS])}


def at_once(job_id: str, commit: AskedCommit) -> dict[str, str]:
    """Return the metadata that says of a commit which job asked for it, where no job history does."""
    return {AT_ONCE: msgspec.json.encode([job_id, commit]).decode()}


def done_at_once(metadata: Mapping[bytes, bytes], job_id: str) -> AskedCommit | None:
    """Return what a job asked for that no job history knew of then; None: nothing is known of it."""
    try:
        noted, commit = _at_once_decoder.decode(metadata.get(AT_ONCE.encode(), b""))
    except msgspec.MsgspecError:
        return None
    return commit if noted == job_id else None


def same_id(noted: str, other: str) -> bool:
    """Return whether two requests with ids have the same one."""
    return bool(noted and other) and noted.partition(" ")[2] == other.partition(" ")[2]


def identity(table: TableSnapshot) -> str:
    """Return what tells a source from another table made later under its uri.

    That is the table's incarnation, or where it has none (Leman never wrote to it) a digest of the data files of this
    very version.
    """
    if table.incarnation:
        return table.incarnation
    files = sorted(file.path for fragment in table.fragments for file in fragment.files)
    return _FILES + keys.md5("\n".join(files))


def version_identity(table: TableSnapshot) -> str:
    """Return what identifies the table of this version where it has no incarnation; empty: it has one, or no files.

    That is a file of the last fragment, as no two tables have a file of the same name. It is looked up in the same
    version at the same place, which costs the same however many fragments the table has.
    """
    last = table.fragments[-1] if table.fragments and not table.incarnation else None
    return "" if last is None or not last.files else f"{last.fragment_id}/{last.files[0].path}"


def identified_fragment(known: str) -> int | None:
    """Return the fragment that a version is identified by; None: it is no identity that this release knows."""
    number = known.partition("/")[0]
    return int(number) if number.isdecimal() and len(number) <= _MOST_DIGITS else None


def outlives_versions(incarnation: str) -> bool:
    """Return whether an identity can be compared with that of another version of the table."""
    return not incarnation.startswith(_FILES)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
