"""Which function fills a column: field metadata ↔ `ColumnBinding`. The keys are public."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from leman_core.model import stored_documents
from leman_core.model.keys import md5
from leman_core.model.plan import InputSource
from leman_core.model.service_errors import DataLoss, reused_request_id
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.udf import NOT_YET, ColumnBinding, ColumnInput, FunctionVersion, InputNames

COLUMN_ID = b"leman::column_id"
UDF_NAME = b"leman::udf_name"
UDF_VERSION = b"leman::udf_version"
INPUTS = b"leman::inputs"
SOURCE = b"leman::source"
ADDED_AS = b"leman::added_as"
KEPT = b"leman::kept"
INPUT_NAMES = b"leman::input_names"
REQUEST = b"leman::request"
#: Digest of what binds the column: what somebody or something else changed is not believed.
DIGEST = b"leman::digest"

#: Number of the format, `stored_formats.BINDING`; the digest does not cover it, as a later format may cover more keys.
FORMAT = b"leman::format"

_BOUND = (COLUMN_ID, UDF_NAME, UDF_VERSION, INPUTS, SOURCE, ADDED_AS, KEPT, INPUT_NAMES)
#: What bindings say their format is that have no `INPUT_NAMES`: releases before it read them.
_WITHOUT_NAMES = 1
_SINCE_DIGITS = 16


def bind(field: pa.Field, binding: ColumnBinding) -> pa.Field:
    """Return the field with the binding in its metadata; other metadata stays."""
    inputs = [[column.name, column.field_id] for column in binding.inputs]
    stored = {
        **(field.metadata or {}),
        COLUMN_ID: binding.column_id.encode(),
        UDF_NAME: binding.udf_name.encode(),
        UDF_VERSION: binding.udf_version.encode(),
        INPUTS: json.dumps(inputs, ensure_ascii=False).encode(),
        **({ADDED_AS: binding.added_as.encode()} if binding.added_as else {}),
    }
    for key in (KEPT, SOURCE, INPUT_NAMES):
        stored.pop(key, None)
    if binding.kept:
        stored[KEPT] = json.dumps(binding.kept, ensure_ascii=False).encode()
    if binding.source is not None:
        stored[SOURCE] = json.dumps(dataclasses.asdict(binding.source), ensure_ascii=False).encode()
    if binding.input_names is not None:
        stored[INPUT_NAMES] = json.dumps(dataclasses.asdict(binding.input_names), ensure_ascii=False).encode()
    stored[DIGEST] = _digest(stored).encode()
    number = _WITHOUT_NAMES if binding.input_names is None else stored_documents.BINDING.current
    stored[FORMAT] = str(number).encode()
    return field.with_metadata(stored)


def entries(field: pa.Field) -> dict[str, str | None]:
    """Return the binding in a field's metadata, as it is stored; None for what is not to be there."""
    metadata = field.metadata or {}
    return {
        key.decode(): metadata[key].decode() if key in metadata else None for key in (*_BOUND, DIGEST, FORMAT, REQUEST)
    }


def mark(field: pa.Field, request_id: str, body: str) -> pa.Field:
    """Return the field with the request that made it so in its metadata (none: without); it is no part of the binding.

    The same id with another body is then known as such, whoever restarts.
    """
    stored = {key: value for key, value in (field.metadata or {}).items() if key != REQUEST}
    if request_id:
        stored[REQUEST] = f"{md5(request_id)} {body}".encode()
    return field.with_metadata(stored)


def check_request(fields: Iterable[pa.Field], request_id: str, body: str) -> None:
    """Refuse the id of another request, which made one of the fields what it is.

    Raises:
        AlreadyExists: REQUEST_ID_REUSED.
    """
    for field in fields:
        known, _, its_body = (field.metadata or {}).get(REQUEST, b"").decode().partition(" ")
        if known == md5(request_id) and its_body != body:
            raise reused_request_id(request_id)


