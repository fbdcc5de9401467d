"""Local access to tables: the extra `leman[lance]`. Only this module of the SDK imports lance."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import importlib.util
import re
import sys
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from leman._arrow import pa
from leman._format import sql_limits
from leman._format.view_definitions import PREFIX
from leman.errors import (
    ColumnNotFound,
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    MissingDependency,
    TableExists,
    TableNotFound,
    TypeMismatch,
    Unavailable,
    VersionNotFound,
)

if TYPE_CHECKING:
    import lance

INCARNATION = "leman.incarnation"
"""Config key of a table's incarnation: a value that distinguishes it from later tables of the same name."""

_BLOB = "lance.blob.v2"
#: Lance's messages if the table exists already, or if another process creates it concurrently.
_THERE = ("already exists", "_versions/0.manifest was not found")
#: Metadata keys of a struct whose fields Lance stores together.
_PACKED_KEYS = (b"packed", b"lance-encoding:packed")
#: Lance's message for a table with unknown feature flags.
_TOO_NEW = "cannot be read by this version of Lance"
#: The maximum number of characters that an error quotes of Lance's message, which contains the caller's text.
_LONGEST = 500
_INPUT_REFUSED = "Invalid user input: "
#: Lance's messages for damaged files of a table, and for a missing one.
_NONSENSE = re.compile(
    r"Encountered corrupt file|invalid magic|LanceError\(Arrow\).*/io/deletion\.rs:|Is a directory"
    r"|Invalid range \S+ for object of size"
)
_NO_FILE = re.compile(r"[Nn]ot found: .*((?:data|_deletions)/[\w.-]+\.(?:lance|arrow|bin))\b")
_MOST_VERSIONS = 1 << 64
_with_pandas = True
_MISMATCH = re.compile(r"Type mismatch for column .*: .*")
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_REFUSALS = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "STORAGE_FULL"),
    errno.EROFS: "STORAGE_READ_ONLY",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "STORAGE_DENIED"),
}


def is_available() -> bool:
    """Return whether pylance is installed. Imports nothing."""
    return importlib.util.find_spec("lance") is not None


def require() -> None:
    """Import pylance. Raises MissingDependency."""
    _lance()


def spare_pandas() -> None:
    """Import pylance without pandas, its slowest import, if the program has no data frames."""
    global _with_pandas  # noqa: PLW0603 - one value for the process
    _with_pandas = False


def prepare() -> None:
    """Import pylance, if installed. The import takes a second, so call this while waiting for something else."""
    with contextlib.suppress(MissingDependency):
        _lance()


def open_table(uri: str, version: int | str | None = None) -> lance.LanceDataset:
    """Open a table as a Lance dataset. `version`: a number or a tag; None: the latest.

    Raises TableNotFound, VersionNotFound, Unavailable, MissingDependency.
    """
    if isinstance(version, int) and version < 0:
        raise InvalidArgument(f"version is {version}, below 0: give the number of a version", reason="BAD_NUMBER")
    if isinstance(version, int) and version >= _MOST_VERSIONS:
        raise VersionNotFound(f"the table at {uri} has no version {version}")
    with _lance_errors(uri, version):
        dataset: lance.LanceDataset = _lance().dataset(uri, version=version)
    return dataset


def read_table(
    uri: str,
    columns: list[str] | None,
    where: str | None,
    *,
    limit: int | None = None,
    offset: int = 0,
    version: int | str | None = None,
    shown: str = "",
    hidden: Collection[str] = (),
) -> pa.Table | None:
    """Read rows as an Arrow table. Return None if Lance would misread the filter, so that the services must read.

    `version`: a number or a tag; None: the latest. `shown`: a condition by Leman that all rows must fulfil. `hidden`:
    columns that are left out if `columns` is None. Raises TableNotFound, VersionNotFound, InvalidArgument, Unavailable,
    MissingDependency.
    """
    if where and (problem := sql_limits.nesting_problem(where)):
        raise InvalidArgument(f"Invalid filter: {problem}", reason="INVALID_FILTER")
    table = open_table(uri, version)
    if not sql_limits.is_plain(where or "true") or _reads_otherwise(table.schema, columns or (), where or ""):
        return None
    if columns is None and hidden:
        columns = [name for name in table.schema.names if name not in hidden]
    condition = f"{shown} AND ({where})" if shown and where else shown or where
    with _lance_errors(uri):
        try:
            return table.to_table(columns=columns, filter=condition, limit=limit, offset=offset or None)
        except ValueError as error:
            if "could not convert to literal" in str(error):  # such as text for a time, which the services translate
                return None
            raise


