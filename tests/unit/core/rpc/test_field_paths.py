"""An error names the field that is wrong by its path in the request that the caller sent."""

from __future__ import annotations

import pytest

from leman.v1 import catalog_pb2, jobs_pb2, planner_pb2, tables_pb2
from leman_core.server.interceptors import field_path
from leman_internal.v1 import planning_pb2

BACKFILL = jobs_pb2.CreateJobRequest(backfill=planner_pb2.BackfillSpec(column="y"))
REFRESH = jobs_pb2.CreateJobRequest(refresh=planner_pb2.RefreshSpec(concurrency=-1))


@pytest.mark.parametrize(
    ("request_", "field", "path"),
    [
        (BACKFILL, "backfill.where", "backfill.where"),
        (BACKFILL, "where", "backfill.where"),
        (BACKFILL, "spec.where", "backfill.where"),
        (BACKFILL, "table.table", "backfill.table.table"),
        (BACKFILL, "concurrency", "backfill.concurrency"),
        (REFRESH, "concurrency", "refresh.concurrency"),
        (REFRESH, "database", "refresh.view.database"),
        (BACKFILL, "labels", "labels"),
        (BACKFILL, "nothing", ""),
        (BACKFILL, "", ""),
        (planning_pb2.CreatePlanRequest(), "where", "spec.where"),
        (jobs_pb2.RetryJobRequest(), "spec.where", ""),
        (jobs_pb2.RetryJobRequest(), "name", "udf.name"),
        (catalog_pb2.RegisterUdfRequest(), "sql_expression", "definition.sql_expression"),
        (catalog_pb2.RegisterUdfRequest(), "udf.name", "definition.name"),
        (catalog_pb2.AddColumnsRequest(), "udf.name", "columns.udf.name"),
        (catalog_pb2.AddColumnsRequest(), "definition.sql_expression", "columns.sql_expression"),
        (catalog_pb2.AlterColumnsRequest(columns=[{}]), "columns.name", "columns.column.name"),
        (catalog_pb2.CreateMaterializedViewRequest(), "where", "query.where"),
        (tables_pb2.AppendRowsRequest(arrow_ipc=b"x"), "header.max_rows_per_fragment", "header.max_rows_per_fragment"),
        (catalog_pb2.RegisterUdfRequest(definition={"json_output_schema": {}}), "udf.name", "definition.name"),
        (tables_pb2.CreateTableRequest(), "columns", ""),
    ],
)
def test_a_field_is_named_as_the_caller_knows_it(request_, field, path):
    assert field_path(request_, field) == path
