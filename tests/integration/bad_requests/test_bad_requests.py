"""Every field of every request missing, wrong, huge and hostile: typed errors, none INTERNAL, none hung, nothing dead.

The corpus is made from the descriptors of the contract, so that a new field has its cases with it. All but the one
field is right, so that what is wrong is met by the code that it is meant for. A case that is let through, as a name may
well be a strange one, may change a table of its method's own, which is made again then.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor

import leman
from leman import Databases
from leman.v1 import catalog_pb2, commit_pb2, errors_pb2, tables_pb2
from leman_core.model.service_errors import CONTROL_CHARACTERS, escape_invisible
from leman_core.server.routes import public_services
from tests.conftest import System, start_system, stop_system
from tests.integration.bad_requests import deep_sql
from tests.integration.bad_requests.callers import GrpcCaller, HttpCaller, Outcome
from tests.integration.bad_requests.requests import Case, RightRequests, bad_json, bad_messages, paths, put

METHODS = {
    f"{service.name}.{method.name}": method for service in public_services().values() for method in service.methods
}
#: Every seventh case is a share that meets each field with some of the values; LEMAN_LONG=1 takes all.
STEP = 1 if os.environ.get("LEMAN_LONG") else 7
LEAST = 4_500 // STEP
#: What a bad request may end with: what its caller can fix.
ALLOWED = {
    *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "PERMISSION_DENIED"),
    *("RESOURCE_EXHAUSTED", "ABORTED", "UNIMPLEMENTED"),
}
_REASONS = set(errors_pb2.ErrorReason.keys())
#: Methods whose right request is refused, as what they are about cannot be had with a table of ten rows.
REFUSED = {f"JobService.{name}": "JOB_ENDED" for name in ("PauseJob", "ResumeJob", "UpdateJob")}
#: Above it gRPC's own limit is near, and an error is lost.
MOST_TRAILERS = 7_800
BUNDLE = b"code"
ROWS = pa.table({"n": pa.array(range(10), pa.int64()), "s": [str(n) for n in range(10)]})
_INT64 = {"type": "int64"}


def _special(database: str, commit: str) -> dict[str, dict[str, Any]]:
    """What requests have in addition to the fields that are known by their names."""

    def table(name: str) -> dict[str, str]:
        return {"database": database, "table": name}

    new = {"fields": [{"name": "p{fresh}", "type": _INT64, "nullable": True}]}
    function = {
        "name": "f{fresh}",
        "version": "1",
        "kind": "KIND_SCALAR",
        "entrypoint": "math:sqrt",
        "input_columns": ["n"],
        "json_input_schema": {"fields": [{"name": "n", "type": _INT64, "nullable": True}]},
        "json_output_schema": {"fields": [{"name": "f", "type": {"type": "float64"}, "nullable": True}]},
    }
    return {
        "CatalogService.AddColumns": {"columns": [{"name": "c{fresh}", "sql_expression": "n + 1"}]},
        "CatalogService.AlterColumns": {"columns": [{"column": {"name": "twice", "sql_expression": "n * 2"}}]},
        "CatalogService.CreateMaterializedView": {
            "view": table("v{fresh}"),
            "query": {"source": table("docs"), "columns": [{"name": "n", "expression": "n"}]},
        },
        "CatalogService.AlterMaterializedView": {
            "functions": [{"name": "h", "udf": {"name": "half"}, "input_columns": ["n"]}],
            "update_mask": "functions",
        },
        "CatalogService.RegisterUdf": {"definition": function},
        "CatalogService.UploadBundle": {
            "header": {"database": database, "sha256": hashlib.sha256(BUNDLE).hexdigest(), "size_bytes": len(BUNDLE)}
        },
        "CommitService.CollectGarbage": {"dry_run": True},
        "CommitService.GetCommit": {"request_id": commit},
        "DatabaseService.GetDatabase": {"name": "known"},
        "DatabaseService.RegisterDatabase": {"database": {"name": "d{fresh}", "root": f"{database}-{{fresh}}"}},
        "DatabaseService.UpdateDatabase": {
            "database": {"name": "known", "description": "changed"},
            "update_mask": "description",
        },
        "JobService.CancelJobs": {"filter": {}},
        "JobService.CreateJob": {"backfill": {"table": table("docs"), "column": "twice"}},
        "JobService.PreviewFunction": {"table": table("docs"), "column": "twice"},
        "JobService.UpdateJob": {"labels": {"a": "b"}, "update_mask": "labels"},
        "PlannerService.ExplainPlan": {"spec": {"table": table("docs"), "column": "twice"}},
        "PlannerService.ExplainRefresh": {"spec": {"view": table("seen")}},
        "TableService.AddPlainColumns": {"json_schema": new},
        "TableService.AlterPlainColumns": {"columns": [{"name": "s", "new_name": "z"}]},
        "TableService.AppendRows": {"header": {"table": table("docs"), "request_id": "{fresh}"}},
        "TableService.CreateTable": {"table": table("t{fresh}"), "json_schema": new},
        "TableService.DeleteRows": {"where": "n = 0"},
        "TableService.DropColumns": {"columns": ["s"]},
        "TableService.MergeRows": {
            "header": {"table": table("docs"), "request_id": "{fresh}", "on": ["n"], "update_matched": True}
        },
        "TableService.RenameTable": {"new_name": "r{fresh}"},
        "TableService.UpdateRows": {"where": "n = 0", "expressions": {"s": "'other'"}},
    }


@leman.udf(data_type=pa.float64(), version="1")
def half(n: int) -> float:
    return n / 2


def _own_table(db: leman.Database, name: str) -> Any:
    if name in db.table_names():
        db.drop_table(name, force=True)
    table = db.create_table(name, ROWS)
    if name.startswith("CatalogService"):
        table.add_columns({"twice": "n * 2"})
    return {"database": db.uri, "table": name}


def _own_view(db: leman.Database, name: str) -> Any:
    if name in db.table_names():
        db.drop_view(name, force=True)
    db.create_materialized_view(name, db.open_table("docs").search(None).select(["n"]).add_column("h", half))
    return {"database": db.uri, "table": name}


def _own_registration(db: leman.Database, _name: str) -> Any:
    registered = Databases(db._services)
    if "own" not in {known.name for known in registered.all()}:
        registered.register("own", f"{db.uri}-own")
    return "own"


def _own_job(db: leman.Database, _name: str) -> Any:
    return db.open_table("docs").backfill("twice", progress=False)


#: Methods that change what they are about: the field that names it, and what makes it again and returns that field.
OWN: dict[str, tuple[str, Callable[[leman.Database, str], Any]]] = {
    "CatalogService.AddColumns": ("table", _own_table),
    "CatalogService.AlterColumns": ("table", _own_table),
    "CatalogService.AlterMaterializedView": ("view", _own_view),
    "CommitService.DropView": ("view", _own_view),
    "DatabaseService.UnregisterDatabase": ("name", _own_registration),
    "JobService.DeleteJob": ("job_id", _own_job),
    "TableService.AddPlainColumns": ("table", _own_table),
    "TableService.AlterPlainColumns": ("table", _own_table),
    "TableService.DeleteRows": ("table", _own_table),
    "TableService.DropColumns": ("table", _own_table),
    "TableService.DropTable": ("table", _own_table),
    "TableService.RenameTable": ("table", _own_table),
    "TableService.UpdateRows": ("table", _own_table),
}


#: Those of them after which the same request would be wrong.
SPOILING = {
    *("CommitService.DropView", "DatabaseService.UnregisterDatabase", "JobService.DeleteJob", "TableService.DropTable"),
    *("TableService.AlterPlainColumns", "TableService.DropColumns", "TableService.RenameTable"),
}


def _a_request_id(db: leman.Database) -> str:
    table = catalog_pb2.TableRef(database=db.uri, table="docs")
    commits = db._services.commits.ListCommits(commit_pb2.ListCommitsRequest(table=table)).commits
    return next(known for commit in commits for known in commit.request_ids)


@dataclass
class Target:
    """What cases are sent to."""

    db: leman.Database
    requests: RightRequests
    grpc: GrpcCaller
    http: HttpCaller
    #: Of the services, before the first case.
    pids: object

    def renew(self, name: str) -> None:
        """Make what a method is about again, where it has changed that so that the next case could not be right."""
        if name in SPOILING:
            field, make = OWN[name]
            self.requests.name(name, field, make(self.db, name))


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One of its own, that others need not suffer from it: with HTTP, and with a registry of databases."""
    folder = tmp_path_factory.mktemp("system")
    settings = {
        "LEMAN_SERVER__HTTP_PORT": "0",
        "LEMAN_SERVER__REGISTRY": str(folder / "registry"),
        "LEMAN_SPARK__ON_DEMAND": "true",  # no request here needs it
    }
    running = start_system(folder / "lake", **settings)
    yield running
    stop_system(running)


