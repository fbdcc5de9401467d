"""A request with every name looked up in one version of the table. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from leman_core.functions import blobs
from leman_core.model import keys
from leman_core.model.plan import InputSource, OutputField
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_core.model.udf import FunctionVersion, UdfDefinition, UdfKind
from leman_core.sql import struct_paths


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter as it is evaluated, and what decides which rows it matches."""

    #: The text with relative times pinned; empty: all rows.
    where: str = ""
    #: The columns that it reads, without inputs and output.
    columns: tuple[TableField, ...] = ()
    #: Ids and names of fields of structs in all columns that it reads: those that exchange names match other rows.
    names: tuple[tuple[int, str], ...] = ()
    reads_output: bool = False
    reads_versions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The older version whose rows are read."""

    version: int
    #: Its fragments by id, where the table still has them row for row.
    same: Mapping[int, Fragment]
    #: How many of its rows lie in each of the other fragments that are asked about.
    moved: Mapping[int, int]
    #: What the inputs were then.
    inputs: tuple[TableField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """One column of one table, the function that is to fill it, and the rows asked for."""

    table: TableSnapshot
    output: OutputField
    udf: UdfDefinition
    inputs: tuple[TableField, ...]
    filter: Filter = Filter()
    num_frags: int = 0
    bundle_uri: str = ""
    #: Names that the function is given for fields of structs in the inputs, by id; else they are as the table has them.
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    #: The output column's id in fingerprints; empty: its own.
    values_id: str = ""
    #: The name that the output column has in checkpoint keys; empty: its own.
    keyed_as: str = ""
    #: The md5 of the place that the table had when checkpoints were stored; empty: where it is.
    former_place: str = ""
    #: Earlier functions whose values count as current.
    kept: tuple[FunctionVersion, ...] = ()
    #: Whether only rows that are marked as failed are asked for.
    failed_only: bool = False
    #: Where given, the one input holds row ids of that table, which has the function's inputs.
    source: InputSource | None = None
    past: Past | None = None
    #: First halves of fingerprints, of the function's version and of those kept.
    versions: tuple[str, ...] = dataclasses.field(init=False)
    family: keys.KeyFamily = dataclasses.field(init=False)
    #: The inputs' field ids in parameter order, children included.
    input_ids: tuple[int, ...] = dataclasses.field(init=False)
    _inputs: frozenset[int] = dataclasses.field(init=False, repr=False)
    _plain: bool = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        column = self.keyed_as or self.output.name
        family = keys.KeyFamily(
            udf_name=self.udf.name,
            udf_version=self.udf.version,
            column=column,
            uri=self.table.uri,
            former_place=self.former_place,
        )
        object.__setattr__(self, "family", family)
        functions = [(self.udf.name, self.udf.version), *self.kept]
        column_id = self.values_id or self.output.column_id
        parts = tuple(keys.function_part(name, version, column_id) for name, version in functions)
        object.__setattr__(self, "versions", parts)
        object.__setattr__(self, "input_ids", tuple(i for column in self.inputs for i in column.field_ids))
        object.__setattr__(self, "_inputs", frozenset(self.input_ids))
        object.__setattr__(self, "_plain", not (self.selective or self.kept or self.failed_only))

    @property
    def read_inputs(self) -> tuple[TableField, ...]:
        """Return the inputs in the version that is read."""
        return self.inputs if self.past is None else self.past.inputs

    @property
    def selective(self) -> bool:
        """Tell whether some rows are left out: by a filter, or by a version that may lack rows."""
        return bool(self.filter.where) or self.past is not None

    @property
    def tells_versions(self) -> bool:
        """Tell whether keys hold numbers of versions, which mean other rows in a copy that went on by itself."""
        return self.past is not None or self.filter.reads_versions

    @property
    def families(self) -> tuple[keys.KeyFamily, ...]:
        """Return the key families of `versions`."""
        kept = (dataclasses.replace(self.family, udf_name=name, udf_version=version) for name, version in self.kept)
        return (self.family, *kept)

    @property
    def of_kept(self) -> tuple[ResolvedRequest, ...]:
        """Return the request as each function asked it whose values the column keeps, in the order of `kept`."""
        return tuple(
            dataclasses.replace(
                self,
                udf=dataclasses.replace(self.udf, name=name, version=version),
                kept=self.kept[number:],
            )
            for number, (name, version) in enumerate(self.kept, 1)
        )

    def input_pairs(self, fragment: Fragment) -> list[tuple[int, str]]:
        """Return (field id, data file) in parameter order, children too: Lance lists only leaves in a file."""
        return self._pairs(fragment, self.input_ids)

    def input_files(self, fragment: Fragment) -> tuple[str, ...]:
        """Return the inputs' files in the version that is read; none where its rows have moved since."""
        read = fragment if self.past is None else self.past.same.get(fragment.fragment_id)
        return () if read is None else read.files_of(self._inputs)

    def is_past(self, fragment: Fragment) -> bool:
        """Tell whether values are to be computed from other inputs than the fragment has now."""
        if self.past is None:
            return False
        then = self.past.same.get(fragment.fragment_id)
        return then is None or any(then.file_of(i) != fragment.file_of(i) for i in self.input_ids)

    def rows_asked(self, fragment: Fragment) -> int:
        """Count live rows, a filter aside; of rows that have moved since an older version, those that it has."""
        moved = None if self.past is None else self.past.moved.get(fragment.fragment_id)
        return fragment.live_rows if moved is None else min(moved, fragment.live_rows)

    def _pairs(self, fragment: Fragment, field_ids: Iterable[int]) -> list[tuple[int, str]]:
        if self.past is None:
            return [(i, fragment.file_of(i)) for i in field_ids]
        then = self.past.same.get(fragment.fragment_id)
        if then is None:
            return keys.moved_sources(field_ids, self.past.version)
        return [(i, then.file_of(i)) for i in field_ids]

    def filter_identity(self, fragment: Fragment) -> str:
        """Return what decides which rows the filter matches in a fragment: see `keys.filter_identity`."""
        if self._plain:
            return ""
        if self.failed_only:
            file = next(iter(fragment.files_of(self.output.field.field_ids)), "")
            return keys.failed_identity(file, self._where_identity(fragment))
        return self._where_identity(fragment)

    def _where_identity(self, fragment: Fragment) -> str:
        """Return the filter's identity with the versions that are kept.

        A checkpoint says of its rows which of those versions they are of.
        """
        kept = f"\nkept {' '.join(self.versions[1:])}" if self.kept else ""
        past = f"\nrows of version {self.past.version}" if self.past is not None else ""
        return self._plain_identity(fragment) + kept + past

    def _plain_identity(self, fragment: Fragment) -> str:
        if not self.filter.where:
            return ""
        pairs = self._pairs(fragment, (i for column in self.filter.columns for i in column.field_ids))
        pairs += self.filter.names
        if self.filter.reads_versions:
            pairs.append((-1, str(self.table.version if self.past is None else self.past.version)))
        return keys.filter_identity(self.filter.where, pairs)


def given_types(inputs: Sequence[TableField], names: Mapping[int, str]) -> tuple[pa.DataType, ...]:
    """Return the types of inputs as a function is given them; nothing where no name in them is prescribed."""
    if not names:
        return ()
    return tuple(blobs.given_type(f.arrow, f.type_under(names)) for f in inputs)


def with_names_now(udf: UdfDefinition, read: Sequence[TableField], names: Mapping[int, str]) -> UdfDefinition:
    """Return a function; an expression has the names that fields of structs have in the version that is read.

    Args:
        udf: the function.
        read: its inputs there.
        names: those that it was written for, by id.

    Raises:
        FailedPrecondition: TYPE_MISMATCH, where it reads a struct with renamed fields as a whole.
    """
    if udf.kind is not UdfKind.SQL or not names:
        return udf
    pairs = zip(udf.input_columns, read, strict=True)
    columns = {name: struct_paths.Renamed(f.type_under(names), f.arrow.type) for name, f in pairs}
    return dataclasses.replace(udf, sql_expression=struct_paths.with_names_now(udf.sql_expression, columns))
