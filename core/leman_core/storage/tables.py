"""Read tables: manifests, filters, listings. Nothing is written here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pyarrow.fs as pafs

from leman_core.functions import blobs
from leman_core.model.errors import InvalidArgument, NotFound
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_core.sql import case_expressions, expressions, filters, json_columns, struct_paths
from leman_core.storage import dialect, patterns
from leman_core.storage.buckets import check_bucket
from leman_core.storage.database_roots import EVERYWHERE, DatabaseRoots
from leman_core.storage.dialect import Dialect
from leman_core.storage.error_translation import using_storage
from leman_core.storage.filesystems import filesystem_of
from leman_core.storage.locations import TABLE_ENDING, canonical_database, check_table_name
from leman_core.storage.manifest import collector_paused, manifest_bytes, parse, walk
from leman_core.storage.object_stores.answers import on_one_line
from leman_core.storage.opening import open_latest, open_version
from leman_core.storage.panics import panics_as_errors
from leman_core.storage.sql_messages import expression_error, filter_message
from leman_core.storage.storage_errors import failed, in_use
from leman_core.storage.table_errors import table_error

INCARNATION_KEY = "leman.incarnation"
_VERSIONS = "_versions"

_TAGS_LISTED = 40
#: A manifest of so many bytes is sent to workers: that of some hundred fragments.
_SENT_BYTES = 1 << 16
#: Up to this many fragments are read one by one: to parse a manifest of a thousand takes 8 ms.
_FEW_FRAGMENTS = 32
#: Types of views: Lance computes with them, and stores none.
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def snapshot_of(uri: str, dataset: lance.LanceDataset, fragments: Sequence[Fragment]) -> TableSnapshot:
    """Return what an opened version says of itself, with fragments that were read from it."""
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
    """Return a manifest that workers are sent: they need not read it, and others may clean its version up."""
    return manifest if manifest is not None and len(manifest) <= _SENT_BYTES else b""


class LanceTables:
    """What reads tables through Lance.

    See `leman_core.model.ports.TableReader`.

    Every call opens the table anew: a kept handle would have to be asked for news anyway.

    Args:
        roots: below which a table has to lie, whoever names it: stored definitions do, too.
    """

    def __init__(self, roots: DatabaseRoots = EVERYWHERE) -> None:
        self._roots = roots

    def snapshot(self, uri: str, version: int = 0, only: Collection[int] | None = None) -> TableSnapshot:
        """Return a version of the table (0: latest).

        Args:
            only: ids of the fragments that are wanted. Where they are few, no others are read.

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
            LemanError: what else `table_errors.table_error` gives.
        """
        dataset = self._open(uri, version)
        try:
            with panics_as_errors():  # over a schema that makes no sense, once it is asked for
                found = snapshot_of(uri, dataset, ())
        except (ValueError, OSError) as error:
            raise table_error(uri, error, version) from None
        if only is not None and len(only) <= _FEW_FRAGMENTS:
            return replace(found, fragments=walk(dataset, only))
        serialized = manifest_bytes(dataset)
        del dataset
        with collector_paused():
            fragments = parse(serialized)
        if fragments is None:
            fragments = walk(self._open(uri, found.version))
        return replace(found, fragments=fragments, manifest=_worth_sending(serialized))

    def dataset(self, uri: str, version: int = 0) -> lance.LanceDataset:
        """Return a version of the table (0: latest) as Lance's own dataset, for the packages that know Lance.

        Raises:
            NotFound: TABLE_NOT_FOUND, VERSION_NOT_FOUND.
            LemanError: what else `table_errors.table_error` gives.
        """
        return self._open(uri, version)

    def latest_version(self, uri: str) -> int:
        """Return the number of the latest version.

        Raises:
            LemanError: what `table_errors.table_error` gives.
        """
        return int(self._open(uri, 0).version)

    def tagged(self, uri: str, tag: str) -> int:
        """Return the version of the main branch that a tag stands for.

        Raises:
            NotFound: TAG_NOT_FOUND, also for a tag of another branch; TABLE_NOT_FOUND.
        """
        tags = self._open(uri, 0).tags.list()
        if tag in tags:
            version, branch = int(tags[tag]["version"]), tags[tag].get("branch")
            if not branch:
                return version
            raise NotFound(
                "TAG_NOT_FOUND",
                f"Tag '{tag}' of table {uri} is on branch '{branch}' (version {version} there); the services read the "
                "main branch only. Tag a version of the main branch, or read the branch with lance",
                uri=uri,
                tag=tag,
                branch=branch,
            )
        listed = ", ".join(sorted(tags)[:_TAGS_LISTED]) or "none"
        raise NotFound("TAG_NOT_FOUND", f"Table {uri} has no tag '{tag}'. Its tags: {listed}", uri=uri, tag=tag)

    def check_filter(self, uri: str, where: str, version: int = 0) -> None:
        """Check an expression by `leman_core.sql.filters` and by Lance on this version of the table (0: latest).

        Reads no rows.

        Raises:
            InvalidArgument: INVALID_FILTER, where one of the two refuses it.
        """
        dataset = self._open(uri, version)
        columns = dataset.schema.names
        filters.check(where, columns)
        case_expressions.check(filters.tokens(where))
        patterns.check(where)
        json_columns.check(where, dataset.schema)
        struct_paths.check_packed(where, dataset.schema)
        try:
            spoken = Dialect(dataset).lance(where)
        except dialect.ERRORS as error:
            raise filters.invalid(filter_message(error, columns)) from None
        _explain(dataset, spoken, columns)
        try:
            _explain(dataset, f"({spoken})", columns)
        except InvalidArgument:  # Lance ignores what comes after a complete expression: `id > 0 LIMIT 1`
            raise filters.invalid("something follows a complete expression; AND or OR missing?") from None

    def expression_type(
        self,
        uri: str,
        expression: str,
        version: int = 0,
        also: Sequence[pa.Field] = (),
        *,
        may_be_constant: bool = False,
    ) -> pa.DataType:
        """Return the type of what a checked expression gives on a version of this table (0: latest).

        Reads no rows.

        Args:
            also: columns that the table is about to get.
            may_be_constant: whether it may read no column, and be NULL of no type.

        Raises:
            InvalidArgument: INVALID_EXPRESSION.
            FailedPrecondition: INPUT_COLUMN_MISSING.
        """
        dataset = self._open(uri, version)
        if also:
            dataset = _with_columns(dataset, also, expression)
        try:
            case_expressions.check(filters.tokens(expression))
            patterns.check(expression)
            json_columns.check(expression, dataset.schema)
            struct_paths.check_packed(expression, dataset.schema)
            spoken = Dialect(dataset).lance(expression)
            with panics_as_errors():
                row = {"row": "_rowid"} if may_be_constant else {}
                schema = dataset.scanner(columns={"value": f"({spoken})", **row}).projected_schema
        except InvalidArgument as error:
            raise expressions.invalid(error.message.removeprefix("Invalid filter: ")) from None
        except dialect.ERRORS as error:
            raise expression_error(error, dataset.schema.names) from None
        found = schema.field(0).type
        if pa.types.is_null(found) and not may_be_constant:
            raise expressions.invalid("it is NULL for every row, of no type; write cast(NULL as …)")
        return _PLAIN.get(found, found)

    def list_tables(self, database: str) -> list[str]:
        """Return the names of the tables in a database, sorted; none where there is no such folder yet.

        Raises:
            FailedPrecondition: STORAGE_DENIED, STORAGE_MISSING.
            Unavailable: STORE_UNAVAILABLE.
        """
        place = canonical_database(database)
        try:
            names = _listed_in(place)
        except (OSError, ValueError) as error:
            said = on_one_line(str(error))
            raise failed(error, f"The tables of {place} cannot be listed: {said}", place) from None
        if not names:
            check_bucket(place)
        return names

    def existing_data_files(self, uri: str, files: Iterable[str]) -> set[str]:
        """Return those of the named files that lie in the table's data folder.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        wanted = sorted(set(files))
        with in_use(f"Files of table {uri}", uri):
            filesystem, root = filesystem_of(uri)
            infos = filesystem.get_file_info([f"{root}/data/{file}" for file in wanted])
        return {f for f, info in zip(wanted, infos, strict=True) if info.type == pafs.FileType.File}

    def check_place(self, uri: str) -> None:
        """Refuse a table that does not lie where the service may work.

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


def database_exists(database: str) -> bool:
    """Tell whether there is a folder where a database is to be.

    Raises:
        LemanError: what `storage_errors.failed` gives.
    """
    with in_use(f"The database {database}", database):
        filesystem, root = filesystem_of(database)
        try:
            is_there = bool(filesystem.get_file_info(root).type == pafs.FileType.Directory)
        except OSError:
            filesystem.get_file_info(pafs.FileSelector(root))  # which may say why: an answer to HEAD has no words
            raise
    if not is_there:
        check_bucket(database)
    return is_there


def _listed_in(place: str) -> list[str]:
    filesystem, root = filesystem_of(place)
    entries = filesystem.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    folders = [e.base_name for e in entries if e.type == pafs.FileType.Directory]
    names = sorted(name for name in folders if name.endswith(TABLE_ENDING) and _can_be_table(name))
    # a folder with files and no version is a view that is being made, or whose maker died
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
    """Return the name of the file that holds a column in the latest version of a fragment; empty: none does.

    Raises:
        LemanError: what `storage_errors.unusable` gives where the table cannot be opened.
    """
    with using_storage(uri):
        fragment = open_latest(uri).get_fragment(fragment_id)
        files = fragment.metadata.files if fragment is not None else []
        return next((file._path for file in files if not set(field_ids).isdisjoint(file.fields)), "")


def fields_of(dataset: lance.LanceDataset) -> tuple[TableField, ...]:
    """Return the top-level columns, with the Lance ids of each and of its children."""
    pairs = zip(dataset.schema, dataset.lance_schema.fields(), strict=True)
    return tuple(_field(arrow, field) for arrow, field in pairs)


def file_format(dataset: lance.LanceDataset) -> tuple[int, int]:
    """Return the version of the file format that the table's data is written in."""
    major, minor = dataset.data_storage_version.split(".")
    return int(major), int(minor)


