"""A function server for tests: a process, as they may be killed, that writes down which rows it is at work on.

    python -m tests.integration.remote_functions.slow_server --port 0 --log FILE [--version 1] [--respawn]

`slowly` gives its values back after a millisecond for each; it ends its process on -666. With `--respawn` another one
takes the place of a process that has ended, on the same port.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pyarrow as pa

import leman
from leman.functions import FunctionServer, served

DEADLY = -666


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--version", default="1")
    parser.add_argument("--respawn", action="store_true")
    options = parser.parse_args()
    port = options.port or _free_port()
    pa.array([])  # imports pandas, which takes seconds: once, and not in each process
    while options.respawn:
        child = os.fork()
        if not child:
            break
        os.waitpid(child, 0)
    _serve(port, options.log, options.version)


def _serve(port: int, log: Path, version: str) -> None:
    @leman.udf(data_type=pa.int64(), version=version, input_columns=["x"])
    def slowly(batch: pa.RecordBatch) -> pa.Array:
        values = batch.column(0)
        with log.open("a") as file:
            file.write(f"{os.getpid()} {' '.join(map(str, values.to_pylist()))}\n")
        if DEADLY in values.to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(len(values) / 1000)
        return values

    with FunctionServer([served(slowly, input_types=[pa.int64()])], port=port):
        sys.stdout.write(json.dumps({"port": port}) + "\n")  # it serves: who registers it does not wait
        sys.stdout.flush()
        signal.pause()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