@pytest.fixture(scope="module")
def target(system: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    path = tmp_path_factory.mktemp("bad")
    service = system.service
    with system.connect(path) as db:
        docs = db.create_table("docs", ROWS)
        docs.add_columns({"twice": "n * 2"})
        job = docs.backfill("twice", progress=False)
        db.create_materialized_view("seen", docs.search(None).select(["n"])).refresh(progress=False)
        grpc_caller = GrpcCaller(str(service["executor"]), str(service["token"]))
        http_caller = HttpCaller(str(service["http"]), str(service["token"]))
        named = {
            "database": db.uri,
            "table": {"database": db.uri, "table": "docs"},
            "view": {"database": db.uri, "table": "seen"},
            "udf": {"name": db.udfs()[0].name},
            "job_id": job,
            "column": "twice",
            "request_id": "{fresh}",
        }
        Databases(db._services).register("known", f"{db.uri}-known")
        special = _special(db.uri, _a_request_id(db))
        for method, (field, make) in OWN.items():
            special[method] = {**special.get(method, {}), field: make(db, method)}
        yield Target(db, RightRequests(named, special), grpc_caller, http_caller, service["pids"])
        grpc_caller.close()
        http_caller.close()


def _rest_of_the_stream(method: MethodDescriptor) -> tuple[bytes, ...]:
    """What follows the first message of a stream of requests."""
    if method.input_type is catalog_pb2.UploadBundleRequest.DESCRIPTOR:
        return (catalog_pb2.UploadBundleRequest(data=BUNDLE).SerializeToString(),)
    for kind in (tables_pb2.AppendRowsRequest, tables_pb2.MergeRowsRequest):
        if method.input_type is kind.DESCRIPTOR:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, ROWS.schema) as writer:
                writer.write_table(ROWS.select(["n", "s"]))
            return (kind(arrow_ipc=sink.getvalue().to_pybytes()).SerializeToString(),)
    return ()