def _field(arrow: pa.Field, field: Any) -> TableField:
    children: tuple[TableField, ...] = ()
    if pa.types.is_nested(arrow.type) and not blobs.is_blob(arrow):
        children = tuple(_field(*pair) for pair in _inner_fields(arrow.type, field))
    return TableField(arrow, tuple(field_ids(field)), children)


def _inner_fields(kind: pa.DataType, field: Any) -> Iterable[tuple[pa.Field, Any]]:
    """Return the fields that lie in a nested type directly, with what Lance has of them."""
    if pa.types.is_map(kind):
        return zip((kind.key_field, kind.item_field), field.children()[0].children(), strict=True)
    if pa.types.is_fixed_size_list(kind):  # one piece to Lance
        return ()
    return zip((kind.field(at) for at in range(kind.num_fields)), field.children(), strict=True)


def field_ids(field: Any) -> list[int]:
    """Return the ids of a field and its children, in file order."""
    found = [field.id()]
    for child in field.children():
        found += field_ids(child)
    return found


def _explain(dataset: lance.LanceDataset, where: str, columns: list[str]) -> None:
    try:
        dataset.scanner(columns=[], with_row_id=True, filter=where).explain_plan()
    except Exception as error:  # noqa: BLE001 - Lance raises ValueError, OSError and panics alike
        raise filters.invalid(filter_message(error, columns)) from None


def open_table(uri: str, *, cache_bytes: int | None = None) -> lance.LanceDataset:
    """Return the latest version; `cache_bytes` as for `open_latest`.

    Raises:
        LemanError: what `table_error` gives.
    """
    try:
        return open_latest(uri, cache_bytes=cache_bytes)
    except (OSError, ValueError) as error:
        raise table_error(uri, error) from None


def _with_columns(dataset: lance.LanceDataset, also: Sequence[pa.Field], expression: str) -> lance.LanceDataset:
    """Return a dataset without rows, in memory, that has what an expression reads of a table and of further columns."""
    fields = {field.name: field for field in (*dataset.schema, *also)}
    read = expressions.inputs(expression, list(fields))
    if not any(field.name in read for field in also):
        return dataset
    schema = pa.schema([fields[name] for name in read])
    written: Any = dataset.data_storage_version
    return lance.write_dataset(schema.empty_table(), "memory://columns.lance", data_storage_version=written)
