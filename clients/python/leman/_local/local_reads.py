"""Reads of tables, views, functions, jobs and failed rows in a local folder, without starting services.

`leman._format` defines the stored formats and checks them. These functions return None if they cannot read what is
stored, for example because another release wrote it. The caller then asks the services, which can convert the data or
report what is wrong.
"""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from leman import _locations, local
from leman._format import column_bindings, stored_documents, stored_functions, stored_logs, view_definitions
from leman._format.stored_documents import Unreadable
from leman._format.stored_functions import UdfDefinition
from leman._format.stored_logs import PLACE_ONLY, ErrorGrouping, sql_quoted
from leman._format.view_definitions import INTERNAL_COLUMNS, IS_SET, ViewFormat
from leman._job_model import Job, JobError, JobState, Progress, RefreshResult, Stall, trace_of
from leman._message_text import translate
from leman._table_model import (
    ComputedColumn,
    IndexCoverage,
    ReasonCount,
    RowError,
    RowErrorGroup,
    RowErrorGroups,
    TableInfo,
    UdfInfo,
    ViewColumn,
    ViewFunction,
    ViewInfo,
    ViewQuery,
    ViewSummary,
)
from leman.errors import LemanError, TableNotFound, make

if TYPE_CHECKING:
    import lance

from leman._arrow import pa

_ENDING = ".lance"
_SCRATCH = "__leman_scratch_"


def table_names(database: str) -> list[str]:
    """Return the sorted names of all tables and views, or [] if there is no database. Raises OSError."""
    try:
        with os.scandir(database) as found:
            folders = [entry for entry in found if entry.name.endswith(_ENDING) and entry.is_dir()]
    except FileNotFoundError:
        return []
    made = (entry.name for entry in folders if os.path.isdir(os.path.join(entry.path, "_versions")))  # noqa: PTH112, PTH118
    return sorted(name.removesuffix(_ENDING) for name in made if not name.startswith(_SCRATCH))


def local_table(database: str, name: str) -> TableInfo | None:
    """Return the latest version of a table or view. None means: ask the services.

    Raises NotFound (DATABASE_NOT_FOUND), TableNotFound.
    """
    _locations.check_database_exists(database)
    uri = f"{database}/{name}{_ENDING}"
    try:
        names = table_names(database)
        if name not in names:
            raise _absence(uri, name, names)
        return _described_table(name, uri, local.open_table(uri))
    except TableNotFound:
        raise
    except (LemanError, OSError, Unreadable, ValueError):
        return None


def _absence(uri: str, name: str, names: list[str]) -> LemanError:
    if not name.isidentifier():
        return LemanError("the services check such a name")
    close = difflib.get_close_matches(name, names, n=2)
    meant = f"did you mean {' or '.join(map(repr, close))}? Else " if close else ""
    return TableNotFound(
        f"There is no table at {uri}: {meant}check the database path and the table name, or create the table first",
        facts={"uri": uri},
    )


def _described_table(name: str, uri: str, dataset: lance.LanceDataset) -> TableInfo:
    paths = dict(_paths(dataset.lance_schema.fields()))
    return TableInfo(
        name=name,
        uri=uri,
        version=dataset.version,
        row_count=dataset.count_rows(),
        fragment_count=len(dataset.get_fragments()),
        schema=dataset.schema,
        computed_columns=tuple(filter(None, (_computed(field, paths) for field in dataset.schema))),
        stable_row_ids=bool(dataset.has_stable_row_ids),
    )


def _paths(fields: Iterable[Any], before: str = "") -> Iterable[tuple[int, str]]:
    """Yield each column and each field of a struct: its id, which a rename keeps, and its dotted path."""
    for field in fields:
        yield field.id(), before + field.name()
        yield from _paths(field.children(), f"{before}{field.name()}.")


