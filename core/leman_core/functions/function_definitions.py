"""A function's definition: its checks, and the policy for which functions may be registered and run. Pure."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from leman._format import stored_functions
from leman._format.column_bindings import FunctionVersion
from leman._format.stored_documents import Damaged, OtherFormat
from leman._format.stored_functions import (
    ErrorAction,
    ErrorRule,
    Registered,
    RemoteFunction,
    Resources,
    UdfDefinition,
    UdfKind,
)
from leman_core.model.service_errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    unknown_format,
)
from leman_core.process.addresses import matches_any, parse_address, parse_pattern
from leman_core.sql import expressions

if TYPE_CHECKING:
    from leman_core.settings import Udf


def decode_definition(data: bytes, where: str) -> Registered:
    """Decode a function's definition.

    Raises:
        DataLoss: UDF_DAMAGED – the bytes are not those that were written. The error contains the file's name, `where`.
        UnknownFormat: FORMAT_TOO_OLD, FORMAT_TOO_NEW.
    """
    try:
        return stored_functions.decode_definition(data, where)
    except OtherFormat as error:
        raise unknown_format(error) from None
    except Damaged as error:
        raise damaged_definition(where, str(error)) from None


def damaged_definition(where: str, what: str) -> DataLoss:
    """Return the error of a damaged definition."""
    return DataLoss(
        "UDF_DAMAGED",
        f"{where} is not the definition of a function that was stored there ({what}). Register the function again, "
        "with the version that it had (an expression: by CatalogService.AlterColumns of its column), or restore "
        "the file; nothing is computed with it until then",
        path=where,
    )


#: `major.minor` of this process. PySpark requires the same in driver and workers, and pickled code requires the same in
#: the processes that pickle and unpickle it.
PYTHON = "{}.{}".format(*sys.version_info[:2])


def check_python(udf: UdfDefinition, workers: str) -> None:
    """Refuse a bundle that workers of this Python cannot load.

    Raises:
        FailedPrecondition: UDF_PYTHON_MISMATCH.
    """
    if udf.bundle_sha256 and udf.bundle_python != workers:
        raise python_mismatch(udf.name, udf.version, udf.bundle_python, workers)


def python_mismatch(name: str, version: str, bundled: str, workers: str) -> FailedPrecondition:
    """Return the error of a bundle that workers cannot load."""
    return FailedPrecondition(
        "UDF_PYTHON_MISMATCH",
        f"The bundle of function {name}@{version} was pickled by Python {bundled}, and the workers run Python "
        f"{workers}. Register the function from Python {workers}, under the same version: its bundle takes the place "
        "of one that cannot be loaded. Or install the function on the workers and register it with an entrypoint",
        bundle_python=bundled,
        workers_python=workers,
    )


MAX_NAME = 128
#: The most servers of one remote function.
MAX_ADDRESSES = 64
#: The most bytes of a function's source text.
MAX_SOURCE = 64 << 10

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
#: A module and a name in it, possibly of a class member; not Python's own, such as `__loader__`.
_ENTRYPOINT = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:(?!__)[^\W\d]\w*(\.(?!__)[^\W\d]\w*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: The largest share of a GPU below a whole one. Spark lets tasks share a GPU only in equal parts.
_SHARED_GPU = 0.5
#: Texts that names must not contain, because they would make checkpoint keys ambiguous.
_SEPARATORS = ("_ver-", "_col-")


def check_identity(name: str, version: str) -> None:
    """Refuse names that cannot be part of a file name and of a checkpoint key.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    for what, text in (("name", name), ("version", version)):
        check_name(text, f"udf.{what}", what)


