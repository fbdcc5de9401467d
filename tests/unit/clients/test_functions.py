"""A server of functions, as any Flight client meets it."""

import base64
import errno
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import flight

import leman
from leman import functions
from leman.errors import InvalidArgument, UdfDefinitionError
from leman.functions import FunctionServer, served

INT = [pa.int64()]
DESCRIBE = "leman.function.v1.describe"


@leman.udf
def half(x: int) -> float:
    if x == 13:
        raise LookupError("thirteen")
    return x / 2


@leman.udf(data_type=pa.int64(), version="2", input_columns=["a", "b"])
def total(batch: pa.RecordBatch) -> list[int]:
    return [a + b for a, b in zip(batch["a"].to_pylist(), batch["b"].to_pylist(), strict=True)]


@leman.udf(data_type=pa.string())
def short(text: pa.StringArray) -> pa.Array:
    return text.slice(0, len(text) - 1)


@leman.udf(data_type=pa.int64())
def rough(x: int) -> Any:
    return x / 2


@leman.udf
class Adder:
    def __init__(self, by: int = 5) -> None:
        self.by = by

    def __call__(self, x: int) -> int:
        return x + self.by


@pytest.fixture(scope="module")
def server() -> Iterator[FunctionServer]:
    functions = [
        half,
        served(total, input_types=[pa.int64(), pa.int64()], description="a and b"),
        short,
        Adder(7),
        rough,
    ]
    with FunctionServer(functions, port=0) as running:
        yield running


@pytest.fixture
def client(server: FunctionServer) -> Iterator[flight.FlightClient]:
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as made:
        yield made


def descriptor(name: str, version: str, protocol: str = "leman.function.v1") -> flight.FlightDescriptor:
    asked = {"protocol": protocol, "function": name, "version": version}
    return flight.FlightDescriptor.for_command(json.dumps(asked))


def column(*values: Any) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values)], names=["any"])


def exchanged(client: flight.FlightClient, udf: Any, *batches: pa.RecordBatch) -> list[Any]:
    """The values, or the error, for each batch."""
    writer, reader = client.do_exchange(descriptor(udf.name, udf.version))
    with writer:
        writer.begin(batches[0].schema)
        assert reader.schema.names == ["value"]
        assert reader.schema.metadata[b"leman.version"].decode() == udf.version
        answers = []
        for batch in batches:
            writer.write_batch(batch)
            answers.append(reader.read_chunk())
        writer.done_writing()
        with pytest.raises(StopIteration):
            reader.read_chunk()
    return [
        chunk.data["value"].to_pylist()
        if chunk.data is not None
        else json.loads(chunk.app_metadata.to_pybytes())["error"]
        for chunk in answers
    ]


def test_functions_are_described(client):
    described = [json.loads(result.body.to_pybytes()) for result in client.do_action(flight.Action(DESCRIBE, b""))]
    assert [each["function"] for each in described] == ["half", "total", "short", "Adder", "rough"]
    assert described[0]["version"] == half.version
    assert (described[1]["version"], described[1]["description"]) == ("2", "a and b")
    inputs = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described[1]["inputs"])))
    output = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described[1]["output"])))
    assert inputs == pa.schema([("a", pa.int64()), ("b", pa.int64())])
    assert output == pa.schema([("value", pa.int64())])
    assert [action.type for action in client.list_actions()] == [DESCRIBE]


def test_each_kind_of_function_is_called_with_batches(client):
    assert exchanged(client, half, column(1, 2), column(3)) == [[0.5, 1.0], [1.5]]
    pairs = pa.record_batch([pa.array([1, 2]), pa.array([10, 20])], names=["x", "y"])
    assert exchanged(client, total, pairs) == [[11, 22]]
    assert exchanged(client, Adder(7), column(1)) == [[8]]
    assert exchanged(client, half, column(1).slice(0, 0)) == [[]]
    assert "1.5" in exchanged(client, rough, column(3))[0]["message"]  # which is no integer


def test_an_error_is_told_and_the_stream_goes_on(client):
    error, after = exchanged(client, half, column(13), column(2))
    assert (error["type"], error["bases"], error["message"]) == ("LookupError", [], "thirteen")
    assert "in half" in error["traceback"]
    assert after == [1.0]
    assert "returned 1 values for 2 rows" in exchanged(client, short, column("a", "b"))[0]["message"]


