"""Serves functions to Leman from a process of its own (docs/remote_functions.md), and prints one line with its port.

    python clients/python/examples/function_server.py --port 7815

Then `db.register_remote("double", addresses=["grpc://127.0.0.1:7815"])`, and columns are computed by it. Two of these
functions are there to show what becomes of failures: `fail_on` raises for values below zero, `die` ends its process.
"""

import argparse
import json
import os
import signal
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc

import leman
from leman.functions import FunctionServer, Served, served


@leman.udf(data_type=pa.int64(), input_columns=["x"])
def double(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch.column(0), 2)


@leman.udf(data_type=pa.string())
def upper(text: pa.StringArray) -> pa.Array:
    return pc.utf8_upper(text)


@leman.udf(data_type=pa.list_(pa.float32(), 2))
def vector(x: int | None) -> list[float] | None:
    return None if x is None else [x, -x]


@leman.udf(data_type=pa.struct([("n", pa.int64()), ("text", pa.string())]))
def described(x: int | None) -> dict[str, object] | None:
    return None if x is None else {"n": x, "text": None if x % 2 else str(x)}


@leman.udf
def fail_on(x: int) -> int:
    if x < 0:
        raise ValueError(f"{x} is below zero")
    return x


@leman.udf
def slow(milliseconds: int) -> int:
    time.sleep(milliseconds / 1000)
    return milliseconds


@leman.udf
def die(x: int) -> int:
    if x == 666:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=7815, help="0: any free one")
    parser.add_argument("--token", help="what callers have to send; without, nothing")
    parser.add_argument("--cert", default="", help="certificate (PEM); with --key it turns TLS on")
    parser.add_argument("--key", default="", help="its private key (PEM)")
    options = parser.parse_args()
    asked_to_end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.set())
    functions: list[leman.UDF | Served] = [
        *(served(double, input_types=[pa.int64()]), upper, vector, described),
        *(fail_on, slow, die),
    ]
    with FunctionServer(
        functions, port=options.port, token=options.token, tls_cert=options.cert, tls_key=options.key
    ) as server:
        print(json.dumps({"port": server.port}), flush=True)
        asked_to_end.wait()


if __name__ == "__main__":
    main()
