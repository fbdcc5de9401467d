"""What the protos say about errors: in one form, and of reasons that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import grpc
import pytest

ROOT = Path(__file__).parents[4]
PROTOS = sorted((ROOT / "protos" / "leman").rglob("*.proto"))
ENTRY = re.compile(r"`([A-Z_]+)` \(([A-Z_, ]+)\)")


def entries(proto):
    """(code, reason) of every entry of a list of errors."""
    text = " ".join(line.strip().removeprefix("//").strip() for line in proto.read_text().splitlines())
    return {(code, reason) for code, reasons in ENTRY.findall(text) for reason in reasons.split(", ")}


@pytest.fixture(scope="module")
def words():
    """Every string constant of the services."""
    folders = ("core", "planner", "executor", "commit_coordinator")
    sources = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_text())))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_every_documented_code_and_reason_is_there(proto, words):
    found = entries(proto)
    assert [code for code, _ in found if code not in grpc.StatusCode.__members__] == []
    assert sorted({reason for _, reason in found} - words) == []


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_every_call_says_how_it_fails(proto):
    comment = []
    for line in map(str.strip, proto.read_text().splitlines()):
        if line.startswith("rpc "):
            assert any(part.startswith("// Errors:") for part in comment), line
        comment = [*comment, line] if line.startswith("//") else []