def flaw_of(outcome: Outcome) -> str:
    """What is wrong with the way in which a call ended; empty: nothing."""
    if outcome.code not in ALLOWED:
        return "a code that says nothing about the request"
    if outcome.code == "OK":
        return ""
    if outcome.domain != "leman" or outcome.reason not in _REASONS:
        return "no reason"
    if not outcome.message or len(outcome.message) > 4_000:
        return "no message for a person"
    if outcome.differs or outcome.size > MOST_TRAILERS:
        return f"a message and details that differ, or {outcome.size} bytes of trailers"
    if (
        CONTROL_CHARACTERS.search(outcome.message.replace("\n", ""))
        or escape_invisible(outcome.message) != outcome.message
    ):
        return "a message that may do something to a terminal, or that does not show all that is in it"
    if re.search(r"Traceback|\.(py|rs)\b", outcome.message):
        return "a message that shows our code"
    return ""


#: Errors about a message that cannot be read, so that no field of it is known.
UNREADABLE = {"BAD_MESSAGE", "BAD_ENVELOPE"}


def wrong_field(outcome: Outcome, case: Case, method: MethodDescriptor) -> str:
    """What is wrong with the field that a refusal names: it is a path in the request, to what is wrong there."""
    if outcome.code != "INVALID_ARGUMENT" or outcome.reason in UNREADABLE:
        return ""
    known = {".".join(field.name for field in path) for path in paths(method.input_type)}
    if outcome.wrong not in known:
        return "a field that the request does not have"
    if not case.field or outcome.wrong.startswith(f"{case.field}."):
        return ""
    around = case.field.rpartition(".")[0]  # it may be a message that the case has made, of which more is missing
    if around and outcome.wrong.startswith(f"{around}."):
        return ""
    beside = outcome.wrong.rpartition(".")[0]  # which of two fields is wrong that contradict each other, no one knows
    top = case.field.partition(".")[0]
    if (
        method.input_type.fields_by_name[top].containing_oneof is not None
    ):  # it may have taken the place of all that was right
        beside = beside and top
    return "" if f"{case.field}.".startswith(beside and f"{beside}.") else "another field than the one that is wrong"


