"""Tables of a folder of this machine as their manifests have them: for reads where services would have to be started.

What makes no sense here, and what the services alone can tell, they are asked for.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from leman import _local_database, local
from leman._table_model import ComputedColumn, TableInfo
from leman.errors import LemanError, TableNotFound

if TYPE_CHECKING:
    import lance
    import pyarrow as pa

_ENDING = ".lance"
_SCRATCH = "__leman_scratch_"
_KEY = "leman::"
#: Entries of a column's metadata that its digest is made of.
_BOUND = ("column_id", "udf_name", "udf_version", "inputs", "source", "added_as", "kept", "input_names")


def table_names(database: str) -> list[str]:
    """The names of its tables and views, sorted; none where there is no database. Raises OSError."""
    try:
        with os.scandir(database) as found:
            folders = [entry for entry in found if entry.name.endswith(_ENDING) and entry.is_dir()]
    except FileNotFoundError:
        return []
    made = (entry.name for entry in folders if os.path.isdir(os.path.join(entry.path, "_versions")))  # noqa: PTH112, PTH118
    return sorted(name.removesuffix(_ENDING) for name in made if not name.startswith(_SCRATCH))


def describe(database: str, name: str) -> TableInfo | None:
    """The latest version of a table or view; None: the services know, or refuse it better.

    Raises NotFound (DATABASE_NOT_FOUND), TableNotFound.
    """
    _local_database.check_there(database)
    uri = f"{database}/{name}{_ENDING}"
    try:
        names = table_names(database)
        if name not in names:
            raise _absence(uri, name, names)
        return _described(name, uri, local.open_table(uri))
    except TableNotFound:
        raise
    except (LemanError, OSError, ValueError, LookupError, TypeError):
        return None


def _absence(uri: str, name: str, names: list[str]) -> LemanError:
    if not name.isidentifier():
        return LemanError("a name that the services look at")
    close = difflib.get_close_matches(name, names, n=2)
    meant = f"did you mean {' or '.join(map(repr, close))}? Else " if close else ""
    return TableNotFound(
        f"There is no table at {uri}: {meant}check the database path and the table name, or create it first",
        facts={"uri": uri},
    )


def _described(name: str, uri: str, dataset: lance.LanceDataset) -> TableInfo:
    paths = dict(_paths(dataset.lance_schema.fields()))
    return TableInfo(
        name=name,
        uri=uri,
        version=dataset.version,
        row_count=dataset.count_rows(),
        fragment_count=len(dataset.get_fragments()),
        schema=dataset.schema,
        computed_columns=tuple(_computed(field, paths) for field in dataset.schema if _is_bound(field)),
        stable_row_ids=bool(dataset.has_stable_row_ids),
    )


def _paths(fields: Iterable[Any], before: str = "") -> Iterable[tuple[int, str]]:
    """Columns, and fields of structs by names with dots between, by the ids that renames keep."""
    for field in fields:
        yield field.id(), before + field.name()
        yield from _paths(field.children(), f"{before}{field.name()}.")


def _is_bound(field: pa.Field) -> bool:
    return any(f"{_KEY}{key}".encode() in (field.metadata or {}) for key in ("column_id", "digest"))


def _computed(field: pa.Field, paths: Mapping[int, str]) -> ComputedColumn:
    """Raises LookupError, ValueError, TypeError where its metadata is not what was written."""
    stored = {key.decode(): value.decode() for key, value in field.metadata.items() if key.startswith(_KEY.encode())}
    bound = sorted((key, stored[key]) for key in (_KEY + entry for entry in _BOUND) if key in stored)
    digest = hashlib.sha256(json.dumps(bound, ensure_ascii=False).encode()).hexdigest()[:32]
    if stored[f"{_KEY}digest"] != digest:
        raise ValueError(f"the metadata of column {field.name} was changed")
    return ComputedColumn(
        field.name,
        stored[f"{_KEY}udf_name"],
        stored[f"{_KEY}udf_version"],
        tuple(paths.get(field_id, column) for column, field_id in json.loads(stored[f"{_KEY}inputs"])),
        tuple(f"{udf}@{version}" for udf, version in json.loads(stored.get(f"{_KEY}kept", "[]"))),
    )
