"""Services of an embedded system that are killed: their supervisor starts others in their place."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import grpc

from leman.v1 import info_pb2, info_pb2_grpc
from tests.conftest import System

#: Seconds that a service may need to be there again.
_PATIENCE = 60.0
_TAIL = 8_000


def pid(system: System, name: str) -> int:
    """The process of a service."""
    return int(system.service["pids"][name])  # type: ignore[index]


def kill(system: System, name: str) -> None:
    """End a service's process at once; its supervisor starts another one."""
    os.kill(pid(system, name), signal.SIGKILL)


def wait_for_another(system: System, token: str, name: str, before: int, patience: float = _PATIENCE) -> None:
    """Wait until a service answers, as another process than `before`."""
    with grpc.insecure_channel(str(system.service[name])) as channel:
        stub, pause = info_pb2_grpc.InfoServiceStub(channel), threading.Event()
        metadata = (("authorization", f"Bearer {token}"),)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with contextlib.suppress(grpc.RpcError):
                answer = stub.GetInfo(info_pb2.GetInfoRequest(), timeout=5, metadata=metadata)
                if answer.pid != before:
                    return
            pause.wait(0.05)
    logs = sorted((Path(str(system.service["home"])) / "logs").glob("*.log"))
    said = "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-_TAIL:]}" for log in logs)
    raise AssertionError(f"{name} did not come back in {patience:.0f} s\n{said}")