@pytest.mark.parametrize(
    ("asked", "batch", "kind", "told"),
    [
        (descriptor("none", "1"), column(1), pa.ArrowKeyError, "there are half, total"),
        (descriptor("total", "1"), column(1), pa.ArrowInvalid, "has version 2 here, not 1"),
        (descriptor("total", "2"), column(1), pa.ArrowInvalid, "reads int64, int64, and is sent int64"),
        (descriptor("total", "2", "other.v1"), column(1), pa.ArrowInvalid, "the protocol is leman.function.v1"),
        (flight.FlightDescriptor.for_command(b"total"), column(1), pa.ArrowInvalid, "not JSON of leman.function.v1"),
        (flight.FlightDescriptor.for_path("total"), column(1), pa.ArrowInvalid, "not JSON of leman.function.v1"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_answer(client, asked, batch, kind, told):
    writer, reader = client.do_exchange(asked)

    def begin() -> None:  # it is refused before the schema is sent, or after
        writer.begin(batch.schema)
        _ = reader.schema

    with pytest.raises(kind, match=told):
        begin()


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_a_batch_that_is_large_once_it_is_decompressed_is_refused(client, monkeypatch, compression):
    monkeypatch.setattr(functions, "MOST_BATCH_BYTES", 1 << 20)
    writer, reader = client.do_exchange(descriptor("half", half.version))
    writer.begin(pa.schema([("x", pa.int64())]), options=pa.ipc.IpcWriteOptions(compression=compression))
    for rows in (1 << 10, (1 << 17) + 1):
        writer.write_batch(pa.record_batch([pa.array([0] * rows, pa.int64())], names=["x"]))
    assert reader.read_chunk().data.num_rows == 1 << 10
    with pytest.raises(
        pa.ArrowInvalid, match="1048584 bytes decompressed, and at most 1048576 are accepted: send fewer rows"
    ):
        reader.read_chunk()
    with pytest.raises(pa.ArrowInvalid):
        writer.close()


def test_there_is_no_other_action(client):
    with pytest.raises(pa.ArrowNotImplementedError, match="there is no action 'other'"):
        list(client.do_action(flight.Action("other", b"")))


def test_a_stream_ends_after_its_batch_when_the_server_stops():
    begun, go_on = threading.Event(), threading.Event()

    def wait(x: int) -> int:
        begun.set()
        go_on.wait(30)
        return x

    server = FunctionServer([leman.udf(version="1")(wait)], port=0)
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client:
        writer, reader = client.do_exchange(descriptor("wait", "1"))
        writer.begin(column(1).schema)
        for number in (1, 2):
            writer.write_batch(column(number))
        assert begun.wait(30)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while not server._listener._flight.stopping.is_set():
            pass
        go_on.set()
        assert reader.read_chunk().data["value"].to_pylist() == [1]
        with pytest.raises(flight.FlightUnavailableError, match="stopping"):
            reader.read_chunk()
        stopping.join()


def test_a_server_ends_although_a_caller_sends_nothing():
    server = FunctionServer([half], port=0)
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client:
        writer, reader = client.do_exchange(descriptor("half", half.version))
        writer.begin(column(1).schema)
        assert reader.schema.names == ["value"]
        assert server.stop()
        with pytest.raises(flight.FlightUnavailableError):
            reader.read_chunk()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_a_place_where_nobody_can_listen_is_named(host):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on {host}:{port}: .*give another port") as caught:
            FunctionServer([half], host=host, port=port)
    assert caught.value.errno == (errno.EADDRINUSE if host == "127.0.0.1" else errno.EADDRNOTAVAIL)


def test_callers_without_the_token_are_refused():
    with FunctionServer([half], port=0, token="sesame") as server:
        for headers in ([], [(b"authorization", b"Bearer other")]):
            refused = pytest.raises(flight.FlightUnauthenticatedError)
            with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client, refused:
                list(client.do_action(flight.Action(DESCRIBE, b""), flight.FlightCallOptions(headers=headers)))
        with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as client:
            options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer sesame")])
            assert len(list(client.do_action(flight.Action(DESCRIBE, b""), options))) == 1


@pytest.mark.parametrize("token", [0, 5, False, [], b"sesame", "", "se same", "sesamé", "sesame\n"])
def test_what_is_no_token_makes_no_server(token: Any):
    with pytest.raises(InvalidArgument, match="token") as refused:
        FunctionServer([half], port=0, token=token)
    assert "esam" not in refused.value.message


@pytest.mark.parametrize(
    ("functions", "options", "told"),
    [
        ([half], {"port": "x"}, "^port is an int .*not 'x'"),
        ([half], {"port": 70_000}, "^port is an int from 0 .*not 70000"),
        ([half], {"port": -1}, "^port is an int from 0 .*not -1"),
        ([half], {"port": True}, "^port is an int .*not True"),
        ([half], {"port": None}, "^port is an int .*not None"),
        ([half], {"host": 1}, "^host is a str, not a int"),
        ([], {}, "^functions is empty"),
        (half, {}, "^functions is a list of functions, not a UDF"),
        (None, {}, "^functions is a list of functions, not a NoneType"),
        ([len], {}, "^'len' was not made by leman.udf"),
        ([5], {}, "^a int was not made by leman.udf"),
    ],
)
def test_arguments_that_make_no_server_are_named(functions: Any, options: dict[str, Any], told: str):
    with pytest.raises(InvalidArgument, match=told):
        FunctionServer(functions, **{"port": 0, **options})


def test_a_function_has_to_say_what_it_reads():
    with pytest.raises(UdfDefinitionError, match="does not say which Arrow types it reads"):
        FunctionServer([total], port=0)
    with pytest.raises(UdfDefinitionError, match="one for each of"):
        served(total, input_types=[pa.int64()])
    with pytest.raises(UdfDefinitionError, match="two functions have the same name"):
        FunctionServer([half, half], port=0)


def test_an_object_that_a_function_fills_again_is_answered_as_each_call_returned_it():
    filled = [0.0, 0.0]

    @leman.udf(data_type=pa.list_(pa.float32(), 2))
    def pair(x: int) -> list:
        filled[:] = [float(x), 10.0 * x]
        return filled

    answer = served(pair).call(pa.record_batch({"x": [1, 2, 3]}))
    assert answer.to_pylist() == [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]


def test_memory_that_a_batch_function_fills_again_does_not_change_an_answer():
    buffer = np.zeros(2, np.float32)

    @leman.udf(data_type=pa.float32())
    def same(x: pa.Array) -> pa.Array:
        return pa.array(np.add(x.to_numpy(), 0, out=buffer[: len(x)], casting="unsafe"))

    function = served(same, input_types=[pa.int64()])
    answers = [function.call(pa.record_batch({"x": [n]})) for n in (1, 2, 3)]
    assert [answer.to_pylist() for answer in answers] == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (lambda x: pd.Series([1.0, 2.0], index=[1, 0]), [[1.0, 2.0]]),
        (lambda x: (float(n) for n in (1, 2)), [[1.0, 2.0]]),
        (lambda x: np.ma.masked_array([1.0, 2.0], [False, True]), [[1.0, None]]),
        (lambda x: {1.0, 2.0}, "a set is not a list, as its items have no order"),
        (lambda x: {1.0: 2.0}, "a dict is not a list"),
        (lambda x: pd.DataFrame({"1": [1.0]}), "a DataFrame is not a list, as it has columns"),
    ],
)
def test_the_items_of_a_list_are_answered_by_their_position(made: Any, answer: Any):
    function = served(leman.udf(name="f", data_type=pa.list_(pa.float64()), input_columns=["x"])(made), input_types=INT)
    if isinstance(answer, list):
        assert function.call(pa.record_batch({"x": [1]})).to_pylist() == answer
    else:
        with pytest.raises(TypeError, match=answer):
            function.call(pa.record_batch({"x": [1]}))


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        (lambda x: pd.Series(["a", "b"], index=[1, 0]), ["a", "b"]),
        (lambda x: iter("ab"), ["a", "b"]),
        (lambda x: pd.DataFrame({"a": ["x", "y"], "b": ["x", "y"]}), "a DataFrame, which has columns"),
        (lambda x: pa.table({"a": ["x", "y"], "b": ["x", "y"]}), "a Table, which has columns"),
        (lambda x: {"a", "b"}, "a set, whose values have no order"),
        (lambda x: {"a": 1, "b": 2}, "a dict, not one value for each row"),
        (lambda x: "ab", "a str, not one value for each row"),
        (lambda x: None, "None, not one value for each row"),
    ],
)
def test_the_values_of_a_batch_are_answered_by_their_position(made: Any, answer: Any):
    def f(x: pa.Array) -> pa.Array:
        return made(x)

    function = served(leman.udf(data_type=pa.string())(f), input_types=INT)
    if isinstance(answer, list):
        assert function.call(pa.record_batch({"x": [1, 2]})).to_pylist() == answer
    else:
        with pytest.raises(TypeError, match=answer):
            function.call(pa.record_batch({"x": [1, 2]}))


def test_a_number_that_would_become_infinite_is_an_error():
    @leman.udf(data_type=pa.float32())
    def large(x: int) -> float:
        return 3.4028235677973366e38

    with pytest.raises(ValueError, match="too large for float"):
        served(large).call(pa.record_batch({"x": [1]}))