#: What is wrong with values that have control characters.
WITH_CONTROLS = {"nul", "escape", "delete", "c1", "unicode", "line ends"}
#: Fields that take them: names of columns, which are as anyone who made the table wrote them, are looked for alone.
TAKES_CONTROLS = {"column", "input_columns", "labels", "source"}
_OF_TYPES = ("json_input_schema", "json_output_schema", "json_schema", "type")


def takes_controls(case: Case) -> str:
    """What is wrong with a call that has been answered: its field takes control characters."""
    label = case.name.rpartition(": ")[2].removeprefix("of ")
    parts = case.field.split(".")
    if label not in WITH_CONTROLS or parts[-1] in TAKES_CONTROLS or any(part in _OF_TYPES for part in parts):
        return ""
    return "control characters are taken"


def _flaws(name: str, cases: Iterator[Case], ask: Callable[[bytes], Outcome], target: Target) -> list[str]:
    found = []
    for case in cases:
        outcome = ask(case.body)
        if flaw := (
            flaw_of(outcome)
            or wrong_field(outcome, case, METHODS[name])
            or (outcome.code == "OK" and takes_controls(case))
        ):
            said = f"{outcome.code} {outcome.reason} ({outcome.wrong}) {outcome.message[:300]}"
            found.append(f"{case}: {flaw}: {said}")
        if outcome.code == "OK":
            target.renew(name)
    return found


def _answers(target: Target, name: str) -> Outcome:
    body = target.requests.of(METHODS[name]).SerializeToString()
    outcome = target.grpc.ask(METHODS[name], body, _rest_of_the_stream(METHODS[name]))
    target.renew(name)
    return outcome


def _expected(name: str) -> tuple[str, str]:
    return ("FAILED_PRECONDITION", REFUSED[name]) if name in REFUSED else ("OK", "")


@pytest.mark.parametrize("name", METHODS)
def test_bad_messages_get_typed_errors(target, name):
    method, rest = METHODS[name], _rest_of_the_stream(METHODS[name])
    before = _answers(target, name)
    assert (before.code, before.reason) == _expected(name), before

    cases = islice(bad_messages(method, lambda: target.requests.of(method)), 0, None, STEP)
    assert _flaws(name, cases, lambda body: target.grpc.ask(method, body, rest), target) == []

    after = _answers(target, name)
    assert (after.code, after.reason) == _expected(name), after


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not method.client_streaming])
def test_bad_json_gets_typed_errors(target, name):
    method = METHODS[name]
    target.http.close()  # it opens a connection again; the services may have closed one that was idle
    cases = islice(bad_json(method, lambda: target.requests.of(method)), 0, None, STEP)
    assert _flaws(name, cases, lambda body: target.http.ask(method, body), target) == []
    after = _answers(target, name)
    assert (after.code, after.reason) == _expected(name), after


