"""What a function server listens with: Flight servers on one port, the last of which has the certificates as they are.

Flight takes its certificates when it starts. So renewed ones are a new Flight server in the place of the one before,
which takes no more connections, and serves those that it has until they end.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from leman._function_flight import FunctionFlight
from leman._tls_files import Pem, TlsFiles

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

#: A server that stops and has no batch at work waits so long for answers to be on their way.
_IDLE_SECONDS, _LOOK_SECONDS = 0.5, 0.05
_LOOK_AT_FILES_SECONDS = 1.0
#: Until the port is free again, once a server takes no more connections.
_PORT_SECONDS = 0.02


class Listener:
    """Listens from the moment it is made until `stop`.

    `listen` makes a Flight server at a port, with certificates where there are `files`. Raises what it raises.
    """

    def __init__(self, port: int, files: TlsFiles | None, listen: Callable[[int, Pem | None], FunctionFlight]) -> None:
        self._listen = listen
        self._flight = listen(port, files.current() if files is not None else None)
        self.port = int(self._flight.port)
        self._before: list[tuple[FunctionFlight, threading.Thread]] = []
        self._over = threading.Event()
        self._looking: threading.Thread | None = None
        if files is not None:
            self._looking = threading.Thread(target=self._look, args=(files,), name="certificates", daemon=True)
            self._looking.start()

    def _look(self, files: TlsFiles) -> None:
        shown = files.current()
        while not self._over.wait(_LOOK_AT_FILES_SECONDS):
            found = files.current()
            if found is not shown:
                shown = found
                self._renew(found)

    def _renew(self, pem: Pem) -> None:
        self._before = [(flight, ending) for flight, ending in self._before if ending.is_alive()]
        self._before.append((self._flight, _shut_down(self._flight)))
        while not self._over.is_set():
            try:
                self._flight = self._listen(self.port, pem)
            except pa.ArrowException:  # "did not start properly": the other one is about to leave the port
                self._over.wait(_PORT_SECONDS)
            else:
                return

    def stop(self, grace_seconds: float) -> bool:
        """Take no more streams, end each one after the batch at work, and tell whether all of these ended in time."""
        self._over.set()
        if self._looking is not None:
            self._looking.join()
        before = [flight for flight, _ in self._before]
        for flight in (*before, self._flight):
            flight.stopping.set()
        if self._flight not in before:
            self._before.append((self._flight, _shut_down(self._flight)))
        end = time.monotonic() + grace_seconds
        idle_since = math.inf
        while self._open and (now := time.monotonic()) < end and now - idle_since < _IDLE_SECONDS:
            self._open[0].join(_LOOK_SECONDS)
            idle_since = math.inf if self._at_work else min(idle_since, now)
        in_time = not self._at_work
        if self._open:
            self._flight.cut()
            for ending in self._open:
                ending.join(_IDLE_SECONDS)
        return in_time

    @property
    def _at_work(self) -> int:
        return sum(flight.batches_at_work for flight, _ in self._before)

    @property
    def _open(self) -> list[threading.Thread]:
        return [ending for _, ending in self._before if ending.is_alive()]


def _shut_down(flight: FunctionFlight) -> threading.Thread:
    """Have a server take no more connections; the thread ends with the last stream."""
    ending = threading.Thread(target=flight.shutdown, name="function-server-stop", daemon=True)
    ending.start()
    return ending
