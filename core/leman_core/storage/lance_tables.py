"""Read tables: versions, tags, indexes, listings, and checks of filters and expressions. Nothing is written here.

The incarnation of a table is an id that it gets when it is created. It distinguishes the table from a later one at the
same place.
"""

from __future__ import annotations

import contextlib
import json
import urllib.parse
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.functions import arrow_types
from leman_core.model.service_errors import DataLoss, InvalidArgument, NotFound
from leman_core.model.table import Fragment, IndexCoverage, TableField, TableSnapshot
from leman_core.sql import expressions, filters
from leman_core.storage import lance_sql
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_core.storage.error_translation import table_error, using_storage
from leman_core.storage.filesystems import check_bucket, filesystem_of
from leman_core.storage.lance_sql import Dialect, expression_error, filter_message
from leman_core.storage.locations import TABLE_ENDING, canonical_database, check_table_name
from leman_core.storage.manifest import (
    collector_paused,
    manifest_bytes,
    parse_fragments,
    read_fragments,
    walk_fragments,
)
from leman_core.storage.opening import open_latest, open_version
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.storage_errors import on_one_line, storage_failed, translating_os_errors

INCARNATION_KEY = "leman.incarnation"
_VERSIONS = "_versions"

#: The folder of a table's tags. Lance stores each tag as a JSON file with the percent-encoded name of the tag.
_TAGS = "_refs/tags"
_TAG_ENDING = ".json"
_LONGEST_FILE_NAME = 255
_TAGS_LISTED = 40
#: The size of the largest manifest that is sent to workers. It has some hundred fragments.
_SENT_BYTES = 1 << 16
#: Up to this number of wanted fragments, read each by itself: parsing a manifest of a thousand fragments takes 8 ms.
_FEW_FRAGMENTS = 32
#: Arrow's view types (such as string_view). Lance computes with them, but cannot store them.
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def snapshot_of(uri: str, dataset: lance.LanceDataset, fragments: Sequence[Fragment]) -> TableSnapshot:
    """Return the snapshot of an open version, with `fragments`, which were read from that version."""
    return TableSnapshot(
        uri=uri,
        version=int(dataset.version),
        incarnation=dataset.config().get(INCARNATION_KEY, ""),
        fields=fields_of(dataset),
        fragments=fragments,
        stable_row_ids=bool(dataset.has_stable_row_ids),
        metadata=dataset.schema.metadata or {},
        file_format=file_format(dataset),
    )


def _worth_sending(manifest: bytes | None) -> bytes:
    """Return the manifest if it is small enough to send to workers, else nothing.

    Workers that have the manifest can read the version even after it was cleaned up.
    """
    return manifest if manifest is not None and len(manifest) <= _SENT_BYTES else b""


