"""What makes a table a view: its definition in the schema metadata. Keys and forms are public: docs/views.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa

from leman._format import stored_documents
from leman_core.model import keys
from leman_core.model.service_errors import DataLoss, check_format
from leman_core.model.table import TableSnapshot
from leman_core.model.view import (
    AskedCommit,
    EarlierState,
    FailedNote,
    ViewColumn,
    ViewDefinition,
    ViewFormat,
    ViewFunction,
    ViewQuery,
)

PREFIX = "leman::view::"
QUERY = f"{PREFIX}query"
BASE_TABLE = f"{PREFIX}base_table"
BASE_DATABASE = f"{PREFIX}base_table_db_uri"
BASE_VERSION = f"{PREFIX}base_table_version"
FORMAT = f"{PREFIX}version"
BASE_INCARNATION = f"{PREFIX}base_table_incarnation"
FILLED = f"{PREFIX}filled"
BASE_RECORD = f"{PREFIX}base_table_record"
EARLIER = f"{PREFIX}earlier"
FAILED = f"{PREFIX}failed"
#: Names of lists of failed rows begin so.
FAILED_PREFIX = "failed-"
#: Names of records of a source version begin so.
RECORD_PREFIX = "source-"
#: The request that made the view, and a digest of what it asked for: the same request again is answered with it.
MADE_BY = f"{PREFIX}request"

#: The last alterations, newest first: JSON of pairs of a digest of what was asked for, and the request's id.
ALTERED_BY = f"{PREFIX}altered"
MOST_ALTERATIONS = 16

#: The last refresh that was over before any job history knew of it: JSON of its job's id and of what it asked for.
AT_ONCE = f"{PREFIX}at_once"

#: "true": the source is in the view's own database, wherever that lies; `BASE_DATABASE` says where it lay. No digest
#: covers it, as releases that do not know it make the digest of what they know.
IN_OWN_DATABASE = f"{PREFIX}base_table_in_own_database"
_TRUE, _FALSE = "true", "false"

#: Digest of the entries that `_COVERED` names.
DIGEST = f"{PREFIX}digest"

_COVERED = (QUERY, BASE_TABLE, BASE_DATABASE, BASE_VERSION, FORMAT, BASE_INCARNATION, FILLED, BASE_RECORD)
#: Views that an earlier release made do not have them.
_LATER = (EARLIER, FAILED)
_FILES = "files-"
#: Made at import, in one thread: msgspec crashes where two threads are the first to decode a type.
_at_once_decoder = msgspec.json.Decoder(tuple[str, AskedCommit])
#: How many earlier states are remembered.
MOST_EARLIER = 16


def read(schema: pa.Schema, uri: str = "") -> ViewDefinition | None:
    """Return the definition in a table's schema; None where the table is no view.

    Args:
        schema: Of the table.
        uri: Where the view lies: a source in its own database is looked for there. Empty: where it lay.

    Raises:
        DataLoss: VIEW_DAMAGED.
    """
    return from_metadata(schema.metadata or {}, uri)


def is_view(metadata: Mapping[bytes, bytes]) -> bool:
    """Tell whether a table is a view by the schema's metadata, a damaged one too."""
    return QUERY.encode() in metadata or DIGEST.encode() in metadata


def from_metadata(metadata: Mapping[bytes, bytes], uri: str = "") -> ViewDefinition | None:
    """Return what `read` does, from the schema's metadata alone."""
    if not is_view(metadata):
        return None
    try:
        stored = {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"leman::")}
        if FORMAT in stored:
            check_format(stored_documents.VIEW, stored[FORMAT], "The metadata of the view")
        return _read(stored, uri.rpartition("/")[0])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataLoss(
            "VIEW_DAMAGED",
            f"The table's metadata does not say what the view holds ({error!r}): restore the version before; where "
            "there is none, drop the view and create it again",
        ) from None


def write(schema: pa.Schema, definition: ViewDefinition) -> pa.Schema:
    """Return the schema with the definition in its metadata; other metadata stays."""
    stored = {key.encode(): value.encode() for key, value in updates(definition).items()}
    return schema.with_metadata({**(schema.metadata or {}), **stored})


def updates(definition: ViewDefinition) -> dict[str, str]:
    """Return the metadata of a view; a refresh changes part of it, also where the view lies once it was moved."""
    return {**_stored(definition), **_place(definition), **_sealed(definition)}


def with_query(definition: ViewDefinition) -> dict[str, str]:
    """Return the metadata that another query changes, with what it then says."""
    return {
        QUERY: _text(_query_json(definition.query)),
        BASE_DATABASE: definition.query.database,
        **_place(definition),
        FILLED: _text(definition.filled),
        EARLIER: _earlier_text(definition),
        FAILED: _failed_text(definition.failed),
        **_sealed(definition),
    }


def remembering(definition: ViewDefinition, state: EarlierState | None) -> ViewDefinition:
    """Return a definition whose view was `state` before; the oldest states are forgotten.

    Neither what the view is itself nor what is remembered already is remembered twice.
    """
    now = EarlierState(view_version=0, source_version=definition.base_version, computed=definition.computed)
    if state is None or state.is_like(now):
        others = definition.earlier
    else:
        others = (state, *(e for e in definition.earlier if not e.is_like(state)))
    return replace(definition, earlier=tuple(e for e in others if not e.is_like(now))[:MOST_EARLIER])


def request(request_id: str, query: ViewQuery, max_rows_per_fragment: int) -> str:
    """Return what is noted of the request that makes a view; empty where it has no id."""
    if not request_id:
        return ""
    return f"{keys.md5(_text([_query_json(query), max_rows_per_fragment]))} {request_id}"


