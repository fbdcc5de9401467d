"""Services speak to callers of any language: they name RPCs and fields, nothing of the Python SDK or its commands."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import leman
from leman_core.server.routes import internal_services, public_services

ROOT = Path(__file__).resolve().parents[3]
SERVICES = ("core", "planner", "executor", "commit_coordinator")
CLASSES = (leman.Database, leman.Table, leman.View, leman.JobFuture, leman.Databases)
#: A command, a decorator of the SDK, and its functions.
OTHERS = re.compile(r"`leman [a-z]|@leman\b|\bleman\.[a-z]+\(")
#: What the services tell their operator, on the machine where the command line is.
OPERATORS = {"core/leman_core/settings/loading.py", "executor/leman_executor/spark/worker_problems.py"}


def calls() -> set[str]:
    return {name for cls in CLASSES for name, _ in inspect.getmembers(cls, callable) if name[0] != "_"}


def methods() -> set[str]:
    """Names that only a method of the SDK has: no field of the protos, and not one word that means something itself."""
    names = {name for name in calls() if "_" in name}
    fields: set[str] = set()
    for service in {**public_services(), **internal_services()}.values():
        for method in service.methods:
            files = {method.input_type.file, method.output_type.file}
            for file in files | {dependency for known in files for dependency in known.dependencies}:
                fields |= {field.name for message in file.message_types_by_name.values() for field in message.fields}
    return names - fields


def texts(path: Path) -> list[str]:
    """The texts in a module that are not about the code itself."""
    tree = ast.parse(path.read_text())
    documents = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
    ]


def test_no_text_of_a_service_names_what_only_the_python_sdk_has():
    known = methods()
    assert {"add_columns", "alter_columns", "open_view", "create_table"} <= known
    words = re.compile(rf"\b({'|'.join(sorted(known))})\b|\b({'|'.join(sorted(calls()))})\(\)")
    found = []
    for folder in SERVICES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            for text in texts(path) if name not in OPERATORS else ():
                if " " in text and (words.search(text) or OTHERS.search(text)):
                    found.append(f"{name}: {text}")
    assert found == []
