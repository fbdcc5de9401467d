"""Read tables, views, functions, jobs and failed rows of a folder of this machine, where services would have to start.

What is stored, and how it is checked, `leman._format` says. Where it makes no sense here, or is of another release, the
functions return None: the services are asked then, which say what is wrong or can fix it.
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
from leman._format.error_groups import ErrorGrouping
from leman._format.stored_documents import Unreadable
from leman._format.stored_functions import UdfDefinition
from leman._format.stored_logs import PLACE_ONLY, sql_quoted
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

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


_ENDING = ".lance"
_SCRATCH = "__leman_scratch_"


def table_names(database: str) -> list[str]:
    """The names of its tables and views, sorted; none where there is no database. Raises OSError."""
    try:
        with os.scandir(database) as found:
            folders = [entry for entry in found if entry.name.endswith(_ENDING) and entry.is_dir()]
    except FileNotFoundError:
        return []
    made = (entry.name for entry in folders if os.path.isdir(os.path.join(entry.path, "_versions")))  # noqa: PTH112, PTH118
    return sorted(name.removesuffix(_ENDING) for name in made if not name.startswith(_SCRATCH))


def local_table(database: str, name: str) -> TableInfo | None:
    """The latest version of a table or view; None: the services know, or refuse it better.

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
        return LemanError("a name that the services look at")
    close = difflib.get_close_matches(name, names, n=2)
    meant = f"did you mean {' or '.join(map(repr, close))}? Else " if close else ""
    return TableNotFound(
        f"There is no table at {uri}: {meant}check the database path and the table name, or create it first",
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
    """Columns, and fields of structs by names with dots between, by the ids that renames keep."""
    for field in fields:
        yield field.id(), before + field.name()
        yield from _paths(field.children(), f"{before}{field.name()}.")


def _computed(field: pa.Field, paths: Mapping[int, str]) -> ComputedColumn | None:
    """A column as its metadata has it; None: it is no computed one. Raises Unreadable."""
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
    """A view, of which `table` is its table; None: the services know, or refuse it better."""
    try:
        return _described_view(table)
    except (LemanError, OSError, Unreadable):
        return None


def local_tables_and_views(database: str, name: str | None = None) -> list[TableInfo] | None:
    """The tables and views of a database, or one of them, by name; None: as for `describe`.

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
    """All views of a database, by name; None: as for `describe`."""
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
    """Raises Unreadable where the metadata of its schema does not say what the view is."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import; it was for `table`

    metadata = table.schema.metadata or {}
    view = view_definitions.from_metadata(metadata, table.uri)
    if view is None or not (view.in_own_database or view_definitions.IN_OWN_DATABASE.encode() in metadata):
        raise Unreadable("no view, or one of an earlier release: the services know whether it was moved")
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
    """What makes a column, where it is a column of the source by its name, or by that in backticks."""
    if column.source_column == column.name:
        return column.source_column
    quoted = "`" + column.source_column.replace("`", "``") + "`"
    return quoted if column.source_column else column.expression


def _summary(view: ViewInfo) -> ViewSummary:
    return ViewSummary(
        name=view.name,
        uri=view.uri,
        version=view.version,
        source_database=view.query.source_database,
        source_table=view.query.source_table,
        source_version=view.source_version,
        row_reference=view.row_reference,
        row_count=view.row_count,
        rows_unset=view.rows_unset,
        stale_columns=view.stale_columns,
    )


def local_udfs(database: str) -> list[UdfInfo] | None:
    """All of them, by name, then newest first; None: the services know, or tell better what is wrong."""
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
    """One of them, without a version the newest; None: as for `udfs`, or there is none."""
    known = local_udfs(database) or ()
    return next((each for each in known if each.name == name and version in ("", each.version)), None)


def without_source(info: UdfInfo) -> UdfInfo:
    """As listings have it."""
    return dataclasses.replace(info, source="")


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
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def local_jobs(database: str) -> list[Job] | None:
    """All jobs, newest first; None: the services know, or tell better what is wrong."""
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
    """A state of a job, and what decides whether it counts."""

    state: JobState
    attempt: int
    executor: str
    deleted: bool
    record: dict[str, Any]


def _states(uri: str) -> Iterator[_State]:
    """The states of all jobs in the order in which they were written. Raises Unreadable."""
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
    """A job, of the database whose history has it: that may have been copied from elsewhere."""
    state, said = counts.state, counts.record
    asked = said.get("backfill") or said["refresh"]
    progress = _progress(said.get("progress", {}), state)
    result = said.get("refresh_result")
    return Job(
        job_id=said["job_id"],
        state=state,
        database=database,
        table=asked.get("table") or asked["view"],
        column=asked.get("column", ""),
        where=asked.get("where", ""),
        udf_name=said.get("udf_name", ""),
        udf_version=said.get("udf_version", ""),
        progress=progress,
        reasons=tuple(ReasonCount(c["reason"].upper(), c["fragments"], c["rows"]) for c in said.get("reasons", ())),
        plan_summary=said.get("plan_summary", ""),
        error=_error(said["error"]) if said.get("error") else None,
        table_version=said.get("table_version", 0),
        attempt=counts.attempt,
        create_time=_time(said["created_at"]),
        update_time=_time(said["updated_at"]),
        stalls=tuple(_stall(stall) for stall in said.get("stalls", ())),
        retry_of=said.get("retry_of", ""),
        refresh_result=None if result is None else _result(result, said, state, progress),
        failed_in=tuple(said.get("failed_in", ())),
        queue_position=said.get("queue_position", 0),
        stale_indices=tuple(
            IndexCoverage(**{**index, "columns": tuple(index["columns"])}) for index in said.get("stale_indices", ())
        ),
        labels=said.get("labels", {}),
        priority=said.get("priority", 0),
        initiator=said.get("initiator", ""),
        start_time=_maybe(said.get("started_at")),
        end_time=_maybe(said.get("ended_at")),
        expected_start_time=_maybe(said.get("expected_start_at")),
        env_names=tuple(said.get("env_names", ())),
        trace_id=trace_of(said.get("traceparent", "")),
        columns=tuple(asked.get("columns", ())),
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
        job_id=job["job_id"],
        failed_in=tuple(job.get("failed_in", ())),
        state=state,
    )


def _error(said: Mapping[str, Any]) -> JobError:
    facts = said.get("facts", {})
    if any("://" in text and "@" in text for text in (said["message"], *facts.values())):
        raise ValueError("there may be a password in it, which the services take out")
    code = _CAPITAL.sub("_", said["kind"]).upper()
    error = make(code, said["reason"], translate(said["message"]), facts)
    return JobError(error.reason, error.message, error.facts, error.code)


def _stall(said: Mapping[str, Any]) -> Stall:
    begin, end = said["rows"]
    fragment = None if said["fragment_id"] < 0 else said["fragment_id"]
    return Stall(said["worker"], fragment, (begin, end), said["idle_seconds"], said["silent"], said["message"])


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=int(seconds * 1e6))


