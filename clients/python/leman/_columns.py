"""What callers say of columns: SQL expressions, types, changed definitions, the parameters of backfills.

SQL expressions that compute a column.

Types that a column may be given in place of its own, as requests name them.

Columns that were there with another definition when `Table.add_columns` asked for them.

The parameters of a backfill.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypedDict

from leman._wire.wire_values import function_ref, seconds
from leman.error_handling import ErrorHandlingConfig
from leman.errors import InvalidArgument, UdfDefinitionError
from leman.v1 import catalog_pb2, planner_pb2, types_pb2, udf_pb2

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


@dataclass(frozen=True)
class SqlExpression:
    """A SQL expression and what happens to rows for which it has no value. Made by `leman.sql`."""

    text: str
    error_handling: ErrorHandlingConfig | None = None

    def column(self, name: str) -> catalog_pb2.NewColumn:
        """As a new column on the wire."""
        policy = None if self.error_handling is None else self.error_handling.proto()
        return catalog_pb2.NewColumn(name=name, sql_expression=self.text, error_policy=policy)


def sql(expression: str, *, error_handling: ErrorHandlingConfig | None = None) -> SqlExpression:
    """A SQL expression for `Table.add_columns` and `alter_columns`, where a text alone does not say enough.

    `error_handling`: what happens to rows for which it has no value, as of a cast of `'abc'` to a number or a division
    by zero: rules call that `SqlError`, and nothing is tried again. Without it the first such row ends the job, or what
    the same expression was registered with before holds.
    """
    given: Any = expression
    if not isinstance(given, str):
        raise InvalidArgument(f"sql() takes a SQL expression as text, not {given!r}")
    if error_handling is not None and not isinstance(error_handling, ErrorHandlingConfig):
        raise UdfDefinitionError("error_handling takes a leman.ErrorHandlingConfig")
    return SqlExpression(expression, error_handling)


_NAMES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
    "string": "utf8",
    "large_string": "large_utf8",
    "binary": "binary",
    "large_binary": "large_binary",
}


def type_to_proto(data_type: pa.DataType) -> types_pb2.JsonArrowDataType:
    """The type on the wire. Raises InvalidArgument where no column becomes one."""
    if not isinstance(data_type, pa.DataType):
        raise InvalidArgument(f"data_type is a pyarrow type, such as pa.int64(), not a {type(data_type).__name__}")
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        values = data_type.value_field
        told = types_pb2.JsonArrowDataType(type="large_list" if pa.types.is_large_list(data_type) else "list")
        told.fields.add(name=values.name, type=type_to_proto(values.type), nullable=values.nullable)
        return told
    name = _NAMES.get(str(data_type))
    if name is None:
        raise InvalidArgument(
            f"no column becomes {data_type}: integers and floats become other ones, and text, bytes and lists their"
            " large forms; add a column of that type instead"
        )
    return types_pb2.JsonArrowDataType(type=name)


OnChange = Literal["error", "update", "keep"]
"""What becomes of a computed column that is there with another definition, see `Table.add_columns`."""

_ON_CHANGE = {
    "error": catalog_pb2.ON_CHANGE_ERROR,
    "update": catalog_pb2.ON_CHANGE_UPDATE,
    "keep": catalog_pb2.ON_CHANGE_KEEP,
}
_OUTCOMES = {catalog_pb2.ColumnOutcome.OUTCOME_UPDATED: "updated", catalog_pb2.ColumnOutcome.OUTCOME_KEPT: "kept"}
_LINES = 40


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that got another definition; `str` of it says so, with the difference of the functions' sources.

    `outcome`: `updated` (its values are stale) or `kept` (they count as current). `udf_before`, `udf`: `name@version`;
    `diff`: a unified diff of their sources, empty where these are not known or the same. `rows_stale`: rows that the
    next backfill computes again; `rows_stored`: rows that it computes again although a job that did not finish had
    computed them (`on_change="keep"` keeps them); `rows_lost`: those of both that were finished with the definition so
    far; `rows_not_computed`: rows that it computes for the first time.
    `expected_seconds`: what that takes about, from the column's last backfill; None: it had none. `summary`: all of
    this in a sentence.
    """

    column: str
    outcome: str
    udf_before: str
    udf: str
    diff: str
    rows_stale: int
    rows_not_computed: int
    expected_seconds: float | None
    summary: str
    rows_stored: int = 0
    rows_lost: int = 0

    def __str__(self) -> str:
        lines = self.diff.splitlines()
        cut = [f"… {len(lines) - _LINES:,} more lines"] if len(lines) > _LINES else []
        return "\n  ".join([self.summary, *lines[:_LINES], *cut])