class LanceTables:
    """Reads tables through Lance; see `leman_core.model.work.TableReader`.

    Every call opens the table, because a handle that stays open would have to check for newer versions anyway.

    Args:
        roots: The roots below which every table has to be, including the tables that stored definitions refer to.
    """

    def __init__(self, roots: DatabaseRoots = EVERYWHERE) -> None:
        self._roots = roots

    def snapshot(self, uri: str, version: int = 0, only: Collection[int] | None = None) -> TableSnapshot:
        """Return a version of the table (0: latest).

        Args:
            uri: The table.
            version: Its version.
            only: Ids of the wanted fragments. The snapshot may contain all others, too, unless these are few.

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
            LemanError: What else `table_error` gives.
        """
        dataset = self._open(uri, version)
        try:
            with panics_as_errors():  # Lance panics over a damaged schema at its first use
                found = snapshot_of(uri, dataset, ())
        except (ValueError, OSError) as error:
            raise table_error(uri, error, version) from None
        if only is not None and len(only) <= _FEW_FRAGMENTS:
            return replace(found, fragments=walk_fragments(dataset, only))
        serialized = manifest_bytes(dataset)
        del dataset
        with collector_paused():
            fragments = parse_fragments(serialized)
        if fragments is None:
            fragments = walk_fragments(self._open(uri, found.version))
        return replace(found, fragments=fragments, manifest=_worth_sending(serialized))

    def dataset(self, uri: str, version: int = 0) -> lance.LanceDataset:
        """Return a version of the table (0: latest) as a Lance dataset, for packages that use Lance.

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
            LemanError: What else `table_error` gives.
        """
        return self._open(uri, version)

    def latest_version(self, uri: str) -> int:
        """Return the number of the latest version.

        Raises:
            LemanError: What `table_error` gives.
        """
        return int(self._open(uri, 0).version)

    def tagged(self, uri: str, tag: str) -> int:
        """Return the version that a tag refers to. It must be a version of the main branch.

        Raises:
            NotFound: TAG_NOT_FOUND, also if the tag refers to another branch; TABLE_NOT_FOUND.
            DataLoss: TABLE_DAMAGED if the tag's file cannot be read.
        """
        self.check_place(uri)
        found = _read_tag(uri, tag)
        if found is None:
            self._open(uri, 0)  # raises if there is no such table
            listed = ", ".join(_tags(uri)[:_TAGS_LISTED]) or "none"
            raise NotFound("TAG_NOT_FOUND", f"Table {uri} has no tag '{tag}'. Its tags: {listed}", uri=uri, tag=tag)
        version, branch = found
        if branch:
            raise NotFound(
                "TAG_NOT_FOUND",
                f"Tag '{tag}' of table {uri} is on branch '{branch}' (version {version} there); the services read the "
                "main branch only. Tag a version of the main branch, or read the branch with lance",
                uri=uri,
                tag=tag,
                branch=branch,
            )
        return version

    def check_filter(
        self, uri: str, where: str, version: int = 0, *, is_stored: bool = False, on_a_row: bool = False
    ) -> None:
        """Check a filter with `leman_core.sql.filters`, and with Lance on a version of the table (0: latest).

        No rows of the table are read.

        Args:
            uri: The table.
            where: The filter.
            version: The version.
            is_stored: Whether an earlier release may have accepted the filter.
            on_a_row: Whether to evaluate the filter on a made-up row, too, which takes a millisecond.

        Raises:
            InvalidArgument: INVALID_FILTER if one of the checks fails.
        """
        dataset = self._open(uri, version)
        columns = dataset.schema.names
        filters.check_filter(where, columns, is_stored=is_stored)
        expressions.check_cases(filters.tokenize(where))
        lance_sql.check_patterns(where)
        if not is_stored:
            lance_sql.check_constants(where)
        expressions.check_json_use(where, dataset.schema)
        expressions.check_packed(where, dataset.schema)
        try:
            spoken = Dialect(dataset).lance(where)
        except lance_sql.ERRORS as error:
            raise filters.invalid_filter(filter_message(error, columns)) from None
        _explain(dataset, spoken, columns)
        try:
            _explain(dataset, f"({spoken})", columns)
        except InvalidArgument:  # Lance ignores text after a complete expression: `id > 0 LIMIT 1`
            raise filters.invalid_filter("something follows a complete expression; AND or OR missing?") from None
        if on_a_row:
            lance_sql.check_on_a_row(where, spoken, dataset)

    def expression_type(
        self,
        uri: str,
        expression: str,
        version: int = 0,
        also: Sequence[pa.Field] = (),
        *,
        may_be_constant: bool = False,
        is_stored: bool = False,
    ) -> pa.DataType:
        """Check an expression on a version of the table (0: latest) and return the type of its values.

        No rows of the table are read.

        Args:
            uri: The table.
            expression: The expression.
            version: The version.
            also: Further columns, which the table is about to get.
            may_be_constant: Whether to accept an expression that reads no column, or that is NULL without a type.
            is_stored: Whether an earlier release may have accepted the expression.

        Raises:
            InvalidArgument: INVALID_EXPRESSION.
            FailedPrecondition: INPUT_COLUMN_MISSING.
        """
        dataset = self._open(uri, version)
        if also:
            dataset = _with_columns(dataset, also, expression)
        try:
            expressions.check_cases(filters.tokenize(expression))
            lance_sql.check_patterns(expression)
            if not is_stored:
                lance_sql.check_constants(expression)
            expressions.check_json_use(expression, dataset.schema)
            expressions.check_packed(expression, dataset.schema)
            spoken = Dialect(dataset).lance(expression)
            with panics_as_errors():
                row = {"row": "_rowid"} if may_be_constant else {}
                schema = dataset.scanner(columns={"value": f"({spoken})", **row}).projected_schema
            if not is_stored:
                lance_sql.check_on_a_row(expression, spoken, dataset)
        except InvalidArgument as error:
            raise expressions.invalid_expression(error.message.removeprefix("Invalid filter: ")) from None
        except lance_sql.ERRORS as error:
            raise expression_error(error, dataset.schema.names) from None
        found = schema.field(0).type
        if pa.types.is_null(found) and not may_be_constant:
            raise expressions.invalid_expression("it is NULL for every row, which has no type: write cast(NULL as …)")
        return _PLAIN.get(found, found)

    def list_tables(self, database: str) -> list[str]:
        """Return the sorted names of the tables in a database; none if its folder does not exist yet.

        Raises:
            FailedPrecondition: STORAGE_DENIED, STORAGE_MISSING.
            Unavailable: STORE_UNAVAILABLE.
        """
        place = canonical_database(database)
        try:
            names = _listed_in(place)
        except (OSError, ValueError) as error:
            said = on_one_line(str(error))
            raise storage_failed(error, f"The tables of {place} cannot be listed: {said}", place) from None
        if not names:
            check_bucket(place)
        return names

    def existing_data_files(self, uri: str, files: Iterable[str]) -> set[str]:
        """Return those of `files` that exist in the table's data folder.

        Raises:
            LemanError: What `storage_failed` gives.
        """
        wanted = sorted(set(files))
        with translating_os_errors(f"Files of table {uri}", uri):
            filesystem, root = filesystem_of(uri)
            infos = filesystem.get_file_info([f"{root}/data/{file}" for file in wanted])
        return {f for f, info in zip(wanted, infos, strict=True) if info.type == pafs.FileType.File}

    def check_place(self, uri: str) -> None:
        """Refuse a table that is not below one of the roots.

        Raises:
            PermissionDenied: DATABASE_NOT_ALLOWED.
        """
        self._roots.check(uri)

    def _open(self, uri: str, version: int) -> lance.LanceDataset:
        self.check_place(uri)
        try:
            return open_version(uri, version)
        except (ValueError, OSError) as error:
            raise table_error(uri, error, version) from None