def _reads_otherwise(schema: pa.Schema, columns: Iterable[str], where: str) -> str:
    """Return a column that Lance would read wrongly without an error, or "" if there is none. The services refuse it.

    In Lance's SQL, JSON is binary; and Lance returns wrong values for single fields of packed structs.
    """
    for field in schema:
        packed = any((field.metadata or {}).get(key, b"").lower() == b"true" for key in _PACKED_KEYS)
        if (where and (packed or _holds_json(field.type))) or (
            packed and any(path.startswith(f"{field.name}.") for path in columns)
        ):
            return str(field.name)
    return ""


def create_table(uri: str, data: Any, *, overwrite: bool, stable_row_ids: bool, max_rows_per_file: int | None) -> None:
    """Write a table. `data`: as for `as_arrow`.

    Raises TableExists, InvalidArgument, MissingDependency, Unavailable, and FailedPrecondition (STORAGE_FULL,
    STORAGE_READ_ONLY, STORAGE_DENIED).
    """
    lance = _lance()
    rows = _with_checked_json(plain_rows(as_arrow(data)))
    limits = {} if max_rows_per_file is None else {"max_rows_per_file": max_rows_per_file}
    options = {"enable_stable_row_ids": stable_row_ids, **limits}
    with _lance_errors(uri):
        try:
            if overwrite and _exists(lance, uri):  # Lance would warn
                table = lance.write_dataset(rows, uri, mode="overwrite", **options)
            else:
                table = _created(lance, uri, rows, options)
        except OSError as error:
            if overwrite or not any(sign in str(error) for sign in _THERE):
                raise
            raise TableExists(
                f"there is a table at {uri} already; exist_ok=True opens it if it has these columns, mode='overwrite'"
                " replaces it"
            ) from None
        _give_incarnation(lance, uri, table)


def _give_incarnation(lance: Any, uri: str, table: Any) -> None:
    """Give a new table its incarnation, unless a job that began right after its creation has done so."""
    try:
        table.update_config({INCARNATION: uuid.uuid4().hex})
    except OSError:
        if not lance.dataset(uri).config().get(INCARNATION):
            raise