def settled(field: pa.Field, table: TableSnapshot) -> pa.Field | None:
    """Return the field with the ids of inputs that were added with it, and names in them; None where they stand there.

    Raises:
        DataLoss: BINDING_DAMAGED.
    """
    bound = read(field)
    if bound is None or all(column.field_id != NOT_YET for column in bound.inputs):
        return None
    inputs = ((column, table.find(column.name) if column.field_id == NOT_YET else None) for column in bound.inputs)
    pairs = list(inputs)
    known = tuple(column if found is None else ColumnInput(column.name, found.field_id) for column, found in pairs)
    names = names_in(found for _, found in pairs if found is not None)
    if bound.input_names is not None:
        names = InputNames((*bound.input_names.names, *(names.names if names else ())), bound.input_names.since)
    return bind(field, dataclasses.replace(bound, inputs=known, input_names=names))


def names_of(
    inputs: Iterable[TableField], before: ColumnBinding | None = None, *, keep: bool = False
) -> InputNames | None:
    """Return the names of fields of structs in some inputs as they are now, for a column that is bound to a function.

    Args:
        before: the column's binding up to now. Where it has other names, values by it are not current any more.
        keep: whether they stay current all the same.
    """
    found = names_in(inputs)
    if found is None or before is None or before.input_names is None:
        return found
    since, known = before.input_names.since, before.names
    if not keep and any(known.get(i, name) != name for i, name in found.names):
        since = md5(json.dumps(found.names))[:_SINCE_DIGITS]
    return InputNames(found.names, since)


def names_in(inputs: Iterable[TableField]) -> InputNames | None:
    """Return the names of fields of structs in some inputs; None where there are none that have an id yet."""
    found = {i: name for column in inputs for i, name in column.inner_names() if i != NOT_YET}
    return InputNames(tuple(found.items())) if found else None


def was_made_by(field: pa.Field, request_id: str) -> bool:
    """Tell whether a request made the field what it is; see `mark`."""
    known, _, _ = (field.metadata or {}).get(REQUEST, b"").decode().partition(" ")
    return bool(known == md5(request_id))


def read(field: pa.Field) -> ColumnBinding | None:
    """Return the binding of a computed column; None for any other.

    Raises:
        DataLoss: BINDING_DAMAGED.
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
    """
    metadata = field.metadata or {}
    if COLUMN_ID not in metadata and DIGEST not in metadata:
        return None
    try:
        stated = metadata.get(FORMAT, None if DIGEST in metadata else b"0")
        where = f"The metadata of column '{field.name}'"
        stored_documents.BINDING.check(None if stated is None else stated.decode(), where)
        if metadata[DIGEST].decode() != _digest(metadata):
            raise ValueError("its digest does not match")
        return ColumnBinding(
            column_id=metadata[COLUMN_ID].decode(),
            udf_name=metadata[UDF_NAME].decode(),
            udf_version=metadata[UDF_VERSION].decode(),
            inputs=tuple(ColumnInput(str(name), int(field_id)) for name, field_id in json.loads(metadata[INPUTS])),
            added_as=metadata.get(ADDED_AS, b"").decode(),
            kept=tuple(FunctionVersion(str(n), str(v)) for n, v in json.loads(metadata.get(KEPT, b"[]"))),
            source=_source(metadata.get(SOURCE)),
            input_names=_input_names(metadata.get(INPUT_NAMES)),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise DataLoss(
            "BINDING_DAMAGED",
            f"The metadata of column '{field.name}' does not say which function fills it ({error!r}): "
            "restore the version before; where there is none, drop the column and add it again",
            column=field.name,
        ) from None


def _digest(metadata: Mapping[bytes, bytes]) -> str:
    return stored_documents.digest_of({key.decode(): metadata[key].decode() for key in _BOUND if key in metadata})


def _input_names(stored: bytes | None) -> InputNames | None:
    if stored is None:
        return None
    said = json.loads(stored)
    return InputNames(tuple((int(i), str(name)) for i, name in said["names"]), str(said["since"]))


def _source(stored: bytes | None) -> InputSource | None:
    if stored is None:
        return None
    source = json.loads(stored)
    return InputSource(str(source["uri"]), int(source["version"]), tuple(str(name) for name in source["columns"]))
