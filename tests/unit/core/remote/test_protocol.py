"""What a server may say, and what is none of it."""

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from leman_core.functions.function_servers import (
    BatchError,
    FunctionDescription,
    ProtocolError,
    parse_description,
    parse_error,
    parse_stream,
    stream_command,
)

INPUTS = pa.schema([("text", pa.string()), ("n", pa.int64())])


def said(**changes: Any) -> bytes:
    output = pa.schema([("value", pa.int8())])
    told = {"function": "embed", "version": "1", "inputs": text(INPUTS), "output": text(output)}
    return json.dumps({**told, **changes}).encode()


def text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def test_a_description_is_read():
    expected = FunctionDescription("embed", "1", INPUTS, pa.int8())
    assert parse_description(said()) == expected
    assert parse_description(said(description="more", added="later")) == expected
    assert expected.input_types == (pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a JSON object"),
        (said(function=""), "'function' is missing"),
        (said(version=1), "'version' is missing, empty or not a string"),
        (said(inputs="!"), "'inputs' is not an Arrow schema in base64"),
        (said(output=base64.b64encode(b"x").decode()), "'output' is not an Arrow schema in base64"),
        (said(output=text(INPUTS)), "'output' has 2 fields, not one"),
        (said(output=text(pa.schema([("value", pa.null())]))), "of type null"),
        (said(inputs=text(pa.schema([("x", pa.int8()), ("x", pa.int8())]))), "the same name"),
        (said(version="\ud800"), "'version' is not 1 to 128 letters"),
        (b"[" * 200_000, "not JSON"),
    ],
)
def test_what_is_no_description_is_refused(body, told):
    with pytest.raises(ProtocolError, match=told):
        parse_description(body)


def test_an_error_is_read():
    told = {"type": "a.B", "message": "m", "traceback": "t", "bases": ["C"]}
    assert parse_error(json.dumps({"error": told}).encode()) == BatchError("a.B", ("C",), "m", "t")
    assert parse_error(b'{"error": {"type": "E"}}') == BatchError("E", (), "", "")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"error": "x"}', b'{"error": {}}', b"[" * 200_000])
def test_what_is_no_error_is_refused(body):
    with pytest.raises(ProtocolError):
        parse_error(body)


def test_names_of_errors_can_be_stored_and_shown():
    told = {"type": "\ud800\x1b[2J" + "x" * 10_000_000, "bases": ["a\n", *["b"] * 1000]}
    found = parse_error(json.dumps({"error": told}).encode())
    assert found.kind.startswith("??[2Jxxx")
    assert len(found.kind) <= 200
    assert (found.bases[0], len(found.bases)) == ("a?", 64)


def test_a_stream_tells_its_function_and_version():
    named = {"leman.function": "f", "leman.version": "1"}
    assert parse_stream(pa.schema([("value", pa.int8())], named)) == ("f", "1")
    for wrong in ({}, {"leman.function": "f"}, {**named, "leman.version": b"\xff\xfe"}):
        with pytest.raises(ProtocolError, match="a stream's"):
            parse_stream(pa.schema([("value", pa.int8())], wrong))
    with pytest.raises(ProtocolError, match="one column"):
        parse_stream(pa.schema([], named))


def test_a_stream_begins_with_the_function_and_its_version():
    assert json.loads(stream_command("embed", "1")) == {
        "protocol": "leman.function.v1",
        "function": "embed",
        "version": "1",
    }
