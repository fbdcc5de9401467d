"""What the cases cover: every call, and every reason that a caller can bring about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import yaml

from leman.v1 import errors_pb2
from tests.conformance.clients.case_files import FOLDER, Case

#: Reasons that clients give by themselves.
_OF_CLIENTS = {"PLAINTEXT_TOKEN"}


def called(cases: Iterable[Case]) -> set[str]:
    """Methods that a case calls by the stubs."""
    return {step.given["method"] for case in cases for step in case.steps if step.do == "rpc"}


def expected_reasons(cases: Iterable[Case]) -> set[str]:
    """Reasons that a case expects of the services; one that the proxy or the client makes up is none of theirs."""
    return {reason for case in cases for reason in _reasons(case)} - _OF_CLIENTS


def _reasons(case: Case) -> Iterator[str]:
    made_up = {step.given.get("reason") for step in case.steps if step.do == "fault"}
    for step in case.steps:
        error = step.options.get("error")
        found = error.split()[1:2] if isinstance(error, str) else [error["reason"]] if "reason" in (error or {}) else []
        yield from (reason for reason in found if reason not in made_up)


def all_reasons() -> set[str]:
    """Those of the protos."""
    return set(errors_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}


def not_provoked() -> dict[str, str]:
    """Reasons that no case expects, and why."""
    told = yaml.safe_load((FOLDER.parent / "reasons_without_cases.yaml").read_text())
    return {reason: why for why, reasons in told.items() for reason in reasons.split()}
