"""A caller in any language generates all that it needs from `protos/` alone: details of errors, too."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.rpc import code_pb2, error_details_pb2, status_pb2

ROOT = Path(__file__).parents[3]
PROTOS = ROOT / "protos"


def described(tmp_path: Path) -> descriptor_pool.DescriptorPool:
    """What buf makes of `protos/`, without anything else at hand but its own google/protobuf."""
    image = tmp_path / "image.binpb"
    subprocess.run([Path(sys.executable).parent / "buf", "build", PROTOS, "-o", image], check=True, cwd=tmp_path)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(image.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def test_what_errors_carry_can_be_generated(tmp_path):
    pool = described(tmp_path)
    details = {
        f"google.rpc.{name}"
        for name in re.findall(r"error_details_pb2\.(\w+)\(", (ROOT / "core/leman_core/server/status.py").read_text())
    }
    assert {"google.rpc.ErrorInfo", "google.rpc.RetryInfo"} <= details
    for name in sorted(details | {"google.rpc.Status"}):
        known = status_pb2.DESCRIPTOR.pool.FindMessageTypeByName(name)
        assert {f.name: f.number for f in pool.FindMessageTypeByName(name).fields} == {
            f.name: f.number for f in known.fields
        }


def test_googles_protos_are_copied_as_they_are():
    theirs = {str(path): path for path in files("googleapis-common-protos") or ()}
    for module in (status_pb2, error_details_pb2, code_pb2):
        name = module.DESCRIPTOR.name
        assert (PROTOS / name).read_text() == Path(str(theirs[name].locate())).read_text(), "copy it again"
    assert len(list((PROTOS / "google").rglob("*.proto"))) == 3
