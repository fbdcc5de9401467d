"""Fork other processes of the local system from a warm process, which already has their imports in memory (Linux).

    python child.py PARENT_PID warm DESCRIPTOR SOCKET [MODULE...]

Importing what a service needs takes seconds of CPU time and a hundred megabytes. It is done once, in this process. A
service, or the daemon of Spark's Python workers, is then a fork, which starts in milliseconds and shares the memory.
The supervisor sends requests one after another, through the socket with the file descriptor DESCRIPTOR:

    {"command": ["leman_planner"], "name": "planner", "environment": {…}}
        fork a service, with the three descriptors of the request as its 0, 1 and 2
    {"command": ["leman_executor"], "name": "executor", "environment": {…}, "become": true}
        this process itself becomes the service; a fork of it answers from then on

and the answer is {"pid": 17}. The supervisor adopts forked services as its children.

The first warm process later becomes the executor, because Spark's JVM must be the executor's child. The JVM must also
start before everything else. Therefore each MODULE, a "prelude", is imported first, and its `begin()` is called. In a
fork, the prelude's `forget()` is called. If the process ends without becoming a service, the prelude's `end()` is
called. SOCKET is the path of a socket file, through which Spark requests its daemon (`_fork_daemon`).

This process starts no thread, runs no user code, opens no dataset and creates no gRPC object, so a fork is as clean as
a new process. It ends with the supervisor.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from leman_core.process.blocked_imports import HEAVY, blocked_imports
from leman_core.process.environment import adopt_orphans, die_with, show_name
from leman_local import fd_messages

#: The environment variable with the path of the socket for Spark's daemon. Its name is not that of a Leman setting,
#: because the JVM does not inherit such variables.
SOCKET_VARIABLE = "_LEMAN_WARM_PROCESS"
#: Modules to import before a module is run.
_PRELOADED: Mapping[str, Sequence[str]] = {
    "leman_planner": ["leman_planner.__main__"],
    "leman_coordinator": ["leman_coordinator.__main__"],
    "leman_executor": ["leman_executor.__main__", "leman_executor.app", "leman_executor.spark.daemon"],
}
_DAEMON = "leman_executor.spark.daemon"
_END_SECONDS = 2.0
#: Maximum seconds for which a client of the socket file may send nothing during its request.
_REQUEST_SECONDS = 2.0
_LOOK_SECONDS = 0.01
_ADOPTION_SECONDS = 0.0005


def main(supervisor: int, control: int, socket_file: str, preludes: Sequence[str]) -> tuple[list[str], bool]:
    """Serve requests. Return only in a process that should run a module.

    Returns:
        The command, and whether it is a service. The standard input of a service comes from the supervisor.
    """
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    warnings.filterwarnings("ignore", message=".* found in sys.modules after import of package", module="runpy")
    warm = WarmProcess(supervisor, socket.socket(fileno=control), Path(socket_file))
    warm.begin(preludes)
    command = warm.serve()
    return command, command[0] != _DAEMON


class _ServiceAsked(Exception):
    """This process should run a service."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command)
        self.command = command


