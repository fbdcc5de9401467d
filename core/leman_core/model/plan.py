"""A plan of a backfill: what is left to do and why. `summarize_plan` describes it, for `leman plan` and for jobs."""

from __future__ import annotations

import bisect
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from leman._format.column_bindings import FunctionVersion, InputSource
from leman._format.stored_functions import CheckpointBounds, ErrorPolicy, UdfDefinition
from leman_core.model.row_positions import RowRange, count_offsets, subtract_ranges
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


#: The reasons of fragments that need no work.
SETTLED = frozenset({Reason.REUSED, Reason.REUSED_FILTER, Reason.REUSED_COMPACTED})


class OnStaleInput(enum.Enum):
    """How a backfill treats inputs that are computed columns and stale; see `OnStaleInput` of the proto."""

    ERROR = "error"
    WARN = "warn"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class StaleInput:
    """A computed column that is an input, and how many of its rows are stale or were never computed."""

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
    #: The error policy to preview `sql_expression` with; None: the registered one.
    error_policy: ErrorPolicy | None = None
    input_columns: tuple[str, ...] = ()
    where: str = ""
    read_version: int = 0
    read_tag: str = ""

    @property
    def names_function(self) -> bool:
        """Return whether the request itself has a function, not only a column that has one."""
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
    #: The object store's ETag of the file; empty if unknown.
    etag: str = ""

    @property
    def rows_skipped(self) -> int:
        """Return how many rows a filter left out."""
        return max(0, self.physical_rows - self.rows_computed - self.rows_failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentReplacement:
    """A column file to add to a fragment, with what must be unchanged for its values to be correct."""

    fragment_id: int
    staged: StagedFile
    #: The data files of the input columns that it was computed from.
    input_files: tuple[str, ...]
    #: The output column's file when the plan was made; empty if it had none.
    replaces: str = ""


class CheckpointRef(NamedTuple):
    """A reusable checkpoint."""

    key: str
    range: RowRange
    #: Whether all rows in its range are known. False if a job with another filter wrote it: only rows that pass that
    #: filter are known.
    settles: bool = True
    #: The function version of its values, as an index into `PlanHeader.versions`. Index 0 is the plan's own version.
    version: int = 0


class FragmentTask(NamedTuple):
    """The work for one fragment. Ranges are physical offsets, which count deleted rows."""

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
    #: The states of the rows in the current file, encoded by `leman_core.model.row_states.encode_states`, if the file
    #: itself does not hold them.
    row_states: bytes = b""
    #: How many rows of the current file failed earlier and are not retried.
    rows_failed_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFile:
    """A file that compaction wrote, with the states of one column's rows in it, derived from the table's history.

    The column is the one that the plan is for, or another computed column of the table.
    """

    fragment_id: int
    file: str
    physical_rows: int
    fingerprint: str
    input_files: tuple[str, ...]
    #: Encoded by `leman_core.model.row_states.encode_states`; empty if every row is computed.
    row_states: bytes
    rows_computed: int
    rows_failed: int
    column_id: str
    output_field_ids: tuple[int, ...]
    #: Whether its rows were compared with their contents before another program rewrote them; see `ComparedFile`.
    compared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRows:
    """A fragment of an earlier version with rows that a current fragment also has, and their values of that time."""

    version: int
    fragment_id: int
    physical_rows: int
    #: Encoded by `leman_core.model.row_states.encode_states`; empty if every row is computed.
    row_states: bytes
    #: The names of the input columns, then of the output column, in that version.
    columns: tuple[str, ...]
    #: Whether each row has the same offset in both fragments; otherwise stable row ids match them.
    same_offsets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFile:
    """A fragment whose rows another program rewrote. A row keeps its value if it and its inputs are unchanged."""

    #: What is known about the rows before values are compared.
    known: TracedFile
    earlier: tuple[EarlierRows, ...]
    #: How many rows to compare at most.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedRows:
    """Stored rows to copy into a new checkpoint, which belongs to the fragment that has these rows now.

    Their present checkpoint or file cannot be used for that fragment: it belongs to a fragment that compaction removed,
    to earlier files of its inputs, or to a file that another function's values have replaced.
    """

    #: The fragment of the new checkpoint.
    fragment_id: int
    #: The key of the new checkpoint, which covers `covered`.
    key: str
    covered: RowRange
    #: The key of the checkpoint, or of the fragment record, that holds the rows now.
    source: str
    from_fragment: int
    #: Their range in the source.
    from_rows: RowRange
    #: The offset that the first live row of the source gets. It is before `covered` if other fragments have the first
    #: rows of the source.
    at: int
    #: The table's version that decides which rows of the source are live; 0 if all are.
    before: int = 0
    #: A bit for each row of `covered`, packed by `numpy.packbits`: set if the row's inputs have changed. Empty if none
    #: has changed.
    left_out: bytes = b""


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """The number of fragments with one reason, and of their live rows."""

    reason: Reason
    fragments: int
    rows: int


@dataclass(frozen=True, slots=True)
class KeptRows:
    """A function version other than the plan's, and how many rows have its values. A plan keeps or replaces them."""

    function: FunctionVersion
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHeader:
    """The part of a plan that is the same for all fragments; see `protos/leman/internal/v1/plan.proto`."""

    uri: str
    read_version: int
    incarnation: str
    output: OutputField
    input_columns: tuple[str, ...]
    udf: UdfDefinition
    bundle_uri: str
    where: str
    #: The types of the inputs that the function expects, if fields of structs have other names in the version that is
    #: read. Empty if the types are the same.
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
    #: First halves of the fingerprints whose values count as current. The first one is the function's own.
    versions: tuple[str, ...] = ()
    #: The other functions whose values are kept. They belong to `versions[1:]`, in the same order.
    kept_functions: tuple[FunctionVersion, ...] = ()
    #: If given, the only input column holds row ids of that table, from which the function's inputs are read.
    input_source: InputSource | None = None
    #: If not 0, inputs are read from that version of the table, in which their names are `input_columns`.
    inputs_version: int = 0
    #: Inputs that are stale. Each comes before the columns that are computed from it.
    stale_inputs: tuple[StaleInput, ...] = ()
    #: Values of other registered functions that the plan replaces. With a filter, the counts are upper bounds.
    replaced: tuple[KeptRows, ...] = ()
    manifest: bytes = field(default=b"", repr=False)
    #: Identifies the content of `read_version` if the table has no incarnation; otherwise empty.
    identity: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. Making one changes nothing: what the next plan can use is stored when this one runs."""

    header: PlanHeader
    #: The fragments that need work, in the order of their ids.
    tasks: Sequence[FragmentTask]
    #: Row states to store when the plan runs.
    traced: tuple[TracedFile, ...] = ()
    #: Rows to copy when the plan runs, for the next plan.
    migrated: tuple[MigratedRows, ...] = ()
    #: Files whose rows are compared when the plan runs, and the result recorded for the next plan.
    compared: tuple[ComparedFile, ...] = ()


def summarize_plan(plan: Plan, on_stale_input: OnStaleInput = OnStaleInput.ERROR) -> str:
    """Return a summary of a plan in one sentence."""
    header = plan.header
    fragments = sum(count.fragments for count in header.reasons)
    current = sum(count.fragments for count in header.reasons if count.reason in SETTLED)
    if not fragments:
        return "the table has no rows: nothing to do"
    notes = _notes(header, on_stale_input)
    if header.failed_only:
        return "; ".join([_failed_rows(plan, fragments), *notes])
    if current == fragments:
        settled = f"{current:,} of {fragments:,} fragments are current"
        return "; ".join([settled if header.stale_inputs else f"{settled}: nothing to do", *notes])
    found, compared = rows_found(plan), rows_compared(plan)
    parts = [f"{len(plan.tasks):,} of {fragments:,} fragments to do ({_why(header)})"]
    parts.append(f"{'up to' if compared else 'about'} {_rows(header.rows_to_compute - found)} to compute")
    if len(plan.tasks) < fragments - current:
        parts.append(f"{fragments - current - len(plan.tasks):,} left for later by num_frags")
    stored = f", of which {found:,} are stored elsewhere" if found else ""
    parts.append(f"{_rows(header.rows_reused + found)} reused{stored}")
    if compared:
        told = "may have the same inputs as before: the job compares them and computes those that differ"
        parts.append(f"{_rows(compared)} {told}")
    return "; ".join([*parts, *notes])


def rows_found(plan: Plan) -> int:
    """Return how many of a plan's rows to compute are migrated instead, if all their values can be read."""
    covered: dict[int, list[MigratedRows]] = {}
    for rows in plan.migrated:
        covered.setdefault(rows.fragment_id, []).append(rows)
    found = 0
    for fragment_id, migrated in covered.items():
        at = bisect.bisect_left(plan.tasks, fragment_id, key=lambda task: task.fragment_id)
        task = plan.tasks[at]
        if task.extend_current:  # which of these rows its file has already is unknown
            continue
        changed = sum(int.from_bytes(rows.left_out).bit_count() for rows in migrated)
        left = count_offsets(subtract_ranges(task.missing, [rows.covered for rows in migrated])) + changed
        live = task.physical_rows - task.deleted_rows
        found += max(0, min(live, count_offsets(task.missing)) - left)
    return min(found, plan.header.rows_to_compute)


def rows_compared(plan: Plan) -> int:
    """Return how many of a plan's rows to compute need no call if the comparison finds equal inputs."""
    return sum(compared.rows for compared in plan.compared)


def _failed_rows(plan: Plan, fragments: int) -> str:
    if not plan.tasks:
        return "no row is marked as failed: nothing to do"
    rows = plan.header.rows_to_compute
    staged = sum(task.staged is not None for task in plan.tasks)
    again = f"{rows:,} failed rows to try again in {len(plan.tasks):,} of {fragments:,} fragments"
    return again + (f", {staged:,} of them only to be committed" if staged else "")


def _why(header: PlanHeader) -> str:
    open_counts = [count for count in header.reasons if count.reason not in SETTLED]
    return ", ".join(f"{count.fragments:,} {_reason(count.reason)}" for count in open_counts)


def _reason(reason: Reason) -> str:
    # the user's own updates and merges rewrite rows, too
    return "rewritten" if reason is Reason.EXTERNAL_WRITE else reason.value.replace("_", " ")


def _notes(header: PlanHeader, on_stale_input: OnStaleInput) -> list[str]:
    """Return remarks about rows that the plan treats otherwise than a user may expect."""
    notes = []
    if header.rows_failed_before:
        notes.append(f"{header.rows_failed_before:,} rows failed before and stay failed")
    if header.rows_not_computed:
        notes.append(f"{header.rows_not_computed:,} rows are not computed: a backfill computes them")
    past = sum(count.rows for count in header.reasons if count.reason is Reason.PAST_INPUT)
    if past:
        notes.append(
            f"{past:,} rows get the values of version {header.inputs_version}, although inputs have changed since: the "
            "next run without read_version makes them current"
        )
    first = " and computed first" if on_stale_input is OnStaleInput.FIRST else ""
    notes += [
        f"it depends on {stale.column}, in which {stale.rows:,} rows are stale or not computed yet{first}"
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