def _computed(field: pa.Field, paths: Mapping[int, str]) -> ComputedColumn | None:
    """Return the computed column that a field's metadata describes, or None for any other column. Raises Unreadable."""
    bound = column_bindings.read(field)
    if bound is None:
        return None
    return ComputedColumn(
        field.name,
        bound.udf_name,
        bound.udf_version,
        tuple(paths.get(column.field_id, column.name) for column in bound.inputs),
        tuple(map(str, bound.kept)),
    )


_ROW_REFERENCES = {ViewFormat.ADDRESSES: "address", ViewFormat.STABLE_ROW_IDS: "stable_row_id"}


def local_view(table: TableInfo) -> ViewInfo | None:
    """Return the view that is stored as `table`. None means: ask the services."""
    try:
        return _described_view(table)
    except (LemanError, OSError, Unreadable):
        return None


def local_tables_and_views(database: str, name: str | None = None) -> list[TableInfo] | None:
    """Return the tables and views of a database, or only the one called `name`. None means: ask the services.

    Raises NotFound (DATABASE_NOT_FOUND), TableNotFound.
    """
    found: list[TableInfo] = []
    for each in table_names(database) if name is None else [name]:
        table = local_table(database, each)
        if table is not None and view_definitions.is_view(table.schema.metadata or {}):
            table = local_view(table)
        if table is None:
            return None
        found.append(table)
    return found


def local_view_summaries(database: str) -> list[ViewSummary] | None:
    """Return all views of a database, by name. None means: ask the services."""
    found = []
    try:
        for name in table_names(database):
            table = local_table(database, name)
            if table is None:
                return None
            if view_definitions.is_view(table.schema.metadata or {}):
                found.append(_summary(_described_view(table)))
    except (LemanError, OSError, Unreadable):
        return None
    return found


def _described_view(table: TableInfo) -> ViewInfo:
    """Return the view that is stored as `table`. Raises Unreadable if the schema's metadata does not define one."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import; opening `table` has already imported it

    metadata = table.schema.metadata or {}
    view = view_definitions.from_metadata(metadata, table.uri)
    if view is None or not (view.in_own_database or view_definitions.IN_OWN_DATABASE.encode() in metadata):
        raise Unreadable("not a view, or one of an earlier release: the services know whether it was moved")
    rows_set = local.open_table(table.uri, table.version).count_rows(IS_SET)
    return ViewInfo(
        name=table.name,
        uri=table.uri,
        version=table.version,
        row_count=rows_set,
        fragment_count=table.fragment_count,
        schema=pa.schema([field for field in table.schema if field.name not in INTERNAL_COLUMNS]),
        computed_columns=(),
        stable_row_ids=table.stable_row_ids,
        query=_view_query(view.query),
        source_version=view.base_version,
        rows_unset=table.row_count - rows_set,
        row_reference=_ROW_REFERENCES[view.format],
        stale_columns=view.stale,
    )


def _view_query(query: view_definitions.ViewQuery) -> ViewQuery:
    return ViewQuery(
        source_database=query.database,
        source_table=query.table,
        columns=tuple(ViewColumn(column.name, _expression(column)) for column in query.columns),
        functions=tuple(ViewFunction(f.name, f.udf_name, f.udf_version, f.inputs) for f in query.functions),
        where=query.where,
        shuffle_seed=query.seed if query.shuffle else None,
        limit=query.limit,
        offset=query.offset,
    )


def _expression(column: view_definitions.ViewColumn) -> str:
    """Return the SQL of a view's column. For a renamed source column, that is its quoted source name."""
    if column.source_column == column.name:
        return column.source_column
    quoted = "`" + column.source_column.replace("`", "``") + "`"
    return quoted if column.source_column else column.expression


def _summary(view: ViewInfo) -> ViewSummary:
    names = [field.name for field in dataclasses.fields(ViewSummary) if hasattr(view, field.name)]
    query = view.query
    own = {name: getattr(view, name) for name in names}
    return ViewSummary(**own, source_database=query.source_database, source_table=query.source_table)