def check_name(text: str, field: str, what: str = "name") -> None:
    """Refuse an invalid name, or version, of a function.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    if not _NAME.fullmatch(text) or len(text) > MAX_NAME or any(s in text for s in _SEPARATORS):
        raise InvalidArgument(
            "BAD_UDF",
            f"'{text[:200]}' is not a valid {what} for a function: at most {MAX_NAME} letters, digits, '_', '.' "
            "and '-', not beginning with '.' or '-' and without '_ver-' and '_col-'",
            field=field,
        )


def is_sha256(text: str) -> bool:
    """Return whether a text is a sha256 in lower-case hex."""
    return _SHA256.fullmatch(text) is not None


def check_remote(remote: RemoteFunction) -> None:
    """Refuse an invalid address of a remote function.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    if not 1 <= len(remote.addresses) <= MAX_ADDRESSES:
        raise InvalidArgument(
            "BAD_UDF",
            f"A remote function has 1 to {MAX_ADDRESSES} addresses, not {len(remote.addresses)}",
            field="definition.remote_function.addresses",
        )
    check_name(remote.function, "definition.remote_function.function")
    for address in remote.addresses:
        parse_address(address)


def check_definition(udf: UdfDefinition) -> None:
    """Refuse a contradictory definition.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    check_identity(udf.name, udf.version)
    _check_sizes(udf)
    _check_policy(udf)
    if udf.kind is UdfKind.SQL or udf.sql_expression:
        _check_sql(udf)
        return
    if udf.kind is UdfKind.REMOTE or udf.remote is not None:
        _check_remote(udf)
    elif bool(udf.bundle_sha256) == bool(udf.entrypoint):
        raise _bad(udf, "needs either a bundle or an entrypoint", "entrypoint")
    if udf.bundle_sha256 and (not is_sha256(udf.bundle_sha256) or not udf.bundle_python):
        raise _bad(udf, "needs its bundle's sha256 in lower-case hex and its Python version", "python_bundle")
    if udf.entrypoint and not _ENTRYPOINT.fullmatch(udf.entrypoint):
        raise _bad(udf, "needs an entrypoint like package.module:name", "entrypoint")
    if udf.input_types and len(udf.input_types) != len(udf.input_columns):
        raise _bad(udf, "declares types for another number of inputs than it names", "input_schema")
    if not udf.input_columns or not all(udf.input_columns):
        raise _bad(udf, "has to name the columns it reads", "input_columns")
    if not 0 <= udf.timeout_seconds < math.inf:
        raise _bad(udf, "needs a timeout of 0 (no bound) or more seconds", "timeout_seconds")
    if udf.blob and udf.output_type != pa.large_binary():
        raise _bad(udf, "gives blobs: its output type is large_binary", "output_schema")
    _check_resources(udf)


def _check_sizes(udf: UdfDefinition) -> None:
    bounds = udf.checkpoint
    sizes = (udf.batch_size, bounds.checkpoint_size, bounds.min_checkpoint_size, bounds.max_checkpoint_size)
    if min(sizes) < 0:
        raise _bad(udf, "needs sizes of 0 (not asked) or more rows", "checkpoint")
    if 0 < bounds.max_checkpoint_size < bounds.min_checkpoint_size:
        raise _bad(udf, "has a min_checkpoint_size above its max_checkpoint_size", "checkpoint")
    if len(udf.source.encode()) > MAX_SOURCE:
        raise _bad(udf, f"has a source of more than {MAX_SOURCE:,} bytes: send its beginning, or none", "source")


def _check_policy(udf: UdfDefinition) -> None:
    """Refuse an invalid error policy here for clients other than the SDK. A worker would find the error too late."""
    policy = udf.error_policy
    if policy.max_errors < 0 or not 0 <= policy.max_error_fraction <= 1:
        raise _bad(udf, "needs max_errors of 0 (no bound) or more, and a fraction from 0 to 1", "error_policy")
    for rule in policy.rules:
        try:
            re.compile(rule.message_pattern)
        except re.error as error:
            what = f"has a rule whose pattern {rule.message_pattern!r} is not a valid regular expression: {error}"
            raise _bad(udf, what, "error_policy.rules.message_pattern") from None
        if rule.action is not ErrorAction.RETRY:
            if rule != ErrorRule(rule.action, rule.exception_types, rule.message_pattern):
                what = "has a rule with max_attempts or a backoff that does not retry: leave them out"
                raise _bad(udf, what, "error_policy.rules")
            continue
        if rule.max_attempts < 2 or not 0 <= rule.initial_backoff_seconds <= rule.max_backoff_seconds < math.inf:
            what = "needs max_attempts of 2 or more, and an initial_backoff of at most max_backoff, to retry"
            raise _bad(udf, what, "error_policy.rules")


def _check_resources(udf: UdfDefinition) -> None:
    wanted = udf.resources
    if wanted.num_cpus < 0 or wanted.memory_bytes < 0:
        raise _bad(udf, "cannot ask for a negative amount", "resources")
    gpus = wanted.num_gpus
    if not (math.isfinite(gpus) and (0 <= gpus <= _SHARED_GPU or (gpus > 0 and gpus == int(gpus)))):
        raise _bad(
            udf, "needs a whole number of GPUs, or a fraction of at most 0.5 of one to share", "resources.num_gpus"
        )


def _check_sql(udf: UdfDefinition) -> None:
    if udf.kind is not UdfKind.SQL or not udf.sql_expression or udf.bundle_sha256 or udf.entrypoint:
        raise _bad(udf, "must have an expression if its kind is SQL, and none otherwise", "sql_expression")
    options = udf.stateful or udf.batch_size or udf.input_types or udf.blob or udf.resources != Resources()
    if options:
        raise _bad(udf, "is SQL: it has no state, batch size, input types or resources", "kind")
    expressions.check_expression(udf.sql_expression, udf.input_columns)
    named = expressions.names_in_expression(udf.sql_expression, udf.input_columns)
    if not named:
        raise _bad(udf, "reads no column: every row would get the same value", "sql_expression")
    read = expressions.columns_of_expression(udf.sql_expression, udf.input_columns)
    if not read or set(read) != set(udf.input_columns):
        raise bad_inputs(udf, named)


def bad_inputs(udf: UdfDefinition, named: Sequence[str]) -> InvalidArgument:
    """Return the error of a SQL function whose inputs are not the columns that its expression names."""
    what = f"must name exactly the columns that its expression reads: {list(named)}, not {list(udf.input_columns)}"
    return _bad(udf, what, "input_columns")


def _check_remote(udf: UdfDefinition) -> None:
    if udf.kind is not UdfKind.REMOTE or udf.remote is None or udf.bundle_sha256 or udf.entrypoint:
        raise _bad(udf, "must have a server address if its kind is remote, and none otherwise", "remote_function")
    if udf.stateful or udf.blob:
        raise _bad(udf, "is remote: whether it has a state is its server's business, and it gives no blobs", "kind")
    if len(udf.input_types) != len(udf.input_columns) or None in udf.input_types:
        raise _bad(udf, "is remote: it declares the types of all its inputs", "input_schema")
    check_remote(udf.remote)


def _bad(udf: UdfDefinition, what: str, field: str) -> InvalidArgument:
    return InvalidArgument("BAD_UDF", f"Function {udf.name}@{udf.version} {what}", field=f"definition.{field}")


PICKLED, ENTRYPOINT = "pickled", "entrypoint"
_ANY = re.escape("*")
_EVERYTHING = (*(kind.value for kind in UdfKind), PICKLED, ENTRYPOINT)


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """The policy of the settings (`LEMAN_UDF__…`); by default it allows everything but remote servers."""

    #: Values of `UdfKind`, and `PICKLED` and `ENTRYPOINT`.
    kinds: tuple[str, ...] = _EVERYTHING
    #: Patterns of entrypoints; empty: all.
    entrypoints: tuple[str, ...] = ()
    #: The largest accepted bundle; 0: any.
    max_bundle_bytes: int = 0
    #: Patterns of addresses of function servers; empty: those of this machine.
    remote_addresses: tuple[str, ...] = ()
    #: Patterns of the environment variables that jobs may have; empty: all.
    env_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, allowed: Udf) -> FunctionPolicy:
        """Return the policy of the settings."""
        return cls(
            allowed.allow,
            allowed.entrypoints,
            allowed.max_bundle_mb << 20,
            allowed.remote_addresses,
            allowed.env_names,
        )

    def check_pickled(self) -> None:
        """Refuse pickled code of any function.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        if PICKLED not in self.kinds:
            raise PermissionDenied(
                "UDF_NOT_ALLOWED",
                "These services run no pickled functions (LEMAN_UDF__ALLOW): use an entrypoint or SQL, or ask "
                "the operator",
                setting="LEMAN_UDF__ALLOW",
            )

    def check(self, udf: UdfDefinition) -> None:
        """Refuse a function that the policy does not allow, for any caller.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        function, needed = FunctionVersion(udf.name, udf.version), [udf.kind.value]
        if udf.kind not in (UdfKind.SQL, UdfKind.REMOTE):
            needed.append(ENTRYPOINT if udf.entrypoint else PICKLED)
        missing = [kind for kind in needed if kind not in self.kinds]
        if missing:
            raise _refused(function, f"functions of the kind '{missing[0]}'", "LEMAN_UDF__ALLOW")
        if udf.entrypoint and self.entrypoints and not self.lists(udf.entrypoint):
            raise _refused(function, f"the entrypoint '{udf.entrypoint}'", "LEMAN_UDF__ENTRYPOINTS")
        if udf.remote is not None:
            self.check_remote(udf.remote, udf.version)

    def lists(self, entrypoint: str) -> bool:
        """Return whether a pattern covers the entrypoint.

        `*` stands for any module, or for any public name in a module. It covers neither `_x` nor `x.y`, because
        attributes of a module's contents lead to everything (`module:__loader__.get_data`).
        """
        return any(_matcher(pattern).fullmatch(entrypoint) for pattern in self.entrypoints)

    def check_remote(self, remote: RemoteFunction, version: str = "") -> None:
        """Refuse a remote function that the policy does not allow, before its servers are called.

        Raises:
            PermissionDenied: UDF_NOT_ALLOWED.
        """
        name = FunctionVersion(remote.function, version)
        if UdfKind.REMOTE.value not in self.kinds:
            raise _refused(name, "functions of the kind 'remote'", "LEMAN_UDF__ALLOW")
        for address in remote.addresses:
            if not (self.lists_address(address) if self.remote_addresses else parse_address(address).loopback):
                raise _refused(name, f"what is served at '{address}'", "LEMAN_UDF__REMOTE_ADDRESSES")

    def check_env(self, names: Iterable[str]) -> None:
        """Refuse environment variables that no pattern covers.

        Raises:
            PermissionDenied: ENV_NOT_ALLOWED.
        """
        for name in names if self.env_names else ():
            if not any(fnmatchcase(name, pattern) for pattern in self.env_names):
                raise PermissionDenied(
                    "ENV_NOT_ALLOWED",
                    f"The policy of these services does not allow the environment variable {name} for functions "
                    f"(LEMAN_UDF__ENV_NAMES allows {', '.join(self.env_names)}): use another one, or ask the operator",
                    setting="LEMAN_UDF__ENV_NAMES",
                )

    def lists_address(self, address: str) -> bool:
        """Return whether a pattern covers the address."""
        return matches_any(parse_address(address), map(parse_pattern, self.remote_addresses))


@functools.cache
def _matcher(pattern: str) -> re.Pattern[str]:
    module, _, name = pattern.partition(":")
    modules, names = re.escape(module).replace(_ANY, r"[\w.]*"), re.escape(name).replace(_ANY, r"\w*")
    return re.compile(f"{modules}:{'(?!_)' if name.startswith('*') else ''}{names}")


def _refused(function: FunctionVersion, what: str, setting: str) -> PermissionDenied:
    return PermissionDenied(
        "UDF_NOT_ALLOWED",
        f"Function {function}: these services do not run {what} ({setting}): use another one, or ask the operator",
        udf=function.name,
        version=function.version,
        setting=setting,
    )


#: The policy that refuses nothing.
ALL_FUNCTIONS = FunctionPolicy(remote_addresses=("grpc://*:*", "grpc+tls://*:*"))
