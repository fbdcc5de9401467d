"""A registered function, and its stored definition: JSON with a digest over all of it. Pure.

Arrow types are stored as base64 of IPC schemas.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import json
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leman._arrow import pa
from leman._format import stored_documents
from leman._format.stored_documents import Damaged

#: The folder of functions in a database, and the ending of the file names of definitions.
FOLDER = "_leman/udfs"
ENDING = ".json"


class UdfKind(enum.Enum):
    """The argument form that a function takes."""

    SCALAR = "scalar"
    ARRAY = "array"
    RECORD_BATCH = "record_batch"
    SQL = "sql"
    REMOTE = "remote"


class ErrorAction(enum.Enum):
    """What to do with a row for which the function raises."""

    FAIL = "fail"
    SKIP = "skip"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class ErrorRule:
    action: ErrorAction
    #: Class names, which also match derived classes. An empty tuple matches every exception.
    exception_types: tuple[str, ...] = ()
    message_pattern: str = ""
    max_attempts: int = 1
    initial_backoff_seconds: float = 0.0
    max_backoff_seconds: float = 60.0

    def matches(self, names: AbstractSet[str], message: str) -> bool:
        """Return whether the rule applies to an exception.

        Args:
            names: The names of the exception's class and its bases, with and without their modules.
        """
        if self.message_pattern and not re.search(self.message_pattern, message):
            return False
        return not self.exception_types or not names.isdisjoint(self.exception_types)

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait after the given number of attempts."""
        doubled = self.initial_backoff_seconds * 2.0 ** min(attempt - 1, 1000)
        return min(doubled, self.max_backoff_seconds)


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """Rules for failed rows. The first that matches applies; if none does, the job fails. A limit of 0: no limit."""

    rules: tuple[ErrorRule, ...] = ()
    max_errors: int = 0
    max_error_fraction: float = 0.0
    store_errors: bool = True

    def errors_allowed(self, rows: int) -> int | None:
        """Return how many rows may fail in a job over `rows` rows, or None for any number."""
        bounds = [self.max_errors] if self.max_errors else []
        if self.max_error_fraction:
            bounds.append(int(self.max_error_fraction * rows))
        return min(bounds, default=None)

    def rule_for(self, names: AbstractSet[str], message: str, attempt: int) -> ErrorRule | None:
        """Return the rule for an exception with these names after that many attempts, or None: the job fails."""
        for rule in self.rules:
            if rule.action is ErrorAction.RETRY and attempt >= rule.max_attempts:
                continue
            if rule.matches(names, message):
                return rule
        return None


@dataclass(frozen=True, slots=True)
class CheckpointBounds:
    """Requested rows between checkpoints, where 0 means "not requested"."""

    checkpoint_size: int = 0
    min_checkpoint_size: int = 0
    max_checkpoint_size: int = 0

    def over(self, default: CheckpointBounds) -> CheckpointBounds:
        """Return these bounds, completed from `default`, so that the call's values override the definition's."""
        return CheckpointBounds(
            self.checkpoint_size or default.checkpoint_size,
            self.min_checkpoint_size or default.min_checkpoint_size,
            self.max_checkpoint_size or default.max_checkpoint_size,
        )

    @property
    def asked(self) -> bool:
        return self != CheckpointBounds()

    @property
    def at_least(self) -> int:
        return max(1, min(self.min_checkpoint_size or 1, self.at_most))

    @property
    def at_most(self) -> int:
        """Return the largest checkpoint in rows, or a very large number if nothing was requested."""
        asked = [n for n in (self.checkpoint_size, self.max_checkpoint_size) if n > 0]
        return min(asked) if asked else 1 << 62


@dataclass(frozen=True, slots=True)
class Resources:
    """What one call of a function needs on a worker, where 0 means "not requested"."""

    num_cpus: int = 0
    num_gpus: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemoteFunction:
    """The servers of a function that workers call instead of computing it."""

    #: Flight uris of its servers, which all serve the same function.
    addresses: tuple[str, ...]
    #: The function's name on the servers.
    function: str