def local_udfs(database: str) -> list[UdfInfo] | None:
    """Return the registered functions by name, then newest first. None means: ask the services."""
    folder = f"{database}/{stored_functions.FOLDER}"
    found = []
    try:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():  # noqa: PTH112, PTH208 - a str, as on the wire
            if name.endswith(stored_functions.ENDING) and not name.startswith("."):
                with open(f"{folder}/{name}", "rb") as file:  # noqa: PTH123
                    function = stored_functions.decode_definition(file.read(), name)
                if function.file_name != name:
                    return None
                found.append(function)
    except (OSError, Unreadable):
        return None
    return [_udf_info(function.udf) for function in sorted(found, key=lambda function: function.order)]


def local_udf(database: str, name: str, version: str) -> UdfInfo | None:
    """Return a version of a registered function, by default the newest. None means: ask the services."""
    known = local_udfs(database) or ()
    return next((each for each in known if each.name == name and version in ("", each.version)), None)


def _udf_info(udf: UdfDefinition) -> UdfInfo:
    bounds, resources = udf.checkpoint, udf.resources
    options = {
        "batch_size": udf.batch_size,
        "checkpoint_size": bounds.checkpoint_size,
        "min_checkpoint_size": bounds.min_checkpoint_size,
        "max_checkpoint_size": bounds.max_checkpoint_size,
        "timeout": udf.timeout_seconds,
        "num_cpus": resources.num_cpus,
        "num_gpus": resources.num_gpus,
        "memory": resources.memory_bytes,
        "blob": udf.blob,
    }
    return UdfInfo(
        name=udf.name,
        version=udf.version,
        kind=udf.kind.value,
        input_columns=udf.input_columns,
        data_type=udf.output_type,
        stateful=udf.stateful,
        sql_expression=udf.sql_expression,
        options={name: value for name, value in options.items() if value},
        addresses=() if udf.remote is None else udf.remote.addresses,
        source=udf.source,
    )


_COUNTS = frozenset(field.name for field in dataclasses.fields(Progress))
_RESULT = frozenset(field.name for field in dataclasses.fields(RefreshResult))
#: Keys of a job's record that are also attributes of `Job`, each with the value to use if the record lacks the key.
_AS_STORED = {
    "udf_name": "",
    "udf_version": "",
    "plan_summary": "",
    "retry_of": "",
    "initiator": "",
    "table_version": 0,
    "queue_position": 0,
    "priority": 0,
}
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def local_jobs(database: str) -> list[Job] | None:
    """Return all jobs, newest first. None means: ask the services."""
    uri = f"{database}/{stored_logs.JOBS}"
    folder = os.path.dirname(uri)  # noqa: PTH120 - a str, as on the wire
    if os.path.isdir(f"{folder}/{stored_logs.DAMAGED}"):  # noqa: PTH112
        return None
    if not os.path.isdir(uri):  # noqa: PTH112
        return []
    try:
        counting: dict[str, _State] = {}
        for said in _states(uri):
            job_id = said.record["job_id"]
            counting[job_id] = stored_logs.newer_state(counting.get(job_id), said)
        found = [_job(said, database) for said in counting.values() if not said.deleted]
    except (LemanError, OSError, Unreadable, ValueError, LookupError, TypeError):
        return None
    return sorted(found, key=lambda job: (job.create_time, job.job_id), reverse=True)


class _State(NamedTuple):
    """One stored state of a job, with the fields that decide which of the job's states is current."""

    state: JobState
    attempt: int
    executor: str
    deleted: bool
    record: dict[str, Any]


def _states(uri: str) -> Iterator[_State]:
    """Yield the states of all jobs in the order in which they were written. Raises Unreadable."""
    table = local.open_table(uri)
    ordered = stored_logs.SAVED_FROM in table.schema.names
    columns = ["record", stored_logs.SAVED_FROM] if ordered else ["record"]
    rows = table.to_table(columns, with_row_id=ordered).to_pylist()
    for row in sorted(rows, key=stored_logs.position):
        said = json.loads(stored_documents.unseal_text(row["record"]))
        stored_documents.JOB.check(said.get("format"), "The state of a job")
        yield _State(
            JobState(said["state"]), said.get("attempt", 1), said.get("executor", ""), said.get("deleted", False), said
        )