def _with_checked_json(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """Return the same rows. Raises TypeMismatch for text that is not JSON, or whose value storage would change."""
    if not any(_holds_json(field.type) for field in rows.schema):
        return rows
    if isinstance(rows, pa.Table):
        for batch in rows.to_batches():
            _check_batch(batch)
        return rows
    return pa.RecordBatchReader.from_batches(rows.schema, map(_check_batch, rows))


def _holds_json(kind: pa.DataType) -> bool:
    from leman._format.value_casts import holds_type  # noqa: PLC0415 - imports pyarrow

    return holds_type(kind, lambda inner: isinstance(inner, pa.JsonType))


def _check_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    from leman._format.value_casts import check_json  # noqa: PLC0415 - imports pyarrow

    for field, values in zip(batch.schema, batch.columns, strict=True):
        try:
            check_json(values)
        except ValueError as error:
            raise TypeMismatch(
                f"Type mismatch for column {field.name}: a value cannot be stored as JSON: {error}"
            ) from None
    return batch


def _created(lance: Any, uri: str, rows: pa.Table | pa.RecordBatchReader, options: dict[str, Any]) -> Any:
    """Create a table if none exists. Of several concurrent calls, only one succeeds.

    Lance's `write_dataset` alone would overwrite a table that another process creates after its check.
    """
    made = lance.fragment.write_fragments(rows, uri, mode="create", return_transaction=True, **options)
    stable = options["enable_stable_row_ids"]
    return lance.LanceDataset.commit(uri, made, max_retries=0, enable_stable_row_ids=stable)


def plain_rows(rows: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """Return rows without a view's metadata. With that metadata, a table of these rows would be taken for a view."""
    metadata = rows.schema.metadata or {}
    kept = {key: value for key, value in metadata.items() if not key.startswith(PREFIX.encode())}
    if len(kept) == len(metadata):
        return rows
    if isinstance(rows, pa.Table):
        return rows.replace_schema_metadata(kept)
    batches = (batch.replace_schema_metadata(kept) for batch in rows)
    return pa.RecordBatchReader.from_batches(rows.schema.with_metadata(kept), batches)


def append(uri: str, data: Any, *, max_rows_per_file: int | None) -> None:
    """Append rows. Columns that are left out become NULL.

    Raises ColumnNotFound for a column that the table does not have, TypeMismatch for a value that does not fit,
    TableNotFound, Unavailable.
    """
    table = open_table(uri)
    limits = {} if max_rows_per_file is None else {"max_rows_per_file": max_rows_per_file}
    rows = _with_checked_json(as_arrow(data, table.schema))
    with _lance_errors(uri):
        _lance().write_dataset(rows, table, mode="append", **limits)


def as_arrow(data: Any, table: pa.Schema | None = None) -> pa.Table | pa.RecordBatchReader:
    """Convert rows to Arrow, with `table` to the types of its columns.

    `data`: an Arrow table, batch, reader or schema (no rows), a list of dicts, a dict of lists, or an object that
    exports an Arrow stream (pandas, polars). Raises InvalidArgument, ColumnNotFound, TypeMismatch.
    """
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        rows = data
    elif isinstance(data, pa.Schema):
        rows = data.empty_table()
    elif isinstance(data, pa.RecordBatch):
        rows = pa.Table.from_batches([data])
    elif isinstance(data, Mapping | list | tuple) and not data:
        raise InvalidArgument(
            "data without a column cannot be a table: for a table without rows give a schema, or columns without values"
        )
    elif isinstance(data, Mapping):
        rows = _from_columns(data, table)
    elif isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(str(name) for row in data for name in row)
        rows = _from_columns({name: [row.get(name) for row in data] for name in names}, table)
    elif hasattr(data, "__arrow_c_stream__"):
        rows = pa.RecordBatchReader.from_stream(data)
    else:
        raise InvalidArgument(
            f"data of type {type(data).__name__} cannot be a table: give an Arrow table, a reader of batches,"
            " a list of dicts, a dict of lists or a DataFrame"
        )
    return rows if table is None else _fitted(rows, table)


def _from_columns(columns: Mapping[str, Any], table: pa.Schema | None) -> pa.Table:
    arrays = {}
    for name, values in columns.items():
        known = _plain(table.field(name)).type if table is not None and name in table.names else None
        is_arrow = isinstance(values, pa.Array | pa.ChunkedArray)
        try:
            arrays[str(name)] = values if is_arrow else _from_python(values, known)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TypeMismatch(f"Type mismatch for column {name}: {error}") from None
    try:
        return pa.table(arrays)
    except pa.ArrowInvalid as error:
        raise InvalidArgument(f"the columns do not make a table: {error}") from None


def _from_python(values: Any, kind: pa.DataType | None) -> pa.Array | pa.ChunkedArray:
    """Convert Python values to a column's type.

    Raises an error of pyarrow or Python for a value that the conversion would change.
    """
    from leman._format.value_casts import infinities  # noqa: PLC0415 - imports pyarrow

    if kind is None:
        return pa.array(values)
    values = values if hasattr(values, "__len__") else list(values)
    own = _in_own_type(values, kind)
    if own is not None:
        return own
    if not _is_plain_floats(kind) or any(_begins_with_truth(value) for value in values):
        _check_inside(values, kind)
    made = pa.array(values, kind)
    if any(map(infinities, made.chunks if isinstance(made, pa.ChunkedArray) else [made])):
        _check_inside(values, kind)  # a number that is too large for its type became infinite
    return made


def _in_own_type(values: Any, kind: pa.DataType) -> pa.Array | None:
    """Convert numbers, times and truth values to a type by a cast from their own Arrow type.

    Return None if the type holds other kinds of values, or Arrow has no type for these. Without the cast, pyarrow would
    truncate fractions and times of day, accept a number as a time, and read a time without a zone as UTC.
    """
    from leman._format.value_casts import cast_advice, castable, exact_cast  # noqa: PLC0415 - imports pyarrow

    sorts = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_temporal, pa.types.is_boolean)
    if not any(is_sort(kind) for is_sort in sorts):
        return None
    if pa.types.is_temporal(kind) and not hasattr(values, "dtype"):
        values = [_time(value, kind) for value in values]
    found = set() if hasattr(values, "dtype") else set(map(type, values))
    if bool in found and not pa.types.is_boolean(kind):
        raise TypeError(f"a truth value is not a number, and the column is {kind}: convert it with int(...)")
    nanoseconds = any(hasattr(sort, "nanosecond") or hasattr(sort, "nanoseconds") for sort in found)
    try:
        made = pa.array(values, _in_nanoseconds(kind) if nanoseconds else None)
    except OverflowError:  # an integer above 64 bits
        if any(issubclass(sort, float) for sort in found):
            raise
        return None
    chunks = made.chunks if isinstance(made, pa.ChunkedArray) else [made]
    if not castable(made.type, kind):
        raise TypeError(f"the values are {made.type}, and the column is {kind}{cast_advice(made.type, kind)}")
    return pa.chunked_array([exact_cast(chunk, kind) for chunk in chunks], kind).combine_chunks()


def _time(value: Any, kind: pa.DataType) -> Any:
    """Convert a date or time to a column's type. A date becomes its midnight, and a midnight its date.

    Raises TypeError if only one of value and type has a time zone, and if a date would lose a time of day.
    """
    if not isinstance(value, dt.date):
        return value
    if value != value:  # noqa: PLR0124 - true for pandas.NaT
        return None
    zoned = getattr(value, "tzinfo", None) is not None
    if pa.types.is_timestamp(kind):
        if zoned is not bool(kind.tz):
            raise TypeError(f"{value!r} has {'a' if zoned else 'no'} time zone, and the column is {kind}")
        return value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    if pa.types.is_date(kind) and isinstance(value, dt.datetime):
        if zoned or value.time() != dt.time() or bool(getattr(value, "nanosecond", None)):
            raise TypeError(f"{value!r} has a time of day, and the column is {kind}")
        return value.date()
    return value


def _in_nanoseconds(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ns", kind.tz)
    return pa.duration("ns") if pa.types.is_duration(kind) else None


def _is_plain_floats(kind: pa.DataType) -> bool:
    """Return whether a type is a list of floats, in which pyarrow changes only numbers that are too large."""
    inner = kind
    while pa.types.is_list(inner) or pa.types.is_large_list(inner) or pa.types.is_fixed_size_list(inner):
        inner = inner.value_type
    return inner is not kind and (pa.types.is_float32(inner) or pa.types.is_float64(inner))


def _begins_with_truth(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > 0 and isinstance(value[0], bool)


def _check_inside(values: Iterable[Any], kind: pa.DataType) -> None:
    """Check that a type holds values unchanged, at any depth of lists, maps and structs. Raises as `_from_python`."""
    from leman._format.value_casts import LISTS, is_binary, is_text  # noqa: PLC0415 - imports pyarrow

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    present = [value for value in values if value is not None]
    if any(is_list(kind) for is_list in LISTS):
        _check_inside([item for value in present for item in _items(value, "list")], kind.value_type)
    elif pa.types.is_map(kind):
        pairs = [pair for value in present for pair in _items(value, "map")]
        _check_inside([key for key, _ in pairs], kind.key_type)
        _check_inside([item for _, item in pairs], kind.item_type)
    elif pa.types.is_struct(kind):
        structs = [_fields(value, kind) for value in present]
        for field in kind:
            _check_inside([struct.get(field.name) for struct in structs], field.type)
    elif is_text(kind) or is_binary(kind):
        other, how = ((bytes, bytearray, memoryview), "decode() it") if is_text(kind) else (str, "encode() it")
        for value in present:
            if isinstance(value, other):
                raise TypeError(f"{value!r} is of type {type(value).__name__}, and the column is {kind}: {how}")
    else:
        _in_own_type(present, kind)


def _items(value: Any, what: str) -> Iterable[Any]:
    """Return the items of a list, or the pairs of a map, in order. Raises TypeError for other values."""
    if what == "map" and isinstance(value, Mapping):
        return value.items()
    if isinstance(value, str | bytes | bytearray | Mapping | Set) or hasattr(value, "columns"):
        raise TypeError(f"a {type(value).__name__} is not a {what}")
    return value.to_pylist() if isinstance(value, pa.Array | pa.ChunkedArray) else list(value)


def _fields(value: Any, kind: pa.StructType) -> Mapping[str, Any]:
    """Return a struct's fields, given as a dict, as a tuple of all values in order, or as pairs. Raises TypeError."""
    names = [field.name for field in kind]
    if isinstance(value, str | bytes):
        raise TypeError(f"a {type(value).__name__} is not a struct")
    if isinstance(value, tuple):
        value = dict(zip(names, value, strict=True))
    found = value if isinstance(value, Mapping) else dict(value)
    unknown = [str(name) for name in found if name not in names]
    if unknown:
        raise TypeError(f"the column has no field {', '.join(unknown)}: it has {', '.join(names)}")
    return found


def _fitted(rows: pa.Table | pa.RecordBatchReader, table: pa.Schema) -> pa.Table | pa.RecordBatchReader:
    from leman._format.value_casts import cast_advice, convertible  # noqa: PLC0415 - imports pyarrow

    for name in rows.schema.names:
        if name not in table.names:
            raise ColumnNotFound(
                f"Column {name[:300]!r} not found in table schema: it has {', '.join(table.names)}",
                facts={"column": name},
            )
        have, want = rows.schema.field(name).type, _taken(rows.schema.field(name), table.field(name)).type
        if not convertible(have, want):
            raise TypeMismatch(
                f"Type mismatch for column {name}: the data is {have}, and the column is {want}"
                f"{cast_advice(have, want)}"
            )
    wanted = pa.schema([_taken(rows.schema.field(name), table.field(name)) for name in rows.schema.names])
    if rows.schema.equals(wanted, check_metadata=True):
        return rows
    if isinstance(rows, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(wanted, (_fitted_batch(batch, wanted) for batch in rows))
    return pa.Table.from_batches([_fitted_batch(batch, wanted) for batch in rows.to_batches()], wanted)


def _fitted_batch(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    from leman._format.value_casts import exact_cast  # noqa: PLC0415 - imports pyarrow

    columns = []
    for field, values in zip(wanted, batch.columns, strict=True):
        if not field.nullable and values.null_count:
            raise FailedPrecondition(f"Column '{field.name}' may not be NULL: correct the rows", reason="NULL_VALUE")
        try:
            columns.append(values if values.type.equals(field.type) else exact_cast(values, field.type))
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise TypeMismatch(f"Type mismatch for column {field.name}: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _taken(given: pa.Field, column: pa.Field) -> pa.Field:
    """Return the field in which Lance accepts values for a table's column. Blobs may also be given as bytes."""
    return column.remove_metadata() if given.type.equals(column.type) else _plain(column)


def _plain(column: pa.Field) -> pa.Field:
    if getattr(column.type, "extension_name", "") != _BLOB:
        return column.remove_metadata()
    return pa.field(column.name, pa.large_binary(), column.nullable, {"lance-encoding:blob": "true"})


@contextlib.contextmanager
def _lance_errors(uri: str, version: int | str | None = None) -> Iterator[None]:
    """Translate Lance's errors in this block to Leman's."""
    try:
        yield
    except LemanError:
        raise
    except (OSError, ValueError) as error:
        mismatch = _MISMATCH.search(_first_line(error))
        if mismatch is not None:  # a reader raised it for a batch, and Lance passed it on
            raise TypeMismatch(mismatch[0]) from None
        raise _translated(error, uri, version) from error


def _first_line(error: BaseException) -> str:
    """Return Lance's message without the location in Lance's source code."""
    return str(error).partition(", /")[0].partition("\n")[0][:_LONGEST]


def _translated(error: OSError | ValueError, uri: str, version: int | str | None) -> LemanError:
    said = _first_line(error)
    refused = storage_refusal(error)
    if refused:
        return FailedPrecondition(f"{uri} cannot be read or written: {said}", reason=refused)
    if _TOO_NEW in said:
        return FailedPrecondition(
            f"{uri} needs a feature that this release of Lance does not have, such as data overlay files: {said}",
            reason="TABLE_NOT_SUPPORTED",
        )
    damaged = _file_error(error, uri)
    if damaged is not None:
        return damaged
    if said.startswith(_INPUT_REFUSED):  # checked first, as it may contain "not found", such as for a struct's field
        return InvalidArgument(f"Lance refuses this for {uri}: {said}")
    if "not found" in said.lower() and version is not None:
        return VersionNotFound(f"the table at {uri} has no version {version} (any more)")
    if "not found" in said.lower():
        return TableNotFound(f"there is no table at {uri}")
    if "LanceError(IO)" in said or (isinstance(error, OSError) and error.errno):
        return Unavailable(f"{uri} cannot be read or written: {said}", reason="STORE_UNAVAILABLE")
    return InvalidArgument(f"Lance refuses this for {uri}: {said}")


def _file_error(error: BaseException, uri: str) -> LemanError | None:
    """Return the error for a damaged or missing file of a table, or None for other problems."""
    text = str(error)
    missing = _NO_FILE.search(text)
    if _NONSENSE.search(text) or (missing is not None and _is_needed(uri, missing[1])):
        return DataLoss(
            f"{uri} is damaged: a file of it is missing or cannot be decoded ({_first_line(error)}). Restore the file "
            "that `leman verify` names from a copy, or restore an earlier version",
            reason="TABLE_DAMAGED",
        )
    if missing is not None:
        return VersionNotFound(f"the version of {uri} that was read has been cleaned up: open the table again")
    return None


def _is_needed(uri: str, file: str) -> bool:
    """Return whether the table's latest version refers to a file. Otherwise cleanup may have removed the file."""
    try:
        fragments = _lance().dataset(uri).get_fragments()
    except (OSError, ValueError):
        return False
    if file.startswith("data/"):
        return any(f"data/{data.path}" == file for fragment in fragments for data in fragment.metadata.files)
    number, version, _ = file.removeprefix("_deletions/").split("-", 2)
    deletions = {str(fragment.fragment_id): fragment.metadata.deletion_file for fragment in fragments}
    deletion = deletions.get(number)
    return deletion is not None and str(deletion.read_version) == version


def storage_refusal(error: BaseException) -> str:
    """Return the services' reason for a storage error that lasts until someone fixes its cause, or "" for others."""
    number = getattr(error, "errno", None)
    found = _OS_ERROR.search(str(error))
    return _REFUSALS.get(number or (int(found[1]) if found else 0), "")


def _exists(lance: Any, uri: str) -> bool:
    try:
        lance.dataset(uri)
    except ValueError:
        return False
    return True


def _lance() -> Any:
    try:
        if not _with_pandas:
            _import_arrow()
        import lance  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise MissingDependency(
            "this reads or writes the table's files itself and needs pylance: pip install leman[lance]"
        ) from None
    return lance


class _NoPandas:
    """A module finder that hides pandas, and leaves all other modules to other finders."""

    def find_spec(self, name: str, *_where: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is left out", name=name)


def _import_arrow() -> None:
    """Import the parts of pyarrow that pylance needs, without pandas."""
    finder: Any = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow.dataset  # noqa: F401, PLC0415
    finally:
        sys.meta_path.remove(finder)
