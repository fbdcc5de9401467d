"""Resolve requests: look up all names in one version of the table, which may be an older one. Pure."""

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
    """A filter with everything that determines which rows it matches."""

    #: Its text, with relative times pinned, or "" for all rows.
    where: str = ""
    #: The columns that it reads, without inputs and output.
    columns: tuple[TableField, ...] = ()
    #: The ids and names of the struct fields in all columns that the filter reads. A rename of one may change which
    #: rows match.
    names: tuple[tuple[int, str], ...] = ()
    reads_output: bool = False
    reads_versions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An older version whose rows are read."""

    version: int
    #: The fragments of that version that the table still has with the same rows, by id.
    same: Mapping[int, Fragment]
    #: For each other fragment of the table, by id, the number of rows that it has of that version.
    moved: Mapping[int, int]
    #: The inputs in that version.
    inputs: tuple[TableField, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """One column of one table, the function that computes it, and the requested rows."""

    table: TableSnapshot
    output: OutputField
    udf: UdfDefinition
    inputs: tuple[TableField, ...]
    filter: Filter = Filter()
    num_frags: int = 0
    bundle_uri: str = ""
    #: The names of struct fields in the inputs, by field id, under which the function gets them if the table's names
    #: differ.
    names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    #: The output column's id in fingerprints, or "" for its own.
    values_id: str = ""
    #: The output column's name in checkpoint keys, or "" for its own.
    keyed_as: str = ""
    #: The md5 of the table's location when the checkpoints were stored, or "" for its present location.
    former_place: str = ""
    #: Earlier functions whose values count as current.
    kept: tuple[FunctionVersion, ...] = ()
    #: Whether only rows that are marked as failed are requested.
    failed_only: bool = False
    #: If set, another table with the function's inputs. The request's only input then contains row ids of that table.
    source: InputSource | None = None
    past: Past | None = None
    #: The first halves of fingerprints: that of the function, then those of the functions in `kept`.
    versions: tuple[str, ...] = dataclasses.field(init=False)
    family: keys.KeyFamily = dataclasses.field(init=False)
    #: The field ids of the inputs in parameter order, including children.
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
        """Return the inputs as they are in the version that is read."""
        return self.inputs if self.past is None else self.past.inputs

    @property
    def selective(self) -> bool:
        """Return whether the request may leave out rows, because of a filter or an older version."""
        return bool(self.filter.where) or self.past is not None

    @property
    def tells_versions(self) -> bool:
        """Return whether keys contain version numbers.

        In a copy of the table, the same version number may stand for other rows.
        """
        return self.past is not None or self.filter.reads_versions

    @property
    def families(self) -> tuple[keys.KeyFamily, ...]:
        """Return the key families of `versions`."""
        kept = (dataclasses.replace(self.family, udf_name=name, udf_version=version) for name, version in self.kept)
        return (self.family, *kept)

    @property
    def of_kept(self) -> tuple[ResolvedRequest, ...]:
        """Return the request for each function in `kept`."""
        return tuple(
            dataclasses.replace(
                self,
                udf=dataclasses.replace(self.udf, name=name, version=version),
                kept=self.kept[number:],
            )
            for number, (name, version) in enumerate(self.kept, 1)
        )

    def input_pairs(self, fragment: Fragment) -> list[tuple[int, str]]:
        """Return (field id, data file) pairs in parameter order.

        Children of nested fields are included, because Lance lists only leaf fields in a file.
        """
        return self._pairs(fragment, self.input_ids)

    def input_files(self, fragment: Fragment) -> tuple[str, ...]:
        """Return the inputs' files in the version that is read, or () if the fragment's rows have moved since."""
        read = fragment if self.past is None else self.past.same.get(fragment.fragment_id)
        return () if read is None else read.files_of(self._inputs)

    def is_past(self, fragment: Fragment) -> bool:
        """Return whether a fragment's values are computed from files other than its present input files."""
        if self.past is None:
            return False
        then = self.past.same.get(fragment.fragment_id)
        return then is None or any(then.file_of(i) != fragment.file_of(i) for i in self.input_ids)

    def rows_asked(self, fragment: Fragment) -> int:
        """Return the number of requested live rows, before any filter.

        In a fragment to which rows have moved, only the rows of the older version count.
        """
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
        """Return the identity of the filter in a fragment; see `keys.filter_identity`."""
        if self._plain:
            return ""
        if self.failed_only:
            file = next(iter(fragment.files_of(self.output.field.field_ids)), "")
            return keys.failed_identity(file, self._where_identity(fragment))
        return self._where_identity(fragment)

    def _where_identity(self, fragment: Fragment) -> str:
        # Include the kept versions, because a checkpoint refers to the version of each row by its index among them.
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
    """Return the types of the inputs with the field names that a function gets, or () if `names` is empty."""
    if not names:
        return ()
    return tuple(arrow_types.given_type(f.arrow, f.type_under(names)) for f in inputs)


