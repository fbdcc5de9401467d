"""What Spark starts as its daemon where that is forked from a warm process: it asks for it and waits for its end.

Spark talks with the daemon through descriptors, which are passed on; it ends the daemon by ending this process.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import sys

#: The file of the socket at which it is asked for (`leman_local.warm_process`).
VARIABLE = "_LEMAN_WARM_PROCESS"
#: So long the other process has to begin its answer: it forks in milliseconds, or not at all.
_ANSWER_SECONDS = 10.0


def run() -> None:
    """Have a daemon forked, and end with it. Return where that cannot be: this process is to be the daemon then."""
    file = os.environ.pop(VARIABLE, None)  # not for functions
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
    """Return when the connection is closed, or never, where a program waits in place of this process: an idle
    interpreter takes 12 MB.
    """
    program = shutil.which("cat")
    if program is not None:
        os.dup2(connection.fileno(), 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # the daemon's end is to be the end of what it says
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