def on_change_to_proto(on_change: str) -> catalog_pb2.OnChange.ValueType:
    """Raises InvalidArgument."""
    if on_change not in _ON_CHANGE:
        raise InvalidArgument(f"on_change is 'error', 'update' or 'keep', not {on_change!r}")
    return _ON_CHANGE[on_change]


def column_changes(outcomes: Iterable[catalog_pb2.ColumnOutcome]) -> list[ColumnChange]:
    """Those of the columns that got another definition by this call."""
    return [
        ColumnChange(
            column=item.column,
            outcome=_OUTCOMES[item.outcome],
            udf_before=f"{item.udf_before.name}@{item.udf_before.version}",
            udf=f"{item.udf.name}@{item.udf.version}",
            diff=item.diff,
            rows_stale=item.rows_stale,
            rows_not_computed=item.rows_not_computed,
            expected_seconds=seconds(item.expected_duration) if item.HasField("expected_duration") else None,
            summary=item.summary,
            rows_stored=item.rows_stored,
            rows_lost=item.rows_lost,
        )
        for item in outcomes
        if item.outcome in _OUTCOMES and item.HasField("udf_before")
    ]


def report_lost(
    outcomes: Iterable[catalog_pb2.ColumnOutcome],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of alter_columns, passed on
) -> None:
    """Tell of columns whose finished rows are computed again, as `report` does."""
    report_changes((change for change in column_changes(outcomes) if change.rows_lost), to)


def report_changes(
    found: Iterable[ColumnChange],
    to: bool | Callable[[ColumnChange], object] | None,  # noqa: FBT001 - the argument of add_columns, passed on
    stream: TextIO | None = None,
) -> None:
    """Tell of changes: on standard error (None, True), not at all (False), or to a function."""
    for change in found:
        if callable(to):
            to(change)
        elif to is not False:
            print(change, file=stream or sys.stderr, flush=True)


OnStaleInput = Literal["error", "warn", "first"]
"""What a backfill or a refresh does about inputs that are not current, see `BackfillParameters`."""


