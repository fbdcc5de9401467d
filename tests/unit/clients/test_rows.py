"""Rows over the wire, as the SDK sees a service that goes away in the middle: real gRPC, a made-up TableService."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest

import leman
from leman._wire.wire_values import derived_request_id
from leman.v1 import tables_pb2
from tests.unit.clients.fake_services import status

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def answers(request, cut=None):
    """The rows from the request's offset on, in batches of two; `cut`: only this many bytes, then UNAVAILABLE."""
    sink = pa.BufferOutputStream()
    rows = ROWS.slice(request.offset)
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        for batch in rows.to_batches(2):
            writer.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    for at in range(0, cut or len(content), 100):
        yield tables_pb2.ReadRowsResponse(arrow_ipc=content[at : min(at + 100, cut or len(content))], version=7)
    if cut:
        yield grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def table(fake, db):
    db._services.direct = False
    return db._table("docs")


def test_an_interrupted_read_goes_on_with_the_same_version_where_it_was(fake, table):
    cuts = iter([900, None])
    fake.scripts["ReadRows"] = lambda request: answers(request, next(cuts))

    assert table.to_arrow(limit=10) == ROWS

    first, second = fake.named("ReadRows")
    assert (first.version, first.offset, first.limit) == (0, 0, 10)
    assert second.version == 7
    assert 0 < second.offset < 10
    assert second.offset + second.limit == 10


def test_a_read_with_checkpointed_values_begins_anew_or_says_that_it_was_interrupted(fake, table):
    cuts = iter([900, None, 900])
    fake.scripts["ReadRows"] = lambda request: answers(request, next(cuts))
    assert table.to_arrow(limit=10, include_checkpointed=True) == ROWS, "no row twice"
    first, second = fake.named("ReadRows")
    assert first == second
    assert (second.version, second.offset, second.include_checkpointed) == (0, 0, True)
    with pytest.raises(leman.errors.Unavailable):
        list(table.to_batches(include_checkpointed=True))
    assert len(fake.named("ReadRows")) == 3


def test_checkpointed_values_are_read_by_the_services_also_where_rows_could_be_read_here(fake, db):
    fake.scripts["ReadRows"] = answers
    db._services.direct = True
    assert db._table("docs").head(include_checkpointed=True) == ROWS
    assert [(r.limit, r.include_checkpointed) for r in fake.named("ReadRows")] == [(5, True)]


def test_a_read_that_is_refused_in_the_middle_raises_what_it_was_told(fake, table):
    def refused(request):
        yield from list(answers(request))[:2]
        yield status("FAILED_PRECONDITION", "FILTER_FAILED", "a row has no answer")

    fake.scripts["ReadRows"] = refused
    with pytest.raises(leman.errors.FailedPrecondition, match="a row has no answer"):
        table.to_batches().read_all()


def test_rows_of_a_table_are_sent_again_under_their_id_and_those_of_a_reader_are_not(fake, table):
    taken = iter([grpc.StatusCode.UNAVAILABLE, tables_pb2.AppendRowsResponse(version=8, rows_added=2)])
    fake.scripts["AppendRows"] = lambda _: next(taken)
    table.add({"text": ["a", "b"]})
    first, second = fake.named("AppendRows")
    assert first[0].header.request_id == second[0].header.request_id
    assert [part.arrow_ipc for part in first[1:]] == [part.arrow_ipc for part in second[1:]]

    fake.scripts["AppendRows"] = grpc.StatusCode.UNAVAILABLE
    rows = pa.table({"text": ["a"]})
    with pytest.raises(leman.errors.Unavailable):
        table.add(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()))
    assert len(fake.named("AppendRows")) == 3