class WarmProcess:
    """The server of the requests that the module's docstring describes."""

    def __init__(self, supervisor: int, control: socket.socket, socket_file: Path) -> None:
        self._supervisor = supervisor
        self._control = control
        self._file = socket_file
        #: Only the names, because the values of settings must not stay in forks.
        self._first = frozenset(os.environ)
        self._listener = _listen(socket_file)
        self._preludes: list[Any] = []
        self._imported: set[str] = set()
        self._poll = select.poll()
        self._actions: dict[int, Callable[[], None]] = {}
        #: Process ids of Spark's daemons, which are children of this process.
        self._daemons: set[int] = set()

    def begin(self, preludes: Sequence[str]) -> None:
        """Start the preludes. They run while the services are imported."""
        if self._listener is not None:
            os.environ[SOCKET_VARIABLE] = str(self._file)
        with blocked_imports(*HEAVY):
            for name in preludes:
                self._preludes.append(importlib.import_module(name))
                self._preludes[-1].begin()
            importlib.import_module("leman_core.storage.store_file").forget_store_file()  # each request has its own
            importlib.import_module("leman_core.process.process_secrets").forget_settings()
            importlib.import_module("leman_core.process.environment").guard()

    def serve(self) -> list[str]:
        """Serve requests. Return the command for this process once it has become a service, or was forked as one."""
        self._on(self._control.fileno(), self._take)
        try:
            while True:
                for descriptor, _ in self._poll.poll():
                    if descriptor in self._actions:
                        self._actions[descriptor]()
        except _ServiceAsked as asked:
            return asked.command

    def _on(self, descriptor: int, action: Callable[[], None]) -> None:
        self._actions[descriptor] = action
        self._poll.register(descriptor, select.POLLIN)

    def _off(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        del self._actions[descriptor]

    def _import(self, module: str) -> None:
        names = [name for name in _PRELOADED.get(module, ()) if name not in self._imported]
        if names:
            with blocked_imports(*HEAVY):
                for name in names:
                    importlib.import_module(name)
            self._imported.update(names)
            gc.collect()
            gc.freeze()  # a collection would write to shared memory, and so copy it

    # Services.

    def _take(self) -> None:
        """Serve one request of the supervisor. If there is none, exit."""
        asked = fd_messages.receive(self._control)
        if asked is None:
            self._end()
        request, descriptors = asked
        command = list(request["command"])
        self._import(command[0])
        if request.get("become"):
            pid = self._fork_child_of_supervisor()
            if pid == 0:
                self._stay()
                return
            fd_messages.send(self._control, {"pid": pid})
            self._take_over(request, None, command)
        pid = self._fork_child_of_supervisor()
        if pid == 0:
            os.setsid()
            self._forget_preludes()
            self._take_over(request, descriptors, command)
        fd_messages.close(descriptors)
        fd_messages.send(self._control, {"pid": pid})

    def _fork_child_of_supervisor(self) -> int:
        """Fork a process that the supervisor adopts, because its parent ends at once. Returns 0 in that process."""
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            here = os.getpid()
            pid = os.fork()
            if pid:
                os.write(write, b"%d" % pid)
                os._exit(0)
            os.close(read)
            os.close(write)
            while os.getppid() == here:
                time.sleep(_ADOPTION_SECONDS)
            die_with(self._supervisor)
            return 0
        os.close(write)
        os.waitpid(between, 0)
        with os.fdopen(read, "rb") as said:
            return int(said.read())

    def _take_over(self, request: dict[str, Any], descriptors: Sequence[int] | None, command: list[str]) -> None:
        """Turn this process into the service of a request. Raises `_ServiceAsked`."""
        self._let_go()
        if descriptors is not None:
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            fd_messages.close(descriptors)
        added = {name: value for name, value in os.environ.items() if name not in self._first}
        os.environ.clear()
        os.environ.update({**added, **request["environment"]})
        show_name(f"leman-{request['name']}")
        raise _ServiceAsked(command)

    def _let_go(self) -> None:
        """Close what is only needed to serve requests."""
        for descriptor in list(self._actions):
            self._off(descriptor)
            if descriptor not in (self._control.fileno(), self._listener.fileno() if self._listener else -1):
                os.close(descriptor)
        self._control.close()
        if self._listener is not None:
            self._listener.close()

    def _forget_preludes(self) -> None:
        for prelude in self._preludes:
            prelude.forget()
        self._preludes.clear()

    # Spark's daemon.

    def _stay(self) -> None:
        """Fork a process that continues to serve requests, because this process becomes a service."""
        os.setsid()
        self._forget_preludes()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.close(null)
        show_name("leman-warm")
        if self._listener is not None:
            self._on(self._listener.fileno(), self._fork_daemon)

    def _fork_daemon(self) -> None:
        """Serve one request for Spark's daemon. It comes with the descriptors 0, 1 and 2 for the daemon:

            {"command": [...], "environment": {…}, "path": [...]}

        The answer is the daemon's process id. The connection is closed when the daemon ends. If the client is killed or
        gives up, it closes the connection; the daemon is then ended, or not forked at all.
        """
        assert self._listener is not None
        connection, _ = self._listener.accept()
        asked = _request(connection)
        if asked is None:
            connection.close()
            return
        request, descriptors = asked
        pid = os.fork()
        if pid == 0:
            connection.close()
            os.environ.pop(SOCKET_VARIABLE, None)  # the daemon itself must request no daemon
            sys.path[:] = request["path"]
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # the limit that a JVM sets for its children
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(write_through=True)  # type: ignore[union-attr]
            warnings.simplefilter("ignore", UserWarning)
            self._take_over({**request, "name": "daemon"}, descriptors, [_DAEMON, *request["command"]])
        fd_messages.close(descriptors)
        self._daemons.add(pid)
        ended, there = os.pidfd_open(pid), connection.detach()

        def reap() -> None:
            os.waitpid(pid, 0)
            self._daemons.discard(pid)
            for descriptor in (ended, there):
                if descriptor in self._actions:
                    self._off(descriptor)
                os.close(descriptor)

        def terminate() -> None:
            self._off(there)
            os.kill(pid, signal.SIGTERM)

        with socket.socket(fileno=os.dup(there)) as answering, contextlib.suppress(OSError):
            fd_messages.send(answering, {"pid": pid})
        self._on(ended, reap)
        self._on(there, terminate)

    def _end(self) -> NoReturn:
        """End this process and its children, because the supervisor has ended or asks for it."""
        adopt_orphans()
        for prelude in self._preludes:
            prelude.end()
        for pid in self._daemons:
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + _END_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < until:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    time.sleep(_LOOK_SECONDS)
        for pid in self._daemons:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._file.unlink(missing_ok=True)
        os._exit(0)


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the request of a client that still waits for an answer. Return None if it sent no valid request."""
    connection.settimeout(_REQUEST_SECONDS)
    try:
        asked = fd_messages.receive(connection)
    except Exception:  # noqa: BLE001 the other clients must still be served
        return None
    if asked is None:
        return None
    waiting = select.poll()
    waiting.register(connection, select.POLLRDHUP)
    if waiting.poll(0) or not {"command", "environment", "path"} <= asked[0].keys():
        fd_messages.close(asked[1])
        return None
    connection.settimeout(None)
    return asked


def _listen(file: Path) -> socket.socket | None:
    """Listen at a socket that only this user can reach. Return None if its path is too long."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        file.unlink(missing_ok=True)
        listener.bind(str(file))
        file.chmod(0o600)
        listener.listen()
    except OSError:
        listener.close()
        return None
    return listener
