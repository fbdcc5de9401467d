"""A plan, what is left to do and why, and its summary as text.

`leman plan` and a job's summary use the same text.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman._format.column_bindings import FunctionVersion, InputSource
from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfDefinition
from leman_core.model.row_positions import RowRange
from leman_core.model.table import TableField


class Reason(enum.Enum):
    """Why a fragment is, or is not, part of the work. Meanings: `protos/leman/v1/planner.proto`."""

    REUSED = "reused"
    STAGED = "staged"
    MISSING = "missing"
    UDF_CHANGED = "udf_changed"
    INPUT_CHANGED = "input_changed"
    PARTIAL = "partial"
    EXTERNAL_WRITE = "external_write"
    REUSED_FILTER = "reused_filter"
    REUSED_COMPACTED = "reused_compacted"
    HISTORY_LOST = "history_lost"
    PAST_INPUT = "past_input"

    __hash__ = object.__hash__  # Enum's own is written in Python, and plans count by reason


class ValueState(enum.Enum):
    """The state of a row's value. Meanings: `RowState` in `protos/leman/v1/planner.proto`."""

    COMPUTED = "computed"
    NULL = "null"
    FAILED = "failed"
    NOT_COMPUTED = "not_computed"


#: Reasons that leave nothing to do.
SETTLED = frozenset({Reason.REUSED, Reason.REUSED_FILTER, Reason.REUSED_COMPACTED})


class OnStaleInput(enum.Enum):
    """How a backfill treats inputs that are computed columns and not current; see the enum of the proto."""

    ERROR = "error"
    WARN = "warn"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class StaleInput:
    """A computed input column, and how many of its rows are stale or were never computed."""

    column: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSpec:
    """The request of a preview, see `protos/leman/v1/jobs.proto`."""

    database: str
    table: str
    column: str = ""
    udf_name: str = ""
    udf_version: str = ""
    definition: UdfDefinition | None = None
    sql_expression: str = ""
    #: That of the expression; None: the registered one.
    error_policy: ErrorPolicy | None = None
    input_columns: tuple[str, ...] = ()
    where: str = ""
    read_version: int = 0
    read_tag: str = ""

    @property
    def names_function(self) -> bool:
        """Return whether a function is named, and not only a column."""
        return bool(self.udf_name or self.sql_expression or self.definition is not None)


