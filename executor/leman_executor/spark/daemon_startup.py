"""Prepare the Python processes of Spark and of previews before and after their heavy imports. Standard library only.

This module lets a warm process fork Spark's daemon, shortens the import path, silences workers whose connection Spark
closed, and notifies pyarrow when pandas is imported later. (pyarrow looks for pandas only when pyarrow itself is
imported. If pyarrow has not found pandas, it does not recognize a Series, and treats NaN as a value.)
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

#: The path of the socket at which a daemon is requested (`leman_local.warm_process`).
WARM_PROCESS_VARIABLE = "_LEMAN_WARM_PROCESS"
#: Seconds to wait for the warm process's answer. That process forks within milliseconds or not at all.
_ANSWER_SECONDS = 10.0


def relay_to_warm_process() -> None:
    """Let a warm process fork the daemon, and end this process when that daemon ends.

    Return if that fails; this process must then be the daemon itself. Spark communicates with the daemon through file
    descriptors, which are passed on, and stops the daemon by ending this process.
    """
    file = os.environ.pop(WARM_PROCESS_VARIABLE, None)  # functions must not inherit it
    if not file:
        return
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(file)
            _ask(connection)
            if not connection.recv(1):
                return
        except OSError:
            return
        connection.settimeout(None)
        _wait_for_end(connection)
    os._exit(0)


def _wait_for_end(connection: socket.socket) -> None:
    """Wait until the connection is closed.

    If possible, exec a small program that waits, because an idle Python takes 12 MB.
    """
    program = shutil.which("cat")
    if program is not None:
        os.dup2(connection.fileno(), 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # only the daemon may hold its output open
        with contextlib.suppress(OSError):
            os.execve(program, ["cat"], {})
    with contextlib.suppress(OSError):
        while connection.recv(4096):
            pass


def _ask(connection: socket.socket) -> None:
    request = {"command": sys.argv[1:], "environment": dict(os.environ), "path": sys.path}
    body = json.dumps(request).encode()
    data = struct.pack(">I", len(body)) + body
    sent = socket.send_fds(connection, [data], [0, 1, 2])
    connection.sendall(data[sent:])


def without_archives(path: Sequence[str]) -> list[str]:
    """Return an import path without the zips and the jar that Spark puts first, if their pyspark is also installed as
    files.

    Installed files have bytecode, but modules in a zip are compiled at each start, and each worker reads the zip's
    index again for each package. That costs the daemon half a second, and each worker a fifth of a second and 30 MB.
    """
    folders = {Path(entry).resolve() for entry in path if entry}
    return [entry for entry in path if not _is_double(Path(entry), folders)]


def _is_double(entry: Path, folders: set[Path]) -> bool:
    if entry.suffix == ".zip" and entry.parts[-3:-1] == ("python", "lib"):
        home = entry.resolve().parents[2]
    elif entry.suffix == ".jar" and entry.parent.name == "jars":
        home = entry.resolve().parents[1]
    else:
        return False
    return home.name == "pyspark" and (home / "__init__.py").is_file() and home.parent in folders


def quiet_worker(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap `pyspark.daemon.worker` to end its process silently if its last bytes cannot be sent.

    Spark closes the connection of a worker that it cancels or no longer waits for. The daemon still prints any other
    error.
    """

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError as error:
            if error.__context__ is not None or not _own_flush(error):
                raise
            os._exit(1)  # the code that the daemon uses after a traceback

    return run


def _own_flush(error: BrokenPipeError) -> bool:
    """Return whether the worker's own flush raised the error, and not code that the worker called."""
    ours = error.__traceback__
    return ours is not None and ours.tb_next is not None and ours.tb_next.tb_next is None


_NAME = "pandas"


def expect_pandas() -> None:
    """Notify pyarrow as soon as pandas is imported."""
    if _NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Find pandas as usual, but with a loader that then notifies pyarrow. Stay installed until pandas is imported.

    The finder may be called without an import, as by `importlib.util.find_spec`, or for an import that fails.
    """

    def __init__(self) -> None:
        self._here = threading.local()

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _NAME or getattr(self._here, "looking", False):
            return None
        self._here.looking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._here.looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _TellingLoader(spec.loader, self._leave)
        return spec

    def _leave(self) -> None:
        with contextlib.suppress(ValueError):  # another import removed it first
            sys.meta_path.remove(self)


class _TellingLoader(Loader):
    def __init__(self, loader: Loader, done: Callable[[], None]) -> None:
        self._loader = loader
        self._done = done

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Import pandas, and let pyarrow look for it again."""
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self._loader
        with contextlib.suppress(ImportError):  # no pyarrow, or an old pandas, which it reports itself
            from pyarrow.lib import _pandas_api  # noqa: PLC0415 - pandas can do without

            _ = _pandas_api.pd
        self._done()
