"""Requests before a handler sees them: texts and lists have bounds, ids and names have no control characters."""

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


#: Bytes that are data, as large as a message may be.
DATA = {"arrow_ipc", "bundle", "data", "values", "schema", "input_schema", "output_schema"}
#: Messages of protobuf's own that have neither texts nor lists.
WITHOUT_TEXTS = {"google.protobuf.Duration", "google.protobuf.Timestamp"}


def over_the_bound(field: FieldDescriptor) -> object:
    """A value of a field that has too much; None: the field has neither a text nor entries."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return {str(n): "" for n in range(11)}
    if field.is_repeated:
        return 11 if inner is not None else ["x"] * 11 if field.type == FieldDescriptor.TYPE_STRING else [1] * 11
    return "x" * 101 if field.type == FieldDescriptor.TYPE_STRING else None


def all_fields():
    for kind, method in KINDS.items():
        for path in paths(method.input_type):
            yield kind, path


@pytest.fixture
def small_bounds(monkeypatch):
    monkeypatch.setattr(request_messages, "MOST_CHARACTERS", 100)
    monkeypatch.setattr(request_messages, "MOST_ENTRIES", 10)


def test_every_text_and_list_of_every_request_has_a_bound_before_its_handler(small_bounds):
    looked_at = 0
    for kind, path in all_fields():
        name = ".".join(field.name for field in path)
        value = over_the_bound(path[-1])
        if value is None:
            assert path[-1].type != FieldDescriptor.TYPE_BYTES or path[-1].name in DATA, f"{kind}: {name} has no bound"
            inner = path[-1].message_type
            if inner is not None and inner.full_name.startswith("google.protobuf."):
                assert inner.full_name in {*WITHOUT_TEXTS, "google.protobuf.FieldMask"}
            continue
        message = GetMessageClass(KINDS[kind].input_type)()
        put(message, path, value)
        read = tolerant_reader(type(message).FromString)(message.SerializeToString())
        assert isinstance(read, UnreadableMessage), f"{kind}: {name} has no bound"
        assert (read.error.reason, read.error.field) == ("BAD_REQUEST", name)
        looked_at += 1
    assert looked_at > 200


def refusal(message: object) -> tuple[str, str]:
    read = tolerant_reader(type(message).FromString)(message.SerializeToString())
    assert isinstance(read, UnreadableMessage)
    assert read.error.reason == "BAD_REQUEST"
    return read.error.field, read.error.message


def test_a_request_bounds_its_texts_and_lists_together(small_bounds):
    def view(columns: int, characters: int) -> catalog_pb2.CreateMaterializedViewRequest:
        named = [catalog_pb2.ViewColumn(name="x" * characters) for _ in range(columns)]
        return catalog_pb2.CreateMaterializedViewRequest(query=catalog_pb2.ViewQuery(columns=named))

    assert isinstance(tolerant_reader(type(view(1, 1)).FromString)(view(10, 10).SerializeToString()), type(view(1, 1)))
    assert refusal(view(4, 26))[0] == "query.columns.name"
    names = [f"c{n}" for n in range(6)]
    wide = [catalog_pb2.NewColumn(input_columns=names) for _ in range(2)]
    field, message = refusal(catalog_pb2.AddColumnsRequest(columns=wide))
    assert field == "columns.input_columns"
    assert "all lists of a request together may have at most 10" in message


def test_ids_tables_and_masks_have_bounds_of_their_own():
    assert refusal(jobs_pb2.GetJobRequest(job_id="x" * 1025))[0] == "job_id"
    assert refusal(tables_pb2.ReadRowsRequest(tag="x" * 1025))[0] == "tag"
    listing = jobs_pb2.ListJobsRequest(filter=jobs_pb2.JobFilter(tables=["t"] * 1001))
    message = "filter.tables has 1001 entries, and may have at most 1000: send fewer at once"
    assert refusal(listing) == ("filter.tables", message)
    update = databases_pb2.UpdateDatabaseRequest()
    update.update_mask.paths.extend(["labels"] * 10_001)
    assert refusal(update)[0] == "update_mask.paths"


def test_ids_of_any_other_characters_are_taken():
    for text in ("job-1", "a b", "日本語", "x\u200dy", "\U0001f600", "ü" * 100, "tab\u00a0"):
        request_messages.text_check(jobs_pb2.GetJobRequest.DESCRIPTOR)(jobs_pb2.GetJobRequest(job_id=text))
