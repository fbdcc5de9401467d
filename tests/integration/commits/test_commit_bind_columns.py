"""Other functions for columns, in the coordinator: all or none, in the commit queue, safe to send again."""

from __future__ import annotations

import uuid

import grpc
import pyarrow as pa
import pytest

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput
from leman.v1 import commit_pb2
from leman_coordinator.commits.commit_requests import BindColumnsRequest
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import CommitConflict, TableHandle
from leman_core.functions import binding
from leman_core.model.service_errors import Aborted, FailedPrecondition
from leman_core.wire import convert_values
from leman_internal.v1 import submission_pb2
from tests.integration.commits.commit_helpers import Planner, Table, add_columns, make_table, ref_of
from tests.integration.commits.test_commit_queues import submit
from tests.integration.commits.test_commit_service import coordinator, refusal, run


@pytest.fixture
def table(tmp_path) -> Table:
    return make_table(str(tmp_path / "t.lance"), columns=("c", "d"))


def bound(table: Table, name: str, version: str, **changes: object) -> pa.Field:
    """The column's field with function `g`."""
    field = table.snapshot().column(name)
    old = binding.read(field.arrow)
    wanted = {"column_id": old.column_id, "udf_name": "g", "udf_version": version, "inputs": old.inputs, **changes}
    return column_bindings.bind(field.arrow, ColumnBinding(**wanted))


def function(table: Table, name: str) -> tuple[str, str]:
    found = binding.read(table.open().schema.field(name))
    return found.udf_name, found.udf_version


def test_all_columns_in_one_version_and_values_stay(table):
    submit(Planner(table).request(0))
    handle = TableHandle(table.uri)
    base = handle.latest()
    inputs = (ColumnInput("id", base.column("id").field_id),)
    schema = pa.schema([bound(table, "c", "2", inputs=inputs), bound(table, "d", "3")])
    assert column_definitions.bind_columns(handle, base, schema) == base.version + 1
    assert (function(table, "c"), function(table, "d")) == (("g", "2"), ("g", "3"))
    assert binding.read(table.open().schema.field("c")).inputs == inputs
    assert table.fragment_values(0) == [10 * x for x in range(10)]
    again = column_definitions.bind_columns(handle, handle.latest(), schema)
    assert again == base.version + 1, "nothing is left to change"


def test_work_that_was_planned_before_can_still_be_committed(table):
    planned = Planner(table).request(0)
    submit(
        BindColumnsRequest(uri=table.uri, incarnation="", request_id="b", schema=pa.schema([bound(table, "c", "2")]))
    )
    submit(planned)
    assert table.fragment_values(0) == [10 * x for x in range(10)]
    assert function(table, "c") == ("g", "2")


@pytest.mark.parametrize("other", ["id", "type", "plain", "gone"])
def test_another_column_than_planned_is_refused_with_all(table, other):
    handle = TableHandle(table.uri)
    wrong = {
        "id": bound(table, "d", "2", column_id=uuid.uuid4().hex),
        "type": bound(table, "d", "2").with_type(pa.int32()),
        "plain": bound(table, "d", "2").with_name("x"),
        "gone": bound(table, "d", "2").with_name("nope"),
    }[other]
    base = handle.latest()
    with pytest.raises(FailedPrecondition) as caught:
        column_definitions.bind_columns(handle, base, pa.schema([bound(table, "c", "2"), wrong]))
    assert caught.value.reason == ("TYPE_MISMATCH" if other == "type" else "COLUMN_NOT_DEFINED")
    assert table.open().version == base.version


def test_a_change_meanwhile_is_looked_at_again(table):
    handle = TableHandle(table.uri)
    base = handle.latest()
    other = TableHandle(table.uri)
    column_definitions.bind_columns(other, other.latest(), pa.schema([bound(table, "c", "3")]))
    schema = pa.schema([bound(table, "c", "2")])
    with pytest.raises(CommitConflict):
        column_definitions.bind_columns(handle, base, schema)
    column_definitions.bind_columns(handle, handle.latest(), schema)
    assert function(table, "c") == ("g", "2")


def test_in_the_queue_beside_other_commits(table):
    base = table.snapshot()
    binds = [
        BindColumnsRequest(
            uri=table.uri, incarnation=base.incarnation, request_id=n, schema=pa.schema([bound(table, n, "2")])
        )
        for n in "cd"
    ]
    submit(Planner(table).request(0), *binds, Planner(table).request(1))
    assert (function(table, "c"), function(table, "d")) == (("g", "2"), ("g", "2"))
    assert table.fragment_values(1) == [10 * x for x in range(10, 20)]
    add_columns(table.uri, ["e"])
    with pytest.raises(Aborted) as caught:
        submit(
            BindColumnsRequest(
                uri=table.uri, incarnation="another", request_id="z", schema=pa.schema([bound(table, "e", "2")])
            )
        )
    assert caught.value.reason == "TABLE_REPLACED"


def test_over_the_wire_and_sent_again(table):
    request = submission_pb2.SubmitCommitRequest(
        uri=table.uri,
        request_id="bind1",
        bind_columns=submission_pb2.BindColumns(
            schema=convert_values.schema_to_bytes(pa.schema([bound(table, "c", "2")]))
        ),
    )
    empty = submission_pb2.SubmitCommitRequest(uri=table.uri, request_id="bind2")
    empty.bind_columns.schema = convert_values.schema_to_bytes(pa.schema([]))

    async def scenario():
        async with coordinator() as stub:
            answers = [await stub.SubmitCommit(request), await stub.SubmitCommit(request)]
            found = await stub.GetCommit(commit_pb2.GetCommitRequest(table=ref_of(table.uri), request_id="bind1"))
            return answers, found.commit, await refusal(stub.SubmitCommit(empty))

    answers, found, refused = run(scenario)
    assert answers[0] == answers[1]
    assert answers[0].version == found.version == table.open().version
    assert found.operation == "BindColumns"
    assert refused[:2] == (grpc.StatusCode.INVALID_ARGUMENT, "MISSING_FIELD")