@dataclass(frozen=True, slots=True)
class BackfillSpec:
    """The request of a backfill. Names are those of the API, 0 and empty mean "not given"."""

    database: str
    table: str
    column: str
    udf_name: str = ""
    udf_version: str = ""
    where: str = ""
    read_version: int = 0
    read_tag: str = ""
    concurrency: int = 0
    checkpoint: CheckpointBounds = CheckpointBounds()
    task_size: int = 0
    commit_granularity: int = 0
    commit_rows: int = 0
    num_frags: int = 0
    intra_applier_concurrency: int = 0
    task_shuffle_diversity: int = 0
    failed_only: bool = False
    optimize_indices: bool = False
    on_stale_input: OnStaleInput = OnStaleInput.ERROR
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputField:
    """The output column's identity: name, Lance field ids, type and column id."""

    field: TableField
    column_id: str

    @property
    def name(self) -> str:
        return self.field.name


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A complete column file, committed or not. `digest` is xxh3-128 of its bytes."""

    file: str
    size_bytes: int
    digest: str
    physical_rows: int
    rows_computed: int
    rows_failed: int
    #: The object store's ETag of these bytes; empty: unknown.
    etag: str = ""

    @property
    def rows_skipped(self) -> int:
        """Return how many live rows a filter left out."""
        return max(0, self.physical_rows - self.rows_computed - self.rows_failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentReplacement:
    """A column file to install in one fragment, with everything that its correctness depends on."""

    fragment_id: int
    staged: StagedFile
    #: The data files of the input columns that it was computed from.
    input_files: tuple[str, ...]
    #: The output column's file that the plan saw; empty: none.
    replaces: str = ""


class CheckpointRef(NamedTuple):
    """A reusable checkpoint."""

    key: str
    range: RowRange
    #: False if it holds rows of another filter: those rows are known, the others in its range are not.
    settles: bool = True
    #: The function version of its values, as an index into `PlanHeader.versions`; 0: the plan's own.
    version: int = 0


class FragmentTask(NamedTuple):
    """The work for one fragment. Ranges are physical offsets."""

    fragment_id: int
    physical_rows: int
    deleted_rows: int
    reason: Reason
    fingerprint: str
    checkpoint_prefix: str
    input_files: tuple[str, ...]
    current_file: str = ""
    extend_current: bool = False
    missing: tuple[RowRange, ...] = ()
    checkpoints: tuple[CheckpointRef, ...] = ()
    staged: StagedFile | None = None
    #: States of the current file if it has none itself; see `leman_core.model.row_states.encode_states`.
    row_states: bytes = b""
    #: Rows of the current file that failed and stay failed.
    rows_failed_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFile:
    """A file that compaction wrote, and the states of a column's rows in it from the table's history.

    The column is the requested one, or another computed one.
    """

    fragment_id: int
    file: str
    physical_rows: int
    fingerprint: str
    input_files: tuple[str, ...]
    #: See `leman_core.model.row_states.encode_states`; empty if every row is computed.
    row_states: bytes
    rows_computed: int
    rows_failed: int
    column_id: str
    output_field_ids: tuple[int, ...]
    #: Whether its rows were compared with their contents before others rewrote them; see `ComparedFile`.
    compared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRows:
    """A fragment of an earlier version with rows of a current one, and values that were valid there."""

    version: int
    fragment_id: int
    physical_rows: int
    #: See `leman_core.model.row_states.encode_states`; empty: every row is computed.
    row_states: bytes
    #: The inputs and then the output, by their names in that version.
    columns: tuple[str, ...]
    #: Whether each row has the same offset in both fragments; otherwise stable row ids match them.
    same_offsets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFile:
    """A fragment of rewritten rows: those with equal inputs and an unchanged value keep it."""

    #: What is known of the rows without reading values.
    known: TracedFile
    earlier: tuple[EarlierRows, ...]
    #: Rows to compare at most.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedRows:
    """Rows to store again, as a checkpoint of the fragment that has them now.

    They are stored for a fragment that compaction removed, under earlier files of its inputs, or in a file that another
    function's replaced.
    """

    #: The fragment of the new checkpoint.
    fragment_id: int
    #: The key of the new checkpoint, which covers `covered`.
    key: str
    covered: RowRange
    #: Key of the checkpoint, or of the fragment record, that has the rows.
    source: str
    from_fragment: int
    #: Their range in the source.
    from_rows: RowRange
    #: The offset that their first live row gets; it lies before `covered` if another fragment has the first ones.
    at: int
    #: The version that determines which of them are live; 0: all.
    before: int = 0
    #: A bit for each row of `covered`, as `numpy.packbits` packs them: those whose inputs have changed. Empty: none.
    left_out: bytes = b""


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Fragments with one reason, and their live rows."""

    reason: Reason
    fragments: int
    rows: int


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows with values of another function version, which the column keeps, or which a plan replaces."""

    function: FunctionVersion
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """Everything that holds for all fragments of a plan, see `protos/leman/internal/v1/plan.proto`."""

    uri: str
    read_version: int
    incarnation: str
    output: OutputField
    input_columns: tuple[str, ...]
    udf: UdfDefinition
    bundle_uri: str
    where: str
    #: Types of the inputs as the function gets them, even if fields of structs have other names in the version that is
    #: read; empty: unchanged.
    input_types: tuple[pa.DataType, ...] = ()
    reasons: tuple[ReasonCount, ...] = ()
    rows_total: int = 0
    rows_reused: int = 0
    rows_to_compute: int = 0
    rows_failed_before: int = 0
    input_field_ids: tuple[int, ...] = ()
    kept: tuple[KeptRows, ...] = ()
    failed_only: bool = False
    rows_not_computed: int = 0
    #: First halves of fingerprints whose values count as current, the function's own first.
    versions: tuple[str, ...] = ()
    #: The functions whose values are kept, in the order of `versions` after the first.
    kept_functions: tuple[FunctionVersion, ...] = ()
    #: If given, the one input column holds row ids of that table.
    input_source: InputSource | None = None
    #: If given, rows are read from that version, in which the inputs are called `input_columns`.
    inputs_version: int = 0
    #: Each comes before the columns that read it.
    stale_inputs: tuple[StaleInput, ...] = ()
    #: Values of other registered functions that are recomputed; with a filter, an upper bound.
    replaced: tuple[KeptRows, ...] = ()
    manifest: bytes = field(default=b"", repr=False)
    #: Identifies `read_version` if the table has no incarnation; else empty.
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Header and the fragments with work, in the order of their ids. Planning changes nothing."""

    header: PlanHeader
    tasks: Sequence[FragmentTask]
    #: To be stored when the plan runs.
    traced: tuple[TracedFile, ...] = ()
    #: To be migrated when the plan runs, for the next plan.
    migrated: tuple[MigratedRows, ...] = ()
    #: To be compared and recorded when the plan runs, for the next plan.
    compared: tuple[ComparedFile, ...] = ()


