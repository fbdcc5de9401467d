"""Makes the evaluator of a work context: loads the function where it runs. Imports no gRPC and no Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from leman_core.model.udf import UdfKind
from leman_core.model.work import WorkContext
from leman_executor.coordination.reservations import reservations_at
from leman_executor.worker.evaluator import Evaluator
from leman_executor.worker.forked_children import forked_children
from leman_executor.worker.function_loading import load
from leman_executor.worker.processes.process_environment import kept
from leman_executor.worker.remote_errors import BatchNotes
from leman_executor.worker.sql_source import SqlValues
from leman_executor.worker.unit_runtime import Evaluates
from leman_executor.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from leman_executor.worker.remote_function import RemoteFunction


@dataclass(frozen=True, slots=True)
class Loaded:
    """An evaluator, and the connection behind it where the function is a remote one."""

    evaluator: Evaluates
    remote: RemoteFunction | None = None


def load_evaluator(
    context: WorkContext,
    watchdog: Watchdog,
    connections: contextlib.ExitStack,
    bundle: bytes = b"",
    *,
    stopped: Callable[[], bool] = lambda: False,
    notes: BatchNotes | None = None,
) -> Loaded:
    """Return the evaluator of a context.

    Args:
        connections: closes what a remote function has open.
        bundle: the function's bundle, where it is not to be read from storage.
        stopped: tells whether nobody is to wait for the servers of a remote function any more.
        notes: is told of batches that are given again in parts, and how servers of a remote function take theirs.

    Raises:
        LemanError: what `load` and `RemoteFunction` raise.
    """
    output = pa.ipc.read_schema(pa.py_buffer(context.output_schema)).field(0).type
    udf = context.udf
    if udf.kind is UdfKind.SQL:
        return Loaded(SqlValues(output, udf.error_policy))
    function: Callable[..., Any]
    remote: RemoteFunction | None = None
    if udf.kind is UdfKind.REMOTE:
        function = remote = connections.enter_context(_remote(context, output, stopped, notes))
    else:
        children = forked_children()
        try:
            function = load(udf, bundle)
        except BaseException as error:
            children.end_if_child(error.__context__ or error)
            raise
        children.end_if_child()
    kept.loaded()
    evaluator = Evaluator(
        *(function, udf.kind, udf.name, output, udf.input_columns, udf.error_policy),
        watchdog=watchdog,
        notes=notes,
    )
    return Loaded(evaluator, remote)


def _remote(
    context: WorkContext, output: pa.DataType, stopped: Callable[[], bool], notes: BatchNotes | None
) -> RemoteFunction:
    from leman_executor.worker.remote_function import RemoteFunction  # noqa: PLC0415 no other one needs Flight
    from leman_executor.worker.suspect_turns import AllHosts, SuspectTurns  # noqa: PLC0415

    reservations = reservations_at(context.redis_url, context.reservation_ttl)
    hosts = AllHosts(reservations, context.reservation_ttl, stopped)
    servers = context.udf.remote.servers if context.udf.remote is not None else ()
    suspects = SuspectTurns((access.address for access in servers), hosts)
    return RemoteFunction(context.udf, output, stopped=stopped, suspects=suspects, notes=notes)
