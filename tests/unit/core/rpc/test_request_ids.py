"""Request ids have a bound, wherever they stand: they are kept with what was made under them."""

from __future__ import annotations

import pytest

from core.errors import InvalidArgument
from core.rpc import request_ids
from core.rpc.unreadable import Unreadable, reader
from leman.v1 import catalog_pb2, commit_pb2, databases_pb2, jobs_pb2, tables_pb2
from leman_internal.v1 import submission_pb2

FILES = (catalog_pb2, commit_pb2, databases_pb2, jobs_pb2, tables_pb2, submission_pb2)
REQUESTS = [kind for file in FILES for name, kind in vars(file).items() if name.endswith("Request")]


def has_an_id(kind: type) -> bool:
    header = kind.DESCRIPTOR.fields_by_name.get("header")
    holders = [kind.DESCRIPTOR, *([header.message_type] if header is not None and header.message_type else [])]
    return any("request_id" in holder.fields_by_name for holder in holders)


WITH_AN_ID = [kind for kind in REQUESTS if has_an_id(kind)]


def asked(kind: type, request_id: str) -> bytes:
    message = kind()
    holder = message if "request_id" in kind.DESCRIPTOR.fields_by_name else message.header
    holder.request_id = request_id
    return message.SerializeToString()


@pytest.mark.parametrize("kind", WITH_AN_ID, ids=lambda kind: kind.DESCRIPTOR.name)
def test_an_id_that_is_too_long_is_refused_when_the_message_is_read(kind):
    read = reader(kind.FromString)
    assert isinstance(read(asked(kind, "é" * 1024)), kind)
    refused = read(asked(kind, "x" * 1025))
    assert isinstance(refused, Unreadable)
    assert isinstance(refused.error, InvalidArgument)
    assert (refused.error.reason, refused.error.field) == ("BAD_REQUEST", "request_id")


def test_all_that_make_something_are_looked_at():
    names = {kind.DESCRIPTOR.name for kind in WITH_AN_ID}
    assert {"AppendRowsRequest", "MergeRowsRequest", "CreateJobRequest", "RetryJobRequest", "DropTableRequest"} <= names
    request_ids.check_of(jobs_pb2.GetJobRequest.DESCRIPTOR)(jobs_pb2.GetJobRequest(job_id="x" * 2000))