def _read_tag(uri: str, tag: str) -> tuple[int, str] | None:
    """Return the version and the branch (empty: main) that a tag refers to; None if the tag does not exist.

    This does not use Lance, which reads all tags of a table at once and fails if any of them has a name that is not
    ASCII.
    """
    name = f"{urllib.parse.quote(tag, safe='')}{_TAG_ENDING}"
    if len(name) > _LONGEST_FILE_NAME:
        return None
    with using_storage(uri):
        filesystem, path = filesystem_of(f"{uri}/{_TAGS}/{name}")
        try:
            with filesystem.open_input_stream(path) as stream:
                content = stream.read()
        except FileNotFoundError:
            return None
    try:
        said = json.loads(content)
        return int(said["version"]), said.get("branch") or ""
    except (ValueError, TypeError, KeyError, AttributeError):
        message = (
            f"The file {_TAGS}/{name} of table {uri} is damaged: restore it, or delete it and create the tag again"
        )
        raise DataLoss("TABLE_DAMAGED", message, uri=uri, tag=tag) from None


def _tags(uri: str) -> list[str]:
    """Return the names of a table's tags."""
    with using_storage(uri):
        filesystem, folder = filesystem_of(f"{uri}/{_TAGS}")
        entries = filesystem.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    names = (entry.base_name for entry in entries if entry.base_name.endswith(_TAG_ENDING))
    return sorted(urllib.parse.unquote(name.removesuffix(_TAG_ENDING)) for name in names)


