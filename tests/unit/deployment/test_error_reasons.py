"""The published reasons of errors are those that the services give, each once."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

from leman.v1 import errors_pb2
from leman_core.model import service_errors

ROOT = Path(__file__).resolve().parents[3]
#: Reasons of a process that does not start, or of a command.
LOCAL = runpy.run_path(str(ROOT / "scripts/promises"))["LOCAL"]
SERVICES = ("core", "planner", "executor", "commit_coordinator", "clients/python/leman/_format")
#: What takes a reason first: the errors, and what becomes one of them.
RAISED = {name for name, value in vars(service_errors).items() if isinstance(value, type)} | {
    "JobError",
    "Rejection",
    "UnitFailure",
    "_forbidden",
}


def _trees() -> list[ast.Module]:
    return [ast.parse(path.read_text()) for folder in SERVICES for path in sorted((ROOT / folder).rglob("*.py"))]


def _is_raised(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in RAISED and str(node.args[0].value).isupper()


def test_what_is_raised_is_published_and_what_is_published_is_raised():
    trees = _trees()
    published = set(errors_pb2.ErrorReason.keys()) - {"ERROR_REASON_UNSPECIFIED"}
    raised = {node.args[0].value for tree in trees for node in ast.walk(tree) if _is_raised(node)}  # type: ignore[attr-defined]
    assert len(raised) > 100, "the search has lost its way"
    assert raised - published - LOCAL == set(), "publish them in protos/leman/v1/errors.proto"
    said = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert published - said == set(), "no service says them"
    assert LOCAL & published == set()


def test_a_reason_keeps_its_number():
    """Numbers are given in the order of publication: they have no gaps, and none is given twice."""
    assert sorted(errors_pb2.ErrorReason.values()) == list(range(len(errors_pb2.ErrorReason.keys())))