def with_names_now(udf: UdfDefinition, read: Sequence[TableField], names: Mapping[int, str]) -> UdfDefinition:
    """Return the function with the struct field names of the version that is read, if it is a SQL expression.

    Args:
        udf: The function. If it is not SQL, it is returned unchanged.
        read: Its inputs in that version.
        names: The names for which the expression was written, by field id.

    Raises:
        FailedPrecondition: TYPE_MISMATCH – the expression reads a whole struct whose fields were renamed.
    """
    if udf.kind is not UdfKind.SQL or not names:
        return udf
    pairs = zip(udf.input_columns, read, strict=True)
    columns = {name: expressions.Renamed(f.type_under(names), f.arrow.type) for name, f in pairs}
    return dataclasses.replace(udf, sql_expression=expressions.with_current_names(udf.sql_expression, columns))


#: Lance changes this column when any column of the row's fragment is written, without a data file of its own.
_MOVING_COLUMN = "_row_last_updated_at_version"
#: How many columns a message lists.
_LISTED = 40
#: The oldest file format of Lance in which a column can have its own file.
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
        spec: The request.
        table: The version of the table.
        udf: The function that computes the values.
        bound_udf: The function of the column's binding, or None if it is no longer registered.
        bundle_uri: The bundle of `udf`.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED, INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, TYPE_MISMATCH.
    """
    column, bound = defined_column(table, spec.column)
    own = (udf.name, udf.version) == bound.function
    names = bound.names if own else column_checks.NO_NAMES
    if bound.source is not None:  # the inputs were checked when the column was created
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
    """Reject a request that is wrong for any table.

    Raises:
        InvalidArgument: BAD_NUMBER – numbers contradict each other; BAD_REQUEST – there is no column, a version without
            a function, or both `read_version` and `read_tag`.
    """
    if spec.read_version and spec.read_tag:
        raise InvalidArgument("BAD_REQUEST", "Set either read_version or read_tag, not both", field="spec.read_tag")
    bounds = spec.checkpoint
    if 0 < bounds.max_checkpoint_size < bounds.min_checkpoint_size:
        raise InvalidArgument(
            "BAD_NUMBER",
            f"min_checkpoint_size ({bounds.min_checkpoint_size}) is above max_checkpoint_size "
            f"({bounds.max_checkpoint_size})",
            field="spec.checkpoint",
        )
    if not spec.column:
        raise InvalidArgument("BAD_REQUEST", "column is empty: set the column to compute", field="spec.column")
    if spec.udf_version and not spec.udf_name:
        raise InvalidArgument("BAD_REQUEST", "udf has a version but no name: set its name too", field="spec.udf")


def check_format(table: TableSnapshot) -> None:
    """Reject a table in Lance's first file format, in which a column cannot have a file of its own.

    Raises:
        FailedPrecondition: FILE_FORMAT_NOT_SUPPORTED.
    """
    if table.file_format < OLDEST_FORMAT:
        written = "{}.{}".format(*table.file_format)
        raise FailedPrecondition(
            "FILE_FORMAT_NOT_SUPPORTED",
            f"Table {table.uri} has Lance's file format {written}; computed columns need 2.0 or later. "
            "Rewrite it: lance.write_dataset(lance.dataset(uri), new_uri, data_storage_version='stable')",
            uri=table.uri,
            file_format=written,
        )


def defined_column(table: TableSnapshot, name: str) -> tuple[TableField, ColumnBinding]:
    """Return a computed column and its binding.

    Raises:
        FailedPrecondition: COLUMN_NOT_DEFINED – there is no such column, or no function computes it; IS_A_VIEW –
            refreshes of the view compute it.
    """
    column = table.column(name)
    bound = None if column is None else binding.read(column.arrow)
    if column is not None and bound is not None:
        return column, bound
    if column is not None and metadata.from_metadata(table.metadata) is not None:
        raise FailedPrecondition("IS_A_VIEW", "Refreshes compute the columns of a view: refresh it", column=name)
    if column is not None:
        what = "no function computes it. Name a computed column, or add one under another name with "
        what += "CatalogService.AddColumns"
    else:
        what = "add it with CatalogService.AddColumns first"
    message = f"Column {name} is not defined in this table: {what}. {_listed(table)}"
    raise FailedPrecondition("COLUMN_NOT_DEFINED", message, column=name)


def _listed(table: TableSnapshot) -> str:
    """List the computed columns of a table, or all columns if none is computed."""
    names = [field.name for field in table.fields]
    computed = [field.name for field in table.fields if column_bindings.COLUMN_ID in (field.arrow.metadata or {})]
    if computed:
        return f"Computed columns: {', '.join(computed[:_LISTED])}"
    return f"No column of the table is computed; its columns: {', '.join(names[:_LISTED])}"


def with_filter(
    resolved: ResolvedRequest, where: str, names: Collection[str], fields: Iterable[TableField] | None = None
) -> ResolvedRequest:
    """Return the request for the rows that match `where`.

    Args:
        resolved: The request.
        where: The filter.
        names: At least the columns that the filter reads, casefolded.
        fields: The columns of the version in which it is evaluated, or None for the table's.
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
        column: The name of the column.
        inputs: The columns that the function reads.
        udf: The function.
        names: See `ResolvedRequest.names`.

    Raises:
        FailedPrecondition: INPUT_IS_OUTPUT, TYPE_MISMATCH.
    """
    if any(field.name.split(".")[0] == column for field in inputs):
        raise FailedPrecondition("INPUT_IS_OUTPUT", f"Column '{column}' cannot be computed from itself", column=column)
    for field in inputs:
        _check_distinct(field, names)
    column_checks.check_input_types(inputs, udf, names)


def _check_distinct(field: TableField, names: Mapping[int, str]) -> None:
    """Reject names that would give two fields of a struct the same name."""
    given = [names.get(part.field_id, part.name) for part in field.parts]
    if twice := next((name for name in given if given.count(name) > 1), ""):
        raise FailedPrecondition(
            "TYPE_MISMATCH",
            f"Type mismatch for column {field.name}: the field that the function reads as '{twice}' was renamed, and "
            f"another field is now called '{twice}'. Rename that one, or bind the column to its function again with "
            "CatalogService.AlterColumns, so that the function gets the present names",
            column=field.name,
        )
    for child in field.children:
        _check_distinct(child, names)


def inputs_of(
    table: TableSnapshot, bound: ColumnBinding, udf: UdfDefinition, bound_udf: UdfDefinition | None
) -> tuple[TableField, ...]:
    """Return the columns that a function reads to compute a column.

    The inputs in the column's binding apply to the column's own function, and to any function with the same parameter
    names.

    Raises:
        FailedPrecondition: INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING.
    """
    own = (udf.name, udf.version) == (bound.udf_name, bound.udf_version)
    if not own and (bound_udf is None or bound_udf.input_columns != udf.input_columns):
        return column_checks.find_inputs(udf.input_columns, udf, table)
    return _bound_inputs(table, bound)


def _bound_inputs(table: TableSnapshot, bound: ColumnBinding) -> tuple[TableField, ...]:
    # A renamed column keeps its id. A column that was cast or recreated has the old name with another id.
    found = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    missing = [i.name for i, field in zip(bound.inputs, found, strict=True) if field is None]
    if missing:
        raise column_checks.input_missing(missing, table)
    return tuple(field for field in found if field is not None)


#: Returns, for each of the given fragments, how many rows of an older version it has, by their stable row ids.
RowsIn = Callable[[Sequence[int]], Mapping[int, int]]


def at_version(resolved: ResolvedRequest, old: TableSnapshot, rows_in: RowsIn) -> ResolvedRequest:
    """Return the request for the rows of an older version, computed from their values in that version.

    A fragment that is in both versions has the same rows at the same offsets. Rows that moved are found by their row
    ids.

    Raises:
        FailedPrecondition: READ_VERSION_INPUT_MISSING – that version lacks an input; READ_VERSION_ROWS_MOVED – its rows
            cannot be found in the latest version.
        InvalidArgument: INVALID_FILTER – the filter reads the output column.
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
    elif others and len(same) < len(before):  # otherwise, the others were added since
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
            f"Invalid filter: it reads {resolved.output.name}, which the request computes from version "
            f"{old.version}. Leave out read_version, or remove the column from the filter",
            field="where",
        )
    return dataclasses.replace(resolved, table=dataclasses.replace(resolved.table, fragments=kept), past=past)


def _rows_moved(old: TableSnapshot) -> FailedPrecondition:
    return FailedPrecondition(
        "READ_VERSION_ROWS_MOVED",
        f"Rows of version {old.version} have moved to other fragments, and without stable row ids they cannot be "
        "found. Leave out read_version, or rewrite the table with stable row ids",
        read_version=old.version,
    )


def _input_then(column: TableField, names: Mapping[int, str], old: TableSnapshot) -> TableField:
    found = old.find_id(column.field_id)
    if found is None or not column_checks.same_type(found.type_under(names), column.type_under(names)):
        raise FailedPrecondition(
            "READ_VERSION_INPUT_MISSING",
            f"Version {old.version} does not have the input column '{column.name}': it was added, cast or created "
            "again since. Leave out read_version, or set a later version",
            column=column.name,
            read_version=old.version,
        )
    return found