def _job(counts: _State, database: str) -> Job:
    # `database` may differ from the record's own path, if the folder was moved since.
    state, said = counts.state, counts.record
    asked = said.get("backfill") or said["refresh"]
    progress = _progress(said.get("progress", {}), state)
    result = said.get("refresh_result")
    indices = [{**index, "columns": tuple(index["columns"])} for index in said.get("stale_indices", ())]
    return Job(
        job_id=said["job_id"],
        state=state,
        database=database,
        table=asked.get("table") or asked["view"],
        column=asked.get("column", ""),
        columns=tuple(asked.get("columns", ())),
        where=asked.get("where", ""),
        **{name: said.get(name, missing) for name, missing in _AS_STORED.items()},
        progress=progress,
        reasons=tuple(ReasonCount(c["reason"].upper(), c["fragments"], c["rows"]) for c in said.get("reasons", ())),
        error=_error(said["error"]) if said.get("error") else None,
        attempt=counts.attempt,
        create_time=_time(said["created_at"]),
        update_time=_time(said["updated_at"]),
        stalls=tuple(_stall(stall) for stall in said.get("stalls", ())),
        refresh_result=None if result is None else _result(result, said, state, progress),
        failed_in=tuple(said.get("failed_in", ())),
        stale_indices=tuple(IndexCoverage(**index) for index in indices),
        labels=said.get("labels", {}),
        start_time=_time_or_none(said.get("started_at")),
        end_time=_time_or_none(said.get("ended_at")),
        expected_start_time=_time_or_none(said.get("expected_start_at")),
        env_names=tuple(said.get("env_names", ())),
        trace_id=trace_of(said.get("traceparent", "")),
    )


def _progress(said: Mapping[str, Any], state: JobState) -> Progress:
    found = {name: said[name] for name in _COUNTS & said.keys()}
    if state is not JobState.RUNNING:
        found.pop("eta_seconds", None)
    return Progress(**found)


def _result(said: Mapping[str, Any], job: Mapping[str, Any], state: JobState, progress: Progress) -> RefreshResult:
    plain = {"mode": "no_op", "reason": "up_to_date", **{name: said[name] for name in _RESULT & said.keys()}}
    plain["warnings"] = tuple(plain.get("warnings", ()))
    return RefreshResult(
        **plain,
        rows_failed=progress.rows_failed,
        rows_failed_before=progress.rows_failed_before,
        input_rows_evaluated=progress.input_rows_evaluated,
        job_id=job["job_id"],
        failed_in=tuple(job.get("failed_in", ())),
        state=state,
    )


def _error(said: Mapping[str, Any]) -> JobError:
    facts = said.get("facts", {})
    if any("://" in text and "@" in text for text in (said["message"], *facts.values())):
        raise ValueError("it may hold a password, which the services remove")
    code = _CAPITAL.sub("_", said["kind"]).upper()
    error = make(code, said["reason"], translate(said["message"]), facts)
    return JobError(error.reason, error.message, error.facts, error.code)


def _stall(said: Mapping[str, Any]) -> Stall:
    begin, end = said["rows"]
    fragment = None if said["fragment_id"] < 0 else said["fragment_id"]
    return Stall(said["worker"], fragment, (begin, end), said["idle_seconds"], said["silent"], said["message"])


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=int(seconds * 1e6))


def _time_or_none(seconds: float | None) -> datetime.datetime | None:
    return _time(seconds) if seconds else None


_MANY = 100_000
_AT_ONCE = 4096
_FIELDS = tuple(field.name for field in dataclasses.fields(RowError))


