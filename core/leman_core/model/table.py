"""A table as its manifest and its history describe it, and digests of the rows that a request added to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman_core.model.keys import md5

_FILES = "files-"
#: Decimal digits of a fragment's number, which has 32 bits.
_MOST_DIGITS = 10


class DataFile(NamedTuple):
    """One data file of a fragment: its name in the table's data folder and the Lance field ids that it holds."""

    path: str
    field_ids: tuple[int, ...]


class Fragment(NamedTuple):
    """One fragment of a version of a table."""

    fragment_id: int
    #: Including deleted rows.
    physical_rows: int
    deleted_rows: int
    files: tuple[DataFile, ...]
    #: Identifies a set of deleted rows; empty: unknown, or none.
    deletion_file: str = ""

    @property
    def live_rows(self) -> int:
        return self.physical_rows - self.deleted_rows

    def has_rows_of(self, other: Fragment) -> bool:
        """Return whether `other` is this fragment in another version, with the same rows at the same offsets.

        An overwritten table reuses fragment ids, but not file names.
        """
        if (self.fragment_id, self.physical_rows) != (other.fragment_id, other.physical_rows):
            return False
        mine = {file.path for file in self.files}
        return any(file.path in mine for file in other.files)

    def file_of(self, field_id: int) -> str:
        """Return the name of the data file that holds the field; empty if the fragment has none (all NULL)."""
        for data_file in self.files:
            if field_id in data_file.field_ids:
                return data_file.path
        return ""

    def files_of(self, field_ids: Iterable[int]) -> tuple[str, ...]:
        """Return the distinct names of the data files that hold any of the fields, sorted."""
        wanted = frozenset(field_ids)
        found = [f.path for f in self.files if not wanted.isdisjoint(f.field_ids)]
        return tuple(found) if len(found) < 2 else tuple(sorted(set(found)))


@dataclass(frozen=True, slots=True)
class TableField:
    """A column: Arrow field (with metadata) and the Lance ids of it and of its children, in file order.

    For a field of a struct (see `TableSnapshot.find`) the Arrow field's name is its path, and the ids of its column
    follow its own: its values depend on all of them.
    """

    arrow: pa.Field
    field_ids: tuple[int, ...]
    #: The fields of a struct, the items of a list, keys and items of a map.
    children: tuple[TableField, ...] = ()

    @property
    def name(self) -> str:
        return str(self.arrow.name)

    @property
    def field_id(self) -> int:
        return self.field_ids[0]

    @property
    def parts(self) -> tuple[TableField, ...]:
        """Return the fields of a struct; empty for any other type."""
        return self.children if pa.types.is_struct(self.arrow.type) else ()

    def inner_names(self) -> Iterator[tuple[int, str]]:
        """Yield ids and names of all nested fields of structs, at any depth."""
        for child in self.children:
            if pa.types.is_struct(self.arrow.type):
                yield child.field_id, child.name
            yield from child.inner_names()

    def type_under(self, names: Mapping[int, str]) -> pa.DataType:
        """Return its type, with fields of structs renamed by id as in `names`."""
        inner = (child.arrow.with_type(child.type_under(names)) for child in self.children)
        if pa.types.is_struct(self.arrow.type) and self.children:
            pairs = zip(self.children, inner, strict=True)
            return pa.struct([field.with_name(names.get(child.field_id, field.name)) for child, field in pairs])
        return nested_type(self.arrow.type, list(inner))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """One version of a table, as far as planning needs it."""

    uri: str
    version: int
    #: Distinguishes this table from a later one with the same uri: Lance does not notice that a table was dropped and
    #: recreated at the same path. Empty for a table that Leman never wrote to.
    incarnation: str
    fields: tuple[TableField, ...]
    #: See `leman_core.model.plan_columns` for very many.
    fragments: Sequence[Fragment] = field(repr=False)
    stable_row_ids: bool = False
    #: Version of the Lance file format for writing its data.
    file_format: tuple[int, int] = (2, 2)
    #: Of the schema.
    metadata: Mapping[bytes, bytes] = field(default_factory=dict, repr=False, hash=False)
    #: The last begun attempt by job, for jobs that were taken over.
    attempts: Mapping[str, int] = field(default_factory=dict, repr=False, hash=False)
    #: The version's manifest as a message, if it is small and in an object store; else empty.
    manifest: bytes = field(default=b"", repr=False, compare=False)
    #: The columns by name: a table may have tens of thousands.
    _by_name: Mapping[str, TableField] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {column.name: column for column in reversed(self.fields)})

    def column(self, name: str) -> TableField | None:
        return self._by_name.get(name)

    def find(self, path: str) -> TableField | None:
        """Return a column by its name, or a field of a struct by its dotted path: `box.w`."""
        name, *inner = path.split(".")
        column = found = self.column(name)
        for name in inner:
            found = None if found is None else next((part for part in found.parts if part.name == name), None)
        return found if found is None or column is None or not inner else _inside(column, path, found)

    def find_id(self, field_id: int) -> TableField | None:
        """Like `find`, by the id of the column or of the struct's field, which renames keep."""
        for column in self.fields:
            if column.field_id == field_id:
                return column
            if column.parts and field_id in column.field_ids:
                return next((_inside(column, p, f) for p, f in _parts_of(column) if f.field_id == field_id), None)
        return None

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f.arrow for f in self.fields], dict(self.metadata) or None)

    @property
    def live_rows(self) -> int:
        return sum(f.live_rows for f in self.fragments)

    @property
    def identity(self) -> str:
        """The text that distinguishes the table from one that is created later under its URI.

        It is the table's incarnation or, if Leman never wrote to the table, a digest of the data files of this version.
        """
        if self.incarnation:
            return self.incarnation
        files = sorted(file.path for fragment in self.fragments for file in fragment.files)
        return _FILES + md5("\n".join(files))

    @property
    def version_identity(self) -> str:
        """The text that identifies this version, if the table has no incarnation. Empty if it has one, or has no files.

        It consists of the last fragment's id and the name of one of its files, because no two tables share a file name.
        A later check of the same version reads one fragment, however many the table has.
        """
        last = self.fragments[-1] if self.fragments and not self.incarnation else None
        return "" if last is None or not last.files else f"{last.fragment_id}/{last.files[0].path}"


