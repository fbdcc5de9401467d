"""An S3-compatible server of its own: versitygw over a folder. docs/testing.md says why this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The checksum database of Go says what its code is.
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
#: Where it is; else it is looked for on PATH.
VARIABLE = "VERSITYGW"
BUCKET = "lake"
KEY_ID, SECRET = "AKOFTHETESTS", "the-secret-of-these-tests"
_BUILD_SECONDS = 600
_START_SECONDS = 30.0


@dataclass(frozen=True)
class StoreServer:
    """A server that runs. It checks signatures: who has other credentials is refused."""

    port: int
    #: Its buckets are folders here.
    folder: Path


def program(folder: Path, *, build: bool) -> str | None:
    """Its program; None where there is none. With `build` it is built where there is Go, into a folder."""
    there = os.environ.get(VARIABLE) or shutil.which("versitygw")
    if there or not build or shutil.which("go") is None:
        return there
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-trimpath"}
    ended = subprocess.run(
        ["go", "install", MODULE], env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return str(folder / "versitygw")


@contextlib.contextmanager
def serving(command: str, folder: Path, port: int = 0, secret: str = SECRET) -> Iterator[StoreServer]:
    """Run it with one bucket, and end it; port 0: any free one."""
    (folder / BUCKET).mkdir(parents=True, exist_ok=True)
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
    environment = {"PATH": os.defpath, "ROOT_ACCESS_KEY_ID": KEY_ID, "ROOT_SECRET_ACCESS_KEY": secret}
    process = subprocess.Popen(
        [command, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "posix", str(folder)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(process, port)
        yield StoreServer(port, folder)
    finally:
        process.terminate()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
    while True:
        assert process.poll() is None, "the object store ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            pause.wait(0.02)
