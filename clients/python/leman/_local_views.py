"""Views of a folder of this machine as their metadata has them: for reads where services would have to be started.

The metadata is documented in docs/views.md. What makes no sense here the services are asked for, which say why.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from leman import _local_catalog, local
from leman._table_model import TableInfo
from leman._view_model import (
    INTERNAL_COLUMNS,
    IS_SET,
    VIEW_KEYS,
    ViewColumn,
    ViewFunction,
    ViewInfo,
    ViewQuery,
    ViewSummary,
)
from leman.errors import LemanError

#: Entries that its digest is made of, and those that a view of an early release lacks.
_COVERED = frozenset(
    ("query", "base_table", "base_table_db_uri", "base_table_version", "version", "base_table_incarnation")
) | {"filled", "base_table_record"}
_LATER = frozenset(("earlier", "failed"))
_ROW_REFERENCES = {1: "address", 2: "stable_row_id"}


def describe(table: TableInfo) -> ViewInfo | None:
    """A view, of which `table` is its table; None: the services know, or refuse it better."""
    try:
        return _described(table)
    except (LemanError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def relations(database: str, name: str | None = None) -> list[TableInfo] | None:
    """The tables and views of a database, or one of them, by name; None: as for `describe`.

    Raises NotFound (DATABASE_NOT_FOUND), TableNotFound.
    """
    found: list[TableInfo] = []
    for each in _local_catalog.table_names(database) if name is None else [name]:
        table = _local_catalog.describe(database, each)
        if table is not None and _is_view(table):
            table = describe(table)
        if table is None:
            return None
        found.append(table)
    return found


def summaries(database: str) -> list[ViewSummary] | None:
    """All views of a database, by name; None: as for `describe`."""
    found = []
    try:
        for name in _local_catalog.table_names(database):
            table = _local_catalog.describe(database, name)
            if table is None:
                return None
            if _is_view(table):
                found.append(_summary(_described(table)))
    except (LemanError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return found


def _is_view(table: TableInfo) -> bool:
    return any(key.startswith(VIEW_KEYS) for key in table.schema.metadata or {})


def _described(table: TableInfo) -> ViewInfo:
    import pyarrow as pa  # noqa: PLC0415 - slow to import; it was for `table`

    stored = _stored(table.schema.metadata or {})
    query = json.loads(stored["query"])
    query["database"] = _source_database(stored, table.uri.rpartition("/")[0])
    filled = json.loads(stored["filled"])
    rows_set = local.open_table(table.uri, table.version).count_rows(IS_SET)
    functions = {f["name"]: f"{f['udf_name']}@{f['udf_version']}" for f in query["functions"]}
    return ViewInfo(
        name=table.name,
        uri=table.uri,
        version=table.version,
        row_count=rows_set,
        fragment_count=table.fragment_count,
        schema=pa.schema([field for field in table.schema if field.name not in INTERNAL_COLUMNS]),
        computed_columns=(),
        stable_row_ids=table.stable_row_ids,
        query=_query(query),
        source_version=int(stored["base_table_version"]),
        rows_unset=table.row_count - rows_set,
        row_reference=_ROW_REFERENCES[int(stored["version"])],
        stale_columns=tuple(name for name, function in functions.items() if filled.get(name) != function),
    )


def _summary(view: ViewInfo) -> ViewSummary:
    return ViewSummary(
        name=view.name,
        uri=view.uri,
        version=view.version,
        source_database=view.query.source_database,
        source_table=view.query.source_table,
        source_version=view.source_version,
        row_reference=view.row_reference,
        row_count=view.row_count,
        rows_unset=view.rows_unset,
        stale_columns=view.stale_columns,
    )


def _stored(metadata: Mapping[bytes, bytes]) -> dict[str, str]:
    """What a view has in the metadata of its schema. Raises LookupError, ValueError where that is not as written."""
    prefix = VIEW_KEYS.decode()
    found = {k.decode().removeprefix(prefix): v.decode() for k, v in metadata.items() if k.startswith(VIEW_KEYS)}
    bound = sorted((prefix + name, found[name]) for name in _COVERED | (_LATER & found.keys()))
    if found["digest"] != hashlib.sha256(json.dumps(bound, ensure_ascii=False).encode()).hexdigest()[:32]:
        raise ValueError("the metadata of the view was changed")
    return found


def _source_database(stored: Mapping[str, str], home: str) -> str:
    """The database of the source of a view that lies in the database `home`.

    Raises ValueError where another one is named by a view of an earlier release, which may have been moved.
    """
    own, recorded = stored.get("base_table_in_own_database"), stored["base_table_db_uri"].rstrip("/")
    if own == "true":
        return home
    if own is None and recorded != home:
        raise ValueError("the services know whether the view was moved")
    return recorded


def _query(stored: Mapping[str, Any]) -> ViewQuery:
    return ViewQuery(
        source_database=stored["database"],
        source_table=stored["table"],
        columns=tuple(ViewColumn(c["name"], _expression(c)) for c in stored["columns"]),
        functions=tuple(
            ViewFunction(f["name"], f["udf_name"], f["udf_version"], tuple(f["inputs"])) for f in stored["functions"]
        ),
        where=stored["where"],
        shuffle_seed=stored["shuffle_seed"] if stored["shuffle"] else None,
        limit=stored["limit"],
        offset=stored["offset"],
    )


def _expression(column: Mapping[str, Any]) -> str:
    """What makes a column, where it is a column of the source by its name, or by that in backticks."""
    source: str = column["source_column"]
    if source == column["name"]:
        return source
    quoted = "`" + source.replace("`", "``") + "`"
    return quoted if source else str(column["expression"])