class BackfillParameters(TypedDict, total=False):
    """What `Table.backfill` and its kin take by name; None is the same as not given.

    - `where`: compute only rows for which this SQL expression is true; the others keep their values.
    - `read_version`: compute from this version of the table, a number or a tag's name: its rows, with the values that
      they had then. Where inputs have moved on since, the next run without it makes the values current. Default: the
      latest.
    - `concurrency`: worker processes at the most. Default: one for each task slot.
    - `intra_applier_concurrency`: threads in each worker process that call the function at the same time,
      which then has to allow that. Default: one. At most `concurrency` times as many calls run at once.
    - `checkpoint_size`, `min_checkpoint_size`, `max_checkpoint_size`: rows between checkpoints; they
      override what the function asks for. Default: about five seconds of work.
    - `task_size`: rows in a unit of work. Default: chosen from the measured cost.
    - `task_shuffle_diversity`: units of so many fragments are handed out in turn. With 1 one fragment after
      the other is completed. Default: of all, the one with the most rows left next.
    - `commit_granularity`: fragments between commits. Default: about every five seconds, or a tenth of the
      job.
    - `commit_rows`: rows between commits, also of fragments that the job is still computing. Rows that are not
      computed yet are NULL, and `row_states` counts them separately. Not with `where` or `read_version`. Default: the
      job commits whole fragments; after ten seconds without a commit it commits the rows that are checkpointed, and
      doubles that interval each time.
    - `on_stale_input`: what happens where the column reads computed columns (or these read others) that are stale or
      not computed yet. `"error"`, the default: the job is refused (InputColumnStale), as it would compute from values
      that are not right, or not there. `"first"`: it computes these first, all their rows. `"warn"`: it computes from
      what is there, with a warning; once the inputs are computed, these values are stale.
    - `num_frags`: compute at most this many fragments, for a sample run. Default: all.
    - `optimize_indices`: once the values are in the table, bring the indexes on the column up to date, as
      `Table.optimize_indices` does. Default: no; `Job.stale_indices` says which leave rows out.
    """

    where: str | None
    read_version: int | str | None
    concurrency: int | None
    intra_applier_concurrency: int | None
    checkpoint_size: int | None
    min_checkpoint_size: int | None
    max_checkpoint_size: int | None
    task_size: int | None
    task_shuffle_diversity: int | None
    commit_granularity: int | None
    commit_rows: int | None
    num_frags: int | None
    optimize_indices: bool | None
    on_stale_input: OnStaleInput | None


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`BackfillParameters`, checked. Raises InvalidArgument (a ValueError)."""

    where: str | None = None
    read_version: int | str | None = None
    concurrency: int | None = None
    intra_applier_concurrency: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    task_size: int | None = None
    task_shuffle_diversity: int | None = None
    commit_granularity: int | None = None
    commit_rows: int | None = None
    num_frags: int | None = None
    optimize_indices: bool | None = None
    on_stale_input: OnStaleInput | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> BackfillOptions:
        """Raises TypeError for a name that is not among them."""
        names = [field.name for field in fields(cls)]
        for name in parameters:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
                raise TypeError(f"a backfill has no parameter {name!r}: {hint}")
        return cls(**parameters)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            tag = field.name == "read_version" and isinstance(value, str) and value.strip()
            if value is not None and field.name not in _NO_COUNTS and not tag:
                _check_count(field.name, value)
        if self.optimize_indices not in (None, True, False):
            raise InvalidArgument(f"optimize_indices is True or False, not {self.optimize_indices!r}")
        on_stale_input_to_wire(self.on_stale_input)
        check_where(self.where)
        smallest, largest = self.min_checkpoint_size, self.max_checkpoint_size
        if smallest is not None and largest is not None and smallest > largest:
            raise InvalidArgument(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")

    def spec(
        self, table: catalog_pb2.TableRef, column: str, udf_name: str, udf_version: str
    ) -> planner_pb2.BackfillSpec:
        """The parameters on the wire; what is not given is left out."""
        spec = planner_pb2.BackfillSpec(
            table=table,
            column=column,
            udf=function_ref(udf_name, udf_version) if udf_name else None,
            where=self.where or "",
            concurrency=self.concurrency,
            intra_applier_concurrency=self.intra_applier_concurrency,
            checkpoint=udf_pb2.CheckpointBounds(
                checkpoint_size=self.checkpoint_size,
                min_checkpoint_size=self.min_checkpoint_size,
                max_checkpoint_size=self.max_checkpoint_size,
            ),
            task_size=self.task_size,
            task_shuffle_diversity=self.task_shuffle_diversity,
            commit_granularity=self.commit_granularity,
            commit_rows=self.commit_rows,
            num_frags=self.num_frags,
            optimize_indices=bool(self.optimize_indices),
            on_stale_input=on_stale_input_to_wire(self.on_stale_input),
        )
        if isinstance(self.read_version, int):
            spec.read_version = self.read_version
        elif self.read_version is not None:
            spec.read_tag = self.read_version
        return spec


def on_stale_input_to_wire(value: object) -> planner_pb2.OnStaleInput.ValueType:
    """The word on the wire; None leaves it to the service. Raises InvalidArgument."""
    if value is None:
        return planner_pb2.ON_STALE_INPUT_UNSPECIFIED
    found = _ON_STALE_INPUT.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidArgument(f"on_stale_input is 'error', 'warn' or 'first', not {value!r}")
    return found


_NO_COUNTS = ("where", "optimize_indices", "on_stale_input")
_ON_STALE_INPUT = {
    "error": planner_pb2.ON_STALE_INPUT_ERROR,
    "warn": planner_pb2.ON_STALE_INPUT_WARN,
    "first": planner_pb2.ON_STALE_INPUT_FIRST,
}
_INT32 = (
    "concurrency",
    "intra_applier_concurrency",
    "task_shuffle_diversity",
    "commit_granularity",
    "num_frags",
)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is a whole number, 1 or more, not {value!r}", facts={"field": name})
    if value >= 1 << (31 if name in _INT32 else 63):
        raise InvalidArgument(f"{name}={value} is too large", facts={"field": name})


def check_where(where: Any) -> None:
    """Raise InvalidArgument unless it may be a SQL expression, or is None."""
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise InvalidArgument(f'where is a SQL expression such as "size > 10", not {where!r}', facts={"field": "where"})
