"""Definitions of remote functions, and the addresses that they may name."""

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

from leman._format import stored_functions
from leman._format.stored_functions import RemoteFunction, UdfDefinition, UdfKind
from leman_core.functions import function_definitions
from leman_core.functions.function_definitions import FunctionPolicy, check_definition
from leman_core.model.service_errors import InvalidArgument, PermissionDenied
from leman_core.process.addresses import matches_any, parse_address, parse_pattern
from leman_core.wire import convert_udfs

REMOTE = RemoteFunction(("grpc://127.0.0.1:7815", "grpc+tls://features.internal:7443"), "embed")
UDF = UdfDefinition(
    "embed", "3f9c", UdfKind.REMOTE, ("text",), pa.list_(pa.float32(), 4), (pa.string(),), remote=REMOTE
)


def other(**changes: Any) -> UdfDefinition:
    return dataclasses.replace(UDF, **changes)


def with_addresses(*addresses: str) -> UdfDefinition:
    return other(remote=RemoteFunction(addresses, "embed"))


def test_a_definition_is_the_same_after_its_ways_through_a_file_and_a_message():
    check_definition(UDF)
    assert function_definitions.decode_definition(stored_functions.encode_definition(UDF, 1.0), "f") == (UDF, 1.0)
    assert convert_udfs.udf_from_proto(convert_udfs.udf_to_proto(UDF)) == UDF


def test_definitions_of_other_functions_are_written_as_before():
    local = other(kind=UdfKind.ARRAY, remote=None, entrypoint="m:f")
    assert b"remote" not in stored_functions.encode_definition(local, 1.0)
    assert function_definitions.decode_definition(stored_functions.encode_definition(local, 1.0), "f") == (
        local,
        1.0,
    )


def test_by_itself_a_server_calls_a_function_as_it_is_named_here():
    message = convert_udfs.udf_to_proto(UDF)
    message.remote_function.function = ""
    assert convert_udfs.udf_from_proto(message).remote == REMOTE


@pytest.mark.parametrize(
    ("udf", "field"),
    [
        (other(remote=None, entrypoint="m:f"), "remote_function"),
        (other(kind=UdfKind.ARRAY), "remote_function"),
        (other(entrypoint="m:f"), "remote_function"),
        (other(stateful=True), "kind"),
        (other(output_type=pa.large_binary(), blob=True), "kind"),
        (other(input_types=()), "input_schema"),
        (other(input_types=(None,)), "input_schema"),
        (other(remote=RemoteFunction((), "embed")), "remote_function.addresses"),
        (with_addresses(*(f"grpc://h:{port}" for port in range(1, 66))), "remote_function.addresses"),
        (other(remote=RemoteFunction(REMOTE.addresses, "a b")), "remote_function.function"),
        (other(input_columns=(), input_types=()), "input_columns"),
    ],
)
def test_what_contradicts_itself_is_refused(udf: UdfDefinition, field: str):
    with pytest.raises(InvalidArgument) as caught:
        check_definition(udf)
    assert (caught.value.reason, caught.value.field) == ("BAD_UDF", f"definition.{field}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "features:7443", "http://features:7443", "grpc://features", "grpc://features:0", "grpc://features:65536"),
        *("grpc://:7815", "grpc://a@b:7815", "grpc://a:1/path", "grpc://*:7815", "grpc://a:*", "grpc+unix:///tmp/s"),
    ],
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(InvalidArgument) as caught:
        check_definition(with_addresses(text))
    assert caught.value.field == "definition.remote_function.addresses"


def test_addresses_know_this_machine_and_tls():
    near = [parse_address(text).loopback for text in ("grpc://127.0.0.1:1", "grpc://[::1]:1", "grpc://LOCALHOST:1")]
    far = [parse_address(text).loopback for text in ("grpc://10.0.0.1:1", "grpc://127.0.0.1.evil.example:1")]
    assert (near, far) == ([True] * 3, [False] * 2)
    assert parse_address("grpc+tls://a:1").tls
    assert not parse_address("grpc://a:1").tls


@pytest.mark.parametrize(
    ("pattern", "address", "means"),
    [
        ("grpc+tls://features.internal:7443", "grpc+tls://features.internal:7443", True),
        ("grpc+tls://*.internal:*", "grpc+tls://features.internal:7443", True),
        ("grpc+tls://*.internal:7443", "grpc+tls://features.internal:7444", False),
        ("grpc+tls://*.internal:*", "grpc://features.internal:7443", False),
        ("grpc+tls://*.internal:*", "grpc+tls://features.internal.evil.example:7443", False),
        ("grpc+tls://*.internal:*", "grpc+tls://featuresxinternal:7443", False),
    ],
)
def test_patterns_mean_addresses(pattern: str, address: str, means: bool):
    assert matches_any(parse_address(address), [parse_pattern(pattern)]) is means


def test_what_is_no_pattern_is_refused():
    with pytest.raises(ValueError, match="not a pattern of addresses"):
        parse_pattern("features.internal")


def test_a_policy_without_remote_functions_refuses_them():
    with pytest.raises(PermissionDenied) as caught:
        FunctionPolicy(("scalar", "array", "record_batch", "sql", "pickled", "entrypoint")).check(UDF)
    assert caught.value.reason == "UDF_NOT_ALLOWED"
    FunctionPolicy(("remote",), remote_addresses=("grpc+tls://*.internal:*", "grpc://127.0.0.1:*")).check(UDF)


def test_servers_elsewhere_have_to_be_listed():
    near = with_addresses("grpc://localhost:1", "grpc+tls://[::1]:2")
    FunctionPolicy().check(near)
    for policy in (FunctionPolicy(), FunctionPolicy(remote_addresses=("grpc://127.0.0.1:7815",))):
        with pytest.raises(PermissionDenied, match=r"what is served at 'grpc\+tls://features.internal:7443'") as caught:
            policy.check(UDF)
        assert caught.value.facts["setting"] == "LEMAN_UDF__REMOTE_ADDRESSES"
    with pytest.raises(PermissionDenied):  # where some are listed, those of this machine have to be, too
        FunctionPolicy(remote_addresses=("grpc+tls://*:*",)).check(with_addresses("grpc://localhost:1"))
