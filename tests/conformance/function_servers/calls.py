"""Calls of function servers by `pyarrow.flight`, as it is."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import flight

PROTOCOL = "leman.function.v1"
INT64 = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class Function:
    """What a server says of a function."""

    name: str
    version: str
    inputs: pa.Schema
    output: pa.Schema


def described(client: flight.FlightClient, options: flight.FlightCallOptions | None = None) -> dict[str, Function]:
    """The functions of a server, by name."""
    results = client.do_action(f"{PROTOCOL}.describe", options)
    told = [json.loads(result.body.to_pybytes()) for result in results]
    return {one["function"]: _function(one) for one in told}


def _function(told: dict[str, Any]) -> Function:
    inputs, output = (
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told[name], validate=True))) for name in ("inputs", "output")
    )
    return Function(told["function"], told["version"], inputs, output)


def batch(*values: Any, of: pa.DataType | None = None) -> pa.RecordBatch:
    """A record batch of one column."""
    return pa.record_batch([pa.array(values, of or pa.int64())], names=["n"])


class Exchange:
    """A stream of batches and answers; one that is left open would hold up the end of its client."""

    opened: ClassVar[list[Exchange]] = []

    def __init__(
        self,
        client: flight.FlightClient,
        function: str,
        version: str,
        schema: pa.Schema = INT64,
        *,
        options: flight.FlightCallOptions | None = None,
        protocol: str = PROTOCOL,
        compression: str | None = None,
    ) -> None:
        command = json.dumps({"protocol": protocol, "function": function, "version": version})
        self.writer, self.reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
        self.schema = schema
        self.opened.append(self)
        self.writer.begin(schema, options=pa.ipc.IpcWriteOptions(compression=compression))

    def send(self, *batches: pa.RecordBatch) -> Exchange:
        """Write batches, under the names that the stream was opened with."""
        for one in batches:
            self.writer.write_batch(pa.RecordBatch.from_arrays(one.columns, schema=self.schema))
        return self

    def receive(self) -> pa.Array | dict[str, str] | None:
        """The next answer: values, or what went wrong; None: there are no more."""
        try:
            chunk = self.reader.read_chunk()
        except StopIteration:
            return None
        if chunk.data is not None:
            assert chunk.data.schema.names == ["value"]
            return chunk.data.column(0)
        told = json.loads(chunk.app_metadata.to_pybytes())
        assert set(told) == {"error"}
        return dict(told["error"])

    def values(self) -> list[Any]:
        """The next answer, which is values."""
        received = self.receive()
        assert isinstance(received, pa.Array), received
        return list(received.to_pylist())

    def end(self) -> list[pa.Array | dict[str, str]]:
        """Write no more, and give the answers that are left."""
        self.writer.done_writing()
        answers = []
        while (answer := self.receive()) is not None:
            answers.append(answer)
        return answers

    def cancel(self) -> None:
        """Go away."""
        self.reader.cancel()