def summarize_plan(plan: Plan) -> str:
    """Return a summary of a plan in one sentence."""
    header = plan.header
    fragments = sum(count.fragments for count in header.reasons)
    current = sum(count.fragments for count in header.reasons if count.reason in SETTLED)
    if not fragments:
        return "the table has no rows: nothing to do"
    notes = _notes(header)
    if header.failed_only:
        return "; ".join([_failed_rows(plan, fragments), *notes])
    if current == fragments:
        settled = f"{current:,} of {fragments:,} fragments are current"
        return "; ".join([settled if header.stale_inputs else f"{settled}: nothing to do", *notes])
    parts = [f"{len(plan.tasks):,} of {fragments:,} fragments to do ({_why(header)})"]
    parts.append(f"about {_rows(header.rows_to_compute)} to compute")
    if len(plan.tasks) < fragments - current:
        parts.append(f"{fragments - current - len(plan.tasks):,} left for later by num_frags")
    parts.append(f"{_rows(header.rows_reused)} reused")
    if rewritten := sum(compared.rows for compared in plan.compared):
        parts.append(
            f"{_rows(rewritten)} rewritten by others: the job compares their inputs and computes those that differ"
        )
    return "; ".join([*parts, *notes])


def _failed_rows(plan: Plan, fragments: int) -> str:
    if not plan.tasks:
        return "no row is marked as failed: nothing to do"
    rows = plan.header.rows_to_compute
    staged = sum(task.staged is not None for task in plan.tasks)
    again = f"{rows:,} failed rows to try again in {len(plan.tasks):,} of {fragments:,} fragments"
    return again + (f", {staged:,} of them only to be committed" if staged else "")


def _why(header: PlanHeader) -> str:
    open_counts = [count for count in header.reasons if count.reason not in SETTLED]
    return ", ".join(f"{count.fragments:,} {count.reason.value.replace('_', ' ')}" for count in open_counts)


def _notes(header: PlanHeader) -> list[str]:
    """Return what stays unchanged although a user may expect otherwise."""
    notes = []
    if header.rows_failed_before:
        notes.append(f"{header.rows_failed_before:,} rows failed before and stay failed")
    if header.rows_not_computed:
        notes.append(f"{header.rows_not_computed:,} rows are not computed: a backfill computes them")
    past = sum(count.rows for count in header.reasons if count.reason is Reason.PAST_INPUT)
    if past:
        notes.append(
            f"{past:,} rows get the values of version {header.inputs_version}, as inputs have moved on: the next run "
            "without read_version makes them current"
        )
    notes += [
        f"it depends on {stale.column}, in which {stale.rows:,} rows are stale or not computed yet"
        for stale in header.stale_inputs
    ]
    notes += [f"it replaces {_values(header, other)}" for other in header.replaced]
    notes += [f"{kept.rows:,} rows keep values of {kept.function}" for kept in header.kept]
    return notes


def _values(header: PlanHeader, other: KeptRows) -> str:
    most = "up to " if header.where else ""
    return f"values of {other.function} in {most}{_rows(other.rows)}"


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