def local_errors(database: str, job_id: str, column: str, limit: int | None) -> list[RowError] | None:
    """Return a job's failed rows by row address. None means: ask the services.

    An empty `column` stands for all columns.
    """
    nothing: list[RowError] = []
    most = None if limit is None else max(limit, 0)
    return _of_failed_rows(database, job_id, nothing, lambda uri: _read_errors(uri, job_id, column)[:most])


def local_error_groups(
    database: str, job_id: str, column: str, limit: int | None, examples: int
) -> RowErrorGroups | None:
    """Return a job's failed rows, grouped by error. `column` and None as for `local_errors`."""
    return _of_failed_rows(
        database, job_id, RowErrorGroups(), lambda uri: _group_errors(uri, job_id, column, limit, examples)
    )


_Read = TypeVar("_Read")


def _of_failed_rows(database: str, job_id: str, nothing: _Read, read: Callable[[str], _Read]) -> _Read | None:
    """Return what `read` returns for the table of failed rows. None means: ask the services."""
    job = next((job for job in local_jobs(database) or () if job.job_id == job_id), None)
    if job is None:
        return None
    uri = f"{database}/{stored_logs.ERRORS}"
    if not os.path.isdir(uri):  # noqa: PTH112 - a str, as on the wire
        return None if job.progress.rows_failed else nothing
    try:
        return read(uri)
    except (_ManyRows, LemanError, OSError, ValueError, LookupError, TypeError):
        return None


class _ManyRows(Exception):
    """The job has more failed rows than the SDK reads itself."""


def _read_errors(uri: str, job_id: str, column: str, addresses: Iterable[int] | None = None) -> list[RowError]:
    """Return failed rows, each in its latest version. `addresses` limits them to these rows."""
    last = {}
    for row in _failed_rows(uri, job_id, column, _FIELDS, addresses).to_pylist():
        row_id = row["row_id"] if row["row_id"] >= 0 else None
        last[row["row_address"], row["column"]] = RowError(**{**row, "row_id": row_id})
    return [last[place] for place in sorted(last)]


def _failed_rows(
    uri: str, job_id: str, column: str, names: Iterable[str], addresses: Iterable[int] | None = None
) -> pa.Table:
    table = local.open_table(uri)
    wanted = f"job_id = {sql_quoted(job_id)} AND error_type <> {sql_quoted(PLACE_ONLY)}"
    if column:
        wanted += f" AND column = {sql_quoted(column)}"
    if addresses is not None:
        wanted += f" AND row_address IN ({', '.join(map(str, addresses))})"
    elif table.count_rows(wanted) > _MANY:
        raise _ManyRows
    return table.to_table(list(names), filter=wanted)


def _group_errors(uri: str, job_id: str, column: str, limit: int | None, examples: int) -> RowErrorGroups:
    rows = _failed_rows(uri, job_id, column, ("row_address", "column", "error_type", "error_message"))
    places = zip(rows.column("row_address").to_pylist(), rows.column("column").to_pylist(), strict=True)
    last = {place: number for number, place in enumerate(places)}
    grouping: ErrorGrouping[tuple[int, str]] = ErrorGrouping()
    ordered = sorted(last)
    told = rows.select(["error_type", "error_message"]).take(pa.array([last[place] for place in ordered], pa.int64()))
    for batch in told.to_batches(max_chunksize=_AT_ONCE):
        for error_type, message in zip(*(values.to_pylist() for values in batch.columns), strict=True):
            grouping.add(error_type, message, ordered[grouping.rows])
    groups = grouping.largest_first()
    chosen = groups[: None if limit is None else max(limit, 0)]
    wanted = {place for group in chosen for place in group.examples[:examples]}
    read = _read_errors(uri, job_id, column, {address for address, _ in wanted}) if wanted else []
    by_place = {(error.row_address, error.column): error for error in read}
    return RowErrorGroups(
        (RowErrorGroup(*group[:3], tuple(by_place[place] for place in group.examples[:examples])) for group in chosen),
        total=len(groups),
        rows=grouping.rows,
        rows_ungrouped=grouping.ungrouped,
    )