def database_exists(database: str) -> bool:
    """Return whether the folder of a database exists.

    Raises:
        LemanError: What `storage_failed` gives.
    """
    with translating_os_errors(f"The database {database}", database):
        filesystem, root = filesystem_of(database)
        try:
            is_there = bool(filesystem.get_file_info(root).type == pafs.FileType.Directory)
        except OSError:
            # the error of a listing may say why; the store's answer to the HEAD request of the first call has no text
            filesystem.get_file_info(pafs.FileSelector(root))
            raise
    if not is_there:
        check_bucket(database)
    return is_there


def _listed_in(place: str) -> list[str]:
    filesystem, root = filesystem_of(place)
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    folders = [e.base_name for e in entries if e.type == pafs.FileType.Directory]
    names = sorted(name for name in folders if name.endswith(TABLE_ENDING) and _can_be_table(name))
    # a folder with files but no version belongs to a view that is being created, or whose creator died
    versions = filesystem.get_file_info([f"{root}/{name}/{_VERSIONS}" for name in names])
    made = (name for name, found in zip(names, versions, strict=True) if found.type == pafs.FileType.Directory)
    return [name.removesuffix(TABLE_ENDING) for name in made]


def _can_be_table(folder: str) -> bool:
    try:
        check_table_name(folder.removesuffix(TABLE_ENDING), "table")
    except InvalidArgument:
        return False
    return True


def current_file(uri: str, fragment_id: int, field_ids: Collection[int]) -> str:
    """Return the data file that has a column of a fragment in the table's latest version; empty if none has it.

    Raises:
        LemanError: What `storage_unusable` gives if the table cannot be opened.
    """
    with using_storage(uri):
        fragment = open_latest(uri).get_fragment(fragment_id)
        files = fragment.metadata.files if fragment is not None else []
        return next((file._path for file in files if not set(field_ids).isdisjoint(file.fields)), "")


def fields_of(dataset: lance.LanceDataset) -> tuple[TableField, ...]:
    """Return the top-level columns, each with its Lance field id and those of its children."""
    pairs = zip(dataset.schema, dataset.lance_schema.fields(), strict=True)
    return tuple(_field(arrow, field) for arrow, field in pairs)


def file_format(dataset: lance.LanceDataset) -> tuple[int, int]:
    """Return the version of Lance's file format in which the table's data is stored."""
    major, minor = dataset.data_storage_version.split(".")
    return int(major), int(minor)


def _field(arrow: pa.Field, field: Any) -> TableField:
    children: tuple[TableField, ...] = ()
    if pa.types.is_nested(arrow.type) and not arrow_types.is_blob(arrow):
        children = tuple(_field(*pair) for pair in _inner_fields(arrow.type, field))
    return TableField(arrow, tuple(field_ids(field)), children)


def _inner_fields(kind: pa.DataType, field: Any) -> Iterable[tuple[pa.Field, Any]]:
    """Return the direct fields of a nested type, with Lance's description of them."""
    if pa.types.is_map(kind):
        return zip((kind.key_field, kind.item_field), field.children()[0].children(), strict=True)
    if pa.types.is_fixed_size_list(kind):  # Lance has a single field for it and its items
        return ()
    return zip((kind.field(at) for at in range(kind.num_fields)), field.children(), strict=True)


def field_ids(field: Any) -> list[int]:
    """Return the ids of a field and of its children at any depth, in the order in which files have them."""
    found = [field.id()]
    for child in field.children():
        found += field_ids(child)
    return found


def _explain(dataset: lance.LanceDataset, where: str, columns: list[str]) -> None:
    try:
        dataset.scanner(columns=[], with_row_id=True, filter=where).explain_plan()
    except Exception as error:  # noqa: BLE001 - Lance raises ValueError, OSError and panics alike
        raise filters.invalid_filter(filter_message(error, columns)) from None


