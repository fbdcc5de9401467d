"""Registering remote functions: what their servers say takes the place of what is left out, and has to be one thing."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import leman
from leman._format.stored_functions import ErrorAction, ErrorPolicy, ErrorRule, RemoteFunction, UdfDefinition, UdfKind
from leman.functions import FunctionServer
from leman.v1 import udf_pb2
from leman_core.functions import function_servers
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.model.service_errors import (
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from leman_core.model.work import ServerAccess
from leman_core.server.callers import CURRENT, make_caller
from leman_core.storage.udf_registry import UdfRegistry
from leman_core.wire import convert_udfs
from leman_planner.catalog.function_catalog import Registrations


@contextlib.contextmanager
def an_editor() -> Iterator[None]:
    """The call that is answered is one of an editor's, who may not send code."""
    token = CURRENT.set(make_caller("ada", "token", ["editor"]))
    yield
    CURRENT.reset(token)


def length(text: str) -> int:
    return len(text)


def length_of_bytes(text: bytes) -> int:
    return len(text)


def served(version: str = "1", function: Any = length) -> FunctionServer:
    return FunctionServer([leman.udf(name="length", version=version)(function)], port=0)


def nowhere() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"grpc://127.0.0.1:{free.getsockname()[1]}"


def at(*servers: FunctionServer | str) -> tuple[str, ...]:
    return tuple(s if isinstance(s, str) else f"grpc://127.0.0.1:{s.port}" for s in servers)


@pytest.fixture(scope="module")
def server() -> Iterator[FunctionServer]:
    with served() as running:
        yield running


@pytest.fixture
def registry(tmp_path) -> UdfRegistry:
    return UdfRegistry(str(tmp_path))


def registered(
    registry: UdfRegistry, *servers: FunctionServer | str, policy: FunctionPolicy | None = None, **given: Any
):
    """As CatalogService does it."""
    registrations = Registrations(lambda _: registry, policy or FunctionPolicy())
    remote = udf_pb2.RemoteFunction(addresses=at(*servers), function=given.pop("function", ""))
    message = udf_pb2.UdfDefinition(
        **{"name": "length", "kind": udf_pb2.UdfDefinition.KIND_REMOTE, "remote_function": remote, **given}
    )
    asked = convert_udfs.remote_from_proto(message)
    assert asked is not None
    udf = convert_udfs.udf_from_proto(message, registrations.described(asked)[0])
    return udf, registrations.put("", udf, b"")


def refusal(registry: UdfRegistry, *servers: FunctionServer | str, **given: Any) -> LemanError:
    with pytest.raises(LemanError) as caught:
        registered(registry, *servers, **given)
    return caught.value


def test_what_is_left_out_is_the_servers_to_say(registry, server):
    udf, created = registered(registry, server)
    remote = RemoteFunction(at(server), "length")
    expected = UdfDefinition("length", "1", UdfKind.REMOTE, ("text",), pa.int64(), (pa.string(),), remote=remote)
    assert (udf, created, registry.get("length")) == (expected, True, expected)
    assert registered(registry, server) == (expected, False)


def test_names_of_columns_and_of_the_function_are_the_caller_s(registry, server):
    udf, _ = registered(registry, server, name="long", function="length", input_columns=["body"], version="1")
    assert (udf.name, udf.input_columns, udf.input_types) == ("long", ("body",), (pa.string(),))


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("n >", "Expected"),
        ("n > 1_000", "_000"),
        ("n > 1.2.3", ".3"),
        ("n as x", "as"),
        ("n + 1 limit 1", "limit"),
        ("no_such_function(n)", "no_such_function"),
        ("case when n > 0 then n n else 0 end", "n"),
        ("case n when 1 then 2 3 end", "3"),
        ("arrow_cast(n, 'Foo')", "Foo"),
        ("n in (select 1)", "not supported"),
        ("regexp_like(n, '(')", "regular expression"),
        ("date_trunc('bogus', n)", "'bogus'"),
    ],
)
def test_sql_that_no_table_can_compute_is_not_registered(registry, expression, said):
    udf = UdfDefinition("f", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression=expression)
    with pytest.raises(InvalidArgument) as caught:
        Registrations(lambda _: registry, FunctionPolicy()).put("", udf, b"")
    assert (caught.value.reason, caught.value.field) == ("INVALID_EXPRESSION", "sql_expression")
    assert said in caught.value.message
    assert registry.list() == []


