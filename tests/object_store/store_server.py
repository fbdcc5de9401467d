"""An S3-compatible server of its own: SeaweedFS from a wheel, or versitygw. docs/testing.md says which, and why."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

#: The checksum database of Go says what its code is.
MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
#: Where it is; else it is looked for on PATH.
VARIABLE = "VERSITYGW"
BUCKET = "lake"
KEY_ID, SECRET = "AKOFTHETESTS", "the-secret-of-these-tests"
_BUILD_SECONDS = 600
_START_SECONDS = 60.0


@dataclass(frozen=True)
class StoreServer:
    """A server that runs. It checks signatures: who has other credentials is refused."""

    port: int


@dataclass(frozen=True)
class Versitygw:
    """The objects of a bucket are files of a folder."""

    program: str

    def prepare(self, folder: Path, secret: str) -> None:
        """Nothing has to be made."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Return what starts it."""
        return [self.program, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "posix", str(folder)]

    def environment(self, secret: str) -> Mapping[str, str]:
        """Return what it is to know."""
        return {"ROOT_ACCESS_KEY_ID": KEY_ID, "ROOT_SECRET_ACCESS_KEY": secret}


@dataclass(frozen=True)
class Seaweed:
    """Master, volume server, filer and S3 gateway in one process, which tells no one of itself."""

    program: str

    def prepare(self, folder: Path, secret: str) -> None:
        """Write down whom it knows."""
        key = {"accessKey": KEY_ID, "secretKey": secret}
        actions = ["Admin", "Read", "List", "Tagging", "Write"]
        known = {"identities": [{"name": "tests", "credentials": [key], "actions": actions}]}
        (folder / "s3.json").write_text(json.dumps(known))

    def command(self, folder: Path, port: int) -> list[str]:
        """Return what starts it."""
        names = ("master.port", "volume.port", "filer.port")
        inner = [f"-{name}={free}" for name, free in zip(names, _free_ports(3), strict=True)]
        grpc = [f"-{name}.grpc={free}" for name, free in zip((*names, "s3.port"), _free_ports(4), strict=True)]
        return [
            *(self.program, "-logtostderr", "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(*inner, *grpc, f"-s3.port={port}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *("-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-s3.iam=false"),
            *(f"-filer.localSocket={folder / 'filer.sock'}", f"-s3.localSocket={folder / 's3.sock'}"),
            *("-master.telemetry=false", "-master.volumeSizeLimitMB=64", "-volume.max=64"),
        ]

    def environment(self, secret: str) -> Mapping[str, str]:
        """Return what it is to know."""
        return {}


Program = Seaweed | Versitygw


def program(folder: Path, *, thorough: bool) -> Program | None:
    """The server's program; None where there is none.

    Args:
        thorough: prefer versitygw, and build it where there is Go, into a folder; else it is the wheel's.
    """
    seaweed = Path(sys.executable).with_name("weed")
    if seaweed.exists() and not thorough:
        return Seaweed(str(seaweed))
    there = os.environ.get(VARIABLE) or shutil.which("versitygw")
    if not there and thorough and shutil.which("go") is not None:
        there = _built(folder)
    if there:
        return Versitygw(there)
    return Seaweed(str(seaweed)) if seaweed.exists() else None


def _built(folder: Path) -> str:
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-trimpath"}
    built = folder / "versitygw"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at it
        if not built.exists():
            ended = subprocess.run(
                ["go", "install", MODULE], env=environment, capture_output=True, timeout=_BUILD_SECONDS, check=False
            )
            assert ended.returncode == 0, ended.stderr.decode()
    return str(built)


@contextlib.contextmanager
def serving(server: Program, folder: Path, port: int = 0, secret: str = SECRET) -> Iterator[StoreServer]:
    """Run it with one bucket, and kill it; port 0: any free one."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or _free_ports(1)[0]
    server.prepare(folder, secret)
    with (folder.parent / "store.log").open("ab") as log:
        process = subprocess.Popen(
            server.command(folder, port),
            env={"PATH": os.defpath, "HOME": str(folder), **server.environment(secret)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        _wait_for(process, port, secret)
        yield StoreServer(port)
    finally:
        process.kill()
        process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as probes:
        made = [probes.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(probe.getsockname()[1]) for probe in made]


def _wait_for(process: subprocess.Popen[bytes], port: int, secret: str) -> None:
    """Until an object can be written into the bucket, which is made where there is none."""
    deadline, pause = time.monotonic() + _START_SECONDS, threading.Event()
    while True:
        assert process.poll() is None, "the object store ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            files = _files(port, secret)
            files.create_dir(BUCKET)
            with files.open_output_stream(f"{BUCKET}/probe") as probe:
                probe.write(b"written")
            files.delete_file(f"{BUCKET}/probe")
        except OSError:
            if time.monotonic() > deadline:
                raise
            pause.wait(0.05)
        else:
            return


def _files(port: int, secret: str) -> pafs.FileSystem:
    return pafs.S3FileSystem(
        access_key=KEY_ID,
        secret_key=secret,
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
        check_directory_existence_before_creation=True,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