def open_table(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Open the latest version of a table. For `cache_bytes` see `open_latest`.

    Raises:
        LemanError: What `table_error` gives.
    """
    try:
        return open_latest(uri, cache_bytes=cache_bytes)
    except (OSError, ValueError) as error:
        raise table_error(uri, error) from None


def _with_columns(dataset: lance.LanceDataset, also: Sequence[pa.Field], expression: str) -> lance.LanceDataset:
    """Return an empty dataset that has all columns that an expression reads, including those in `also`.

    If the expression reads no column of `also`, return the table itself.
    """
    fields = {field.name: field for field in (*dataset.schema, *also)}
    read = expressions.columns_of_expression(expression, list(fields))
    if not any(field.name in read for field in also):
        return dataset
    schema = pa.schema([fields[name] for name in read])
    written: Any = dataset.data_storage_version
    return lance.write_dataset(schema.empty_table(), "memory://columns.lance", data_storage_version=written)


#: The number of earlier versions in which `is_other_table` searches for the incarnation.
_LOOKED_BACK = 50


def incarnation_at(uri: str) -> str | None:
    """Return the incarnation of the table or view at `uri`; empty if it has none, None if there is no table.

    Raises:
        LemanError: What `open_table` raises, except for a missing table.
    """
    try:
        return str(open_table(uri).config().get(INCARNATION_KEY, ""))
    except NotFound:
        return None


def is_other_table(uri: str, incarnation: str) -> bool:
    """Return whether the table or view at `uri` is not the one with this incarnation. False if there is no table.

    Lance restores a table's settings together with its rows. So a table that was restored to a version without an
    incarnation has none in its latest version, although it is the same table. Its earlier versions then have it.

    Raises:
        LemanError: What `table_error` gives, except for a missing table.
    """
    tables = LanceTables()
    try:
        latest = tables.dataset(uri)
    except NotFound:
        return False
    now = latest.config().get(INCARNATION_KEY, "")
    if now:
        return bool(now != incarnation)
    for version in range(latest.version - 1, max(0, latest.version - 1 - _LOOKED_BACK), -1):
        with contextlib.suppress(NotFound):  # the version was cleaned up
            if tables.dataset(uri, version).config().get(INCARNATION_KEY, "") == incarnation:
                return False
    return True


def index_coverage(
    uri: str, columns: Collection[str] = (), names: Collection[str] = ()
) -> tuple[int, list[IndexCoverage]]:
    """Return the number of the latest version, and its indexes by name. No rows are read.

    Args:
        uri: The table.
        columns: The columns whose indexes to return; empty: all columns.
        names: The names of the indexes to return; empty: all.

    Raises:
        LemanError: What `open_table` raises.
    """
    dataset = open_table(uri)
    return int(dataset.version), index_coverage_of(dataset, columns, names)


def index_coverage_of(
    dataset: lance.LanceDataset, columns: Collection[str], names: Collection[str]
) -> list[IndexCoverage]:
    """Return what `index_coverage` does, for a table that is open."""
    wanted = [
        index
        for index in dataset.describe_indices()
        if (not columns or set(columns) & set(index.field_names)) and (not names or index.name in names)
    ]
    if not wanted:
        return []
    rows = {fragment.fragment_id: fragment.live_rows for fragment in read_fragments(dataset)}
    found = []
    for index in sorted(wanted, key=lambda index: index.name):
        covered = rows.keys() & set().union(*(segment.fragment_ids for segment in index.segments))
        left_out = sum(count for fragment_id, count in rows.items() if fragment_id not in covered)
        found.append(
            IndexCoverage(
                name=index.name,
                kind=index.index_type,
                columns=tuple(index.field_names),
                fragments=len(rows),
                fragments_covered=len(covered),
                rows_left_out=left_out,
            )
        )
    return found
