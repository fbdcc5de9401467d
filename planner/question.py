"""What a plan is asked for, with everything named resolved against one table. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core import keys
from core.domain.plan import BackfillSpec, InputSource, OutputField
from core.domain.table import Fragment, TableField, TableSnapshot
from core.domain.udf import ColumnBinding, FunctionVersion, UdfDefinition
from core.errors import FailedPrecondition, InvalidArgument, Unimplemented
from core.udf import binding, validation
from core.views import metadata

#: Lance moves it whenever any column of the row's fragment is written: no data file tells that.
_MOVING_COLUMN = "_row_last_updated_at_version"
#: Of Lance's file formats, in which a column can be in a file of its own.
OLDEST_FORMAT = (2, 0)


@dataclass(frozen=True, slots=True)
class Filter:
    """`where` with relative times pinned; empty: all rows. `columns`: what it reads but inputs and output."""

    where: str = ""
    columns: tuple[TableField, ...] = ()
    reads_output: bool = False
    reads_versions: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """One column of one table, the function that is to fill it, and the rows asked for.

    `input_ids` are the inputs' field ids in parameter order, children included. `keyed_as`: the name that the output
    column has in checkpoint keys; empty: its own. `kept`: earlier functions whose values count as current. `versions`:
    first halves of fingerprints, of the function's version and of those kept. `failed_only`: no other rows are asked
    for than those marked as failed. With a `source` the one input holds row ids of that table, which has the function's
    inputs.
    """

    table: TableSnapshot
    output: OutputField
    udf: UdfDefinition
    inputs: tuple[TableField, ...]
    filter: Filter = Filter()
    num_frags: int = 0
    bundle_uri: str = ""
    keyed_as: str = ""
    kept: tuple[FunctionVersion, ...] = ()
    failed_only: bool = False
    source: InputSource | None = None
    versions: tuple[str, ...] = dataclasses.field(init=False)
    family: keys.KeyFamily = dataclasses.field(init=False)
    input_ids: tuple[int, ...] = dataclasses.field(init=False)
    _inputs: frozenset[int] = dataclasses.field(init=False, repr=False)
    _plain: bool = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        column = self.keyed_as or self.output.name
        family = keys.KeyFamily(self.udf.name, self.udf.version, column, self.table.uri)
        object.__setattr__(self, "family", family)
        functions = [(self.udf.name, self.udf.version), *self.kept]
        parts = tuple(keys.function_part(name, version, self.output.column_id) for name, version in functions)
        object.__setattr__(self, "versions", parts)
        object.__setattr__(self, "input_ids", tuple(i for column in self.inputs for i in column.field_ids))
        object.__setattr__(self, "_inputs", frozenset(self.input_ids))
        object.__setattr__(self, "_plain", not (self.filter.where or self.kept or self.failed_only))

    @property
    def families(self) -> tuple[keys.KeyFamily, ...]:
        """Of `versions`."""
        kept = (dataclasses.replace(self.family, udf_name=name, udf_version=version) for name, version in self.kept)
        return (self.family, *kept)

    def input_pairs(self, fragment: Fragment) -> list[tuple[int, str]]:
        """(field id, data file) in parameter order, children too: Lance lists only leaves in a file."""
        return [(i, fragment.file_of(i)) for i in self.input_ids]

    def input_files(self, fragment: Fragment) -> tuple[str, ...]:
        return fragment.files_of(self._inputs)

    def filter_identity(self, fragment: Fragment) -> str:
        """What decides which rows the filter matches in a fragment: see `keys.filter_identity`."""
        if self._plain:
            return ""
        if self.failed_only:
            file = next(iter(fragment.files_of(self.output.field.field_ids)), "")
            return keys.failed_identity(file, self._where_identity(fragment))
        return self._where_identity(fragment)

    def _where_identity(self, fragment: Fragment) -> str:
        """With the versions that are kept: a checkpoint says of its rows which of them they are of."""
        kept = f"\nkept {' '.join(self.versions[1:])}" if self.kept else ""
        return self._plain_identity(fragment) + kept

    def _plain_identity(self, fragment: Fragment) -> str:
        if not self.filter.where:
            return ""
        pairs = [(i, fragment.file_of(i)) for column in self.filter.columns for i in column.field_ids]
        if self.filter.reads_versions:
            pairs.append((-1, str(self.table.version)))
        return keys.filter_identity(self.filter.where, pairs)


def resolve(
    spec: BackfillSpec,
    table: TableSnapshot,
    udf: UdfDefinition,
    bound_udf: UdfDefinition | None,
    bundle_uri: str = "",
) -> Question:
    """The question for all rows. `udf` computes; the column was added with `bound_udf`, if that still exists.

    Raises FailedPrecondition (COLUMN_NOT_DEFINED, INPUT_COLUMN_MISSING, INPUT_COUNT_MISMATCH, TYPE_MISMATCH).
    """
    column, bound = defined_column(table, spec.column)
    if bound.source is not None:  # what the function reads there was checked when the column was made
        inputs = _bound_inputs(table, bound)
    else:
        inputs = inputs_of(table, bound, udf, bound_udf)
        check_inputs(column.name, inputs, udf)
    validation.check_output_type(column, udf)
    return Question(
        table=table,
        output=OutputField(column, bound.column_id),
        udf=udf,
        inputs=inputs,
        num_frags=spec.num_frags,
        bundle_uri=bundle_uri,
        keyed_as=bound.added_as,
        kept=bound.kept if (udf.name, udf.version) == bound.function else (),
        failed_only=spec.failed_only,
        source=bound.source,
    )


def check_spec(spec: BackfillSpec) -> None:
    """Raises InvalidArgument (BAD_NUMBER, BAD_REQUEST) for what no table can answer."""
    for name, number in spec.numbers.items():
        if number < 0:
            raise InvalidArgument("BAD_NUMBER", f"{name} is {number}; it cannot be negative", field=f"spec.{name}")
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
        raise InvalidArgument("BAD_REQUEST", "udf_version needs udf_name", field="spec.udf_name")


def check_format(table: TableSnapshot) -> None:
    """Raises FailedPrecondition (FILE_FORMAT_NOT_SUPPORTED) for a table in Lance's first file format: no column can be
    added to it without writing it anew."""
    if table.file_format < OLDEST_FORMAT:
        written = "{}.{}".format(*table.file_format)
        raise FailedPrecondition(
            "FILE_FORMAT_NOT_SUPPORTED",
            f"Table {table.uri} is written in Lance's file format {written}, and computed columns need 2.0 at least. "
            "Write it anew: lance.write_dataset(lance.dataset(uri), new_uri, data_storage_version='stable')",
            uri=table.uri,
            file_format=written,
        )


def defined_column(table: TableSnapshot, name: str) -> tuple[TableField, ColumnBinding]:
    """The computed column of that name. Raises FailedPrecondition (COLUMN_NOT_DEFINED, IS_A_VIEW)."""
    column = table.column(name)
    bound = None if column is None else binding.read(column.arrow)
    if column is not None and bound is not None:
        return column, bound
    if column is not None and metadata.from_metadata(table.metadata) is not None:
        raise FailedPrecondition(
            "IS_A_VIEW", "Columns of a view are computed by its refreshes: refresh it", column=name
        )
    if column is not None:
        what = "it holds plain data, no function computes it. Give the computed column another name"
    else:
        listed = ", ".join(f.name for f in table.fields[:40])
        what = f"define it through add_columns() first. The table has {listed}"
    raise FailedPrecondition("COLUMN_NOT_DEFINED", f"Column {name} is not defined in this table: {what}", column=name)


def with_filter(question: Question, where: str, names: Collection[str]) -> Question:
    """The question for the rows that `where` matches. `names`: casefolded, a superset of what it reads."""
    output = question.output.field.field_id
    own = {field.field_id for field in question.inputs} | {output}
    mentioned = [field for field in question.table.fields if field.name.casefold() in names]
    made = Filter(
        where=where,
        columns=tuple(field for field in mentioned if field.field_id not in own),
        reads_output=any(field.field_id == output for field in mentioned),
        reads_versions=_MOVING_COLUMN in names,
    )
    return dataclasses.replace(question, filter=made)


def at_version(question: Question, old: TableSnapshot) -> Question:
    """Narrows the question to the fragments that are in an older version too (settlement S10).

    A plan is made and committed against the latest version. That gives the same values as reading the old one
    where the columns that are read lie in the same files. Where they do not, the plan is refused rather than
    filled from other data than asked for: the coordinator takes no values of inputs that have moved on.

    Raises Unimplemented (READ_VERSION_INPUT_CHANGED).
    """
    read = [*question.inputs, *question.filter.columns]
    if question.filter.reads_output:
        read.append(question.output.field)
    ids = [i for column in read for i in column.field_ids]
    before = {fragment.fragment_id: fragment for fragment in old.fragments}
    kept: list[Fragment] = []
    changed: list[int] = []
    for fragment in question.table.fragments:
        then = before.get(fragment.fragment_id)
        if then is None or then.physical_rows != fragment.physical_rows:
            continue
        if all(then.file_of(i) == fragment.file_of(i) for i in ids):
            kept.append(fragment)
        else:
            changed.append(fragment.fragment_id)
    if changed:
        raise Unimplemented(
            "READ_VERSION_INPUT_CHANGED",
            f"In {len(changed)} fragments (the first is {changed[0]}) the columns to be read were rewritten "
            f"after version {old.version}. Computing from old data is not supported: leave read_version out",
            fragments=len(changed),
        )
    return dataclasses.replace(question, table=dataclasses.replace(question.table, fragments=tuple(kept)))


def check_inputs(column: str, inputs: Sequence[TableField], udf: UdfDefinition) -> None:
    """Raises FailedPrecondition (INPUT_IS_OUTPUT, TYPE_MISMATCH)."""
    if any(field.name.split(".")[0] == column for field in inputs):
        raise FailedPrecondition("INPUT_IS_OUTPUT", f"Column '{column}' cannot be computed from itself", column=column)
    validation.check_input_types(inputs, udf)


def inputs_of(
    table: TableSnapshot, bound: ColumnBinding, udf: UdfDefinition, bound_udf: UdfDefinition | None
) -> tuple[TableField, ...]:
    """The columns that a function reads to compute a column. The column's mapping holds for its own function, and for
    another one with the same parameter names.

    Raises FailedPrecondition (INPUT_COUNT_MISMATCH, INPUT_COLUMN_MISSING).
    """
    own = (udf.name, udf.version) == (bound.udf_name, bound.udf_version)
    if not own and (bound_udf is None or bound_udf.input_columns != udf.input_columns):
        return validation.find_inputs(udf.input_columns, udf, table)
    return _bound_inputs(table, bound)


def _bound_inputs(table: TableSnapshot, bound: ColumnBinding) -> tuple[TableField, ...]:
    # A renamed column keeps its id; one that was cast or made anew has another id under the old name.
    found = [table.find_id(i.field_id) or table.find(i.name) for i in bound.inputs]
    missing = [i.name for i, field in zip(bound.inputs, found, strict=True) if field is None]
    if missing:
        raise validation.input_missing(missing, table)
    return tuple(field for field in found if field is not None)
