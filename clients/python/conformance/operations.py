"""What a step can ask for, by the objects of the client. Where a step has no `timeout`, it is None here."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import leman
from conformance.stub_calls import rpc

_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "utf8": pa.utf8(), "bool": pa.bool_()}


def _rows(text: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()


def _written(schema: pa.Schema, batches: list[pa.RecordBatch]) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _id(given: dict[str, Any]) -> str | None:
    return given.get("request_id")


def _column(told: dict[str, Any]) -> Any:
    return told["sql"] if "sql" in told else (told["function"], told.get("inputs") or [])


def _columns(given: dict[str, Any]) -> dict[str, Any]:
    return {name: _column(told) for name, told in given["columns"].items()}


def _tables(db: leman.Database, _: dict[str, Any]) -> dict[str, Any]:
    return {"tables": db.table_names()}


def _create_table(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.create_table(given["table"], _rows(given["arrow"]), request_id=_id(given))
    return {}


def _drop_table(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.drop_table(given["table"], force=given.get("force", False), request_id=_id(given))
    return {}


def _rename_table(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.rename_table(given["table"], given["new_name"], force=given.get("force", False), request_id=_id(given))
    return {}


def _describe(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    found = db.open_table(given["table"]).describe()
    return {
        "version": found.version,
        "rows": found.row_count,
        "columns": found.schema.names,
        "computed": [column.name for column in found.computed_columns],
    }


def _append(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.open_table(given["table"]).add(_rows(given["arrow"]), request_id=_id(given))
    return {}


def _read(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    with db.open_table(given["table"]).to_batches(
        given.get("columns"),
        given.get("where"),
        limit=given.get("limit"),
        offset=given.get("offset", 0),
        version=given.get("version"),
    ) as reader:
        batches = []
        for batch in reader:
            batches.append(batch)
            if len(batches) == given.get("batches"):
                break
        return {"arrow": _written(reader.schema, batches)}


def _delete(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"rows": db.open_table(given["table"]).delete(given["where"], request_id=_id(given))}


def _update(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    rows = db.open_table(given["table"]).update(given["where"], values_sql=given["set"], request_id=_id(given))
    return {"rows": rows}


def _merge(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    merge = db.open_table(given["table"]).merge_insert(given["keys"])
    if given.get("update"):
        merge.when_matched_update_all(given.get("update_where"))
    if given.get("insert"):
        merge.when_not_matched_insert_all()
    if given.get("delete"):
        merge.when_not_matched_by_source_delete(given.get("delete_where"))
    done = merge.execute(_rows(given["arrow"]), request_id=_id(given))
    return {
        "inserted": done.num_inserted_rows,
        "updated": done.num_updated_rows,
        "deleted": done.num_deleted_rows,
    }


def _add_columns(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"version": db.open_table(given["table"]).add_columns(_columns(given), request_id=_id(given))}


def _alter_columns(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"version": db.open_table(given["table"]).alter_columns(_columns(given), request_id=_id(given))}


def _drop_columns(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    table = db.open_table(given["table"])
    force = given.get("force", False)
    return {"version": table.drop_columns(given["columns"], force=force, request_id=_id(given))}


def _rename_column(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    table = db.open_table(given["table"])
    how = {"force": given.get("force", False), "request_id": _id(given)}
    return {"version": table.rename_column(given["column"], given["new_name"], **how)}


def _functions(db: leman.Database, _: dict[str, Any]) -> dict[str, Any]:
    return {"functions": [f"{udf.name}@{udf.version}" for udf in db.udfs()]}


def _register_function(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.register_entrypoint(
        given["entrypoint"],
        name=given["name"],
        version=given["version"],
        input_columns=given["inputs"],
        data_type=_TYPES[given["output"]],
        kind=given["kind"],
    )
    return {}


def _upload_bundle(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"sha256": db.upload_bundle(base64.b64decode(given["data"]))}


def _create_view(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    query = db.open_table(given["source"]).search(None)
    if given.get("columns"):
        query = query.select(given["columns"])
    if given.get("where"):
        query = query.where(given["where"])
    db.create_materialized_view(given["view"], query, request_id=_id(given))
    return {}


def _views(db: leman.Database, _: dict[str, Any]) -> dict[str, Any]:
    return {"views": [view.name for view in db.views()]}


def _drop_view(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    db.drop_view(given["view"], force=given.get("force", False), request_id=_id(given))
    return {}


def _plan(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    plan = db.open_table(given["table"]).plan_backfill(given["column"], where=given.get("where"))
    return {
        "rows_total": plan.rows_total,
        "rows_reused": plan.rows_reused,
        "rows_to_compute": plan.rows_to_compute,
        "reasons": {reason.reason: reason.rows for reason in plan.reasons},
    }


def _preview(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    made = db.open_table(given["table"]).preview(
        given["column"] if "column" in given else _column(given), given.get("n", 5), where=given.get("where")
    )
    return {
        "states": [row.state.upper() for row in made.rows],
        "outputs": [row.texts[-1] for row in made.rows],
        "rows_to_compute": made.rows_to_compute,
    }


def _backfill(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    job = db.open_table(given["table"]).backfill_async(
        given["column"],
        where=given.get("where"),
        labels=given.get("labels"),
        priority=given.get("priority", 0),
        request_id=_id(given),
    )
    return {"job": job.job_id}


def _refresh(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"job": db.open_view(given["view"]).refresh_async(request_id=_id(given)).job_id}


def _jobs(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    found = db.jobs(
        given.get("table"), given.get("limit"), states=given.get("states") or (), labels=given.get("labels")
    )
    return {"jobs": [job.job_id for job in found]}


def _job(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    job = db.job(given["job"])
    return {
        "job": job.job_id,
        "state": job.state,
        "table": job.table,
        "column": job.column,
        "labels": dict(job.labels),
        "priority": job.priority,
        "error": {"reason": job.error.reason} if job.error is not None else None,
    }


def _watch(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    told: list[dict[str, Any]] = []
    state = ""
    with contextlib.closing(db.job_future(given["job"]).watch(given["timeout"])) as changes:
        for job, events in changes:
            state = job.state
            told += [{"sequence": event.sequence, "kind": event.kind.upper()} for event in events]
            if len(told) >= given.get("take", 1 << 31):
                break
    return {"events": told[: given.get("take")], "state": state}


def _wait(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    future = db.job_future(given["job"])
    told: list[int] = []
    future.result(
        given["timeout"], progress=(lambda p: told.append(p.rows_committed)) if given.get("progress") else None
    )
    return {"state": future.status(), "progress": told}


def _cancel(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"state": db.job_future(given["job"]).cancel()}


def _pause(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"state": db.job_future(given["job"]).pause()}


def _resume(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    return {"state": db.job_future(given["job"]).resume()}


def _errors(db: leman.Database, given: dict[str, Any]) -> dict[str, Any]:
    found = db.get_errors(given["job"], limit=given.get("limit"))
    return {"errors": [{"row_address": error.row_address, "error_type": error.error_type} for error in found]}


OPERATIONS: dict[str, Callable[[leman.Database, dict[str, Any]], dict[str, Any]]] = {"rpc": rpc} | {
    function.__name__.lstrip("_"): function
    for function in (
        *(_tables, _create_table, _drop_table, _rename_table, _describe, _append, _read, _delete, _update, _merge),
        *(_add_columns, _alter_columns, _drop_columns, _rename_column, _functions, _register_function),
        *(_upload_bundle, _create_view, _views, _drop_view, _plan, _preview, _backfill, _refresh, _jobs, _job, _watch),
        *(_wait, _cancel, _pause, _resume, _errors),
    )
}
