"""Load a function in the process that calls it, and make the evaluator for a work context.

This is the only module that unpickles. It runs only in processes that run user code anyway. Imports neither gRPC nor
Spark.
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

from leman._format.stored_functions import UdfKind
from leman_core.functions.function_definitions import PYTHON, python_mismatch
from leman_core.model.service_errors import FailedPrecondition, LemanError
from leman_core.model.work import FunctionSpec, WorkContext
from leman_core.storage.documents import DocumentFolder
from leman_core.storage.udf_registry import note_failure
from leman_executor.coordination.reservations import reservations_at
from leman_executor.worker.call_guards import Watchdog, forked_children
from leman_executor.worker.evaluator import Evaluator
from leman_executor.worker.process_environment import kept_environment
from leman_executor.worker.sql_source import SqlValues
from leman_executor.worker.unit_runtime import Evaluates
from leman_executor.worker.user_errors import BatchNotes, describe_error, error_text, missing_module

if TYPE_CHECKING:
    from leman_executor.worker.remote_calls import RemoteFunction


#: The limit up to which a bundle in an object store is read in one request.
_SMALL_BYTES = 1 << 20

_loaded: dict[str, Callable[..., Any]] = {}


def load_function(ref: FunctionSpec, bundle: bytes = b"") -> Callable[..., Any]:
    """Return the callable of a function; a stateful class is instantiated once per process.

    Args:
        ref: The function.
        bundle: Its bundle. If empty, it is read from storage.

    Raises:
        FailedPrecondition: UDF_DIGEST_MISMATCH, if the bundle is missing or its sha256 differs. UDF_PYTHON_MISMATCH, if
            another version of Python made it. UDF_NOT_LOADABLE, if unpickling, importing or instantiating raised, or
            gave an object that is not callable. A reason of `leman_core.storage.storage_errors`, if the bundle may not
            be read.
        Unavailable: STORE_UNAVAILABLE, if the bundle cannot be read now.
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
            f"The bundle of function {ref.name}@{ref.version} {what}: {ref.bundle_uri}. Register the function again "
            "to store it",
            path=ref.bundle_uri,
        )
    try:
        return cloudpickle.loads(data)
    except BaseException as error:
        if ref.bundle_uri:
            with contextlib.suppress(LemanError):
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
        raise _not_loadable(ref, error, without=file) from error  # do not disclose the path of the user's code
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
    advice = "Fix this, on the workers or in the function, and register it again"
    if isinstance(error, (ImportError, AttributeError)):
        advice = "Install the packages that it imports on the workers"
    elif isinstance(error, (pickle.UnpicklingError, EOFError)):
        advice = (
            "Its bundle is not a complete pickle of a function: make it with cloudpickle.dumps and register it again"
        )
    elif isinstance(error, SystemExit):
        advice = "It exits its process during setup: let it raise an exception instead"
    said = error_text(error).replace(without, "") if without else error_text(error)
    return FailedPrecondition(
        "UDF_NOT_LOADABLE",
        f"UDF '{ref.name}' could not be set up on a worker: {type(error).__name__}: {said}"
        f"{missing_module(error)}. {advice}",
    )


def _read(ref: FunctionSpec) -> bytes | None:
    folder, _, name = ref.bundle_uri.rpartition("/")
    return DocumentFolder(folder, f"The bundle of function {ref.name}@{ref.version}").read(name, _SMALL_BYTES)


@dataclass(frozen=True, slots=True)
class LoadedEvaluator:
    """An evaluator, and the connection behind it if the function is remote."""

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
        connections: Closes the connections of a remote function.
        bundle: The function's bundle. If empty, it is read from storage.
        stopped: Returns whether to stop waiting for the servers of a remote function.
        notes: Receives notes about split and retried batches, and about how the servers of a remote function respond to
            batches.

    Raises:
        LemanError: As `load_function` and `RemoteFunction` raise.
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
