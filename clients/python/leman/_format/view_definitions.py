"""The definition of a view in its table's schema metadata. Keys and forms are public: docs/views.md."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leman._format import stored_documents
from leman._format.stored_documents import Damaged

if TYPE_CHECKING:
    import pyarrow as pa

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
#: Prefix of the names of files that list failed rows.
FAILED_PREFIX = "failed-"
#: Prefix of the names of files that record a source version.
RECORD_PREFIX = "source-"
#: "true" if the source is in the view's own database, even after the database was moved. `BASE_DATABASE` is the place
#: of the database when that entry was written.
#: The digest does not cover it, as releases that do not know this key would compute another digest.
IN_OWN_DATABASE = f"{PREFIX}base_table_in_own_database"
#: Digest of the entries that `_COVERED` lists.
DIGEST = f"{PREFIX}digest"
_TRUE, _FALSE = "true", "false"
_COVERED = (QUERY, BASE_TABLE, BASE_DATABASE, BASE_VERSION, FORMAT, BASE_INCARNATION, FILLED, BASE_RECORD)
#: Entries that views of earlier releases do not have.
_LATER = (EARLIER, FAILED)
#: The maximum number of earlier states that a view remembers.
MOST_EARLIER = 16


#: Columns of every view that queries through Leman do not show.
SOURCE_ROW_ID = "__source_row_id"
IS_SET = "__is_set"
INTERNAL_COLUMNS = (SOURCE_ROW_ID, IS_SET)


class ViewFormat(enum.IntEnum):
    """How `__source_row_id` refers to rows of the source (`leman::view::version`)."""

    ADDRESSES = 1
    STABLE_ROW_IDS = 2


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view that is computed from the source without a registered function."""

    name: str
    #: SQL over the source's columns.
    expression: str
    #: Set if the expression is only a column of the source.
    source_column: str = ""


@dataclass(frozen=True, slots=True)
class ViewFunction:
    """A column computed by a registered function from columns of the source, in the order of its parameters."""

    name: str
    udf_name: str
    udf_version: str
    inputs: tuple[str, ...]

    @property
    def identity(self) -> str:
        """Return the identity of the column's values: the function version and its inputs."""
        return f"{self.udf_name}@{self.udf_version}({', '.join(self.inputs)})"


@dataclass(frozen=True, slots=True)
class ViewQuery:
    """The query of a view. `limit` and `offset` count in the order of source row ids, before the shuffle."""

    database: str
    table: str
    columns: tuple[ViewColumn, ...]
    functions: tuple[ViewFunction, ...] = ()
    where: str = ""
    shuffle: bool = False
    seed: int = 0
    #: None means all rows.
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierState:
    """An earlier state of a view: all rows of `view_version` match `source_version`."""

    view_version: int
    source_version: int
    #: What computed the function columns: name → `ViewFunction.identity`.
    computed: dict[str, str]
    #: The highest fragment id of the source at that time.
    last_fragment: int = -1

    def is_like(self, other: EarlierState) -> bool:
        return (self.source_version, self.computed) == (other.source_version, other.computed)