@dataclass(frozen=True, slots=True)
class UdfDefinition:
    """A registered function, identified by name and version forever. `protos/leman/v1/udf.proto` has the fields."""

    name: str
    version: str
    kind: UdfKind
    input_columns: tuple[str, ...]
    output_type: pa.DataType
    input_types: tuple[pa.DataType | None, ...] = ()
    bundle_sha256: str = ""
    bundle_python: str = ""
    bundle_size: int = 0
    entrypoint: str = ""
    stateful: bool = False
    checkpoint: CheckpointBounds = CheckpointBounds()
    error_policy: ErrorPolicy = ErrorPolicy()
    batch_size: int = 0
    sql_expression: str = ""
    timeout_seconds: float = 0.0
    blob: bool = False
    resources: Resources = Resources()
    remote: RemoteFunction | None = None
    #: The source text, for people. It is not part of the identity.
    source: str = field(default="", compare=False, repr=False)


class Registered(NamedTuple):
    """A function, and when it was registered in seconds since the epoch."""

    udf: UdfDefinition
    registered_at: float

    @property
    def order(self) -> tuple[str, int, str]:
        """Return the unique sort key of functions: by name, then newest first."""
        return self.udf.name, -int(self.registered_at * 1e6), self.udf.version

    @property
    def file_name(self) -> str:
        return f"{self.udf.name}@{self.udf.version}{ENDING}"


def encode_definition(udf: UdfDefinition, registered_at: float) -> bytes:
    """Encode a definition.

    Args:
        registered_at: Seconds since the epoch. It is not part of the definition.
    """
    body = dataclasses.asdict(udf)
    body["kind"] = udf.kind.value
    body["output_type"] = _type_text(udf.output_type)
    body["input_types"] = [None if t is None else _type_text(t) for t in udf.input_types]
    for rule in body["error_policy"]["rules"]:
        rule["action"] = rule["action"].value
    if udf.remote is None:
        del body["remote"]  # so that releases without remote functions can read all other definitions
    source = body.pop("source")  # stored next to the definition, where earlier releases ignore it
    document = {"format": stored_documents.FUNCTION.current, "registered_at": registered_at, "definition": body}
    return stored_documents.seal({**document, "source": source} if source else document)


def decode_definition(data: bytes, where: str) -> Registered:
    """Decode a definition.

    Raises:
        Damaged: The bytes were changed.
        OtherFormat: Another release wrote the file `where`.
    """
    try:
        _check_unsealed(data, where)
        document = stored_documents.unseal(data)
        stored_documents.FUNCTION.check(document.get("format"), where)
        udf = _definition(document["definition"])
        udf = dataclasses.replace(udf, source=str(document.get("source", "")))
        return Registered(udf, float(document["registered_at"]))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException, OSError) as error:
        raise Damaged(str(error)) from None


def _check_unsealed(data: bytes, where: str) -> None:
    """Refuse a definition without a digest. Definitions of the first format have none; any other has lost it."""
    document = json.loads(data)
    if isinstance(document, dict) and "definition" in document and "sha256" not in document:
        stored_documents.FUNCTION.check(document.get("format"), where)


def _definition(body: dict[str, Any]) -> UdfDefinition:
    policy = body["error_policy"]
    rules = [{**rule, "action": ErrorAction(rule["action"])} for rule in policy["rules"]]
    read = {
        "kind": UdfKind(body["kind"]),
        "input_columns": tuple(body["input_columns"]),
        "output_type": _type(body["output_type"]),
        "input_types": tuple(None if t is None else _type(t) for t in body["input_types"]),
        "checkpoint": CheckpointBounds(**body["checkpoint"]),
        "resources": Resources(**body.get("resources", {})),
        "error_policy": ErrorPolicy(**{**policy, "rules": tuple(_rule(rule) for rule in rules)}),
        "remote": _remote(body["remote"]) if "remote" in body else None,
    }
    return UdfDefinition(**{**body, **read})


def _rule(body: dict[str, Any]) -> ErrorRule:
    return ErrorRule(**{**body, "exception_types": tuple(body["exception_types"])})


def _remote(body: dict[str, Any]) -> RemoteFunction:
    return RemoteFunction(**{**body, "addresses": tuple(body["addresses"])})


def _type_text(type_: pa.DataType) -> str:
    return base64.b64encode(bytes(pa.schema([pa.field("", type_)]).serialize())).decode()


def _type(text: str) -> pa.DataType:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text))).field(0).type