def identified_fragment(version_identity: str) -> int | None:
    """Return the fragment id in a version identity; None if this release does not know the identity's form."""
    number = version_identity.partition("/")[0]
    return int(number) if number.isdecimal() and len(number) <= _MOST_DIGITS else None


def outlives_versions(identity: str) -> bool:
    """Return whether an identity can be compared with that of another version of the table."""
    return not identity.startswith(_FILES)


def _inside(column: TableField, path: str, part: TableField) -> TableField:
    return TableField(part.arrow.with_name(path), (*part.field_ids, *column.field_ids), part.children)


def nested_type(kind: pa.DataType, inner: Sequence[pa.Field]) -> pa.DataType:
    """Return a list or map type with the nested fields `inner`. If `inner` is empty, return any type unchanged."""
    if not inner:
        return kind
    if pa.types.is_map(kind):
        return pa.map_(*inner, kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner[0], kind.list_size)
    return pa.large_list(inner[0]) if pa.types.is_large_list(kind) else pa.list_(inner[0])


def _parts_of(column: TableField) -> Iterator[tuple[str, TableField]]:
    """Yield the fields of a struct at any depth, with their paths."""
    for part in column.parts:
        path = f"{column.name}.{part.name}"
        yield path, part
        yield from ((f"{path}{inner.removeprefix(part.name)}", field) for inner, field in _parts_of(part))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCoverage:
    """The part of a table that an index covers, see `protos/leman/v1/planner.proto`."""

    name: str
    kind: str
    columns: tuple[str, ...]
    fragments: int
    fragments_covered: int
    rows_left_out: int

    @property
    def is_stale(self) -> bool:
        """Return whether a search that uses only the index misses rows."""
        return self.rows_left_out > 0


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One group of fragments of one compaction."""

    #: The version of the table in which the old fragments can be read.
    before: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]

    def place_of(self, file: str) -> tuple[Fragment, int]:
        """Return the new fragment that received a file's rows, and the number of rows in new fragments before it."""
        at = next(i for i, new in enumerate(self.new) if any(f.path == file for f in new.files))
        return self.new[at], sum(new.physical_rows for new in self.new[:at])


@dataclass(frozen=True, slots=True)
class CompactionHistory:
    """The origins of files. No compaction wrote a file that is in neither collection."""

    #: The name of a file that a compaction wrote → that compaction's rewrite.
    rewrites: Mapping[str, Rewrite] = field(default_factory=dict)
    #: Files that are older than the existing history, or than the part that was searched.
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SentRows:
    """A digest of rows as sent, independent of batches; equal texts mean equal rows."""

    rows: int
    #: Digest of the names and types of columns.
    columns: str
    #: Digest of the values in their order.
    values: str

    def __str__(self) -> str:
        return f"{self.rows}:{self.columns}:{self.values}"

    @classmethod
    def parse(cls, text: str) -> SentRows:
        """Parse the result of `str`.

        Raises:
            ValueError: The text is not such a result.
        """
        rows, columns, values = text.split(":")
        return cls(int(rows), columns, values)

    def difference(self, now: SentRows) -> str:
        """Return how later rows differ from these."""
        if self.rows != now.rows:
            return f"{self.rows} rows came with it first, now {now.rows}"
        if self.columns != now.columns:
            return f"the {self.rows} rows that came with it first had other columns, or other types"
        return f"the {self.rows} rows that came with it first had other values, or another order"
