"""Rows over the wire, as the SDK sees a service that goes away in the middle: real gRPC, a made-up TableService."""

from __future__ import annotations

import grpc
import pyarrow as pa
import pytest

import leman
from leman.v1 import tables_pb2
from tests.unit.clients.fake_services import status

ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def answers(request, cut=None):
    """The rows from the request's offset on, in batches of two; `cut`: only so many bytes, then UNAVAILABLE."""
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
