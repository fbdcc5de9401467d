"""What to do with rows for which a function raises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from leman.errors import UdfDefinitionError
from leman.v1 import udf_pb2

ExceptionTypes = type[BaseException] | str | Sequence[type[BaseException] | str]
"""An exception class, its name (`ValueError`, `package.module.Error`), or several of them."""


@dataclass(frozen=True)
class _Rule:
    exceptions: ExceptionTypes = ()
    match: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _names(self.exceptions)
        try:
            re.compile(self.match)
        except (re.error, TypeError) as error:
            raise UdfDefinitionError(f"match={self.match!r} is not a regular expression: {error}") from None

    def _proto(self, action: str) -> udf_pb2.ErrorRule:
        return udf_pb2.ErrorRule(
            action=udf_pb2.ErrorRule.Action.Value(f"ACTION_{action}"),
            exception_types=_names(self.exceptions),
            message_pattern=self.match,
        )


@dataclass(frozen=True)
class Skip(_Rule):
    """Leave the row NULL, record it as failed, and continue. The job then ends as DONE_WITH_ERRORS.

    `exceptions`: classes or names of exceptions to which the rule applies, with their subclasses; empty: all. `match`:
    a regular expression that is searched for in the message; empty: any message.
    """

    def proto(self) -> udf_pb2.ErrorRule:
        return self._proto("SKIP")


@dataclass(frozen=True)
class Fail(_Rule):
    """End the job as FAILED, as if no rule matched. Arguments as in `Skip`."""

    def proto(self) -> udf_pb2.ErrorRule:
        return self._proto("FAIL")


@dataclass(frozen=True)
class Retry(_Rule):
    """Call the function again after a pause that doubles each time. After the last, the next matching rule applies.

    Arguments as in `Skip`, and: `max_attempts`, which counts the first call. The first pause is
    `initial_backoff_seconds`, and no pause exceeds `max_backoff_seconds`.
    """

    max_attempts: int = field(default=3, kw_only=True)
    initial_backoff_seconds: float = field(default=0.5, kw_only=True)
    max_backoff_seconds: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        attempts: Any = self.max_attempts
        if isinstance(attempts, bool) or not isinstance(attempts, int) or not 2 <= attempts < 1 << 31:
            raise UdfDefinitionError("Retry: max_attempts counts the first call, so it must be 2 or more")
        pauses: tuple[Any, Any] = (self.initial_backoff_seconds, self.max_backoff_seconds)
        numbers = all(isinstance(pause, int | float) for pause in pauses)
        if not numbers or not 0 <= pauses[0] <= pauses[1] < math.inf:
            raise UdfDefinitionError("Retry: the pauses are 0 <= initial_backoff_seconds <= max_backoff_seconds")

    def proto(self) -> udf_pb2.ErrorRule:
        rule = self._proto("RETRY")
        rule.max_attempts = self.max_attempts
        rule.initial_backoff.FromMicroseconds(round(self.initial_backoff_seconds * 1e6))
        rule.max_backoff.FromMicroseconds(round(self.max_backoff_seconds * 1e6))
        return rule


@dataclass(frozen=True)
class ErrorHandlingConfig:
    """What to do with rows for which a function raises.

    `on_error`: rules, of which the first that matches the exception applies; if none matches, the job fails.
    `store_errors`: store failed rows with exception, message and traceback, for `Table.get_errors`. The row that ends a
    job and the places of failed rows, for `Table.get_failed_row_addresses`, are always stored. `max_errors`: the job
    fails if more rows fail: a count (int) or a fraction of the rows (float, 0 to 1); None: no limit.
    """

    store_errors: bool = True
    on_error: tuple[Retry | Skip | Fail, ...] | list[Retry | Skip | Fail] = ()
    max_errors: int | float | None = None

    def __post_init__(self) -> None:
        given: Any = self.on_error
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UdfDefinitionError(f"on_error takes a list of Retry, Skip and Fail, not {given!r}")
        object.__setattr__(self, "on_error", tuple(self.on_error))
        _check_rules(self.on_error)
        _check_bound(self.max_errors)

    def proto(self) -> udf_pb2.ErrorPolicy:
        """Return the policy for the wire."""
        bound = self.max_errors
        return udf_pb2.ErrorPolicy(
            rules=[rule.proto() for rule in self.on_error],
            max_errors=bound if isinstance(bound, int) else None,
            max_error_fraction=bound if isinstance(bound, float) else None,
            store_errors=self.store_errors,
        )


def _check_rules(rules: Sequence[Any]) -> None:
    for rule in rules:
        if not isinstance(rule, Retry | Skip | Fail):
            raise UdfDefinitionError(f"on_error takes Retry, Skip and Fail, not {rule!r}")


def _check_bound(bound: Any) -> None:
    if bound is None:
        return
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        raise UdfDefinitionError(f"max_errors is a count or a fraction, not {bound!r}")
    if bound <= 0 or (isinstance(bound, float) and bound > 1):
        raise UdfDefinitionError("max_errors is a count of 1 or more, or a fraction above 0 and up to 1.0")


def _names(given: ExceptionTypes) -> tuple[str, ...]:
    """Return class names as workers match them: without the module for builtins."""
    items = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return tuple(_name(item) for item in items)


def _name(item: Any) -> str:
    if isinstance(item, str) and item:
        return item
    if isinstance(item, type) and issubclass(item, BaseException):
        module = "" if item.__module__ == "builtins" else f"{item.__module__}."
        return module + item.__qualname__
    raise UdfDefinitionError(f"an error rule takes exception classes or their names, not {item!r}")
