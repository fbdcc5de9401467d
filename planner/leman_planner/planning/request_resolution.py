"""A request with every name looked up in one version of the table, also in a past one. Pure.

A request with every name looked up in one version of the table. Pure.

Resolves what a plan is asked for: every name is looked up in one version of the table. Pure.

Requests for the rows of an older version, with the values that they had then. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, FunctionVersion, InputSource
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import arrow_types, binding, column_checks
from leman_core.model import keys
from leman_core.model import view_metadata as metadata
from leman_core.model.plan import BackfillSpec, OutputField
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import Fragment, TableField, TableSnapshot
from leman_core.sql import expressions


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
        """Return whether some rows are left out: by a filter, or by a version that may lack rows."""
        return bool(self.filter.where) or self.past is not None

    @property
    def tells_versions(self) -> bool:
        """Return whether keys hold numbers of versions, which mean other rows in a copy that went on by itself."""
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
        """Return whether values are to be computed from other inputs than the fragment has now."""
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
    return tuple(arrow_types.given_type(f.arrow, f.type_under(names)) for f in inputs)


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
    columns = {name: expressions.Renamed(f.type_under(names), f.arrow.type) for name, f in pairs}
    return dataclasses.replace(udf, sql_expression=expressions.with_current_names(udf.sql_expression, columns))


#: Lance changes its value whenever any column of the row's fragment is written: no data file tells that.
_MOVING_COLUMN = "_row_last_updated_at_version"
#: Columns that a message names at the most.
_LISTED = 40
#: The oldest of Lance's file formats in which a column can be in a file of its own.
OLDEST_FORMAT = (2, 0)


def resolve_request(
    spec: BackfillSpec,
    table: TableSnapshot,
    udf: UdfDefinition,
    bound_udf: UdfDefinition | None,
    bundle_uri: str = "",
) -> ResolvedRequest:
    """Resolve a request for all rows.

    Args:
        udf: computes the values.
        bound_udf: the function that the column was added with; None: it does not exist any more.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED, INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, TYPE_MISMATCH.
    """
    column, bound = defined_column(table, spec.column)
    own = (udf.name, udf.version) == bound.function
    names = bound.names if own else column_checks.NO_NAMES
    if bound.source is not None:  # what the function reads there was checked when the column was made
        inputs = _bound_inputs(table, bound)
    else:
        inputs = inputs_of(table, bound, udf, bound_udf)
        check_inputs(column.name, inputs, udf, names)
    column_checks.check_output_type(column, udf)
    return ResolvedRequest(
        table=table,
        output=OutputField(column, bound.column_id),
        udf=udf,
        inputs=inputs,
        num_frags=spec.num_frags,
        bundle_uri=bundle_uri,
        names=names,
        values_id=bound.values_id,
        keyed_as=bound.keyed_as(column.name),
        kept=bound.kept if own else (),
        failed_only=spec.failed_only,
        source=bound.source,
    )


def check_spec(spec: BackfillSpec) -> None:
    """Refuse a request that no table can answer.

    Raises:
        InvalidArgument: BAD_NUMBER for numbers that are negative or contradict each other; BAD_REQUEST for a missing
            column, for a version without a function, or for both `read_version` and `read_tag`.
    """
    if spec.read_version and spec.read_tag:
        raise InvalidArgument("BAD_REQUEST", "give either read_version or read_tag", field="spec.read_tag")
    bounds = spec.checkpoint
    if 0 < bounds.max_checkpoint_size < bounds.min_checkpoint_size:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"min_checkpoint_size ({bounds.min_checkpoint_size}) is above max_checkpoint_size "
            f"({bounds.max_checkpoint_size})",
            field="spec.checkpoint",
        )
    if not spec.column:
        raise InvalidArgument("BAD_REQUEST", "column is empty: name the column to fill", field="spec.column")
    if spec.udf_version and not spec.udf_name:
        raise InvalidArgument("BAD_REQUEST", "a version of a function needs its name", field="spec.udf")


def check_format(table: TableSnapshot) -> None:
    """Refuse a table in Lance's first file format: a column can be added to it only by writing it again.

    Raises:
        FailedPrecondition: FILE_FORMAT_NOT_SUPPORTED.
    """
    if table.file_format < OLDEST_FORMAT:
        written = "{}.{}".format(*table.file_format)
        raise FailedPrecondition(
            "FILE_FORMAT_NOT_SUPPORTED",
            f"Table {table.uri} is written in Lance's file format {written}, and computed columns need 2.0 at least. "
            "Write it again: lance.write_dataset(lance.dataset(uri), new_uri, data_storage_version='stable')",
            uri=table.uri,
            file_format=written,
        )


def defined_column(table: TableSnapshot, name: str) -> tuple[TableField, ColumnBinding]:
    """Return the computed column of that name and its binding.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED where there is none, or no function computes it; IS_A_VIEW where a view's
            refreshes do.
    """
    column = table.column(name)
    bound = None if column is None else binding.read(column.arrow)
    if column is not None and bound is not None:
        return column, bound
    if column is not None and metadata.from_metadata(table.metadata) is not None:
        raise FailedPrecondition(
            "IS_A_VIEW", "Columns of a view are computed by its refreshes: refresh it", column=name
        )
    if column is not None:
        what = "it holds plain data, which no function computes. Name a computed column, or add one under another name "
        what += "with CatalogService.AddColumns"
    else:
        what = "add it with CatalogService.AddColumns first"
    message = f"Column {name} is not defined in this table: {what}. {_listed(table)}"
    raise FailedPrecondition("COLUMN_NOT_DEFINED", message, column=name)


def _listed(table: TableSnapshot) -> str:
    """Say which columns of a table are computed, or what columns it has where none is."""
    names = [field.name for field in table.fields]
    computed = [field.name for field in table.fields if column_bindings.COLUMN_ID in (field.arrow.metadata or {})]
    if computed:
        return f"Computed are {', '.join(computed[:_LISTED])}"
    return f"No column of the table is computed; it has {', '.join(names[:_LISTED])}"


def with_filter(
    resolved: ResolvedRequest, where: str, names: Collection[str], fields: Iterable[TableField] | None = None
) -> ResolvedRequest:
    """Return the request for the rows that `where` matches.

    Args:
        names: casefolded, a superset of what the filter reads.
        fields: the columns of the version in which it is evaluated; None: the table's.
    """
    output = resolved.output.field.field_id
    own = {field.field_id for field in resolved.inputs} | {output}
    mentioned = [field for field in fields or resolved.table.fields if field.name.casefold() in names]
    made = Filter(
        where=where,
        columns=tuple(field for field in mentioned if field.field_id not in own),
        names=tuple(pair for field in mentioned for pair in field.inner_names()),
        reads_output=any(field.field_id == output for field in mentioned),
        reads_versions=_MOVING_COLUMN in names,
    )
    return dataclasses.replace(resolved, filter=made)


def check_inputs(
    column: str, inputs: Sequence[TableField], udf: UdfDefinition, names: Mapping[int, str] = column_checks.NO_NAMES
) -> None:
    """Check that a function can compute a column from these inputs.

    Args:
        column: its name.
        inputs: the columns that the function reads.
        udf: the function.
        names: those that it is given for fields of structs, by id; else they are as the table has them.

    Raises:
        FailedPrecondition: INPUT_IS_OUTPUT, TYPE_MISMATCH.
    """
    if any(field.name.split(".")[0] == column for field in inputs):
        raise FailedPrecondition("INPUT_IS_OUTPUT", f"Column '{column}' cannot be computed from itself", column=column)
    for field in inputs:
        _check_distinct(field, names)
    column_checks.check_input_types(inputs, udf, names)


def _check_distinct(field: TableField, names: Mapping[int, str]) -> None:
    """Refuse names by which two fields of a struct would be called the same."""
    given = [names.get(part.field_id, part.name) for part in field.parts]
    if twice := next((name for name in given if given.count(name) > 1), ""):
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: its field that the function reads as '{twice}' was renamed, and "
            f"another one is called '{twice}' by now. Rename that one, or bind the column to its function again with "
            "CatalogService.AlterColumns: then it is given the names that the fields have now",
            column=field.name,
        )
    for child in field.children:
        _check_distinct(child, names)


def inputs_of(
    table: TableSnapshot, bound: ColumnBinding, udf: UdfDefinition, bound_udf: UdfDefinition | None
) -> tuple[TableField, ...]:
    """Return the columns that a function reads to compute a column.

    The column's mapping holds for its own function, and for another one with the same parameter names.

    Raises:
        FailedPrecondition: INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING.
    """
    own = (udf.name, udf.version) == (bound.udf_name, bound.udf_version)
    if not own and (bound_udf is None or bound_udf.input_columns != udf.input_columns):
        return column_checks.find_inputs(udf.input_columns, udf, table)
    return _bound_inputs(table, bound)


def _bound_inputs(table: TableSnapshot, bound: ColumnBinding) -> tuple[TableField, ...]:
    # A renamed column keeps its id; one that was cast or made again has another id under the old name.
    found = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    missing = [i.name for i, field in zip(bound.inputs, found, strict=True) if field is None]
    if missing:
        raise column_checks.input_missing(missing, table)
    return tuple(field for field in found if field is not None)


#: How many rows of an older version lie in each of some fragments, by stable row id.
RowsIn = Callable[[Sequence[int]], Mapping[int, int]]


def at_version(resolved: ResolvedRequest, old: TableSnapshot, rows_in: RowsIn) -> ResolvedRequest:
    """Return the request for the rows of an older version, with the values that they had then.

    A fragment that is in both has the same rows in the same places. Rows that moved are found by their ids.

    Raises:
        FailedPrecondition: READ_VERSION_INPUT_MISSING where that version lacks an input; READ_VERSION_ROWS_MOVED where
            nothing tells which rows are its own.
        InvalidArgument: INVALID_FILTER, where the filter reads the output column.
    """
    before = {fragment.fragment_id: fragment for fragment in old.fragments}
    same: dict[int, Fragment] = {}
    others: list[int] = []
    for fragment in resolved.table.fragments:
        then = before.get(fragment.fragment_id)
        if then is not None and fragment.has_rows_of(then):
            same[fragment.fragment_id] = then
        else:
            others.append(fragment.fragment_id)
    moved: Mapping[int, int] = {}
    if others and resolved.table.stable_row_ids and old.stable_row_ids:
        moved = rows_in(others)
    elif others and len(same) < len(before):  # else they were all added since
        raise _rows_moved(old)
    past = Past(
        version=old.version,
        same=same,
        moved=moved,
        inputs=tuple(_input_then(column, resolved.names, old) for column in resolved.inputs),
    )
    kept = tuple(f for f in resolved.table.fragments if f.fragment_id in same or moved.get(f.fragment_id))
    if resolved.filter.reads_output:
        raise InvalidArgument(
            "INVALID_FILTER",
            f"Invalid filter: it reads {resolved.output.name}, which is to be computed from version {old.version}; "
            "leave read_version or that column out",
            field="where",
        )
    return dataclasses.replace(resolved, table=dataclasses.replace(resolved.table, fragments=kept), past=past)


def _rows_moved(old: TableSnapshot) -> FailedPrecondition:
    return FailedPrecondition(
        "READ_VERSION_ROWS_MOVED",
        f"Rows of version {old.version} lie in other fragments now, and the table's row ids are not stable: nothing "
        "tells which they are. Leave read_version out, or write the table again with stable row ids",
        read_version=old.version,
    )


def _input_then(column: TableField, names: Mapping[int, str], old: TableSnapshot) -> TableField:
    found = old.find_id(column.field_id)
    if found is None or not column_checks.same_type(found.type_under(names), column.type_under(names)):
        raise FailedPrecondition(
            "READ_VERSION_INPUT_MISSING",
            f"Version {old.version} does not have the column '{column.name}' that is to be read: it was added, cast or "
            "made again since. Leave read_version out, or name a later version",
            column=column.name,
            read_version=old.version,
        )
    return found