def test_rows_under_an_id_of_the_caller_s_go_through_the_services_also_where_they_could_be_written_here(fake, db):
    db._services.direct = True
    fake.scripts["AppendRows"] = tables_pb2.AppendRowsResponse(version=8, rows_added=1)
    db._table("docs").add({"text": ["a"]}, request_id="orders")
    made = db.create_table("texts", {"text": ["a"]}, request_id="texts")
    headers = [parts[0].header.request_id for parts in fake.named("AppendRows")]
    assert (headers, made.name) == (["orders", derived_request_id("texts", "rows")], "texts")
    with pytest.raises(leman.errors.InvalidArgument, match="request_id is empty"):
        made.delete("true", request_id="")


def test_a_table_whose_rows_cannot_be_added_stays_for_the_next_call_under_its_id(fake, db):
    db._services.direct = False
    fake.scripts["AppendRows"] = status("INVALID_ARGUMENT", "BAD_ROWS", "no rows")
    for request_id in ("mine", None):
        with pytest.raises(leman.errors.InvalidArgument):
            db.create_table("texts", {"text": ["a"]}, request_id=request_id)
        assert len(fake.named("DropTable")) == (0 if request_id else 1)


def test_a_merge_that_was_not_told_what_to_do_says_what_there_is(fake, table):
    with pytest.raises(leman.errors.InvalidArgument, match=r"call when_matched_update_all\(\), .* before execute\(\)"):
        table.merge_insert("text").execute([{"text": "a"}])
    assert not fake.named("MergeRows")


@pytest.mark.parametrize(
    "call", [lambda t: t.drop_columns("text"), lambda t: t.backfill([""]), lambda t: t.merge_insert([1])]
)
def test_what_is_no_list_of_columns_is_refused(table, call):
    with pytest.raises(leman.errors.InvalidArgument, match=r"is (a str or )?a list of (column )?names, not") as caught:
        call(table)
    assert caught.value.reason == "INVALID_ARGUMENT"


def test_a_merge_is_sent_again_under_its_id_and_says_what_it_did(fake, table):
    done = tables_pb2.MergeRowsResponse(version=9, rows_inserted=1, rows_updated=2, rows_deleted=3)
    taken = iter([grpc.StatusCode.UNAVAILABLE, done, done])
    fake.scripts["MergeRows"] = lambda _: next(taken)
    merge = table.merge_insert("text").when_matched_update_all("source.n > target.n").when_not_matched_insert_all()

    assert merge.execute([{"text": "a"}, {"text": "b"}]) == leman.MergeResult(1, 2, 3, 9)
    merge.when_not_matched_by_source_delete("n < 0").execute(pa.table({"text": ["a"]}))

    first, again, other = (messages[0].header for messages in fake.named("MergeRows"))
    assert first == again
    assert first.request_id != other.request_id
    assert (list(first.on), first.update_matched, first.update_where) == (["text"], True, "source.n > target.n")
    assert (first.insert_not_matched, first.delete_not_matched_by_source) == (True, False)
    assert (other.delete_not_matched_by_source, other.delete_where) == (True, "n < 0")


def test_an_update_sends_values_in_the_types_of_their_columns_and_sql_as_it_is(fake, table):
    fake.scripts["UpdateRows"] = tables_pb2.UpdateRowsResponse(version=9, rows_updated=4)
    assert table.update("n = 1", {"text": "new"}, values_sql={"n": "n + 1"}) == 4
    assert table.update(values_sql={"n": "0"}) == 4
    first, second = fake.named("UpdateRows")
    assert (first.where, dict(first.expressions), second.where) == ("n = 1", {"n": "n + 1"}, "true")
    assert pa.ipc.open_stream(first.values).read_all().to_pylist() == [{"text": "new"}]
    assert first.request_id not in ("", second.request_id)


@pytest.mark.parametrize("given", [{}, {"values": {}}, {"values": {"nope": 1}}, {"values": {"text": object()}}])
def test_an_update_that_makes_no_sense_is_refused_here(fake, table, given):
    with pytest.raises((leman.errors.InvalidArgument, leman.errors.ColumnNotFound, leman.errors.TypeMismatch)):
        table.update("true", **given)
    assert fake.named("UpdateRows") == []