@pytest.mark.parametrize("expression", ["n + other", "case when n > 0 then other end", "length(n) > other.a"])
def test_sql_that_reads_another_column_is_not_registered(registry, expression):
    udf = UdfDefinition("f", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression=expression)
    with pytest.raises(InvalidArgument, match=r"exactly the columns .*: \['n', 'other'\], not \['n'\]") as caught:
        Registrations(lambda _: registry, FunctionPolicy()).put("", udf, b"")
    assert (caught.value.reason, caught.value.field) == ("BAD_UDF", "definition.input_columns")
    assert registry.list() == []


@pytest.mark.parametrize(
    "expression",
    [
        "n * 2",
        "upper(n)",
        "n['a'].b[1] || 'x'",
        "get_field(n, 'a') + 1",
        "case when n like 'a%' then upper(n) else case n when 'b' then 'c' end end",
        "cast(n as date) > date '2024-01-01' and n between '2024-01-01' and '2024-02-01'",
        "array_length(n) > 2 and array_contains(n, 'x')",
        "json_extract(n, '$.a')",
        "regexp_like(n, '^a') or not n",
    ],
)
def test_sql_over_columns_of_any_type_is_registered(registry, expression):
    udf = UdfDefinition("f", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression=expression)
    assert Registrations(lambda _: registry, FunctionPolicy()).put("", udf, b"")


def test_addresses_may_change_under_a_version(registry, server):
    registered(registry, server)
    with served() as other:
        udf, created = registered(registry, other, server)
        assert created is False
        assert registry.get("length", "1").remote == udf.remote == RemoteFunction(at(other, server), "length")
    with served(function=length_of_bytes) as other:
        assert refusal(registry, other).reason == "UDF_EXISTS"


def test_what_its_servers_call_it_may_not_change_under_a_version(registry):
    """Two functions of one program have its version: rows would have values of both."""
    named = [leman.udf(name=name, version="1")(length) for name in ("length", "other")]
    with FunctionServer(named, port=0) as both:
        registered(registry, both)
        assert refusal(registry, both, function="other").reason == "UDF_EXISTS"


def test_a_server_that_says_what_it_was_sent_does_not_pass_on_the_token():
    error = flight.FlightUnauthenticatedError("you sent Bearer SECRET")
    assert function_servers.short_error_text(error, ServerAccess("grpc://a:1", token="SECRET")) == "you sent Bearer ***"


@pytest.mark.parametrize(
    "resolved", ["ipv4:10.1.2.3:7443", "ipv6:%5B2001:db8::7%5D:7443", "ipv6:[fe80::1%25eth0]:7443"]
)
def test_what_an_address_was_resolved_to_is_not_told(resolved):
    said = "failed to connect to all addresses; last error: UNKNOWN: {}: Failed to connect to remote host"
    access = ServerAccess("grpc://features.internal:7443")
    error = flight.FlightUnavailableError(said.format(resolved))
    assert function_servers.short_error_text(error, access) == said.format("grpc://features.internal:7443")


def test_one_server_that_answers_is_enough(registry, server):
    udf, _ = registered(registry, nowhere(), server)
    assert udf.version == "1"


def test_no_server_that_answers_is_not(registry):
    error = refusal(registry, nowhere(), nowhere())
    assert isinstance(error, Unavailable)
    assert error.reason == "FUNCTION_UNAVAILABLE"


