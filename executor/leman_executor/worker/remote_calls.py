"""Call a remote function on its servers over Arrow Flight (docs/remote_functions.md).

Batches go to the least busy of the fast servers (see `by_expected_time`). A server that is unreachable, or serves
another version, is not called for a while, and its batch goes to the next server.

A batch that crashes its server also breaks the connections of all other batches on that server, and would do so at each
retry. Batches that are suspected of this are therefore tried one at a time. Before a suspect batch is tried, it locks
all servers of its function. While they are locked, no other suspect batch is tried on them, not even of another
function. A kernel lock does this for the processes of one host, and a reservation in Redis for all hosts. Without
Redis, each host has only its own lock.

This module is loaded only where a remote function runs. It runs on Spark workers, so it imports neither gRPC for Python
nor Spark.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from leman._format.stored_functions import ErrorAction
from leman_core.functions import function_servers
from leman_core.model import keys
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.model.work import FunctionSpec, Reservations
from leman_executor.worker import user_errors
from leman_executor.worker.remote_server import AnswerWatch, RemoteServer, Stream, by_expected_time
from leman_executor.worker.user_errors import (
    WAITED_FOR,
    AnswerTooLarge,
    BatchNotes,
    BatchTooLarge,
    FunctionLost,
    NoAnswer,
    NoServer,
    ServerError,
    StreamBroken,
)

#: The range that a suspect batch reserves in a server's scope.
_TURN = RowRange(0, 1)
_LOOK_SECONDS = 0.05
#: The suffix of the names of lock files. The files are empty.
_SUFFIX = ".turn"
#: A reservation that is not renewed for this many lifetimes counts as abandoned.
_LIFETIMES = 2


def suspect_scope(address: str) -> str:
    """Return the scope in which suspect batches reserve a server."""
    return f"suspects:{keys.md5(address)}"


class SharedSuspectLock:
    """Lock servers for suspect batches of all hosts, by reservations. Without Redis, each lock is granted at once.

    Args:
        ttl_seconds: How long a reservation lasts if it is not renewed.
        stopped: Returns whether to stop waiting.
    """

    def __init__(self, reservations: Reservations, ttl_seconds: float, stopped: Callable[[], bool]) -> None:
        self._reservations = reservations
        self._ttl = ttl_seconds
        self._stopped = stopped

    @contextlib.contextmanager
    def one(self, scopes: tuple[str, ...]) -> Iterator[None]:
        """Lock the scopes for this host: only this host tries suspect batches in this block.

        First wait until the hosts that hold a scope release it. If Redis becomes unavailable, other hosts may start
        suspect batches.

        Args:
            scopes: The scopes to lock. All callers use the same order, which prevents deadlocks.
        """
        holder, over = uuid.uuid4().hex, threading.Event()
        keeper = threading.Thread(target=self._renew, args=(scopes, holder, over), name="suspects", daemon=True)
        keeper.start()
        try:
            for scope in scopes:
                self._wait(scope, holder)
            yield
        finally:
            over.set()
            keeper.join()
            self._reservations.release_all(scopes, holder)

    def _wait(self, scope: str, holder: str) -> None:
        seen: dict[str, float] = {}  # when each reservation was first seen; renewing makes a new one
        pause = threading.Event()
        ignored: tuple[str, ...] = ()
        while not self._stopped():
            grant = self._reservations.reserve(scope, (_TURN,), holder, ignored)
            if grant.granted:
                return
            now = time.monotonic()
            seen = {hold: seen.get(hold, now) for hold in grant.holds}
            ignored = tuple(hold for hold, since in seen.items() if now - since > _LIFETIMES * self._ttl)
            pause.wait(_LOOK_SECONDS)

    def _renew(self, scopes: tuple[str, ...], holder: str, over: threading.Event) -> None:
        while not over.wait(self._ttl / 3):
            self._reservations.renew(scopes, holder)


class SuspectLock:
    """Lock servers for suspect batches of one function. All processes of this user on a host share the lock, as do
    their threads.

    Args:
        addresses: The addresses of the servers that may get a batch, as registered.
        hosts: The locks across hosts. None if there is only this host.
        folder: The folder of this host's lock files.
    """

    def __init__(
        self, addresses: Iterable[str], hosts: SharedSuspectLock | None = None, folder: Path | None = None
    ) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f"leman-suspects-{os.getuid()}"
        servers = sorted(set(addresses))
        self._files = [self._folder / f"{keys.md5(address)}{_SUFFIX}" for address in servers]
        self._scopes = tuple(map(suspect_scope, servers))
        self._hosts = hosts
        self._mine = threading.local()

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Lock the servers: no other suspect batch is tried on them in this block.

        First wait until the suspect batches that hold a lock have ended. A lock ends with its process.
        """
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _remove_left(self._folder)
        with contextlib.ExitStack() as turns:
            for path in self._files:
                turns.enter_context(_locked(path))
            if self._hosts is not None:
                turns.enter_context(self._hosts.one(self._scopes))
            yield

    @property
    def suspected(self) -> bool:
        """Return whether the next batch of this thread is a part of a batch that broke connections."""
        return self._rows > 0

    def is_part(self, rows: int) -> bool:
        """Return whether the next batch is a part of a batch that broke connections.

        A batch of the same size is a retry.
        """
        return self.suspected and rows != getattr(self._mine, "lost_last", 0)

    def note_lost(self, rows: int) -> None:
        """Note that a batch of this thread broke connections. If the policy isolates its rows, its parts follow."""
        self._mine.rows = max(self._rows, rows) if rows > 1 else max(0, self._rows - 1)
        self._mine.lost_last = rows

    def note_answered(self, rows: int) -> None:
        """Note that a batch of this thread was answered."""
        self._mine.lost_last = 0
        if self._rows:
            self._mine.rows = max(0, self._rows - rows)

    @property
    def _rows(self) -> int:
        rows: int = getattr(self._mine, "rows", 0)
        return rows


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file for this block. The file exists as long as a process has the lock or waits for it."""
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(path, file.fileno()):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_still(path: Path, fd: int) -> bool:
    """Return whether the path still leads to the locked file. The lock's previous holder may have removed the file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _remove_left(folder: Path) -> None:
    """Remove lock files of processes that died while they had the lock.

    A process that waits for such a file makes a new one.
    """
    for path in folder.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError), path.open() as file:  # the file is removed or locked
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, file.fileno()) and not os.fstat(file.fileno()).st_size:
                path.unlink()