SQL_FIELDS = {
    f"{name} {'.'.join(field.name for field in path)}": (name, path)
    for name, method in METHODS.items()
    for path in paths(method.input_type)
    if deep_sql.holds_sql(path)
}


_SQL_DEFINITION = {
    "name": "sql",
    "version": "1",
    "kind": "KIND_SQL",
    "input_columns": ["n"],
    "json_output_schema": {"fields": [{"name": "f", "type": _INT64, "nullable": True}]},
}


def _with_sql(target: Target, way: str, text: str) -> bytes:
    name, path = SQL_FIELDS[way]
    request = target.requests.of(METHODS[name])
    if path[0].name == "definition":  # of which the right one has no SQL
        request.definition.Clear()
        json_format.ParseDict(_SQL_DEFINITION, request.definition)
    if path[-1].name == "delete_where":  # which is refused without what it limits
        request.header.delete_not_matched_by_source = True
    put(request, path, {"s": text} if path[-1].message_type is not None else text)
    return request.SerializeToString()


@pytest.mark.parametrize("way", SQL_FIELDS)
def test_sql_that_is_nested_too_deeply_is_refused_on_every_way_in(target, way):
    method = METHODS[SQL_FIELDS[way][0]]
    rest = _rest_of_the_stream(method)
    for kind, text in deep_sql.DEEP.items():
        outcome = target.grpc.ask(method, _with_sql(target, way, text), rest)
        said = (outcome.code, outcome.reason in {"INVALID_FILTER", "INVALID_EXPRESSION"})
        assert said == ("INVALID_ARGUMENT", True), (kind, outcome)
        assert "nested" in outcome.message, (kind, outcome)
    if way.endswith("where"):
        long = deep_sql.LONG.replace("n<>", "target.n<>") if way.endswith("update_where") else deep_sql.LONG
        outcome = target.grpc.ask(method, _with_sql(target, way, long), rest)
        assert outcome.code == "OK", outcome


def test_reads_of_the_sdk_and_of_flight_refuse_sql_that_is_nested_too_deeply(system, target):
    token = str(system.service["token"])
    options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])
    for text in deep_sql.DEEP.values():
        for relation in (target.db.open_table("docs"), target.db.open_view("seen")):
            with pytest.raises(leman.errors.InvalidArgument, match="nested"):
                relation.to_arrow(where=text)
        wanted = {"table": {"database": target.db.uri, "table": "docs"}, "where": text}
        ticket = fl.Ticket(json.dumps(wanted).encode())
        with (
            fl.connect(f"grpc://{system.service['planner']}") as client,
            pytest.raises(pa.ArrowInvalid, match="nested"),
        ):
            client.do_get(ticket, options).read_all()


LONG_IDS = {"long": "j" * 70_000, "wide": "\u2603" * 70_000, "words": "a b " * 20_000, "invisible": "\u200b" * 70_000}


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("JobService.")])
def test_long_ids_and_many_of_them_leave_errors_of_jobs_whole(target, name):
    method = METHODS[name]
    texts = [path for path in paths(method.input_type) if path[-1].name in {"job_id", "tables", "column", "initiator"}]
    for path in texts:
        for kind, text in LONG_IDS.items():
            for value in [text, [text] * 3, ["t"] * 70_000] if path[-1].is_repeated else [text]:
                request = target.requests.of(method)
                put(request, path, value)
                outcome = target.grpc.ask(method, request.SerializeToString())
                assert flaw_of(outcome) == "", (path[-1].name, kind, outcome)


def test_the_corpus_is_large():
    requests = RightRequests({}, {})
    over_grpc, over_http = (
        sum(len(list(cases(method, lambda method=method: requests.of(method)))[::STEP]) for method in METHODS.values())
        for cases in (bad_messages, bad_json)
    )
    assert over_grpc >= LEAST
    assert over_http >= LEAST


def test_no_process_has_died(system, target):
    """The last one: services that end are restarted, and would answer."""
    assert system.service["pids"] == target.pids
