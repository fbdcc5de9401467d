"""A function is loaded where it runs, and its evaluator made.

Loads a function on a worker.

This is the only place that unpickles, and it runs only where user code runs anyway.

Makes the evaluator of a work context: loads the function where it runs. Imports no gRPC and no Spark.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa

from leman_core.functions.function_definitions import PYTHON, python_mismatch
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.udf import UdfKind
from leman_core.model.work import FunctionSpec, WorkContext
from leman_core.storage.storage_errors import translating_os_errors
from leman_core.storage.udf_registry import note_failure
from leman_core.storage.whole_files import read_expected
from leman_executor.coordination.reservations import reservations_at
from leman_executor.worker.call_guards import Watchdog, forked_children
from leman_executor.worker.evaluator import Evaluator
from leman_executor.worker.process_environment import kept_environment
from leman_executor.worker.sql_source import SqlValues
from leman_executor.worker.unit_runtime import Evaluates
from leman_executor.worker.user_errors import BatchNotes, describe_error, error_text, missing_module

if TYPE_CHECKING:
    from leman_executor.worker.remote_calls import RemoteFunction


#: Of a bundle that is read from an object store in one request.
_SMALL_BYTES = 1 << 20

_loaded: dict[str, Callable[..., Any]] = {}


def load_function(ref: FunctionSpec, bundle: bytes = b"") -> Callable[..., Any]:
    """Return the callable of a function; an instance of a stateful class is made once in this process.

    Args:
        ref: the function.
        bundle: its bundle; empty: it is read from storage.

    Raises:
        FailedPrecondition: UDF_DIGEST_MISMATCH, where the bundle is missing or has another sha256;
            UDF_PYTHON_MISMATCH, where it was made with another version of Python;
            UDF_NOT_LOADABLE, where unpickling, importing or instantiating raised, or gave nothing that can be
            called; the reasons of
            `leman_core.storage.storage_errors`, where the bundle may not be read.
        Unavailable: STORE_UNAVAILABLE, where the bundle cannot be read now.
    """
    key = ref.identity
    if key not in _loaded:
        function = _from_entrypoint(ref) if ref.entrypoint else _from_bundle(ref, bundle)
        _loaded[key] = _callable(ref, _built(ref, function))
    return _loaded[key]


def _from_bundle(ref: FunctionSpec, bundle: bytes) -> Any:
    if ref.bundle_python != PYTHON:
        raise python_mismatch(ref.name, ref.version, ref.bundle_python, PYTHON)
    data = bundle or _read(ref)
    digest = None if data is None else hashlib.sha256(data).hexdigest()
    if data is None or digest != ref.bundle_sha256:
        what = "is missing" if data is None else f"has sha256 {digest}, not {ref.bundle_sha256}"
        raise FailedPrecondition(
            "UDF_DIGEST_MISMATCH",
            f"The bundle of function {ref.name}@{ref.version} {what}: {ref.bundle_uri}. Register the function again: "
            "that stores it anew",
            path=ref.bundle_uri,
        )
    try:
        return cloudpickle.loads(data)
    except BaseException as error:
        if ref.bundle_uri:
            with contextlib.suppress(OSError):
                note_failure(ref.bundle_uri, describe_error(error))
        raise _not_loadable(ref, error) from error


def _from_entrypoint(ref: FunctionSpec) -> Any:
    module, _, name = ref.entrypoint.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except BaseException as error:
        file = f" ({error.path})" if isinstance(error, ImportError) and error.path else ""
        raise _not_loadable(ref, error, without=file) from error  # who gave a name is not told where that led
    return getattr(target, "func", target)


def _built(ref: FunctionSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    if not ref.stateful:
        return function
    try:
        instance: Callable[..., Any] = function()
    except BaseException as error:
        raise _not_loadable(ref, error) from error
    return instance


def _callable(ref: FunctionSpec, function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise FailedPrecondition(
            "UDF_NOT_LOADABLE",
            f"UDF '{ref.name}' is an object of type {type(function).__name__}, which cannot be called: register a "
            "function, or a class whose instances can be called",
        )
    made: Callable[..., Any] = function
    return made


def _not_loadable(ref: FunctionSpec, error: BaseException, *, without: str = "") -> FailedPrecondition:
    advice = "Have it do without what raised that, or give the workers what it needs, and register it again"
    if isinstance(error, (ImportError, AttributeError)):
        advice = "Are the packages it imports installed on the workers?"
    elif isinstance(error, (pickle.UnpicklingError, EOFError)):
        advice = "Its bundle is no whole pickle of a function: make it by cloudpickle.dumps, and register it again"
    elif isinstance(error, SystemExit):
        advice = "It ended its process while it was set up: have it raise an exception instead"
    said = error_text(error).replace(without, "") if without else error_text(error)
    return FailedPrecondition(
        "UDF_NOT_LOADABLE",
        f"UDF '{ref.name}' could not be set up on a worker: {type(error).__name__}: {said}"
        f"{missing_module(error)}. {advice}",
    )


def _read(ref: FunctionSpec) -> bytes | None:
    """Return the bytes of a bundle; None where there is none."""
    try:
        with translating_os_errors(f"The bundle of function {ref.name}@{ref.version}", ref.bundle_uri):
            folder, _, name = ref.bundle_uri.rpartition("/")
            return read_expected(folder, name, _SMALL_BYTES)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class LoadedEvaluator:
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
) -> LoadedEvaluator:
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
        return LoadedEvaluator(SqlValues(output, udf.error_policy))
    function: Callable[..., Any]
    remote: RemoteFunction | None = None
    if udf.kind is UdfKind.REMOTE:
        function = remote = connections.enter_context(_remote(context, output, stopped, notes))
    else:
        children = forked_children()
        try:
            function = load_function(udf, bundle)
        except BaseException as error:
            children.end_if_child(error.__context__ or error)
            raise
        children.end_if_child()
    kept_environment.loaded()
    evaluator = Evaluator(
        *(function, udf.kind, udf.name, output, udf.input_columns, udf.error_policy),
        watchdog=watchdog,
        notes=notes,
    )
    return LoadedEvaluator(evaluator, remote)


def _remote(
    context: WorkContext, output: pa.DataType, stopped: Callable[[], bool], notes: BatchNotes | None
) -> RemoteFunction:
    from leman_executor.worker.remote_calls import (  # noqa: PLC0415
        RemoteFunction,
        SharedSuspectLock,
        SuspectLock,
    )

    reservations = reservations_at(context.redis_url, context.reservation_ttl)
    hosts = SharedSuspectLock(reservations, context.reservation_ttl, stopped)
    servers = context.udf.remote.servers if context.udf.remote is not None else ()
    suspects = SuspectLock((access.address for access in servers), hosts)
    return RemoteFunction(context.udf, output, stopped=stopped, suspects=suspects, notes=notes)