@dataclass(frozen=True, slots=True)
class FailedNote:
    """The values that a view lacks because a function failed."""

    #: The file that lists the rows (see `leman_core.storage.view_side_files`).
    file: str = ""
    #: The number of missing values by column.
    rows: dict[str, int] = field(default_factory=dict)
    #: The number of missing values by the job that failed, the latest first.
    jobs: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDefinition:
    """The definition of a view in its table's schema metadata."""

    query: ViewQuery
    source_uri: str
    #: The source version that the computed rows match.
    base_version: int
    base_incarnation: str
    format: ViewFormat
    #: The function version that computed each function column's values (name → "udf@version"). After an alteration it
    #: differs from the query's.
    filled: dict[str, str] = field(default_factory=dict)
    #: The file with the record of that source version (`source_records`), or "".
    base_record: str = ""
    #: Its remembered earlier states, newest first.
    earlier: tuple[EarlierState, ...] = ()
    #: Values that are missing because functions failed.
    failed: FailedNote = field(default_factory=FailedNote)
    #: Whether the source is in the view's own database, even after the database was copied or moved.
    in_own_database: bool = False

    @property
    def computed(self) -> dict[str, str]:
        """Return, for each function column with values, the identity (`ViewFunction.identity`) of its values.

        This assumes the query's inputs: a column that gets other inputs is no longer in `filled`.
        """
        inputs = {function.name: function.inputs for function in self.query.functions}
        return {name: f"{by}({', '.join(inputs[name])})" for name, by in self.filled.items() if name in inputs}

    @property
    def stale(self) -> tuple[str, ...]:
        """Return the function columns whose values come from another function or other inputs than the query's."""
        wanted = {f.name: f"{f.udf_name}@{f.udf_version}" for f in self.query.functions}
        return tuple(name for name, function in wanted.items() if self.filled.get(name) != function)


def is_view(metadata: Mapping[bytes, bytes]) -> bool:
    """Return whether the schema's metadata marks a table as a view, even a damaged one."""
    return QUERY.encode() in metadata or DIGEST.encode() in metadata


def from_metadata(metadata: Mapping[bytes, bytes], uri: str = "") -> ViewDefinition | None:
    """Return the definition in the metadata of a table's schema, or None if the table is not a view.

    Args:
        metadata: The schema's metadata.
        uri: Where the view is now. A source in the view's own database is looked up there. If empty, the stored place
            is used.

    Raises:
        Damaged: The metadata was changed after it was written.
        OtherFormat: Another release wrote it.
    """
    if not is_view(metadata):
        return None
    try:
        stored = {key.decode(): value.decode() for key, value in metadata.items() if key.startswith(b"leman::")}
        if FORMAT in stored:
            stored_documents.VIEW.check(stored[FORMAT], "The metadata of the view")
        return _read(stored, uri.rpartition("/")[0])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise Damaged(repr(error)) from None


def write(schema: pa.Schema, definition: ViewDefinition) -> pa.Schema:
    """Return the schema with the definition in its metadata. Other metadata is kept."""
    stored = {key.encode(): value.encode() for key, value in updates(definition).items()}
    return schema.with_metadata({**(schema.metadata or {}), **stored})


def updates(definition: ViewDefinition) -> dict[str, str]:
    """Return all metadata of a view. A refresh writes it too, as the view may have been moved."""
    return {**_stored(definition), **_place(definition), **_sealed(definition)}


def with_query(definition: ViewDefinition) -> dict[str, str]:
    """Return the part of the metadata that depends on the query."""
    return {
        QUERY: _text(query_json(definition.query)),
        BASE_DATABASE: definition.query.database,
        **_place(definition),
        FILLED: _text(definition.filled),
        EARLIER: _earlier_text(definition),
        FAILED: _failed_text(definition.failed),
        **_sealed(definition),
    }


def remembering(definition: ViewDefinition, state: EarlierState | None) -> ViewDefinition:
    """Return the definition with `state` among its remembered earlier states, without the oldest.

    A state is not added if it equals the current one or is remembered already.
    """
    now = EarlierState(view_version=0, source_version=definition.base_version, computed=definition.computed)
    if state is None or state.is_like(now):
        others = definition.earlier
    else:
        others = (state, *(e for e in definition.earlier if not e.is_like(state)))
    return replace(definition, earlier=tuple(e for e in others if not e.is_like(now))[:MOST_EARLIER])


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
        QUERY: _text(query_json(query)),
        BASE_TABLE: query.table,
        BASE_DATABASE: query.database,
        FORMAT: str(int(definition.format)),
        **_changing(definition),
    }


def query_json(query: ViewQuery) -> dict[str, Any]:
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
    """Return the stored definition of a view in the database `home`, or in an unknown one if `home` is empty."""
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
    """Return the failed rows that a table's metadata lists, or none if it is no view's metadata or is damaged."""
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
