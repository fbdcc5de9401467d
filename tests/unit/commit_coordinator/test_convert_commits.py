"""Requests for commits that make no sense, whatever the table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman_coordinator import convert_commits
from leman_core.model import keys
from leman_core.model.service_errors import InvalidArgument
from leman_internal.v1 import submission_pb2

SCHEMA = pa.schema({"y": pa.int64()}).serialize().to_pybytes()
FRAGMENT = {"file": {"file": keys.column_file_name("a" * 32, "1", partial=False)}}
COLUMN = {"output": {"name": "y", "schema": SCHEMA, "column_id": "c0ffee"}, "fragments": [FRAGMENT]}


@pytest.mark.parametrize(
    ("operation", "reason", "field"),
    [
        ({"begin_attempt": {}, "attempt": 0}, "BAD_NUMBER", "attempt"),
        (
            {"create_placeholders": {"max_rows_per_fragment": -1}},
            "BAD_NUMBER",
            "create_placeholders.max_rows_per_fragment",
        ),
        ({"replace_columns": {}}, "MISSING_FIELD", "replace_columns.columns"),
        ({}, "MISSING_FIELD", "operation"),
        ({"replace_columns": {"columns": [COLUMN, COLUMN]}}, "BAD_COLUMN", "replace_columns.columns"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_the_table_is_read(operation, reason, field):
    message = submission_pb2.SubmitCommitRequest(
        uri="/lake/t.lance", request_id="r", job_id="j", incarnation="i", **operation
    )
    with pytest.raises(InvalidArgument) as caught:
        convert_commits.request_from_proto(message)
    assert (caught.value.reason, caught.value.field) == (reason, field)
