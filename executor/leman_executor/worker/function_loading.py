"""Loads a function on a worker.

This is the only place that unpickles, and it runs only where user code runs anyway.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Callable
from typing import Any

import cloudpickle

from leman_core.functions.python_versions import PYTHON, python_mismatch
from leman_core.model.errors import FailedPrecondition
from leman_core.model.work import UdfRef
from leman_core.storage.small_files import read_expected
from leman_core.storage.storage_errors import in_use
from leman_core.storage.udf_bundles import note_failure
from leman_executor.worker.user_errors import missing_module, text, told

#: Of a bundle that is read from an object store in one request.
_SMALL_BYTES = 1 << 20

_loaded: dict[str, Callable[..., Any]] = {}


def load(ref: UdfRef, bundle: bytes = b"") -> Callable[..., Any]:
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


def _from_bundle(ref: UdfRef, bundle: bytes) -> Any:
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
                note_failure(ref.bundle_uri, told(error))
        raise _not_loadable(ref, error) from error


def _from_entrypoint(ref: UdfRef) -> Any:
    module, _, name = ref.entrypoint.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except BaseException as error:
        file = f" ({error.path})" if isinstance(error, ImportError) and error.path else ""
        raise _not_loadable(ref, error, without=file) from error  # who gave a name is not told where that led
    return getattr(target, "func", target)


def _built(ref: UdfRef, function: Callable[..., Any]) -> Callable[..., Any]:
    if not ref.stateful:
        return function
    try:
        instance: Callable[..., Any] = function()
    except BaseException as error:
        raise _not_loadable(ref, error) from error
    return instance


def _callable(ref: UdfRef, function: Any) -> Callable[..., Any]:
    if not callable(function):
        raise FailedPrecondition(
            "UDF_NOT_LOADABLE",
            f"UDF '{ref.name}' is an object of type {type(function).__name__}, which cannot be called: register a "
            "function, or a class whose instances can be called",
        )
    made: Callable[..., Any] = function
    return made


def _not_loadable(ref: UdfRef, error: BaseException, *, without: str = "") -> FailedPrecondition:
    advice = "Are the packages it imports installed on the workers?"
    if isinstance(error, SystemExit):
        advice = "It ended its process while it was set up: have it raise an exception instead"
    said = text(error).replace(without, "") if without else text(error)
    return FailedPrecondition(
        "UDF_NOT_LOADABLE",
        f"UDF '{ref.name}' could not be set up on a worker: {type(error).__name__}: {said}"
        f"{missing_module(error)}. {advice}",
    )


def _read(ref: UdfRef) -> bytes | None:
    """Return the bytes of a bundle; None where there is none."""
    try:
        with in_use(f"The bundle of function {ref.name}@{ref.version}", ref.bundle_uri):
            folder, _, name = ref.bundle_uri.rpartition("/")
            return read_expected(folder, name, _SMALL_BYTES)
    except FileNotFoundError:
        return None
