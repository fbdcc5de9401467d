"""kill -9 in the middle of making a view: there is no half-made one, and it can be made again."""

from __future__ import annotations

import uuid

import grpc
import pytest

import leman
from leman._format.view_definitions import IS_SET, ViewColumn, ViewQuery
from leman_core.storage.lance_tables import LanceTables
from leman_core.wire import convert_values
from leman_internal.v1 import submission_pb2, submission_pb2_grpc
from leman_planner.views.view_catalog import ViewCatalog
from tests.faults.lake import Lake
from tests.faults.views import ROWS, check_settled, make, matching
from tests.integration.call_log import numbers

pytestmark = [pytest.mark.faults, pytest.mark.spark]

POINTS = [
    ("coordinator.placeholders_staged", "commit_coordinator"),
    ("coordinator.view_created", "commit_coordinator"),
    ("planner.view_made", "planner"),
]


@pytest.mark.parametrize(("point", "victim"), POINTS)
def test_the_one_who_asked_still_waits(lake, db, call_log, point, victim):
    """It asks again, for the same view."""
    pid = lake.pid(victim)
    lake.arm(point)
    _, view = make(db, call_log, f"made_{point.split('.')[1]}")
    assert lake.went_off(point)
    assert view.describe().rows_unset == len(matching(range(ROWS)))
    assert call_log.seen() == []
    view.refresh(progress=False)
    check_settled(lake, db, view, list(range(ROWS)))
    lake.wait_back(victim, before=pid)


def test_before_the_commit_and_nobody_asks_again(lake, db):
    """Placeholder files lie there: no view, and room for one."""
    table = db.create_table("unmade", numbers(20))
    create_once(lake, db, "unmade", "coordinator.placeholders_staged")
    assert "unmade_view" not in db.table_names()
    with pytest.raises(leman.errors.TableNotFound):
        db.open_view("unmade_view")
    view = db.create_materialized_view("unmade_view", table.search(None).select(["x"]))
    view.refresh(progress=False)
    assert sorted(view.to_arrow()["x"].to_pylist()) == list(range(20))


def test_after_the_commit_and_nobody_asks_again(lake, db):
    """The view is there, whole, without a value: it is someone's, and can be filled."""
    table = db.create_table("made", numbers(20))
    create_once(lake, db, "made", "coordinator.view_created")
    view = db.open_view("made_view")
    assert view.to_lance().to_table()[IS_SET].to_pylist() == [False] * 20
    with pytest.raises(leman.errors.TableExists):
        db.create_materialized_view("made_view", table.search(None).select(["x"]))
    view.refresh(progress=False)
    assert sorted(view.to_arrow()["x"].to_pylist()) == list(range(20))
    assert view.refresh(progress=False).mode == "no_op"


def create_once(lake: Lake, db: leman.Database, table: str, point: str) -> None:
    """Has the coordinator make `<table>_view`, which dies of it; gRPC does not send the request again."""
    query = ViewQuery("", table, (ViewColumn("x", "`x`", "x"),), (), "", False, 0, None, 0)
    request_id = uuid.uuid4().hex
    made = ViewCatalog(LanceTables()).creation(str(lake.database), f"{table}_view", query, request_id)
    placeholders = submission_pb2.CreatePlaceholders(schema=convert_values.schema_to_bytes(made.schema), create=True)
    request = submission_pb2.SubmitCommitRequest(uri=made.uri, request_id=request_id, create_placeholders=placeholders)
    pid = lake.pid("commit_coordinator")
    lake.arm(point)
    said = lake.said()
    metadata = (("authorization", f"Bearer {said['token']}"),)
    with grpc.insecure_channel(said["commit_coordinator"], [("grpc.enable_retries", 0)]) as channel:
        stub = submission_pb2_grpc.CommitSubmissionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.SubmitCommit(request, metadata=metadata, timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert lake.went_off(point)
    lake.wait_back("commit_coordinator", before=pid)
