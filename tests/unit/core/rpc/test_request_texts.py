"""Ids and names of requests: control characters are refused before a handler sees them; request ids have a bound."""

from __future__ import annotations

import itertools

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from leman.v1 import catalog_pb2, commit_pb2, databases_pb2, jobs_pb2, tables_pb2
from leman_core.model.service_errors import InvalidArgument
from leman_core.server import request_messages
from leman_core.server.request_messages import UnreadableMessage, tolerant_reader
from leman_core.server.routes import public_services
from leman_internal.v1 import submission_pb2
from tests.integration.bad_requests.requests import paths, put

FILES = (catalog_pb2, commit_pb2, databases_pb2, jobs_pb2, tables_pb2, submission_pb2)
REQUESTS = [kind for file in FILES for name, kind in vars(file).items() if name.endswith("Request")]
CONTROLS = ("\n", "\0", "\x1b", "\x7f", "\x9b", "\u202e", "\u2067")
#: Texts of requests that are not looked at when a message is read: the last part of their paths → who refuses them.
OTHERS = {
    "places and tables": {"database", "uri", "root", "table", "new_name"},
    "names of functions, their versions and columns": {"name", "version", "column", "columns", "input_columns", "on"},
    "what defines a function": {"entrypoint", "python_version", "sha256", "addresses", "function", "exception_types"},
    "types": {"type", "unit", "timezone", "dictionary_index_type"},
    "tokens of pages": {"page_token", "resume_token"},
    "names of indices, which are as their makers wrote them": {"names"},
    "code and prose, which have lines": {
        *("where", "update_where", "delete_where", "expression", "sql_expression", "source", "description"),
        "message_pattern",
    },
}


def holders(kind: type) -> list[str]:
    """Paths of the request ids of a kind of message."""
    header = kind.DESCRIPTOR.fields_by_name.get("header")
    found = ["request_id"] if "request_id" in kind.DESCRIPTOR.fields_by_name else []
    if header is not None and header.message_type and "request_id" in header.message_type.fields_by_name:
        found.append("header.request_id")
    return found


WITH_AN_ID = [(kind, path) for kind in REQUESTS for path in holders(kind)]


def asked(kind: type, path: str, request_id: str) -> bytes:
    message = kind()
    holder = message.header if path.startswith("header.") else message
    holder.request_id = request_id
    return message.SerializeToString()


@pytest.mark.parametrize(("kind", "path"), WITH_AN_ID, ids=lambda part: getattr(part, "__name__", ""))
def test_an_id_that_is_too_long_is_refused_when_the_message_is_read(kind, path):
    read = tolerant_reader(kind.FromString)
    assert isinstance(read(asked(kind, path, "é" * 1024)), kind)
    refused = read(asked(kind, path, "x" * 1025))
    assert isinstance(refused, UnreadableMessage)
    assert isinstance(refused.error, InvalidArgument)
    assert (refused.error.reason, refused.error.field) == ("BAD_REQUEST", path)


def test_all_that_make_something_are_looked_at():
    names = {kind.DESCRIPTOR.name for kind, _ in WITH_AN_ID}
    assert {"AppendRowsRequest", "MergeRowsRequest", "CreateJobRequest", "RetryJobRequest", "DropTableRequest"} <= names
    request_messages.text_check(jobs_pb2.GetJobRequest.DESCRIPTOR)(jobs_pb2.GetJobRequest(job_id="x" * 2000))


KINDS = {method.input_type.full_name: method for service in public_services().values() for method in service.methods}
TEXTS = [
    pytest.param(kind, path, id=f"{kind}: {'.'.join(field.name for field in path)}")
    for kind, method in KINDS.items()
    for path in paths(method.input_type)
    if path[-1].type == FieldDescriptor.TYPE_STRING
]


@pytest.mark.parametrize(("kind", "path"), TEXTS)
def test_control_characters_of_every_text_are_refused_here_or_by_its_own_rule(kind, path):
    made = GetMessageClass(KINDS[kind].input_type)
    name = ".".join(field.name for field in path)
    refusals = set()
    for control, place in itertools.product(CONTROLS, ("{}x", "x{}y", "x{}")):
        message = made()
        put(message, path, place.format(control))
        read = tolerant_reader(made.FromString)(message.SerializeToString())
        refusals.add((read.error.reason, read.error.field) if isinstance(read, UnreadableMessage) else None)
    with_a_rule = any(path[-1].name in names for names in OTHERS.values())
    looked_at = ("BAD_REQUEST", name)
    assert refusals in ({looked_at}, {None} if with_a_rule else {looked_at})


def test_ids_of_any_other_characters_are_taken():
    for text in ("job-1", "a b", "日本語", "x\u200dy", "\U0001f600", "ü" * 100, "tab\u00a0"):
        request_messages.text_check(jobs_pb2.GetJobRequest.DESCRIPTOR)(jobs_pb2.GetJobRequest(job_id=text))