#: Maximum number of times that a batch may break the connection before it counts as the cause. If the error policy
#: isolates rows, each row gets two attempts: one with other rows and one alone. Therefore a part of a batch that broke
#: connections gets one attempt.
_MOST_BREAKS, _MOST_BREAKS_OF_ISOLATED, _MOST_BREAKS_OF_PART = 3, 2, 1
#: Maximum number of times that servers may leave a batch unanswered for the full time limit.
_MOST_SILENCES = 2
#: Seconds without any available server after which servers that take long to fail are tried too.
_LAST_RESORT_SECONDS = 5.0
#: Maximum number of servers for which an error gives reasons.
_MOST_TOLD = 3
#: Seconds for which TLS may fail with all servers, because their certificates may be in renewal.
_TLS_SECONDS = 5.0
Resting = Callable[[], contextlib.AbstractContextManager[None]]


def function_key(ref: FunctionSpec) -> str:
    """Return name and version of a function."""
    return f"{ref.name}@{ref.version}"


class RemoteFunction:
    """A function that servers compute. Any number of threads may call it. Its streams stay open until the end of its
    block.

    Args:
        ref: The remote function.
        output: The type of its values.
        stopped: Returns whether the unit must return its remaining rows. If so, calls stop waiting for servers.
        suspects: The lock for batches that broke connections.
        notes: Receives notes about servers that are not used.
        clock: Returns seconds, as `time.monotonic` does.
        sleep: Sleeps for the given seconds.
    """

    def __init__(
        self,
        ref: FunctionSpec,
        output: pa.DataType,
        *,
        stopped: Callable[[], bool] = lambda: False,
        suspects: SuspectLock | None = None,
        notes: BatchNotes | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if ref.remote is None:
            raise ValueError(f"function {ref.name} is not a remote function")
        self._name = function_key(ref)
        self._patience = ref.remote.patience_seconds
        self._inputs = pa.ipc.read_schema(pa.py_buffer(ref.remote.input_schema))
        self._stopped = stopped
        self._clock, self._sleep = clock, sleep
        #: Whether the watchdog ends a call that takes too long, by ending this process.
        self._has_timeout = ref.timeout_seconds > 0 and not ref.remote.answer_seconds
        first = ref.timeout_seconds if self._has_timeout and len(ref.remote.servers) > 1 else ref.remote.answer_seconds
        self._watches = AnswerWatch(first), AnswerWatch(ref.remote.answer_seconds)
        self._servers = [
            RemoteServer(access, ref.remote.function, ref.version, self._inputs, output, clock=clock)
            for access in ref.remote.servers
        ]
        self._turn = random.randrange(len(self._servers))
        self._taking = threading.Lock()
        #: Whether no server was available within the time limit.
        self.had_no_server = False
        #: Whether a server sent more answers than batches.
        self.is_doubted = False
        self._suspects = suspects or SuspectLock(access.address for access in ref.remote.servers)
        rule = ref.error_policy.rule_for(user_errors.error_names(FunctionLost()), "", 1)
        self._isolates = rule is not None and rule.action is ErrorAction.SKIP
        self._notes = notes
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._servers:
            server.close()
        for watch in self._watches:
            watch.close()

    def finish(self) -> None:
        """End all idle streams after all batches were answered. Check that each batch was answered only once.

        Raises:
            LemanError: FUNCTION_PROTOCOL. `is_doubted` is then set, because values may belong to other rows.
        """
        try:
            for server in self._servers:
                server.finish()
        except NoServer as error:
            self.is_doubted = True
            raise error.error from None

    def __call__(self, batch: pa.RecordBatch, resting: Resting = contextlib.nullcontext) -> pa.Array:
        """Return the values for a batch. Its columns must be the function's inputs, in order.

        Args:
            batch: The rows.
            resting: Returns a context for times in which no server works on the batch. Such times do not count towards
                the time of the call.

        Raises:
            ServerError: The function failed for the batch.
            FunctionLost: The batch broke the connection repeatedly.
            BatchTooLarge: The batch has more bytes than servers accept.
            NoServer: No server is available, for reasons other than the batch.
        """
        rows = self._as_declared(batch)
        if rows.nbytes > function_servers.MOST_SENT_BYTES:
            raise BatchTooLarge(self._too_large(rows))
        with contextlib.ExitStack() as turn:
            try:
                values = self._tried(rows, resting, turn)
            except FunctionLost:
                self._suspects.note_lost(len(batch))
                raise
            except ServerError:
                self._note_answered(len(batch))
                raise
        self._note_answered(len(batch))
        return values

    def _note_answered(self, rows: int) -> None:
        self._suspects.note_answered(rows)

    def _tried(self, rows: pa.RecordBatch, resting: Resting, turn: contextlib.ExitStack) -> pa.Array:
        """Send the batch to servers until one answers. If it breaks a connection, retry it under the suspect lock.

        Args:
            turn: Holds the lock until the batch was answered or has failed.
        """
        broken: StreamBroken | None = None
        alone, breaks, silences = False, 0, 0
        tries = self._most_breaks(len(rows))
        while breaks < tries:
            with resting():
                if not alone and (breaks or self._suspects.suspected):
                    turn.enter_context(self._suspects.one())
                    alone = True
                server, stream = self._stream(len(rows))
            watch = self._watches[min(silences, 1)]
            try:
                with resting() if self._has_timeout and watch.seconds else contextlib.nullcontext():
                    values = server.call(stream, rows, watch)
            except NoAnswer as error:
                server.was_silent(stream, error, watch.seconds)
                silences += 1
                if silences == _MOST_SILENCES:
                    raise NoServer(self._silent(error)) from None
            except StreamBroken as error:
                server.broke(stream)
                broken, breaks = error, breaks + 1
                self._note_broken(error, alone=alone)
            except (ServerError, NoServer):
                stream.close()  # an extra answer would shift all later values
                raise
            else:
                server.give_back(stream)
                return values
        raise FunctionLost(self._lost(broken, "once" if tries == 1 else f"{tries} times"))

    def _too_large(self, rows: pa.RecordBatch) -> str:
        size, most = f"{rows.nbytes / (1 << 20):.0f} MiB", function_servers.MOST_SENT_BYTES >> 20
        if len(rows) == 1:
            return (
                f"the inputs of this row have {size}, and servers of function {self._name} take {most} MiB: let the "
                "function read a smaller column, such as the value's location, or compute it in Python"
            )
        return (
            f"a batch of {len(rows)} rows has {size}, and servers of function {self._name} take {most} MiB: give the "
            "function a smaller `batch_size`. A skipping error policy finds such rows and computes the others"
        )

    def _lost(self, broken: StreamBroken | None, times: str) -> str:
        found = "A skipping error policy finds such rows and computes the others"
        if isinstance(broken, AnswerTooLarge):
            return (
                f"servers of function {self._name} returned too many bytes for this batch, {times}: {broken}. Give the "
                f"function a smaller `batch_size`, or return less for a row. {found}"
            )
        return (
            f"connections to servers of function {self._name} broke {times} over this batch: {broken}. See the "
            f"servers' log for what ended them. {found}, and a smaller `batch_size` helps if memory ran out"
        )

    def _most_breaks(self, rows: int) -> int:
        """Return the number of times that a batch may break connections before it counts as the cause."""
        if rows > 1 and self._suspects.is_part(rows):
            return _MOST_BREAKS_OF_PART
        return _MOST_BREAKS_OF_ISOLATED if rows > 1 and self._isolates else _MOST_BREAKS

    def _silent(self, error: NoAnswer) -> Unavailable:
        return function_servers.server_unavailable(
            f"Servers of function {self._name} accept a batch and do not answer it, {_MOST_SILENCES} times in "
            f"succession: {error} (LEMAN_UDF__REMOTE_ANSWER_SECONDS, as the function has no `timeout`). If a batch "
            "takes that long, give the function a `timeout` or a smaller `batch_size`; else find out what the servers "
            "wait for. Then run the job again: finished rows are kept"
        )

    def _note_broken(self, error: StreamBroken, *, alone: bool) -> None:
        if alone and self._notes is not None:
            self._notes.connection_broken(str(error))

    def _as_declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Cast a batch to the types that the function reads, because the table may store a column with another
        encoding.
        """
        columns = []
        for column, field in zip(batch.columns, self._inputs, strict=True):
            plain = (
                column.dictionary_decode() if isinstance(column, pa.DictionaryArray) != _dictionary(field) else column
            )
            columns.append(plain if plain.type == field.type else plain.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._inputs)

    def _stream(self, rows: int) -> tuple[RemoteServer, Stream]:
        """Return a stream to the best server for this number of rows. Wait if none can be reached."""
        began = self._clock()
        while True:
            candidates = self._candidates(rows, self._clock() - began)
            for server in candidates:
                if server.left_alone_for() > 0:
                    continue
                try:
                    return server, server.stream()
                except LemanError as error:  # the server object keeps the error
                    self._tell(error)
            refusals = [server.refusal for server in self._servers if server.refusal is not None]
            waited = self._clock() - began
            if len(refusals) == len(self._servers) and self._hopeless(refusals, waited):
                raise NoServer(self._refusal(refusals))
            self._sleep(max(0.0, min(server.left_alone_for() for server in candidates)))

    def _candidates(self, rows: int, waited: float) -> list[RemoteServer]:
        """Return the servers that may be called, the best first. Equal servers alternate."""
        with self._taking:
            self._turn = (self._turn + 1) % len(self._servers)
            begin = self._turn
        turned = [*self._servers[begin:], *self._servers[:begin]]
        now = self._clock()
        quick = by_expected_time([server for server in turned if not server.is_avoided], rows, now)
        if quick and waited < _LAST_RESORT_SECONDS:
            return quick
        return [*quick, *by_expected_time([server for server in turned if server.is_avoided], rows, now)]

    def _tell(self, error: LemanError) -> None:
        """Report, only once, that a reachable server is not used."""
        if self._notes is not None and not isinstance(error, Unavailable) and error.message not in self._told:
            self._told.add(error.message)
            self._notes.server_refused(error.message)

    def _hopeless(self, refusals: list[LemanError], waited: float) -> bool:
        if any(isinstance(error, Unavailable) for error in refusals):
            worth = self._patience
        elif any(error.reason in WAITED_FOR for error in refusals):
            worth = min(self._patience, _TLS_SECONDS)
        else:
            return True
        return waited >= worth or self._stopped()

    def _refusal(self, refusals: list[LemanError]) -> LemanError:
        """Return the error for no available server: the reason that a server gave, or else the last error of
        each server.
        """
        said = next((error for error in refusals if not isinstance(error, Unavailable)), None)
        if said is not None:
            return said
        self.had_no_server = True
        told = ". ".join(server.seen for server in self._servers[:_MOST_TOLD])
        return function_servers.server_unavailable(
            f"No server of function {self._name} was available for {self._patience:g} s "
            f"(LEMAN_UDF__REMOTE_PATIENCE_SECONDS): {told}. Start one, fix those that end or hang, or register the "
            "function at other addresses, and run the job again"
        )


def _dictionary(field: pa.Field) -> bool:
    return bool(pa.types.is_dictionary(field.type))
