"""The binding of a computed column to its function: field metadata ↔ `ColumnBinding`. The keys are public."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from leman._format import stored_documents
from leman._format.stored_documents import Damaged

if TYPE_CHECKING:
    import pyarrow as pa

COLUMN_ID = b"leman::column_id"
UDF_NAME = b"leman::udf_name"
UDF_VERSION = b"leman::udf_version"
INPUTS = b"leman::inputs"
SOURCE = b"leman::source"
ADDED_AS = b"leman::added_as"
KEPT = b"leman::kept"
INPUT_NAMES = b"leman::input_names"
REQUEST = b"leman::request"
#: The digest of the binding, which detects changes that Leman did not make.
DIGEST = b"leman::digest"
#: The format's number (`stored_documents.BINDING`). It is not in the digest, as a later format may digest more keys.
FORMAT = b"leman::format"
_BOUND = (COLUMN_ID, UDF_NAME, UDF_VERSION, INPUTS, SOURCE, ADDED_AS, KEPT, INPUT_NAMES)
#: The format of bindings without `INPUT_NAMES`, which earlier releases read.
_WITHOUT_NAMES = 1


@dataclass(frozen=True, slots=True)
class InputSource:
    """Another table from which a column gets its inputs by row id: a version, and columns in the parameters' order."""

    uri: str
    version: int
    columns: tuple[str, ...]


#: Stands for the field id of an input that is added in the same call as the column that reads it. Until the commit
#: coordinator has written the real id, such an input is found by its name.
NOT_YET = -1


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """An input of a computed column: its name when the column was added, and its Lance field id.

    A rename of the input changes neither.
    """

    name: str
    field_id: int


class FunctionVersion(NamedTuple):
    """The name and version of a function. An empty version is chosen later."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}" if self.version else self.name


@dataclass(frozen=True, slots=True)
class InputNames:
    """The names of struct fields in a column's inputs at the time when the column was bound to its function."""

    #: (Lance field id, name), in the order of the inputs.
    names: tuple[tuple[int, str], ...]
    #: Identifies values that were computed under earlier names, before the last binding; empty if there are none.
    since: str = ""


@dataclass(frozen=True, slots=True)
class ColumnBinding:
    """The binding of a computed column, as stored in its field metadata."""

    #: An id that the column gets when it is added. It distinguishes a column that was dropped and added again from the
    #: old one, as Lance may reuse the field id.
    column_id: str
    udf_name: str
    udf_version: str
    inputs: tuple[ColumnInput, ...]
    #: The column's name when it was added. Checkpoint keys contain it, so a rename does not lose checkpoints. Empty in
    #: bindings of older releases.
    added_as: str = ""
    #: Earlier functions with the same inputs whose values still count as current, the most recent first.
    kept: tuple[FunctionVersion, ...] = ()
    #: If set, the function reads columns of that table, and the column's one input holds row ids of it.
    source: InputSource | None = None
    #: The names that struct fields of the inputs have for the function, even after these fields were renamed in the
    #: table. None if no input has struct fields, or if an older release wrote the binding.
    input_names: InputNames | None = None

    @property
    def function(self) -> FunctionVersion:
        return FunctionVersion(self.udf_name, self.udf_version)

    @property
    def names(self) -> Mapping[int, str]:
        """Return `input_names` by Lance field id."""
        return {} if self.input_names is None else dict(self.input_names.names)

    @property
    def values_id(self) -> str:
        """Return the column's id for fingerprints, with `InputNames.since` if that is set."""
        return f"{self.column_id}{self._since}"

    def keyed_as(self, name: str) -> str:
        """Return the column's name in checkpoint keys, where `name` is its current name."""
        return f"{self.added_as or name}{self._since}"

    @property
    def _since(self) -> str:
        return f" {self.input_names.since}" if self.input_names is not None and self.input_names.since else ""


def bind(field: pa.Field, binding: ColumnBinding) -> pa.Field:
    """Return the field with the binding in its metadata. Other metadata is kept."""
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
    """Return the binding's entries in a field's metadata, with None for entries to remove."""
    metadata = field.metadata or {}
    return {
        key.decode(): metadata[key].decode() if key in metadata else None for key in (*_BOUND, DIGEST, FORMAT, REQUEST)
    }


def read(field: pa.Field) -> ColumnBinding | None:
    """Return the binding of a computed column, or None for any other column.

    Raises:
        Damaged: the metadata is not as it was written.
        OtherFormat: another release wrote it.
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
        raise Damaged(repr(error)) from None


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