def made_by(metadata: Mapping[bytes, bytes]) -> str:
    """Return what is noted of the request that made a view; empty: it had no id."""
    return metadata.get(MADE_BY.encode(), b"").decode()


def alterations(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the last alterations of a view, newest first: request id → digest of what was asked for."""
    try:
        return {str(request_id): str(body) for body, request_id in json.loads(metadata.get(ALTERED_BY.encode(), b"[]"))}
    except (ValueError, TypeError):  # no digest covers it: a request that is not remembered is made once more
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
    """Tell whether two requests with ids have the same one."""
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


def outlives_versions(incarnation: str) -> bool:
    """Tell whether an identity can be compared with that of another version of the table."""
    return not incarnation.startswith(_FILES)


def _changing(definition: ViewDefinition) -> dict[str, str]:
    return {
        BASE_VERSION: str(definition.base_version),
        BASE_INCARNATION: definition.base_incarnation,
        FILLED: _text(definition.filled),
        BASE_RECORD: definition.base_record,
        EARLIER: _earlier_text(definition),
        FAILED: _failed_text(definition.failed),
    }


def _earlier_text(definition: ViewDefinition) -> str:
    return _text([[e.view_version, e.source_version, e.computed, e.last_fragment] for e in definition.earlier])


def _failed_text(note: FailedNote) -> str:
    return _text({"file": note.file, "rows": note.rows, "jobs": note.jobs})


def _place(definition: ViewDefinition) -> dict[str, str]:
    return {IN_OWN_DATABASE: _TRUE if definition.in_own_database else _FALSE}


def _sealed(definition: ViewDefinition) -> dict[str, str]:
    return {DIGEST: stored_documents.digest_of(_stored(definition))}


def _stored(definition: ViewDefinition) -> dict[str, str]:
    query = definition.query
    return {
        QUERY: _text(_query_json(query)),
        BASE_TABLE: query.table,
        BASE_DATABASE: query.database,
        FORMAT: str(int(definition.format)),
        **_changing(definition),
    }


def _query_json(query: ViewQuery) -> dict[str, Any]:
    return {
        "database": query.database,
        "table": query.table,
        "columns": [
            {"name": c.name, "expression": c.expression, "source_column": c.source_column} for c in query.columns
        ],
        "functions": [
            {"name": f.name, "udf_name": f.udf_name, "udf_version": f.udf_version, "inputs": list(f.inputs)}
            for f in query.functions
        ],
        "where": query.where,
        "shuffle": query.shuffle,
        "shuffle_seed": query.seed,
        "limit": query.limit,
        "offset": query.offset,
    }


def _read(stored: Mapping[str, str], home: str) -> ViewDefinition:
    """Return the definition that is stored, of a view in the database `home`; empty: it is not known."""
    covered = (*_COVERED, *(key for key in _LATER if key in stored))
    if stored[DIGEST] != stored_documents.digest_of({key: stored[key] for key in covered}):
        raise ValueError("its digest does not match")
    query = _query(json.loads(stored[QUERY]))
    filled = json.loads(stored[FILLED])
    place = stored.get(IN_OWN_DATABASE, _FALSE)
    if place not in (_TRUE, _FALSE):
        raise ValueError(f"{IN_OWN_DATABASE} is {place!r}")
    in_own = place == _TRUE or bool(home and home == stored[BASE_DATABASE].rstrip("/"))
    database = home if in_own and home else stored[BASE_DATABASE]
    return ViewDefinition(
        query=replace(query, database=database) if in_own and home else query,
        source_uri=f"{database.rstrip('/')}/{stored[BASE_TABLE]}.lance",
        in_own_database=in_own,
        base_version=int(stored[BASE_VERSION]),
        base_incarnation=stored[BASE_INCARNATION],
        format=ViewFormat(int(stored[FORMAT])),
        filled={str(name): str(function) for name, function in filled.items()},
        base_record=stored[BASE_RECORD],
        earlier=tuple(_earlier(state) for state in json.loads(stored.get(EARLIER, "[]"))),
        failed=_failed(json.loads(stored.get(FAILED, "{}"))),
    )


def failed_in(metadata: Mapping[bytes, bytes]) -> FailedNote:
    """Return what a table's metadata says of failed rows; nothing where it is no view's, or damaged."""
    try:
        return _failed(json.loads(metadata.get(FAILED.encode(), b"{}")))
    except (ValueError, TypeError, AttributeError):
        return FailedNote()


def _failed(stored: Mapping[str, Any]) -> FailedNote:
    rows = {str(name): int(count) for name, count in stored.get("rows", {}).items()}
    return FailedNote(
        str(stored.get("file", "")), rows, {str(job): int(n) for job, n in stored.get("jobs", {}).items()}
    )


def _earlier(stored: Sequence[Any]) -> EarlierState:
    view_version, source_version, computed, last_fragment = stored
    return EarlierState(
        view_version=int(view_version),
        source_version=int(source_version),
        computed={str(n): str(by) for n, by in computed.items()},
        last_fragment=int(last_fragment),
    )


def _query(stored: Mapping[str, Any]) -> ViewQuery:
    limit = stored["limit"]
    return ViewQuery(
        database=str(stored["database"]),
        table=str(stored["table"]),
        columns=tuple(
            ViewColumn(str(c["name"]), str(c["expression"]), str(c["source_column"])) for c in stored["columns"]
        ),
        functions=tuple(
            ViewFunction(str(f["name"]), str(f["udf_name"]), str(f["udf_version"]), tuple(map(str, f["inputs"])))
            for f in stored["functions"]
        ),
        where=str(stored["where"]),
        shuffle=bool(stored["shuffle"]),
        seed=int(stored["shuffle_seed"]),
        limit=None if limit is None else int(limit),
        offset=int(stored["offset"]),
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
