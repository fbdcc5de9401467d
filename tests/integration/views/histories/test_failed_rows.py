"""A function that fails for some rows, and says that they are to be skipped."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa

from core.domain.job import JobState
from core.domain.udf import ErrorAction, ErrorPolicy, ErrorRule, UdfDefinition, UdfKind
from core.domain.view import ViewColumn, ViewFunction, ViewQuery
from core.udf.registry import UdfRegistry
from tests.integration.views.histories import functions

SKIP = ErrorPolicy(rules=(ErrorRule(ErrorAction.SKIP),), store_errors=False)


def test_rows_that_failed_are_null_and_the_others_have_values(views_system, quick_folder):
    database = str(quick_folder)
    uri = f"{database}/t.lance"
    lance.write_dataset(pa.table({"id": np.arange(12)}), uri, enable_stable_row_ids=True)
    entrypoint = f"{functions.__name__}:odd"
    UdfRegistry(database).put(
        UdfDefinition("odd", "1", UdfKind.SCALAR, ("id",), pa.int64(), entrypoint=entrypoint, error_policy=SKIP)
    )
    query = ViewQuery(database, "t", (ViewColumn("id", "id", "id"),), (ViewFunction("odd", "odd", "1", ("id",)),))
    views_system.create(database, "v", query, max_rows_per_fragment=5)
    for count in (12, 18):
        if count > 12:
            lance.write_dataset(pa.table({"id": np.arange(12, count)}), uri, mode="append")
        job = views_system.refresh(database, "v")
        assert job.state is JobState.DONE_WITH_ERRORS, job.error
        found = lance.dataset(f"{database}/v.lance").to_table(columns=["id", "odd"]).to_pylist()
        assert found == [{"id": i, "odd": i if i % 2 else None} for i in range(count)]