def _maybe(seconds: float | None) -> datetime.datetime | None:
    return _time(seconds) if seconds else None


_MANY = 100_000
_AT_ONCE = 4096
_FIELDS = tuple(field.name for field in dataclasses.fields(RowError))


def local_errors(database: str, job_id: str, column: str, limit: int | None) -> list[RowError] | None:
    """Those of a job, and of one column where it is named, by row address; None: the services know, or say why not."""
    nothing: list[RowError] = []
    most = None if limit is None else max(limit, 0)
    return _of_failed_rows(database, job_id, nothing, lambda uri: _read_errors(uri, job_id, column)[:most])


def local_error_groups(
    database: str, job_id: str, column: str, limit: int | None, examples: int
) -> RowErrorGroups | None:
    """Those of a job by what went wrong, and of one column where it is named; None: as for `local_errors`."""
    return _of_failed_rows(
        database, job_id, RowErrorGroups(), lambda uri: _group_errors(uri, job_id, column, limit, examples)
    )


_Read = TypeVar("_Read")


def _of_failed_rows(database: str, job_id: str, nothing: _Read, read: Callable[[str], _Read]) -> _Read | None:
    """What is read of the table of failed rows; None: the services know, or say why not."""
    known = local_jobs(database)
    job = next((job for job in known or () if job.job_id == job_id), None)
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
    """More than are read at once."""


def _read_errors(uri: str, job_id: str, column: str, addresses: Iterable[int] | None = None) -> list[RowError]:
    """Failed rows, each as it was stored last; `addresses`: only of these."""
    last = {}
    for row in _failed_rows(uri, job_id, column, _FIELDS, addresses).to_pylist():
        row_id = row["row_id"] if row["row_id"] >= 0 else None
        last[row["row_address"], row["column"]] = RowError(**{**row, "row_id": row_id})
    return [last[place] for place in sorted(last)]


def _failed_rows(
    uri: str, job_id: str, column: str, names: Iterable[str], addresses: Iterable[int] | None = None
) -> pa.Table:
    table = local.open_table(uri)
    # without the type of an error only the row's place is stored
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