def test_a_server_that_tls_keeps_away_is_told_and_ends_nothing_where_another_one_answers(registry, server):
    """A certificate that does not verify was waited for, as if it were a server that comes back."""
    without_tls = f"grpc+tls://127.0.0.1:{server.port}"
    error = refusal(registry, without_tls, nowhere())
    assert (type(error), error.reason) == (FailedPrecondition, "FUNCTION_TLS_FAILED")
    assert f"register the function at grpc://127.0.0.1:{server.port}" in error.message
    described, warnings = Registrations(lambda _: registry, FunctionPolicy()).described(
        RemoteFunction((without_tls, *at(server)), "length")
    )
    assert described.version == "1"
    assert [without_tls in text for text in warnings] == [True]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"version": "2"}, "FUNCTION_VERSION_MISMATCH"),
        ({"input_columns": ["a", "b"]}, "FUNCTION_SIGNATURE_MISMATCH"),
        ({"input_schema": pa.schema([("a", pa.int8())]).serialize().to_pybytes()}, "FUNCTION_SIGNATURE_MISMATCH"),
        ({"output_schema": pa.schema([("a", pa.int8())]).serialize().to_pybytes()}, "FUNCTION_SIGNATURE_MISMATCH"),
    ],
)
def test_what_is_said_has_to_be_what_the_servers_say(registry, server, given, reason):
    error = refusal(registry, server, **given)
    assert isinstance(error, FailedPrecondition)
    assert (error.reason, registry.list()) == (reason, [])


def test_servers_that_differ_are_refused(registry, server):
    with served(version="2") as newer:
        error = refusal(registry, server, newer)
        assert error.reason == "FUNCTION_VERSION_MISMATCH"
        assert "serves version 2 of function 'length', not 1" in error.message
    with served(function=length_of_bytes) as other:
        assert refusal(registry, server, other).reason == "FUNCTION_SIGNATURE_MISMATCH"


def test_a_function_that_is_not_served_is_not_found(registry, server):
    error = refusal(registry, server, function="width")
    assert isinstance(error, NotFound)
    assert error.message.endswith("has no function 'width'. Its functions: length")


def test_who_may_not_is_refused_before_a_server_hears_of_it(registry):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
        address = f"grpc://127.0.0.1:{listener.getsockname()[1]}"
        for policy in (FunctionPolicy(("sql",)), FunctionPolicy(remote_addresses=("grpc+tls://a:1",))):
            refused = refusal(registry, address, policy=policy)
            assert isinstance(refused, PermissionDenied)
            assert refused.message.startswith("Function length: these services do not run ")
        with an_editor():  # anything may listen on this machine
            assert refusal(registry, address).reason == "ROLE_REQUIRED"
        assert isinstance(refusal(registry, "features"), InvalidArgument)
        listener.settimeout(0)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_listed_address_takes_no_right_to_send_code(registry, server):
    with an_editor():
        registered(registry, server, policy=FunctionPolicy(remote_addresses=("grpc://127.0.0.1:*",)))


@pytest.mark.parametrize(
    "fields", [{"max_attempts": 5}, {"initial_backoff_seconds": 1.0}, {"max_backoff_seconds": 9.0}]
)
def test_a_rule_that_does_not_retry_has_no_attempts(tmp_path, fields):
    rules = (ErrorRule(ErrorAction.SKIP, ("ValueError",), "x"), ErrorRule(ErrorAction.FAIL, **fields))
    sql = UdfDefinition("plus", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression="n + 1")
    registry = UdfRegistry(str(tmp_path))
    with pytest.raises(InvalidArgument, match="that does not retry: leave them out") as caught:
        registry.check_new(replace(sql, error_policy=ErrorPolicy(rules)))
    assert (caught.value.reason, caught.value.field) == ("BAD_UDF", "definition.error_policy.rules")
    registry.check_new(replace(sql, error_policy=ErrorPolicy(rules[:1])))


def test_a_bundle_beside_a_function_that_is_no_pickled_one_is_refused(tmp_path):
    registry = UdfRegistry(str(tmp_path))
    sql = UdfDefinition("plus", "1", UdfKind.SQL, ("n",), pa.int64(), sql_expression="n + 1")
    registrations = Registrations(lambda _: registry, FunctionPolicy())
    with pytest.raises(InvalidArgument, match="leave it out") as caught:
        registrations.put("", sql, b"bundle")
    assert (caught.value.reason, caught.value.field) == ("BAD_UDF", "bundle")
    assert registrations.put("", sql, b"")
